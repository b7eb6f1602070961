"""The pose of a part: found, undone, and the way back for maps, boxes and regions."""

from __future__ import annotations

from math import pi
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run
from PIL import Image, ImageDraw

from mhpatchcore import Config, Detector
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.pose import Pose, part_in, pose_of
from mhpatchcore.inputs.views import View, opened
from mhpatchcore.inputs.window import load_pixels, pictured

__all__ = ["graphs", "run"]  # fixtures

SMALL = Config(sizes=((96, 96),), K=200, m_c=64)
GROUND, PART = (40, 120, 60), (200, 190, 180)


def wedge(
    angle: float, y: float = 0, x: float = 0, height: int = 160, width: int = 200, speck: bool = False
) -> np.ndarray:
    """A wedge with a hole, turned by `angle` degrees and moved, on a ground with some shading."""
    scale = 4
    image = Image.new("RGB", (scale * width, scale * height), GROUND)
    draw = ImageDraw.Draw(image)
    middle = scale * width / 2, scale * height / 2

    def at(right: float, down: float) -> tuple[float, float]:
        return middle[0] + scale * right, middle[1] + scale * down

    draw.polygon([at(-50, -20), at(50, -6), at(50, 6), at(-50, 20)], fill=PART)
    draw.ellipse([*at(-40, -6), *at(-28, 6)], fill=GROUND)
    if speck:
        draw.ellipse([*at(18, -4), *at(26, 4)], fill=(60, 20, 20))
    turned = image.rotate(
        -angle, Image.Resampling.BICUBIC, translate=(scale * x, scale * y), fillcolor=GROUND
    )
    pixels = np.asarray(turned.resize((width, height), Image.Resampling.BOX), np.float64)
    shading = 6 * np.sin(np.arange(width) / 40)[None, :, None] + np.arange(height)[:, None, None] / 20
    return np.clip(pixels + shading, 0, 255).astype(np.uint8)


def pose_in(pixels: np.ndarray) -> Pose:
    return pose_of(pictured(decoded(pixels), None, ""))


def apart(one: float, other: float) -> float:
    """The difference of two angles, in degrees."""
    return abs((np.degrees(one - other) + 180) % 360 - 180)


@pytest.mark.parametrize("angle", [0, 33, 90, 135, 180, 250, 300])
def test_angle_and_place_are_found(angle: float) -> None:
    still, moved = pose_in(wedge(0)), pose_in(wedge(angle, 12, -20))
    assert apart(moved.angle, still.angle + np.radians(angle)) < 1.5
    assert moved.y == pytest.approx(80 + 12, abs=1.5) and moved.x == pytest.approx(100 - 20, abs=1.5)


def test_the_turned_image_is_the_same_for_every_pose() -> None:
    view = View(160, 200, posed=True)
    still, moved = (opened(pixels, [view]) for pixels in (wedge(0), wedge(140, 10, 15)))
    one, other = (image.pixels(view, view.geometry(160, 200)).astype(float) for image in (still, moved))
    part = part_in(one.astype(np.uint8))
    assert np.abs(one - other)[part].mean() < 10 < np.abs(one - wedge(140, 10, 15))[part].mean()


def test_a_tall_image_has_its_part_upright() -> None:
    pose = pose_in(wedge(0, height=300, width=200))
    assert min(apart(pose.angle, pi / 2), apart(pose.angle, -pi / 2)) < 1.5


def test_there_and_back() -> None:
    pose = Pose(160, 200, 70.0, 90.0, 0.7)
    points = np.random.default_rng(0).uniform(0, 150, (20, 2))
    assert np.allclose(pose.to_turned(pose.to_image(points)), points)
    assert np.allclose(pose.to_image(np.array([[80.0, 100.0]])), [[70, 90]])
    top, left, bottom, right = pose.box_in_turned(pose.box_in_image((60, 80, 90, 120)))
    assert top <= 60 and left <= 80 and bottom >= 90 and right >= 120


def test_maps_come_back_to_where_they_belong() -> None:
    pixels = wedge(70, 5, -8)
    view = View(160, 200, posed=True)
    image = opened(pixels, [view])
    pose = image.pose
    assert pose is not None
    turned = image.pixels(view, view.geometry(160, 200)).astype(np.float32).mean(axis=2)
    back = pose.map_over(turned, (0, 0, 160, 200), 160, 200)
    part = part_in(pixels)
    assert back.shape == (160, 200) and np.abs(back - pixels.mean(axis=2))[part].mean() < 6
    # some rows of it, and at half the resolution, are the same map
    assert np.allclose(pose.map_over(turned, (40, 0, 60, 200), 20, 200), back[40:60], atol=0.5)
    half = pose.map_over(turned, (0, 0, 160, 200), 80, 100)
    assert np.abs(half - back.reshape(80, 2, 100, 2).mean(axis=(1, 3))).mean() < 3


