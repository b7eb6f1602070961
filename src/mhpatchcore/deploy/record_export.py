"""Verdicts as CSV, JSON lines or Parquet: pieces of a file, one after the other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Literal, TypeVar

from mhpatchcore.deploy.record import COLUMNS, Answer, row_of
from mhpatchcore.runtime.files import csv_text, import_parquet

Format = Literal["csv", "jsonl", "parquet"]
MEDIA: dict[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
}
ROWS = 500  # of a piece
GROUP = 50_000  # rows of a group in Parquet, and bytes of a piece
BYTES = 2**18
Item = TypeVar("Item")


def as_csv(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A table with a header; regions are JSON."""
    yield csv_text(list(COLUMNS), []).encode()
    for some in pieces(answers, ROWS):
        yield csv_text(list(COLUMNS), map(row_of, some), header=False).encode()


def as_json_lines(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A line for each part, in the shape in which the service tells it."""
    for some in pieces(answers, ROWS):
        yield "".join(f"{json.dumps(answer)}\n" for answer in some).encode()


def as_parquet(answers: Iterable[Answer]) -> Iterator[bytes]:
    """A table with typed columns; regions are a list of structures."""
    pyarrow, parquet = import_parquet()
    kinds = {"TEXT": pyarrow.string(), "REAL": pyarrow.float64(), "INTEGER": pyarrow.int64()}
    numbers = pyarrow.list_(pyarrow.int64())
    region = {"box": numbers, "area": pyarrow.int64(), "peak": pyarrow.float64(), "peak_at": numbers}
    own = {
        "at": pyarrow.timestamp("ms", "UTC"),
        "trial": pyarrow.bool_(),
        "is_like_known": pyarrow.bool_(),
        "regions": pyarrow.list_(pyarrow.struct(list(region.items()))),
    }
    schema = pyarrow.schema([(name, own.get(name, kinds[kind.split()[0]])) for name, kind in COLUMNS.items()])
    with tempfile.TemporaryFile() as file:
        with parquet.ParquetWriter(file, schema) as writer:
            for some in pieces(answers, GROUP):
                rows = [
                    row_of(answer)
                    | {"regions": answer["regions"], "at": datetime.fromisoformat(answer["at"])}
                    for answer in some
                ]
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
        file.seek(0)
        while piece := file.read(BYTES):
            yield piece


def pieces(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """
    >>> list(pieces("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece


EXPORTS: dict[str, Callable[[Iterable[Answer]], Iterator[bytes]]] = {
    "csv": as_csv,
    "jsonl": as_json_lines,
    "parquet": as_parquet,
}
