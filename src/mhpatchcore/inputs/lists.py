"""Lists of images: a text file with one path per line, or a CSV file with a column of them."""

from __future__ import annotations

import csv
from pathlib import Path

from mhpatchcore.errors import UserError

LISTS = (".txt", ".csv")
COLUMNS = ("image", "path", "file", "filename")


def is_list(path: str | Path) -> bool:
    return Path(path).suffix.lower() in LISTS and Path(path).is_file()


def listed_paths(path: str | Path) -> list[Path]:
    """The paths in a list; relative ones start from the folder of the list.

    A CSV file has them in its column "image" ("path", "file" or "filename" will do), as `score --csv` writes it.
    """
    place = Path(path)
    try:
        with place.open(newline="", encoding="utf-8-sig") as file:
            lines = _column(file.read().splitlines(), place) if place.suffix.lower() == ".csv" else list(file)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read list {place}: {error}; it wants one path per line") from error
    names = [line.strip() for line in lines]
    if not any(names):
        raise UserError(f"list {place} names no images: write one path per line")
    return [place.parent / name for name in names if name]


def _column(lines: list[str], place: Path) -> list[str]:
    rows = csv.DictReader(lines)
    found = [name for name in COLUMNS if name in (rows.fieldnames or ())]
    if not found:
        raise UserError(
            f"list {place} has no column 'image': name the one that holds the paths so in its first line"
        )
    return [row[found[0]] or "" for row in rows]
