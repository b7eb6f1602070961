"""Batch scoring: images become rows of Parquet files, part by part, on this machine or on a cluster.

The result is a folder, results/part-00000.parquet and so on, which tools for tables read as one (they ignore names that
begin with _). A part holds a key of all that it was made of: the model, the images and their files' states. Run again,
what is done is kept. A worker reads the model once, and scores with one thread; only names and counts travel.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, ModelFileError, UserError
from mhpatchcore.fitting.execution import Executor, silent
from mhpatchcore.fitting.trees import cut
from mhpatchcore.inputs.files import absolute_name, states_of
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.model.file import from_bytes, read_file
from mhpatchcore.report.drawing import save_picture, triptych
from mhpatchcore.result import UNREADABLE, Result
from mhpatchcore.runtime.files import atomic_path, import_parquet, write_text
from mhpatchcore.runtime.parallel import Memoised, ordered_map
from mhpatchcore.runtime.texts import encodable
from mhpatchcore.runtime.urls import files_below, open_url, read_url, remove_url, url_of

PART = 256  # images
LAYOUT = 1
FETCHED_AT_ONCE = 4
RECORD = "_mhpatchcore.json"
KEY = b"mhpatchcore"
SCORES = ("score", "threshold", "p_value")
TEXTS = ("verdict", "defect")


class Job(NamedTuple):
    """An image, and where its pictures go, if anywhere."""

    source: str
    heatmap: str | None = None
    mask: str | None = None


class Done(NamedTuple):
    """What came of a part: how many images got which verdict, and how many were scored; the others were before."""

    images: int
    verdicts: Mapping[str, int]
    scored: int


@dataclass(frozen=True)
class Batch:
    """What every task needs: where the model is, its hash, the table's folder. `threads` score side by side."""

    model: str
    sha256: str
    out: str
    full_size: bool = False
    threads: int = 1

    @staticmethod
    def of(model: str | Path, out: str | Path, full_size: bool = False) -> Batch:
        content, _ = read_file(Path(model))
        sha256 = hashlib.sha256(content).hexdigest()
        return Batch(absolute_name(model), sha256, absolute_name(out), full_size)

    @property
    def detector(self) -> Detector:
        """The model, read once by each process."""
        return _detectors(self.model, self.sha256)


def score_batch(
    batch: Batch,
    images: Sequence[str | Path],
    executor: Executor,
    heatmaps: Mapping[str, Path] | None = None,
    masks: Mapping[str, Path] | None = None,
) -> Iterator[Done]:
    """Score images into the batch's folder; yields what came of each part, in their order.

    Pictures go where `heatmaps` and `masks` say, by the images' names. In the table names are absolute.
    """

    def job(image: str | Path) -> Job:
        places = (absolute_name(paths[str(image)]) if paths else None for paths in (heatmaps, masks))
        return Job(absolute_name(image), *places)

    parts = cut([job(image) for image in images], PART)
    executor, threads = executor.for_large_tasks()
    batch = replace(batch, threads=threads)
    executor.check(None, parts[0][0].source if parts else None, silent)
    record = {"layout": LAYOUT, "model": batch.sha256, "images": len(images), "parts": len(parts)}
    _begin(batch.out, record)
    yield from executor.map(partial(_score_part, batch), enumerate(parts))
    _finish(batch.out, record, len(parts))


def _begin(folder: str, record: Mapping[str, Any]) -> None:
    """Say what is to be in the folder. Parts of another model go; a folder of other things is left alone."""
    import_parquet()
    earlier = read_record(f"{folder}/{RECORD}")
    if not earlier and _names(folder):
        raise UserError(f"{folder} holds other files: name a new folder with --out, such as results")
    if earlier and earlier.get("model") != record["model"]:
        _remove_parts(folder, 0)
    write_text(f"{folder}/{RECORD}", json.dumps({**record, "finished": False}))


def _finish(folder: str, record: Mapping[str, Any], parts: int) -> None:
    """Say that all parts are there; those of earlier, longer tables go."""
    _remove_parts(folder, parts)
    if not {_part_name(part) for part in range(parts)} <= set(_names(folder)):
        raise UserError(f"{folder} is another folder for some workers: name a place that all of them share")
    write_text(f"{folder}/{RECORD}", json.dumps({**record, "finished": True}))


def _score_part(batch: Batch, part: tuple[int, Sequence[Job]]) -> Done:
    """The task: a part's file, unless it is there and nothing has changed.

    Images that could not be read are tried again: the network may have been down.
    """
    number, jobs = part
    states = states_of([job.source for job in jobs])
    decides = [LAYOUT, batch.sha256, jobs, states, batch.full_size]
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    path = f"{batch.out}/{_part_name(number)}"
    kept = _kept_rows(path, key)
    missing = [i for i in range(len(jobs)) if not kept or kept[i]["verdict"] == UNREADABLE]
    made = dict(zip(missing, _rows(batch, [jobs[i] for i in missing]), strict=True))
    if kept:
        made = {i: row for i, row in made.items() if row["verdict"] != UNREADABLE}
    rows = [made[i] if i in made else kept[i] for i in range(len(jobs))]
    if made:
        _write_rows(path, rows, key)
    return Done(len(jobs), dict(Counter(row["verdict"] for row in rows)), len(made))


