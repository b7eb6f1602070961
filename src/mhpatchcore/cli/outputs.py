"""What `score` writes: tables of all images (CSV, JSON lines, Parquet), regions (CSV, COCO), pictures and masks."""

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
from mhpatchcore.results import COLUMNS, coco, flat, write_parquet
from mhpatchcore.runtime.files import csv_text, import_parquet, write_csv, write_text
from mhpatchcore.runtime.texts import representable

TABLE_COLUMNS = (*COLUMNS, "error")
REGION_COLUMNS = (
    *("image", "top", "left", "bottom", "right", "area", "peak", "peak_row", "peak_column", "name", "sure"),
)
ENDINGS = (".csv", ".jsonl", ".parquet")
Row = dict[str, Any]
Pictures = dict[str, dict[str, Path]]


@dataclass(frozen=True)
class Outputs:
    """The files and folders that were asked for; None for those that were not."""

    table: Path | None = None
    csv: Path | None = None
    regions: Path | None = None
    coco: Path | None = None
    heatmaps: Path | None = None
    masks: Path | None = None
    explain: Path | None = None
    full_size: bool = False
    explain_all: bool = False
    normals: tuple[Path, ...] = ()

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of pictures, by their options."""
        named = {"--heatmaps": self.heatmaps, "--masks": self.masks, "--explain": self.explain}
        return {flag: folder for flag, folder in named.items() if folder is not None}

    def check(self, model: Path) -> None:
        """Refuse places where nothing can be written, or where outputs would replace each other."""
        for (one, here), (other, there) in combinations(self.folders.items(), 2):
            if place(here) == place(there):
                raise UserError(
                    f"{one} and {other} write files of the same names: give them different folders"
                )
        for folder in self.folders.values():
            check_folder(folder)
        files = (self.table, self.csv, self.regions, self.coco)
        examples = ("results.csv", "results.csv", "regions.csv", "regions.json")
        for i, (file, example) in enumerate(zip(files, examples, strict=True)):
            check_file(file, example, model, *files[:i])
        if self.table is not None and self.table.suffix.lower() not in ENDINGS:
            raise UserError(
                f"cannot write {self.table}: name a file that ends in {', '.join(ENDINGS)}, or a folder without an "
                "ending"
            )
        if self.table is not None and self.table.suffix.lower() == ".parquet":
            import_parquet()

    def write(self, rows: Sequence[Row]) -> None:
        """Write tables and regions."""
        read = [row for row in rows if "regions" in row]
        for path in (self.table, self.csv):
            if path is not None:
                write_table(rows, path, ".csv" if path == self.csv else path.suffix.lower())
        if self.regions is not None:
            write_regions(read, self.regions)
        if self.coco is not None:
            write_text(self.coco, json.dumps(coco(read), indent=1) + "\n")

    def pictures(self, images: Sequence[str | Path]) -> Pictures:
        """Where the pictures of each image go, by option and image; nothing for those that were not asked for."""
        return {flag: picture_paths(images, at, flag) for flag, at in self.folders.items()}

    def draw(self, detector: Detector, result: Result, pictures: Pictures) -> Row:
        """Write the pictures of an image, and return its evidence if it is explained."""
        from mhpatchcore.report.drawing import save_picture, triptych

        image = result.path
        assert image is not None  # only files are scored here
        if self.heatmaps is not None:
            save_picture(pictures["--heatmaps"][image], triptych(image, result, self.full_size))
        if self.masks is not None:
            save_picture(pictures["--masks"][image], result.mask * np.uint8(255))
        if self.explain is None or not (self.explain_all or result.is_rejected):
            return {}
        path, evidence = pictures["--explain"][image], detector.explain(result, self.normals)
        evidence.save(path)
        return {"evidence": evidence.to_dict() | {"picture": str(path)}}


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
    if {one.parent for one in places.values()} & {place(path).parent for path in pictures.values()}:
        raise UserError(f"pictures in {folder} would stand among the images: give {flag} another folder")
    return pictures


def place(path: Path) -> Path:
    """An absolute path that tells files apart; a link and what it points to are two."""
    return path.parent.resolve() / path.name


def write_table(rows: Sequence[Row], path: Path, ending: str) -> None:
    """Write a row for every image, in the format of an ending: CSV, lines of JSON, or Parquet."""
    if ending == ".csv":
        write_text(path, table_csv(rows))
    elif ending == ".jsonl":
        write_text(path, "".join(f"{json.dumps(representable(row))}\n" for row in rows))
    else:
        write_parquet(path, TABLE_COLUMNS, map(_flat, rows))


def table_csv(rows: Sequence[Row]) -> str:
    """The rows as comma-separated values."""
    return csv_text(TABLE_COLUMNS, map(_flat, rows))


def _flat(row: Row) -> Row:
    return flat(row) if "regions" in row else row


def write_regions(rows: Sequence[Row], path: Path) -> None:
    """A line for each region: the image, its box in pixels, the area, the map's peak, where it is, and its name."""
    write_csv(
        path,
        REGION_COLUMNS,
        (
            dict(zip(REGION_COLUMNS[1:5], region["box"], strict=True))
            | dict(zip(REGION_COLUMNS[7:9], region["peak_at"], strict=True))
            | {"image": row["image"]}
            | {name: region[name] for name in ("area", "peak", "name", "sure")}
            for row in rows
            for region in row["regions"]
        ),
    )
