"""Lists of images: a text file with one path per line, or a CSV file with a column of them."""

from __future__ import annotations

import csv
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.urls import join_url, read_url, url_of

LISTS = (".txt", ".csv")
COLUMNS = ("image", "path", "file", "filename")


def is_list(path: str | Path) -> bool:
    return Path(path).suffix.lower() in LISTS and (url_of(path) is not None or Path(path).is_file())


def listed_paths(path: str | Path) -> list[str | Path]:
    """The paths and URLs in a list; relative ones start from the folder of the list.

    A CSV file has them in its column "image" ("path", "file" or "filename" will do), as `score --csv` writes it.
    """
    url = url_of(path)
    place = url or str(path)
    try:
        content = read_url(url) if url else Path(path).read_bytes()
        text = content.decode("utf-8-sig")
        is_table = Path(path).suffix.lower() == ".csv"
        lines = _column(text.splitlines(), place) if is_table else text.split("\n")
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read list {place}: {error}; it wants one path per line") from error
    names = [line.strip() for line in lines]
    if not any(names):
        raise UserError(f"list {place} names no images: write one path per line")
    return [_beside(place, name) for name in names if name]


def _beside(place: str, name: str) -> str | Path:
    return url_of(name) or (join_url(place, name) if url_of(place) else Path(place).parent / name)


def _column(lines: list[str], place: str) -> list[str]:
    rows = csv.DictReader(lines)
    found = [name for name in COLUMNS if name in (rows.fieldnames or ())]
    if not found:
        raise UserError(
            f"list {place} has no column of paths: its first line must name one of the columns {', '.join(COLUMNS)}"
        )
    return [row[found[0]] or "" for row in rows]
