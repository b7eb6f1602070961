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

from mhpatchcore.batch.table import cell
from mhpatchcore.cli.paths import check_file, check_folder
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.camera import MEASURES
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.result import Result
from mhpatchcore.runtime.files import atomic_path, csv_text, import_parquet, write_csv, write_text
from mhpatchcore.runtime.texts import representable

COLUMNS = (
    *("image", "score", "threshold", "verdict", "is_rejected", "p_value", "defect", "regions", "error"),
    *MEASURES,
)
TEXTS = ("image", "verdict", "defect", "error")
REGION_COLUMNS = (
    *("image", "top", "left", "bottom", "right", "area", "peak", "peak_row", "peak_column", "name", "sure"),
)
CATEGORY = {"id": 1, "name": "anomaly"}
ENDINGS = (".csv", ".jsonl", ".parquet")
Row = dict[str, Any]


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
            write_coco(read, self.coco)

    def pictures(self, images: Sequence[str | Path]) -> Pictures:
        """Where the pictures of each image go."""
        paths = {flag: picture_paths(images, at, flag) for flag, at in self.folders.items()}
        return Pictures(*(paths.get(flag, {}) for flag in ("--heatmaps", "--masks", "--explain")))


@dataclass(frozen=True)
class Pictures:
    """The files of each image, by the image's path; empty where they were not asked for."""

    heatmaps: dict[str, Path]
    masks: dict[str, Path]
    explain: dict[str, Path]

    def write(self, detector: Detector, result: Result, outputs: Outputs) -> Row:
        """Draw what was asked for, and return the evidence."""
        from mhpatchcore.report.drawing import save_picture, triptych

        image = result.path
        assert image is not None  # only files are scored here
        if self.heatmaps:
            save_picture(self.heatmaps[image], triptych(image, result, outputs.full_size))
        if self.masks:
            save_picture(self.masks[image], result.mask * np.uint8(255))
        if self.explain and (outputs.explain_all or result.is_rejected):
            return {"evidence": write_evidence(detector, result, self.explain[image], outputs.normals)}
        return {}


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


def write_evidence(detector: Detector, result: Result, path: Path, normals: Sequence[Path]) -> Row:
    """Draw the evidence and return it."""
    from mhpatchcore.report.evidence import evidence_figure
    from mhpatchcore.report.figures import figure_bytes

    assert result.path is not None
    evidence = detector.explain(result, normals)
    figure = evidence_figure(load_pixels(result.path, result.window), result, evidence)
    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_bytes(figure, "png"))
    return evidence.to_json() | {"picture": str(path)}


def write_table(rows: Sequence[Row], path: Path, ending: str) -> None:
    """Write a row for every image, in the format of an ending: CSV, lines of JSON, or Parquet."""
    if ending == ".csv":
        write_text(path, table_csv(rows))
    elif ending == ".jsonl":
        write_text(path, "".join(f"{json.dumps(representable(row))}\n" for row in rows))
    else:
        pyarrow, parquet = import_parquet()
        kinds = dict.fromkeys(COLUMNS, pyarrow.float64()) | dict.fromkeys(TEXTS, pyarrow.string())
        kinds |= {"regions": pyarrow.int32(), "is_rejected": pyarrow.bool_()}
        kinds["boxes"] = pyarrow.list_(pyarrow.list_(pyarrow.int32()))  # top, left, bottom, right
        cells = [{name: cell(value) for name, value in row.items()} for row in flat(rows)]
        with atomic_path(path) as temporary:
            table = pyarrow.Table.from_pylist(cells, schema=pyarrow.schema(list(kinds.items())))
            parquet.write_table(table, temporary)


def table_csv(rows: Sequence[Row]) -> str:
    """The rows as comma-separated values; regions are counted."""
    return csv_text(COLUMNS, flat(rows))


def flat(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows with one value for each column."""
    for row in rows:
        if "regions" in row:
            boxes = [list(region["box"]) for region in row["regions"]]
            yield row | row["camera"] | {"regions": len(boxes), "boxes": boxes}
        else:
            yield row


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


def write_coco(rows: Sequence[Row], path: Path) -> None:
    """All images and their regions in the format of COCO annotations; boxes are x, y, width, height.

    A region's score is the map's peak in it.
    """
    images: list[Row] = []
    annotations: list[Row] = []
    for number, row in enumerate(rows, start=1):
        height, width = row["size"]
        images.append({"id": number, "file_name": row["image"], "height": height, "width": width})
        for region in row["regions"]:
            top, left, bottom, right = region["box"]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": CATEGORY["id"],
                    "bbox": [left, top, right - left, bottom - top],
                    "area": region["area"],
                    "iscrowd": 0,
                    "score": region["peak"],
                }
            )
    document = {"images": images, "annotations": annotations, "categories": [CATEGORY]}
    write_text(path, json.dumps(document, indent=1) + "\n")
