"""What `score` writes: tables of all images (CSV, JSON lines, Parquet), regions (CSV, COCO), pictures and masks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.cli import options
from mhpatchcore.cli.paths import STANDARD_OUTPUT, check_output
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
    """The options of `score` about what is written; None for what was not asked for."""

    out: Path | None = options.option(
        "Write a row for every image into this file (.csv, .jsonl, .parquet). For very many images name a folder: it "
        "gets Parquet files, part by part, and the same command resumes.", *options.OUT, metavar="FILE|DIR",
    )  # fmt: skip
    csv: Path | None = options.output(
        "Write a row for every image into this CSV file; - prints them.", "results.csv"
    )
    heatmaps: Path | None = options.output("Write a picture of every image into this folder.", "heatmaps/")
    full_size: bool = options.flag("--full-size", "Draw heatmaps at the size of the images, not of a screen.")
    masks: Path | None = options.output(
        "Write a mask for every image into this folder: a PNG of its size, 0 or 255.", "masks/"
    )
    regions: Path | None = options.output(
        "Write all regions into this CSV file: boxes, areas, peaks.", "regions.csv"
    )
    coco: Path | None = options.output("Write them as COCO annotations into this JSON file.", "regions.json")
    explain: Path | None = options.output(
        "Write a picture of every rejected image into this folder: the normal patches it was compared with.",
        "why/",
    )
    explain_all: bool = options.flag("--explain-all", "Explain images that pass as well.")
    normals: list[Path] | None = options.folder("Where the training images are now, for --explain.")

    @property
    def parts(self) -> Path | None:
        """The folder for Parquet files, if --out names none."""
        return self.out if self.out is not None and not self.out.suffix else None

    @property
    def table(self) -> Path | None:
        """The file for a row of every image."""
        return self.out if self.parts is None else None

    @property
    def printed(self) -> bool:
        """Whether the table goes to standard output."""
        return self.csv == STANDARD_OUTPUT

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of pictures, by their options."""
        named = {"--heatmaps": self.heatmaps, "--masks": self.masks, "--explain": self.explain}
        return {flag: folder for flag, folder in named.items() if folder is not None}

    def check(self, model: Path) -> None:
        """Refuse places where nothing can be written, or where outputs would replace each other."""
        for normals in self.normals or ():
            if not normals.is_dir():
                raise UserError(f"--normals: there is no folder {normals}; check the path")
        for (one, here), (other, there) in combinations(self.folders.items(), 2):
            if place(here) == place(there):
                raise UserError(
                    f"{one} and {other} write files of the same names: give them different folders"
                )
        check_output(self.table, "results.csv", model)
        check_output(self.parts, "results/")
        if self.parts is not None and (self.csv or self.regions or self.coco or self.explain):
            raise UserError(
                "a folder of --out has the boxes of all regions: leave out --csv, --regions, --coco and --explain, or "
                "name a file, --out results.parquet"
            )
        ending = self.table.suffix.lower() if self.table is not None else ".csv"
        if ending not in ENDINGS:
            raise UserError(
                f"cannot write {self.table}: name a file that ends in {', '.join(ENDINGS)}, or a folder without an "
                "ending"
            )
        if ending == ".parquet":
            import_parquet()

    def write(self, rows: Sequence[Row]) -> None:
        """Write tables and regions."""
        read = [row for row in rows if "regions" in row]
        if self.table is not None:
            write_table(rows, self.table)
        if self.csv is not None and not self.printed:
            write_text(self.csv, table_csv(rows))
        if self.regions is not None:
            write_csv(self.regions, REGION_COLUMNS, _region_rows(read))
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
        path, evidence = pictures["--explain"][image], detector.explain(result, self.normals or ())
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


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write a row for every image, in the format of the ending: CSV, lines of JSON, or Parquet."""
    if path.suffix.lower() == ".parquet":
        write_parquet(path, TABLE_COLUMNS, map(_flat, rows))
    elif path.suffix.lower() == ".jsonl":
        write_text(path, "".join(f"{json.dumps(representable(row))}\n" for row in rows))
    else:
        write_text(path, table_csv(rows))


def table_csv(rows: Sequence[Row]) -> str:
    """The rows as comma-separated values."""
    return csv_text(TABLE_COLUMNS, map(_flat, rows))


def _flat(row: Row) -> Row:
    return flat(row) if "regions" in row else row


def _region_rows(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        for region in row["regions"]:
            corners = dict(zip(("top", "left", "bottom", "right"), region["box"], strict=True))
            peak_at = dict(zip(("peak_row", "peak_column"), region["peak_at"], strict=True))
            yield {"image": row["image"], **region, **corners, **peak_at}
