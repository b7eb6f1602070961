"""A look before the fit: what it finds, and what it suggests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import PIXELS

from mhpatchcore import Config
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.checks import Suggestion
from mhpatchcore.inputs.places import stacked
from mhpatchcore.inputs.sources import gather
from mhpatchcore.inspection.look import Look, look, suggestions


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def noise(seed: int, height: int = 64, width: int = 64) -> np.ndarray:
    """Blocks of gray: pictures that differ as a whole, not only in detail."""
    blocks = np.random.default_rng(seed).integers(0, 255, (8, 8)).astype(np.uint8)
    return np.asarray(Image.fromarray(blocks).resize((width, height), Image.Resampling.BICUBIC))


def look_at(folder: Path, **changes: object) -> Look:
    return look(gather(folder), Config().with_changes(**changes))


def suggested(found: Look, word: str) -> Suggestion | None:
    return next((one for one in suggestions(found) if word in f"{one.what} {one.why}"), None)


def test_facts_of_a_mixed_folder(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", vial_image(i, pixels=PIXELS)[0])
    save(tmp_path / "gray.jpg", noise(7, 64, 96))
    again = np.clip(vial_image(1, pixels=PIXELS)[0].astype(int) + 1, 0, 255).astype(np.uint8)
    save(tmp_path / "saved_again.png", again)
    (tmp_path / "text.png").write_text("no image")
    found = look_at(tmp_path)
    assert [image.name for image in found.images] == [
        "0.png",
        "1.png",
        "2.png",
        "gray.jpg",
        "saved_again.png",
    ]
    assert found.sizes == {(PIXELS, PIXELS): 4, (64, 96): 1}
    assert found.kinds == {"PNG RGB, 8-bit": 4, "JPEG L, 8-bit": 1}
    assert found.duplicates == (("1.png", "saved_again.png"),) and found.distinct == 4
    assert list(found.broken) == ["text.png"] and "text.png" in found.broken["text.png"]
    assert found.counts.sum() > 4 * PIXELS**2 / 2 and found.edges[-1] <= 255
    refused, copies = suggested(found, "refused"), suggested(found, "copies")
    assert refused is not None and refused.options == "--skip-broken" and "text.png" in refused.why
    assert copies is not None and "1.png and saved_again.png" in copies.why
    other = suggested(found, "another shape")
    assert other is not None and "gray.jpg" in other.why
    mixed = suggested(found, "all gray, or all in colour")
    assert mixed is not None and "1 of 5 images is gray, for example gray.jpg" in mixed.why
    told = found.to_json()
    assert told["sizes"] == {f"{PIXELS} × {PIXELS}": 4, "96 × 64": 1} and told["views"] == ["224", "448/2"]


def test_workers_change_nothing(tmp_path: Path) -> None:
    for i in range(5):
        save(tmp_path / f"{i}.png", noise(i))
    one, other = (look(gather(tmp_path), Config(), workers) for workers in (1, 3))
    assert one.to_json() == other.to_json()


def test_nothing_but_broken_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ImageError, match=r"a\.png"):
        look_at(tmp_path)


def test_few_images_leave_much_open(tmp_path: Path) -> None:
    for i in range(9):
        save(tmp_path / f"{i}.png", noise(i))
    few = suggested(look_at(tmp_path), "leave much open")
    assert few is not None and "9 images" in few.why and few.options == "--false-alarm 5%"
    assert suggested(look_at(tmp_path, calibration="none"), "leave much open") is None
    for i in range(1, 9):
        (tmp_path / f"{i}.png").unlink()
    assert suggested(look_at(tmp_path), "one image alone") is not None


def test_twelve_bits_in_sixteen(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", (500 + 12 * noise(i).astype(np.uint16)).astype(np.uint16))
    found = look_at(tmp_path)
    window = suggested(found, "12 of 16 bits")
    assert window is not None and window.options == f"--window {found.config.window}"
    save(tmp_path / "8bit.png", noise(9))
    odd = look_at(tmp_path)
    assert list(odd.broken) == ["8bit.png"] and "8-bit" in odd.broken["8bit.png"]


def test_elongated_images_keep_their_shape(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", noise(i, 120, 300))
    kept = suggested(look_at(tmp_path), "shape of the images")
    assert kept is not None and "352 × 128" in kept.why and kept.options == ""
    stretched = suggested(look_at(tmp_path, aspect="stretch"), "squeeze")
    assert stretched is not None and stretched.options == "--aspect keep"
    cropped = suggested(look_at(tmp_path, sizes=64, resize=64), "crop")
    assert cropped is not None and "60%" in cropped.why


def test_very_long_images_are_squeezed(tmp_path: Path) -> None:
    save(tmp_path / "0.png", noise(0, 100, 500))
    found = suggested(look_at(tmp_path), "squeezed")
    assert found is not None and found.options == "--size tile:512"


def test_large_images_want_tiles_and_small_ones_small_views(tmp_path: Path) -> None:
    save(tmp_path / "0.png", noise(0, 2000, 2000))
    found = look_at(tmp_path)
    tiles = suggested(found, "tiles")
    assert tiles is not None and tiles.options == "--size tile:512 -K 20000" and "25 tiles" in tiles.why
    many = suggested(look_at(tmp_path, K=50_000), "tiles")
    assert many is not None and many.options == "--size tile:512 -K 50000"
    assert suggested(look_at(tmp_path, sizes="448/2,tile:512"), "See small defects") is None
    assert look_at(tmp_path, sizes="tile:512").images[0].views == (25,)
    save(tmp_path / "0.png", noise(0, 100, 100))
    small = suggested(look_at(tmp_path), "smaller views")
    assert small is not None and small.options == "--size 224"


def test_folders_that_should_not_be_learnt_from_are_named(tmp_path: Path) -> None:
    save(tmp_path / "good" / "0.png", noise(0))
    save(tmp_path / "scratches" / "0.png", noise(1))
    save(tmp_path / "scratches" / "1.png", noise(2))
    named = suggested(look_at(tmp_path), "good parts alone")
    assert named is not None and "scratches" in named.why and "--all-good" in named.why


def test_frames_of_the_same_parts_are_a_stack(tmp_path: Path) -> None:
    for camera in (0, 1):
        for i in range(2):
            save(tmp_path / f"cam{camera}" / f"{i}.png", noise(10 * camera + i))
    found = suggested(look_at(tmp_path), "frames of the same parts")
    assert found is not None and found.options == "--stack cam0 cam1"
    stacks = look(gather(stacked(tmp_path / "cam0", tmp_path / "cam1")), Config())
    assert stacks.kinds == {"PNG L, 8-bit, stack of 2 frames": 2}
    assert suggested(stacks, "frames of the same parts") is None


def test_a_region_that_leaves_nothing_is_found(tmp_path: Path) -> None:
    save(tmp_path / "0.png", noise(0))
    save(tmp_path / "1.png", noise(1, 200, 200))
    found = look_at(tmp_path, roi=[100, 100, 190, 190])
    assert [image.name for image in found.images] == ["1.png"]
    assert list(found.broken) == ["0.png"] and "region of interest" in found.broken["0.png"]


def test_arrays_are_looked_at_too() -> None:
    found = look(gather([noise(0), noise(1)]), Config(sizes=((64, 64),)))
    assert found.kinds == {"array, 8-bit": 2} and [image.name for image in found.images] == [
        "array 0",
        "array 1",
    ]
