"""Evidence: the nearest normal patches of the worst places, where they are, and what carries the distance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from small_detector import PIXELS, small_detector, with_changes, with_threshold

from mhpatchcore import Detector, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.sources import content_hash
from mhpatchcore.inspection.evidence import NEAREST, _layer_shares, patch_box
from mhpatchcore.model.history import event
from mhpatchcore.report.evidence import evidence_figure
from mhpatchcore.report.figures import figure_bytes

__all__ = ["graphs", "run"]  # fixtures

SPOT = (slice(34, 44), slice(20, 30))


def spoiled(seed: int = 50) -> np.ndarray:
    picture = vial_image(seed, pixels=PIXELS)[0].copy()
    picture[SPOT] = np.random.default_rng(0).integers(0, 256, (10, 10, 3))
    return picture


@pytest.fixture(scope="module")
def normals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images that the small detector has learnt from, under the names it then has for them."""
    return write_vials(tmp_path_factory.mktemp("normals"), 8)


@pytest.fixture(scope="module")
def detector(normals: Path) -> Detector:
    """Whose training images have names and contents of files."""
    hashes = tuple(content_hash(normals / f"{i:03d}.png") for i in range(8))
    named = with_changes(small_detector(), images=tuple(f"{i:03d}.png" for i in range(8)), hashes=hashes)
    return with_threshold(named, named.threshold)


def test_the_worst_place_is_where_the_defect_is(detector: Detector) -> None:
    (place, *_) = detector.explain(spoiled()).places
    top, left, bottom, right = place.box
    assert top < SPOT[0].stop and bottom > SPOT[0].start and left < SPOT[1].stop and right > SPOT[1].start
    assert place.region is not None and place.score == pytest.approx(
        detector.score(spoiled()).views[0].distances.max(), rel=1e-5
    )


def test_nearest_patches_are_the_nearest_bank_rows_of_different_images(detector: Detector) -> None:
    picture = spoiled()
    place = detector.explain(picture).places[0]
    a, (scale,) = detector.score(picture).views[0].distances, detector.scales
    row, column = np.unravel_index(a.argmax(), a.shape)
    u = scale.backbone.descriptors(load_views(picture, detector.config.views)[0][0])[row, column]
    distances = ((scale.whitening(scale.raw) - scale.whitening(u[None])) ** 2).sum(axis=1)
    image, _, *cell = scale.origin[distances.argmin()].tolist()
    first = place.nearest[0]
    assert first.distance == pytest.approx(distances.min(), rel=1e-4)
    assert first.image == detector.model.images[image]
    assert first.view_box == patch_box(scale.backbone.info, *cell)
    assert len({patch.image for patch in place.nearest}) == NEAREST
    assert [p.distance for p in place.nearest] == sorted(p.distance for p in place.nearest)


def test_shares_add_up(detector: Detector) -> None:
    place = detector.explain(spoiled()).places[0]
    assert [one.layer for one in place.layers] == list(detector.scales[0].backbone.info.layers)
    assert [one.stride for one in place.layers] == [8, 16]
    assert sum(one.share for one in place.layers) == pytest.approx(1)
    shares = [one.share for one in place.directions]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
    assert all(0 <= one.direction < detector.scales[0].whitening.k for one in place.directions)


def test_a_layer_that_does_not_differ_carries_nothing(detector: Detector) -> None:
    (scale,) = detector.scales
    difference = np.zeros(scale.backbone.info.dim)
    assert [one.share for one in _layer_shares(scale, difference)] == [0, 0]
    difference[:40] = np.random.default_rng(0).normal(size=40)  # block4 has 40 channels
    assert [one.share for one in _layer_shares(scale, difference)] == pytest.approx([1, 0])
    difference[:40], difference[-1] = 0, 3
    assert [one.share for one in _layer_shares(scale, difference)] == pytest.approx([0, 1])


def test_a_calm_image_is_explained_at_its_worst_patch(detector: Detector) -> None:
    calm = with_threshold(detector, 1e9)
    (place,) = calm.explain(vial_image(51, pixels=PIXELS)[0]).places
    assert place.region is None and len(place.nearest) == NEAREST


def test_training_images_are_found_where_they_are_now(detector: Detector, normals: Path) -> None:
    found = detector.explain(spoiled(), normals=normals).places[0].nearest[0]
    assert (
        found.file == str(normals / str(found.image)) and found.box is not None and found.view_box is not None
    )
    # vials of 64 pixels in a view of 96
    assert np.allclose(np.array(found.box) * 96 / PIXELS, found.view_box, atol=1)
    assert detector.explain(spoiled()).places[0].nearest[0].file is None
    at_home = with_changes(detector, history=(event("fit", str(normals), 8, 8, 0.01),))
    assert at_home.explain(spoiled()).places[0].nearest[0] == found
    # an update calls an image by its folder as well, where the name alone was taken
    renamed = with_changes(at_home, images=tuple(f"{normals.name}/{name}" for name in detector.model.images))
    assert renamed.explain(spoiled()).places[0].nearest[0].file == found.file


