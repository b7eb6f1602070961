"""Folders of images with labels. Labels come from folder names (or a CSV split), never from masks.

MVTec AD, MPDD, BTAD   train/good, test/<good or defect>, ground_truth/<defect>   (BTAD says ok for good)
VisA                   split_csv/1cls.csv beside the categories
plain                  good/ and folders of defects: a fixed part of good/ trains, all the rest tests

Below test/ every folder that is not called good holds defects: that is the layout's convention. A plain folder has no
convention, so a name there must say what it holds (`DEFECT_WORDS`), or the user does.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.pixels import gray_values
from mhpatchcore.inputs.places import images_below, stack_name
from mhpatchcore.runtime.arrays import Mask

GOOD = ("good", "ok", "normal")
MASKS = ("groundtruth", "gt", "mask", "masks")  # letters of the names of folders
# what a word in the name of a folder of defects is, or begins with
DEFECT_WORDS = ("bad", "def", "ko", "ng", "nok")
DEFECT_BEGINNINGS = (
    *("anomal", "bent", "broken", "contamin", "crack", "damag", "defect", "dent", "fail", "fault"),
    *("hole", "missing", "reject", "scrap", "scratch"),
)
NEGATIONS = {"free", "no", "non", "not", "without"}  # as in "no_defects" and "not_ok"
TRAIN_SHARE = 0.8
SEED = 0
VISA_SPLIT = Path("split_csv", "1cls.csv")
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
        facts: dict[str, int | str] = {
            "dataset": self.name,
            "labels": labels,
            "train": len(self.train),
            "test": len(self.test),
        }
        return facts | {"anomalous": sum(sample.is_anomalous for sample in self.test)}

    def subset(self, n: int, seed: int = SEED) -> Dataset:
        """The same test images with n training images. Subsets of one seed are nested."""
        if n > len(self.train):
            raise UserError(f"{self.name} has {len(self.train)} training images, fewer than {n}")
        order = np.random.default_rng(seed).permutation(len(self.train))
        return replace(self, train=tuple(self.train[i] for i in sorted(order[:n])))


@dataclass(frozen=True)
class Labels:
    """What folders hold, by their names: those that the user has named, and those whose names say it."""

    good: Collection[str] = ()
    defect: Collection[str] = ()

    def of(self, name: str) -> bool | None:
        """True for a folder of defects, False for one of good parts, None where neither the user nor the name says it.

        >>> [Labels(good=["fresh"]).of(name) for name in ("ok_front", "fresh", "NOK", "scratches_2", "new")]
        [False, False, True, True, None]
        >>> [Labels().of(name) for name in ("defect-free", "not_ok")]
        [False, True]
        """
        if name in self.good or name in self.defect:
            return name not in self.good
        words = words_of(name)
        is_negated = bool(NEGATIONS.intersection(words))
        if any(word in DEFECT_WORDS or word.startswith(DEFECT_BEGINNINGS) for word in words):
            return not is_negated
        if is_negated:
            return True if set(GOOD).intersection(words) else None
        return False if words[:1] and words[0] in GOOD else None

    def check(self, folders: Collection[str], root: Path) -> None:
        """Refuse names of folders that do not exist, and folders that are named twice."""
        unknown = [name for name in (*self.good, *self.defect) if name not in folders]
        if unknown:
            there = ", ".join(sorted(folders)) or "none"
            raise UserError(
                f"there is no folder '{unknown[0]}' in {root}; the folders of images there are: {there}"
            )
        both = sorted({*self.good, *GOOD} & {*self.defect})
        if both:
            raise UserError(
                f"'{both[0]}' cannot hold both good parts and defects: name it once, or rename it"
            )


def words_of(name: str) -> list[str]:
    """
    >>> words_of("Broken_large2")
    ['broken', 'large']
    """
    return re.findall(r"[a-z]+", name.lower())


def holds_masks(folder: str) -> bool:
    """Whether a folder of this name holds masks: pictures of where defects are.

    >>> holds_masks("ground_truth"), holds_masks("Masks"), holds_masks("face_masks")
    (True, True, False)
    """
    return "".join(words_of(folder)) in MASKS


def load_dataset(root: str | Path, labels: Labels | None = None, *, split: bool = True) -> Dataset:
    """One category: a folder in one of the layouts above. `labels` says what its folders of test images hold.

    Without `split` all images of a plain folder are test images: for a model that knows what it has learnt from.
    """
    root, labels = _folder(root), labels or Labels()
    if (root / "test").is_dir():
        dataset = _mvtec_like(root, labels)
    elif (root.parent / VISA_SPLIT).is_file():
        labels.check((), root)
        dataset = _visa(root)
    else:
        dataset = _plain(root, labels, split)
    if not dataset.test:
        raise UserError(f"{root} has no test images: put them in test/good and test/<defect>")
    return dataset


def load_stacks(roots: Sequence[Path], labels: Labels | None = None, *, split: bool = True) -> Dataset:
    """A data set of stacks: a folder for each frame, with the layout and the names of the first; masks are its own."""
    dataset = load_dataset(roots[0], labels, split=split)

    def stack(path: Path) -> Path:
        name = path.relative_to(roots[0]).as_posix()
        for root in roots:
            if not (root / name).is_file():
                raise UserError(
                    f"{root} has no frame {name}, which {roots[0]} has: add it, or remove the others"
                )
        return Path(stack_name(roots, name))

    test = tuple(replace(sample, path=stack(sample.path)) for sample in dataset.test)
    return replace(dataset, train=tuple(map(stack, dataset.train)), test=test)


def find_categories(root: str | Path) -> list[Path]:
    """The categories below a folder, or the folder itself if it is one."""
    root = _folder(root)

    def is_category(folder: Path) -> bool:
        return any((folder / name).is_dir() for name in ("test", *GOOD))

    if is_category(root):
        return [root]
    if (root / VISA_SPLIT).is_file():
        return [root / name for name in sorted({row["object"] for row in _split_rows(root)})]
    found = [folder for folder in _folders(root) if is_category(folder)]
    if not found:
        raise UserError(
            f"no data set in {root}: expected category folders with train/good and test/, or good/"
        )
    return found


def read_mask(path: Path, height: int, width: int) -> Mask:
    """A mask as (height, width) of bool; one of another shape is refused."""
    mask = gray_values(decoded(path).values) > 0
    if mask.shape != (height, width):
        raise ImageError(
            f"mask {path} is {mask.shape[1]} × {mask.shape[0]}, its image {width} × {height}; replace or remove it"
        )
    return mask


def visa_training(root: Path) -> set[str]:
    """The normal training images of a category of VisA, by their names in it; none if it is not one."""
    if not (root.parent / VISA_SPLIT).is_file():
        return set()
    return {path.relative_to(root).as_posix() for path in _visa(root).train}


def _mvtec_like(root: Path, labels: Labels) -> Dataset:
    train = [path for name in GOOD for path in images_below(root / "train" / name)]
    test, problems = [], []
    folders = _folders(root / "test")
    labels.check([folder.name for folder in folders], root / "test")
    for folder in folders:
        anomalous = labels.of(folder.name) is not False
        # MVTec calls the mask of 000.png 000_mask.png; others use the image's own name
        drawn = images_below(root / "ground_truth" / folder.name)
        masks = {path.stem.removesuffix("_mask"): path for path in drawn}
        for path in images_below(folder):
            mask = masks.pop(path.stem, None)
            if anomalous and mask is None and (root / "ground_truth").is_dir():
                problems.append(f"no mask for {path}")
            test.append(Sample(path, folder.name, anomalous, mask if anomalous else None))
        if anomalous and masks:
            left = next(iter(masks.values()))
            more = f", nor for {len(masks) - 1} more" if len(masks) > 1 else ""
            problems.append(f"no image for mask {left}{more}")
    return Dataset(root.name, tuple(train), tuple(test), tuple(problems))


def _visa(root: Path) -> Dataset:
    train, test = [], []
    for row in _split_rows(root.parent):
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


def _split_rows(root: Path) -> list[dict[str, str]]:
    with (root / VISA_SPLIT).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [name for name in VISA_COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UserError(
                f"{root / VISA_SPLIT} has no column '{missing[0]}', as VisA's split has: correct it or move it away"
            )
        return list(reader)


def _plain(root: Path, labels: Labels, split: bool) -> Dataset:
    folders = [folder for folder in _folders(root) if not holds_masks(folder.name) and images_below(folder)]
    labels.check([folder.name for folder in folders], root)
    unknown = [folder.name for folder in folders if labels.of(folder.name) is None]
    if unknown:
        raise UserError(
            f"are the parts in {root / unknown[0]} good or defective? Say so for each of these folders "
            f"({', '.join(unknown)}): give `good=NAME` or `defect=NAME`, or rename it to good or defect"
        )
    normals = [path for name in GOOD for path in images_below(root / name)]
    order = np.random.default_rng(SEED).permutation(len(normals))
    taken = set(order[: round(TRAIN_SHARE * len(normals))].tolist()) if split else set()
    test = [Sample(path, "good", False) for i, path in enumerate(normals) if i not in taken]
    for folder in (folder for folder in folders if folder.name not in GOOD):
        test += [Sample(path, folder.name, labels.of(folder.name) is True) for path in images_below(folder)]
    return Dataset(root.name, tuple(path for i, path in enumerate(normals) if i in taken), tuple(test))


def _folder(root: str | Path) -> Path:
    if not Path(root).is_dir():
        raise UserError(f"there is no data set folder {root}; check the path")
    return Path(root)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