def _rows(batch: Batch, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    if not jobs:
        return iter(())
    elsewhere = any(url_of(job.source) for job in jobs)
    ready = ordered_map(_with_content, jobs, FETCHED_AT_ONCE if elsewhere else 1)
    return ordered_map(partial(_row, batch.detector, batch.full_size), ready, batch.threads)


def _with_content(job: Job) -> tuple[Job, ImageLike | ImageError]:
    """An image and its content, or why it cannot be had: files elsewhere are asked for ahead, so that no core waits."""
    try:
        return job, fetched(job.source) if url_of(job.source) else job.source
    except ImageError as error:
        return job, error


def _row(detector: Detector, full_size: bool, given: tuple[Job, ImageLike | ImageError]) -> dict[str, Any]:
    started = perf_counter()
    job, content = given
    row: dict[str, Any] = {"image": job.source, "verdict": UNREADABLE, "error": None}
    try:
        if isinstance(content, ImageError):
            raise content
        image = fetched(content)
        row["sha256"] = content_hash(image)
        result: Result = next(detector.score_many([image], workers=1))
        if job.heatmap is not None:
            save_picture(job.heatmap, triptych(image, result, full_size))
        if job.mask is not None:
            save_picture(job.mask, result.mask.astype("uint8") * 255)
        facts = result.to_dict()
        boxes = [[int(edge) for edge in region["box"]] for region in facts["regions"]]
        row |= {name: facts[name] for name in (*SCORES, *TEXTS)} | {"regions": len(boxes), "boxes": boxes}
    except ImageError as error:
        row["error"] = str(error)
    return row | {"seconds": perf_counter() - started}


def _part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _write_rows(path: str, rows: Sequence[Mapping[str, Any]], key: str) -> None:
    pyarrow, parquet = import_parquet()
    kinds = {name: pyarrow.string() for name in ("image", "sha256")}
    kinds |= {name: pyarrow.float64() for name in SCORES}
    kinds |= {name: pyarrow.string() for name in TEXTS}
    kinds["regions"] = pyarrow.int32()
    kinds["boxes"] = pyarrow.list_(pyarrow.list_(pyarrow.int32()))  # top, left, bottom, right
    kinds |= {"error": pyarrow.string(), "seconds": pyarrow.float64()}
    schema = pyarrow.schema(list(kinds.items()), metadata={KEY: key.encode()})
    columns = {name: [encodable(row.get(name)) for row in rows] for name in kinds}
    with atomic_path(path) as temporary:
        parquet.write_table(pyarrow.table(columns, schema=schema), temporary)


def _kept_rows(path: str, key: str) -> list[dict[str, Any]]:
    """The rows of a part that was made of the same; none where it has to be made."""
    _, parquet = import_parquet()
    url = url_of(path)
    with suppress(Exception), open_url(url) if url else Path(path).open("rb") as opened:  # it may be damaged
        file = parquet.ParquetFile(opened)
        if file.schema_arrow.metadata[KEY] == key.encode():
            return list(file.read().to_pylist())
    return []


def read_record(place: str) -> dict[str, Any]:
    """A JSON document at a path or URL; empty where there is none that can be read."""
    with suppress(OSError, UserError, ValueError, TypeError):
        return dict(json.loads(read_url(place) if url_of(place) else Path(place).read_bytes()))
    return {}


def _names(folder: str) -> list[str]:
    """Of the files in the folder."""
    if url_of(folder):
        return [Path(one).name for one in files_below(folder)]
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UserError(f"{folder} is a file: --out names a folder, such as results")
    return os.listdir(folder) if Path(folder).is_dir() else []  # noqa: PTH208 (names)


def _remove_parts(folder: str, first: int) -> None:
    """The parts from a number on."""
    for name in _names(folder):
        number = name.removeprefix("part-").removesuffix(".parquet")
        if number.isdecimal() and name == f"part-{number}.parquet" and int(number) >= first:
            place = f"{folder}/{name}"
            remove_url(place) if url_of(place) else Path(place).unlink(missing_ok=True)


@Memoised
def _detectors(model: str, sha256: str) -> Detector:
    try:
        content, name = read_file(Path(model))
    except ModelFileError as error:
        raise ModelFileError(f"{error} (every worker reads it: put it where all of them can)") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelFileError(f"{name} is not the same file for every worker: copy it again")
    return Detector(from_bytes(content, name))
