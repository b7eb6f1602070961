"""Folders of images with labels. Labels come from folder names (or a CSV split), never from masks.

MVTec AD, MPDD, BTAD   train/good, test/<good or defect>, ground_truth/<defect>   (BTAD says ok for good)
VisA                   split_csv/1cls.csv beside the categories
plain                  good/ and any other folders: a fixed part of good/ trains, all the rest tests
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.images import images_below
from mhpatchcore.runtime.arrays import Mask

GOOD = ("good", "ok", "normal")
MASKS = ("ground_truth", "masks")
TRAIN_SHARE = 0.8
SEED = 0
VISA_COLUMNS = ("object", "split", "label", "image")


@dataclass(frozen=True)
class Sample:
    """A test image: its kind is the folder it lies in; `mask` is where its defect is drawn, if anywhere."""

    path: Path
    kind: str
    is_anomalous: bool
    mask: Path | None = None


@dataclass(frozen=True)
class Dataset:
    """Normal images to learn from and labelled images to test on; `problems` are masks that were not usable."""

    name: str
    train: tuple[Path, ...]
    test: tuple[Sample, ...]
    problems: tuple[str, ...] = ()

    @property
    def has_masks(self) -> bool:
        return any(sample.mask for sample in self.test)

    def statistics(self) -> dict[str, int | str]:
        """One row of the paper's table of data sets."""
        labels = "image + pixel" if self.has_masks else "image"
        anomalous = sum(sample.is_anomalous for sample in self.test)
        return {
            "dataset": self.name,
            "labels": labels,
            "train": len(self.train),
            "test": len(self.test),
            "anomalous": anomalous,
        }

    def subset(self, n: int, seed: int = SEED) -> Dataset:
        """The same test images with n training images. Subsets of one seed are nested."""
        if n > len(self.train):
            raise UserError(f"{self.name} has {len(self.train)} training images, fewer than {n}")
        order = np.random.default_rng(seed).permutation(len(self.train))
        return replace(self, train=tuple(self.train[i] for i in sorted(order[:n])))


def load_dataset(root: str | Path) -> Dataset:
    """One category: a folder in one of the layouts above."""
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"there is no data set folder {root}")
    visa_split = root.parent / "split_csv" / "1cls.csv"
    if (root / "test").is_dir():
        dataset = _mvtec_like(root)
    elif visa_split.is_file():
        dataset = _visa(root, visa_split)
    else:
        dataset = _plain(root)
    if not dataset.test:
        raise UserError(f"{root} has no test images: put them in test/good and test/<defect>")
    return dataset


def find_categories(root: str | Path) -> list[Path]:
    """The categories below a folder, or the folder itself if it is one."""
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"there is no data set folder {root}")
    if _is_category(root):
        return [root]
    split = root / "split_csv" / "1cls.csv"
    if split.is_file():
        return [root / name for name in sorted({row["object"] for row in _split_rows(split)})]
    found = sorted(folder for folder in root.iterdir() if folder.is_dir() and _is_category(folder))
    if not found:
        raise UserError(
            f"no data set in {root}: expected category folders with train/good and test/, or good/"
        )
    return found


def read_mask(path: Path, height: int, width: int) -> Mask:
    """A mask as (height, width) of bool; one of another shape is refused."""
    try:
        with Image.open(path) as image:
            mask = np.asarray(ImageOps.exif_transpose(image).convert("L")) > 0
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"cannot read mask {path}: {error}; replace or remove it") from error
    if mask.shape != (height, width):
        raise ImageError(
            f"mask {path} is {mask.shape[1]} × {mask.shape[0]}, its image {width} × {height}; replace or remove it"
        )
    return mask


def _is_category(folder: Path) -> bool:
    return (folder / "test").is_dir() or any((folder / name).is_dir() for name in GOOD)


def _mvtec_like(root: Path) -> Dataset:
    train = [path for name in GOOD for path in images_below(root / "train" / name)]
    test, problems = [], []
    for folder in sorted(path for path in (root / "test").iterdir() if path.is_dir()):
        anomalous = folder.name not in GOOD
        masks = {_mask_stem(path): path for path in images_below(root / "ground_truth" / folder.name)}
        for path in images_below(folder):
            mask = masks.pop(path.stem, None)
            if anomalous and mask is None and (root / "ground_truth").is_dir():
                problems.append(f"no mask for {path}")
            test.append(Sample(path, folder.name, anomalous, mask if anomalous else None))
        problems += [f"no image for mask {path}" for path in masks.values() if anomalous]
    return Dataset(root.name, tuple(train), tuple(test), tuple(problems))


def _visa(root: Path, split: Path) -> Dataset:
    train, test = [], []
    for row in _split_rows(split):
        if row["object"] != root.name:
            continue
        path = root.parent / row["image"]
        if row["split"] == "train":
            train.append(path)
        else:
            anomalous = row["label"] != "normal"
            mask = root.parent / row["mask"] if anomalous and row.get("mask") else None
            test.append(Sample(path, row["label"], anomalous, mask))
    return Dataset(root.name, tuple(train), tuple(test))


def _split_rows(split: Path) -> list[dict[str, str]]:
    with split.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [name for name in VISA_COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UserError(
                f"{split} has no column '{missing[0]}', as VisA's split has: correct it or move it away"
            )
        return list(reader)


def _plain(root: Path) -> Dataset:
    normals = [path for name in GOOD for path in images_below(root / name)]
    order = np.random.default_rng(SEED).permutation(len(normals))
    taken = set(order[: round(TRAIN_SHARE * len(normals))].tolist())
    test = [Sample(path, "good", False) for i, path in enumerate(normals) if i not in taken]
    for folder in sorted(
        path for path in root.iterdir() if path.is_dir() and path.name not in (*GOOD, *MASKS)
    ):
        test += [Sample(path, folder.name, True) for path in images_below(folder)]
    return Dataset(root.name, tuple(path for i, path in enumerate(normals) if i in taken), tuple(test))


def _mask_stem(path: Path) -> str:
    """MVTec calls the mask of 000.png 000_mask.png; others use the image's own name."""
    return path.stem.removesuffix("_mask")