def test_another_image_of_the_same_name_is_not_shown(
    detector: Detector, normals: Path, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for i in range(8):
        Image.fromarray(vial_image(70 + i, pixels=PIXELS)[0]).save(others / f"{i:03d}.png")
    assert all(patch.file is None for patch in detector.explain(spoiled(), others).places[0].nearest)
    for patch in detector.explain(spoiled(), [others, normals]).places[0].nearest:
        assert patch.file == str(normals / str(patch.image))


def test_a_result_can_be_explained_if_it_knows_its_image(detector: Detector, tmp_path: Path) -> None:
    Image.fromarray(spoiled()).save(tmp_path / "bad.png")
    result = detector.score(tmp_path / "bad.png")
    assert detector.explain(result) == detector.explain(tmp_path / "bad.png")
    with pytest.raises(UserError, match="the array itself"):
        detector.explain(detector.score(spoiled()))


def test_every_scale_can_have_the_worst_patch() -> None:
    detector = small_detector(sizes="64,96")
    places = detector.explain(spoiled()).places
    result = detector.score(spoiled())
    peaks = [float(view.distances.max()) for view in result.views]
    assert places[0].scale == int(np.argmax(peaks)) and places[0].score == pytest.approx(max(peaks), rel=1e-5)
    for place in places:
        top, left, bottom, right = place.box
        assert 0 <= top < bottom <= PIXELS and 0 <= left < right <= PIXELS
        assert len(place.nearest) == NEAREST and place.nearest[0].distance == pytest.approx(
            place.score, rel=0.01
        )


def test_centroids_have_no_place(detector: Detector) -> None:
    (scale,) = detector.scales
    averaged = with_changes(detector, scales=(replace(scale, origin=np.full_like(scale.origin, -1)),))
    evidence = averaged.explain(spoiled())
    assert [(p.image, p.view_box) for p in evidence.places[0].nearest] == [(None, None)] * NEAREST
    figure = evidence_figure(spoiled(), evidence)
    assert sum("an average of" in text for text in _texts(figure)) == NEAREST * len(evidence.places)


def test_the_picture_names_what_it_shows(detector: Detector, normals: Path) -> None:
    picture = spoiled()
    for folders, said in (((), "image not found:"), ((normals,), "distance")):
        evidence = detector.explain(picture, normals=folders)
        texts = _texts(evidence_figure(picture, evidence))
        assert any(said in text for text in texts)
        assert any(str(evidence.places[0].nearest[0].image) in text for text in texts)


def test_any_name_can_be_drawn(detector: Detector) -> None:
    strange = with_changes(detector, images=("two\nlines $x^$ \udcff.png",) * 8)
    evidence = strange.explain(spoiled())
    assert figure_bytes(evidence_figure(spoiled(), evidence), "png")


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


def test_score_explains_anomalous_images(run: Run, detector: Detector, normals: Path, tmp_path: Path) -> None:
    model, new = tmp_path / "part.mhpc", tmp_path / "new"
    calm, bad = (detector.score(picture).score for picture in (vial_image(51, pixels=PIXELS)[0], spoiled()))
    with_threshold(detector, (calm + bad) / 2).save(model)
    write_vials(new, 1, first=51)
    Image.fromarray(spoiled()).save(new / "bad.png")
    ran = run("score", model, new, "--explain", tmp_path / "why", "--normals", normals, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert files_below(tmp_path / "why") == ["bad.png"]
    good, spoilt = json.loads(ran.out)
    assert "evidence" not in good and spoilt["evidence"]["picture"] == str(tmp_path / "why" / "bad.png")
    patch = spoilt["evidence"]["places"][0]["nearest"][0]
    assert patch["file"] == str(normals / patch["image"])
    ran = run("score", model, new, "--explain", tmp_path / "all", "--explain-all")
    assert files_below(tmp_path / "all") == ["051.png", "bad.png"]
    assert ran.err.startswith("warning: ") and "--normals" in ran.err and ran.err.count("\n") == 1


def test_places_that_cannot_be(run: Run, detector: Detector, tmp_path: Path) -> None:
    detector.save(tmp_path / "part.mhpc")
    new = write_vials(tmp_path / "new", 1)
    both = ("--explain", tmp_path / "out", "--heatmaps", tmp_path / "out")
    assert_one_line_error(run("score", tmp_path / "part.mhpc", new, *both), 2, "given twice")
    ran = run("score", tmp_path / "part.mhpc", new, "--explain", new)
    assert_one_line_error(ran, 2, "among the images", "--explain")
    ran = run(
        "score", tmp_path / "part.mhpc", new, "--explain", tmp_path / "out", "--normals", tmp_path / "no"
    )
    assert_one_line_error(ran, 2, "--normals", "no folder")
