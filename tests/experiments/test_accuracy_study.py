"""The accuracy study: a defective image is found by what is on its defect, whatever else is odd about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mhpatchcore.config import Config
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.scoring.rules import PatchScores

study, descriptors, judging = (
    pytest.importorskip(f"benchmarks.accuracy.{name}") for name in ("__main__", "descriptors", "judging")
)
GRID, PIXELS = (8, 8), 64


@pytest.fixture
def data(tmp_path: Path) -> Any:
    """A good and a defective image; the defect is drawn on the cell in row 2, column 5."""
    mask = np.zeros((PIXELS, PIXELS), np.uint8)
    mask[16:24, 40:48] = 255
    plain = np.zeros((PIXELS, PIXELS, 3), np.uint8)
    places = {
        "train/good/0": plain,
        "test/good/0": plain,
        "test/hole/0": plain,
        "ground_truth/hole/0_mask": mask,
    }
    for name, pixels in places.items():
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return descriptors.Descriptors(load_dataset(tmp_path), GRID, (), (), (), "", False)


def peaked(cell: tuple[int, int], height: float) -> PatchScores:
    a = np.ones(GRID, np.float32)
    a[cell] = height
    return PatchScores(a, a, height, height)


@pytest.mark.parametrize(
    ("cell", "found"), [((2, 5), 1.0), ((3, 6), 1.0), ((6, 1), 0.0)], ids=["on it", "beside it", "elsewhere"]
)
def test_only_the_defect_counts(data: Any, cell: tuple[int, int], found: float) -> None:
    scored = [peaked((0, 0), 2.0), peaked(cell, 9.0)]
    assert judging.by_masks(data, scored, Config(size=PIXELS, sigma=1.0))[2] == found


def test_the_table_has_means_over_the_categories_that_have_a_figure() -> None:
    cells = [
        ["default", "bottle", "0.9", "0.8", "0.7", "0.6", "5000", "60", "1"],
        ["default", "casting", "0.7", "nan", "nan", "nan", "5000", "60", "1"],
    ]
    assert "| 0.900 / 0.800 | 0.700 / nan | 0.8000 | 0.8000 | 0.7000 | 0.6000 |" in study.summary(cells)


def test_cells_of_another_kind_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cells.csv").write_text("variant,category,image\ndefault,bottle,0.9\n")
    monkeypatch.setattr("sys.argv", ["accuracy", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="choose another folder"):
        study.main()
