"""The demo set: same arguments, same bytes; the expected folders; masks that tell the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import binary_dilation

from mhpatchcore.demo import dataset as demo_data
from mhpatchcore.demo.dataset import DEFECTS, vial_image, write_demo_dataset
from mhpatchcore.errors import UserError

SMALL = {"train": 2, "good": 1, "per_defect": 2, "pixels": 64}


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def change(seed: int, defect: str) -> tuple[np.ndarray, np.ndarray]:
    """How much a defect changes each pixel of the same vial (H, W), and its mask (H, W)."""
    good, _ = vial_image(seed)
    bad, mask = vial_image(seed, defect)
    return np.abs(bad.astype(int) - good.astype(int)).max(axis=2), mask


@pytest.mark.parametrize("defect", [None, *DEFECTS])
def test_same_seed_same_picture(defect: str | None) -> None:
    first, second, other = vial_image(5, defect), vial_image(5, defect), vial_image(6, defect)
    assert np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("pixels", [64, 200, 256])
@pytest.mark.parametrize("defect", [None, *DEFECTS])
def test_shapes_and_masks(defect: str | None, pixels: int) -> None:
    for seed in range(4):
        image, mask = vial_image(seed, defect, pixels)
        assert image.shape == (pixels, pixels, 3) and image.dtype == np.uint8
        assert mask.shape == (pixels, pixels) and mask.dtype == bool
        assert mask.any() == (defect is not None)
        border = mask.copy()
        border[2:-2, 2:-2] = False
        assert not border.any()


@pytest.mark.parametrize("defect", ["particle", "scratch", "cap_dent"])
def test_defect_changes_the_picture_inside_its_mask_only(defect: str) -> None:
    for seed in range(10):
        changed, mask = change(seed, defect)
        assert changed[mask].max() > 12
        assert changed[~binary_dilation(mask, iterations=5)].max() <= 1


def test_low_fill_mask_lies_between_the_liquid_and_the_lowest_normal_level() -> None:
    for seed in range(10):
        changed, mask = change(seed, "low_fill")
        assert changed[mask].mean() > 8
        lowest = np.flatnonzero(mask.any(axis=1)).max()
        assert changed[lowest + 16 :].max() <= 1
        column = mask[:, mask.shape[1] // 2]
        assert np.flatnonzero(np.diff(column.astype(int))).size == 2, "one band"


def test_mean_intensity_does_not_tell_good_from_bad() -> None:
    good = np.array([vial_image(seed, pixels=64)[0].mean() for seed in range(40)])
    for defect in DEFECTS:
        bad = np.array([vial_image(1000 + seed, defect, 64)[0].mean() for seed in range(40)])
        auroc = (bad[:, None] > good[None, :]).mean()
        assert 0.25 < auroc < 0.75


def test_layout(tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "vials", **SMALL)
    expected = {"demo.json", "train/good/000.png", "train/good/001.png", "test/good/000.png"}
    for defect in DEFECTS:
        expected |= {f"test/{defect}/00{i}.png" for i in range(2)}
        expected |= {f"ground_truth/{defect}/00{i}_mask.png" for i in range(2)}
    assert set(contents(root)) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["vials"]
    with Image.open(root / "ground_truth" / "scratch" / "000_mask.png") as mask:
        assert mask.mode == "L" and set(np.unique(np.asarray(mask))) == {0, 255}
    with Image.open(root / "test" / "scratch" / "000.png") as image:
        assert image.mode == "RGB" and image.size == (64, 64)


def test_same_arguments_same_bytes_and_a_larger_set_begins_with_the_smaller(tmp_path: Path) -> None:
    first = contents(write_demo_dataset(tmp_path / "a", **SMALL))
    assert first == contents(write_demo_dataset(tmp_path / "b", **SMALL))
    larger = contents(write_demo_dataset(tmp_path / "c", **{**SMALL, "train": 3, "per_defect": 3}))
    assert all(larger[name] == data for name, data in first.items() if name.endswith(".png"))
    other = contents(write_demo_dataset(tmp_path / "d", **SMALL, seed=1))
    assert all(other[name] != data for name, data in first.items())
    pictures = [data for name, data in larger.items() if "good" in name or name.startswith("test")]
    assert len(set(pictures)) == len(pictures)


def test_a_finished_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_demo_dataset(tmp_path / "vials", **SMALL)
    before = contents(root)
    monkeypatch.setattr(demo_data, "vial_image", None)
    assert write_demo_dataset(root, **SMALL) == root
    assert contents(root) == before


def test_another_set_or_foreign_files_are_not_overwritten(tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "vials", **SMALL)
    before = contents(root)
    with pytest.raises(UserError, match=r"vials already holds something else; delete it or choose"):
        write_demo_dataset(root, **SMALL, seed=1)
    assert contents(root) == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file already holds"):
        write_demo_dataset(tmp_path / "file", **SMALL)
    with pytest.raises(UserError, match="cannot write"):
        write_demo_dataset(tmp_path / "file" / "below", **SMALL)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (write_demo_dataset(tmp_path / "empty", **SMALL) / "demo.json").is_file()


def test_a_half_written_set_never_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_on_dents(seed: int, defect: str | None, pixels: int) -> tuple[np.ndarray, np.ndarray]:
        if defect == "cap_dent":
            raise OSError(28, "No space left on device")
        return vial_image(seed, defect, pixels)

    monkeypatch.setattr(demo_data, "vial_image", fail_on_dents)
    with pytest.raises(UserError, match="No space left on device"):
        write_demo_dataset(tmp_path / "vials", **SMALL)
    assert list(tmp_path.iterdir()) == []