def test_no_part_and_round_parts_are_not_turned() -> None:
    flat = np.full((50, 80, 3), 90, np.uint8)
    assert pose_in(flat) == Pose(50, 80, 25, 40, 0)
    disc = Image.new("L", (100, 100), 0)
    ImageDraw.Draw(disc).ellipse((20, 40, 60, 80), fill=200)
    pose = pose_in(np.asarray(disc))
    assert pose.angle == 0 and pose.y == pytest.approx(60.5, abs=1) and pose.x == pytest.approx(40.5, abs=1)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_deep_and_gray_images_are_turned_too(dtype: str) -> None:
    gray = wedge(50).mean(axis=2)
    view = View(96, 96, posed=True)
    image = opened(
        (20 * gray).astype(dtype),
        [view.__class__(96, 96, window=Config(window=[0, 6000]).window, posed=True)],
    )
    assert image.pose is not None and apart(image.pose.angle, pose_in(wedge(50)).angle) < 1


def test_a_jpeg_that_is_decoded_smaller_is_turned_alike(tmp_path: Path) -> None:
    large = Image.fromarray(wedge(120, 6, 9)).resize((1600, 1280), Image.Resampling.BICUBIC)
    large.save(tmp_path / "a.jpg", quality=95)
    view = View(64, 80, posed=True)
    small = opened(tmp_path / "a.jpg", [view])
    whole = opened(np.asarray(large), [view])
    assert small.picture.reduced > 1 and small.pose is not None and whole.pose is not None
    assert apart(small.pose.angle, whole.pose.angle) < 1 and small.pose.x == pytest.approx(
        whole.pose.x, abs=12
    )
    one, other = (image.pixels(view, view.geometry(*image.size)).astype(float) for image in (small, whole))
    assert np.abs(one - other).mean() < 5


@pytest.fixture(scope="module")
def posed() -> Detector:
    rng = np.random.default_rng(0)
    images = [wedge(rng.uniform(0, 360), *rng.uniform(-10, 10, 2)) for _ in range(12)]
    return Detector.fit(images, SMALL.with_changes(pose="moments"))


def test_a_defect_is_found_where_it_is_in_the_image(posed: Detector, tmp_path: Path) -> None:
    angle = 215.0
    result = posed.score(wedge(angle, 4, -6, speck=True))
    good = posed.score(wedge(angle, 4, -6))
    assert result.score > 1.5 * good.score and result.map.shape == (160, 200)
    radians = np.radians(angle)
    y, x = 80 + 4 + 22 * np.sin(radians), 100 - 6 + 22 * np.cos(radians)
    at = np.unravel_index(result.map.argmax(), result.map.shape)
    assert np.hypot(at[0] - y, at[1] - x) < 14
    top, left, bottom, right = posed.explain(wedge(angle, 4, -6, speck=True)).places[0].box
    assert top - 8 < y < bottom + 8 and left - 8 < x < right + 8
    posed.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    assert (
        loaded.config.pose == "moments"
        and loaded.score(wedge(angle, 4, -6, speck=True)).score == result.score
    )


def test_a_region_is_that_of_the_part(posed: Detector) -> None:
    """The thin half of the wedge, wherever it lies."""
    half = posed.with_roi([0, 0.5, 1, 1])
    result = half.score(wedge(60))
    thin = result.map[80 + round(25 * np.sin(pi / 3)), 100 + round(25 * np.cos(pi / 3))]
    thick = result.map[80 - round(35 * np.sin(pi / 3)), 100 - round(35 * np.cos(pi / 3))]
    assert sorted([thin > 0, thick > 0]) == [False, True]


def test_models_live_on(posed: Detector) -> None:
    more = [wedge(angle, 3, 3) for angle in (10, 130, 260)]
    grown = posed.updated(more)
    assert grown.config.pose == "moments" and grown.model.n_learnt == 15
    assert isinstance(grown.score(more[0]).score, float)


@pytest.mark.parametrize("other", [{"sizes": "tile:64"}, {"resize": 256, "sizes": 224}])
def test_parts_of_a_part_have_no_pose(other: dict[str, object]) -> None:
    with pytest.raises(UserError, match="seen as a whole"):
        Config(pose="moments").with_changes(**other)


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    for i in range(4):
        Image.fromarray(wedge(77 * i, i, -i)).save(tmp_path / f"{i}.png")
    small = ("--size", 96, "-K", 100, "--local-rows", 32)
    model, report = tmp_path / "out" / "part.mhpc", tmp_path / "out" / "fit.html"
    ran = run("fit", tmp_path, "-o", model, *small, "--pose", "moments", "--report", report)
    assert ran.code == 0 and report.is_file()
    scored = run(
        "score",
        model,
        tmp_path / "1.png",
        "--heatmaps",
        tmp_path / "out" / "maps",
        "--explain",
        tmp_path / "out",
    )
    assert scored.code in (0, 1), scored.err
    looked = run(
        "look",
        tmp_path,
        *small,
        "--pose",
        "moments",
        "--roi",
        "0,0,1,0.6",
        "--report",
        tmp_path / "look.html",
    )
    assert looked.code == 0 and 'class="outline predicted"' in (tmp_path / "look.html").read_text()
    assert_one_line_error(run("fit", tmp_path, "-o", model, "--pose", "upright"), 2, "pose", "moments")


def test_the_image_itself_is_drawn(posed: Detector) -> None:
    """Pictures show the image as it was given."""
    from mhpatchcore.report.drawing import panels

    pixels = wedge(100)
    assert np.array_equal(panels(pixels, posed.score(pixels))[:, :200], load_pixels(pixels))
