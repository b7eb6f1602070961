"""Images that do not belong together, as their headers tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.inputs import checks
from mhpatchcore.inputs.checks import odd_images, seen_headers
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.sources import ImageLike, gather


def photograph(seed: int, height: int = 64, width: int = 64, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def mask(height: int = 64, width: int = 64) -> np.ndarray:
    drawn = np.zeros((height, width), np.uint8)
    drawn[10:20, 15:30] = 255
    return drawn


def save(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def told(source: Path | list[ImageLike], roi: object = None, stretched: bool = True) -> list[str]:
    given = gather(source)  # type: ignore[arg-type]
    return [
        str(one) for one in odd_images(seen_headers(given.images, given.names), parse_roi(roi), stretched)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(4):
        save(tmp_path / f"{i}.png", photograph(i))
    return tmp_path


def test_nothing_is_told_of_images_that_belong_together(folder: Path) -> None:
    assert told(folder, roi=[10, 10, 64, 64]) == []


def test_masks(folder: Path) -> None:
    save(folder / "drawn.png", np.repeat(mask()[:, :, None], 3, axis=2))
    (line,) = told(folder)
    assert line.startswith("1 of 5 images has at most two values, as masks do, for example drawn.png")


def test_masks_as_arrays() -> None:
    (line,) = told([mask(), mask(), photograph(0, channels=1)])
    assert line.startswith("2 of 3 images have at most two values")


def test_photographs_are_not_decoded_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(folder / "mask.png", mask(600, 600))
    save(folder / "large.png", photograph(0, 600, 600))
    decoded: list[str] = []
    whole = checks.decoded
    monkeypatch.setattr(
        checks, "decoded", lambda source: (decoded.append(Path(source).name), whole(source))[1]
    )
    assert any("mask.png" in line for line in told(folder))
    assert decoded == ["mask.png"]


def test_gray_among_colour(folder: Path) -> None:
    save(folder / "gray.png", photograph(9, channels=1))
    (line,) = told(folder)
    assert line.startswith("1 of 5 images is gray, for example gray.png") and "all in colour" in line


def test_other_shapes(folder: Path) -> None:
    save(folder / "wide.png", photograph(9, width=100))
    (line,) = told(folder)
    assert line.startswith("1 of 5 images is of another shape") and "wide.png" in line
    assert told(folder, stretched=False) == []


def test_a_region_that_reaches_beyond_the_images(folder: Path) -> None:
    save(folder / "large.png", photograph(9, 128, 128))
    (line,) = told(folder, roi=[10, 10, 50, 100])
    assert "beyond 4 of 5 images, for example 0.png (64 × 64 pixels)" in line
    assert told(folder, roi=[0, 0, 1, 1]) == []


def test_broken_images_and_those_of_a_function_are_for_others_to_look_at(folder: Path) -> None:
    (folder / "broken.png").write_bytes(b"no picture")
    assert told(folder) == []
    given = gather(lambda: [mask(), photograph(0, channels=1)])
    assert seen_headers(given.images, given.names) == []
