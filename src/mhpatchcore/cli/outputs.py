"""What `score` writes beside its table: pictures, masks, and the regions of all images as CSV or COCO JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.cli.paths import check_file, check_folder
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.result import Result
from mhpatchcore.results import coco
from mhpatchcore.runtime.files import write_csv, write_text

PLACE_COLUMNS = ("image", "top", "left", "bottom", "right", "area", "peak", "peak_row", "peak_column")
REGION_COLUMNS = (*PLACE_COLUMNS, "name", "sure")


@dataclass(frozen=True)
class Outputs:
    """The folders and files that were asked for; None where they were not."""

    heatmaps: Path | None = None
    masks: Path | None = None
    explain: Path | None = None
    regions: Path | None = None
    coco: Path | None = None
    full_size: bool = False
    explain_all: bool = False
    normals: tuple[Path, ...] = ()

    def check(self, model: Path) -> None:
        """Refuse places where nothing can be written, or where outputs would replace each other."""
        folders = {"--heatmaps": self.heatmaps, "--masks": self.masks, "--explain": self.explain}
        for (one, here), (other, there) in combinations(folders.items(), 2):
            if here is not None and there is not None and place(here) == place(there):
                raise UserError(
                    f"{one} and {other} write files of the same names: give them different folders"
                )
        for folder in folders.values():
            check_folder(folder)
        check_file(self.regions, "regions.csv", model)
        check_file(self.coco, "regions.json", model, self.regions)

    def pictures(self, images: Sequence[str | Path]) -> Pictures:
        """Where the files of each image go."""
        wanted = (("--heatmaps", self.heatmaps), ("--masks", self.masks), ("--explain", self.explain))
        return Pictures(*(({} if at is None else picture_paths(images, at, flag)) for flag, at in wanted))


@dataclass(frozen=True)
class Pictures:
    """The files of each image, by the image's path; empty where they were not asked for."""

    heatmaps: dict[str, Path]
    masks: dict[str, Path]
    evidence: dict[str, Path]


def picture_paths(images: Sequence[str | Path], folder: Path, flag: str = "--heatmaps") -> dict[str, Path]:
    """Where each image's picture goes: the images' own folders below what they have in common.

    >>> picture_paths([Path("a/1.png"), Path("b/1.png"), Path("b/2.jpg")], Path("out"))["b/2.jpg"].as_posix()
    'out/b/2.png'
    """
    places = {str(image): place(Path(image)) for image in images}
    top = os.path.commonpath([one.parent for one in places.values()])
    relative = {image: one.relative_to(top) for image, one in places.items()}
    names = {image: one.with_suffix(".png") for image, one in relative.items()}
    if len(set(names.values())) < len(set(relative.values())):  # 1.png beside 1.jpg
        names = {image: one.with_name(f"{one.name}.png") for image, one in relative.items()}
    pictures = {image: folder / name for image, name in names.items()}
    among = {one.parent for one in places.values()} & {place(path).parent for path in pictures.values()}
    if among:
        raise UserError(f"pictures in {folder} would stand among the images: give {flag} another folder")
    return pictures


def place(path: Path) -> Path:
    """An absolute path that tells files apart; a link and what it points to are two."""
    return path.parent.resolve() / path.name


def write_heatmap(result: Result, path: Path, full_size: bool) -> None:
    from mhpatchcore.report.drawing import save_picture, triptych

    assert result.path is not None  # only files are scored here
    save_picture(path, triptych(result.path, result, full_size))


def write_mask(result: Result, path: Path) -> None:
    """A PNG of the image's own size: 255 where the mask is, 0 elsewhere."""
    from mhpatchcore.report.drawing import save_picture

    save_picture(path, result.mask * np.uint8(255))


def write_evidence(detector: Detector, result: Result, path: Path, normals: Sequence[Path]) -> dict[str, Any]:
    """Draw the evidence and return it."""
    evidence = detector.explain(result, normals)
    evidence.save(path)
    return evidence.to_dict() | {"picture": str(path)}


def write_regions(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A line for each region: the image, its box in pixels, the area, the map's peak, where it is, and its name."""
    write_csv(
        path,
        REGION_COLUMNS,
        (
            dict(zip(PLACE_COLUMNS[1:5], region["box"], strict=True))
            | dict(zip(PLACE_COLUMNS[7:], region["peak_at"], strict=True))
            | {"image": row["image"]}
            | {name: region[name] for name in ("area", "peak", "name", "sure")}
            for row in rows
            for region in row["regions"]
        ),
    )


def write_coco(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """All images and their regions in the format of COCO annotations."""
    write_text(path, json.dumps(coco(rows), indent=1) + "\n")
