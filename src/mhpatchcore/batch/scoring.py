"""Batch scoring: images become rows of Parquet files, part by part, on this machine or on a cluster.

The result is a folder, results/part-00000.parquet and so on, which tools for tables read as one. A part knows
what it was made of: the model, the images and their files' states. Run again, what is done is kept. A worker reads the
model once, and scores with one thread; only names and counts travel.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from mhpatchcore.batch.table import Table
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, ModelFileError
from mhpatchcore.fitting.execution import Executor, silent
from mhpatchcore.fitting.trees import cut
from mhpatchcore.inputs.files import absolute_name, states_of
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.model.file import from_bytes, read_file
from mhpatchcore.report.drawing import save_picture, triptych
from mhpatchcore.result import UNREADABLE, Result
from mhpatchcore.runtime.parallel import Memoised, ordered_map
from mhpatchcore.runtime.urls import url_of

PART = 256  # images
LAYOUT = 1
FETCHED_AT_ONCE = 4


@dataclass(frozen=True)
class Batch:
    """What every task needs: where the model is, its hash, where parts go. `threads` score side by side."""

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

    @property
    def table(self) -> Table:
        return Table(self.out)


class Job(NamedTuple):
    """An image, and where its pictures go, if anywhere."""

    source: str
    heatmap: str | None = None
    mask: str | None = None


@dataclass(frozen=True)
class Part:
    """Images that make one file of the table."""

    number: int
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Done:
    """What came of a part: how many images got which verdict, and how many were scored; the others were before."""

    images: int
    verdicts: Mapping[str, int]
    scored: int


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

    parts = [Part(number, tuple(map(job, some))) for number, some in enumerate(cut(images, PART))]
    executor, threads = executor.for_large_tasks()
    batch = replace(batch, threads=threads)
    executor.check(None, parts[0].jobs[0].source if parts else None, silent)
    record = {"layout": LAYOUT, "model": batch.sha256, "images": len(images), "parts": len(parts)}
    batch.table.begin(record)
    yield from executor.map(partial(score_part, batch), parts)
    batch.table.finish(record, len(parts))


def score_part(batch: Batch, part: Part) -> Done:
    """The task: a part's file, unless it is there and nothing has changed.

    Images that could not be read are tried again: the network may have been down.
    """
    key, table = _key(batch, part), batch.table
    rows = table.rows(part.number, key)
    if rows is None:
        rows = _rows(batch, part.jobs)
        table.write(part.number, rows, key)
        return _done(rows, len(rows))
    broken = [i for i, row in enumerate(rows) if row["verdict"] == UNREADABLE]
    again = zip(broken, _rows(batch, [part.jobs[i] for i in broken]), strict=True) if broken else ()
    better = {i: row for i, row in again if row["verdict"] != UNREADABLE}
    if better:
        rows = [better.get(i, row) for i, row in enumerate(rows)]
        table.write(part.number, rows, key)
    return _done(rows, len(better))


def _done(rows: Sequence[Mapping[str, Any]], scored: int) -> Done:
    return Done(len(rows), dict(Counter(row["verdict"] for row in rows)), scored)


def _rows(batch: Batch, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    elsewhere = any(url_of(job.source) for job in jobs)
    ready = ordered_map(_with_content, jobs, FETCHED_AT_ONCE) if elsewhere else map(_with_content, jobs)
    return list(ordered_map(partial(_row, batch.detector, batch.full_size), ready, batch.threads))


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
        result = next(detector.score_many([image], workers=1))
        assert result is not None
        row |= _columns(result)
        if job.heatmap is not None:
            save_picture(job.heatmap, triptych(image, result, full_size))
        if job.mask is not None:
            save_picture(job.mask, result.mask.astype("uint8") * 255)
    except ImageError as error:
        row |= {"verdict": UNREADABLE, "error": str(error)}
    return row | {"seconds": perf_counter() - started}


def _columns(result: Result) -> dict[str, Any]:
    facts = result.to_dict()
    boxes = [[int(edge) for edge in region["box"]] for region in facts["regions"]]
    kept = {name: facts[name] for name in ("score", "threshold", "p_value", "verdict", "defect")}
    return kept | {"regions": len(boxes), "boxes": boxes}


def _key(batch: Batch, part: Part) -> str:
    """All that decides a part's content."""
    states = states_of([job.source for job in part.jobs])
    parts = [LAYOUT, batch.sha256, part.jobs, states, batch.full_size]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@Memoised
def _detectors(model: str, sha256: str) -> Detector:
    try:
        content, name = read_file(Path(model))
    except ModelFileError as error:
        raise ModelFileError(f"{error} (every worker reads it: put it where all of them can)") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelFileError(f"{name} is not the same file for every worker: copy it again")
    return Detector(from_bytes(content, name))
