"""Batch scoring: images become rows of Parquet files, part by part, on this machine or on a cluster.

The result is a folder, results.parquet/part-00000.parquet and so on, which tools for tables read as one. A part knows
what it was made of: the model, the images and their files' states. Run again, what is done is kept. A worker reads the
model once, and scores with one thread; only names and counts travel.
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
from typing import Any

from mhpatchcore.cluster.workers import check_workers
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, ModelFileError, UserError
from mhpatchcore.fitting.executor import Executor, Threads
from mhpatchcore.fitting.plan import cut
from mhpatchcore.inputs.files import absolute_name
from mhpatchcore.inputs.sources import ImageLike, content_hash, fetched
from mhpatchcore.inputs.states import states_of
from mhpatchcore.model.file import from_bytes, read_file
from mhpatchcore.report.drawing import save_picture, triptych
from mhpatchcore.result import UNREADABLE, Result
from mhpatchcore.runtime.files import atomic_path, write_text
from mhpatchcore.runtime.parallel import Once, ordered_map
from mhpatchcore.runtime.urls import files_below, open_url, read_url, remove_url, size_and_state, url_of

PART = 256  # images
RECORD = "_mhpatchcore.json"  # readers of tables leave out names that begin so
KEY = b"mhpatchcore"
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

    def path(self, number: int) -> str:
        return f"{self.out}/part-{number:05d}.parquet"


@dataclass(frozen=True)
class Part:
    """Images that make one file, and where their pictures go: a path for each, or none at all."""

    number: int
    images: tuple[str, ...]
    heatmaps: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()

    def only(self, some: Sequence[int]) -> Part:
        """Some of its images."""
        lists = (self.images, self.heatmaps, self.masks)
        return Part(self.number, *(tuple(one[i] for i in some) if one else () for one in lists))


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
    """Score images into the batch's folder; every part is told when it is done, in their order.

    Pictures go where `heatmaps` and `masks` say, by the images' names. In the table names are absolute.
    """
    _import_parquet()
    parts = [
        Part(
            number, tuple(map(absolute_name, some)), *(_pictures(some, paths) for paths in (heatmaps, masks))
        )
        for number, some in enumerate(cut(images, PART))
    ]
    if isinstance(executor, Threads):  # one part after the other, on all cores
        batch, executor = replace(batch, threads=executor.workers), Threads(1)
    check_workers(executor, parts[0].images[0] if parts else None)
    record = {"layout": LAYOUT, "model": batch.sha256, "images": len(images), "parts": len(parts)}
    _begin(batch, record)
    yield from executor.map(partial(score_part, batch), parts)
    _remove_parts(batch, len(parts))
    written = set(_contents(batch))
    if any(Path(batch.path(part.number)).name not in written for part in parts):
        raise UserError(
            f"{batch.out} is another folder for some workers: name a place that all of them share"
        )
    write_text(f"{batch.out}/{RECORD}", json.dumps(record | {"finished": True}))


def score_part(batch: Batch, part: Part) -> Done:
    """The task: a part's file, unless it is there and nothing has changed.

    Images that could not be read are tried again: the network may have been down.
    """
    key, path = _key(batch, part), batch.path(part.number)
    rows = _kept_rows(path, key)
    if rows is None:
        rows = _rows(batch, part)
        _write(rows, path, key)
        return _done(rows, len(rows))
    broken = [i for i, row in enumerate(rows) if row["verdict"] == UNREADABLE]
    again = zip(broken, _rows(batch, part.only(broken)), strict=True) if broken else ()
    better = {i: row for i, row in again if row["verdict"] != UNREADABLE}
    if better:
        rows = [better.get(i, row) for i, row in enumerate(rows)]
        _write(rows, path, key)
    return _done(rows, len(better))


def _done(rows: Sequence[Mapping[str, Any]], scored: int) -> Done:
    return Done(len(rows), dict(Counter(row["verdict"] for row in rows)), scored)


def _pictures(images: Sequence[str | Path], paths: Mapping[str, Path] | None) -> tuple[str, ...]:
    return tuple(absolute_name(paths[str(image)]) for image in images) if paths else ()


def _rows(batch: Batch, part: Part) -> list[dict[str, Any]]:
    detector = batch.detector
    jobs = [
        _Job(image, *(paths[i] if paths else None for paths in (part.heatmaps, part.masks)))
        for i, image in enumerate(part.images)
    ]
    elsewhere = any(url_of(job.source) for job in jobs)
    ready = ordered_map(_with_content, jobs, FETCHED_AT_ONCE) if elsewhere else map(_with_content, jobs)
    return list(ordered_map(partial(_row, detector, batch.full_size), ready, batch.threads))


@dataclass(frozen=True, eq=False)
class _Job:
    """An image and where its pictures go; its content or why it cannot be had."""

    source: str
    heatmap: str | None
    mask: str | None
    content: ImageLike | ImageError | None = None


def _with_content(job: _Job) -> _Job:
    """Files elsewhere are asked for ahead, so that no core waits for the network."""
    if not url_of(job.source):
        return job
    try:
        return replace(job, content=fetched(job.source))
    except ImageError as error:
        return replace(job, content=error)


def _row(detector: Detector, full_size: bool, job: _Job) -> dict[str, Any]:
    started = perf_counter()
    row: dict[str, Any] = {"image": str(job.source), "verdict": UNREADABLE, "error": None}
    try:
        if isinstance(job.content, ImageError):
            raise job.content
        image = fetched(job.source if job.content is None else job.content)
        row["sha256"] = content_hash(image)
        result = next(detector.score_many([image], workers=1))
        assert result is not None
        row |= _told(result)
        if job.heatmap is not None:
            save_picture(job.heatmap, triptych(image, result, full_size))
        if job.mask is not None:
            save_picture(job.mask, result.mask.astype("uint8") * 255)
    except ImageError as error:
        row |= {"verdict": UNREADABLE, "error": str(error)}
    return row | {"seconds": perf_counter() - started}


def _told(result: Result) -> dict[str, Any]:
    told = result.to_json()
    boxes = [[int(edge) for edge in region["box"]] for region in told["regions"]]
    kept = {name: told[name] for name in ("score", "threshold", "p_value", "verdict")}
    return kept | {"regions": len(boxes), "boxes": boxes}


def _key(batch: Batch, part: Part) -> str:
    """All that decides a part's content."""
    pictures = [part.heatmaps, part.masks, batch.full_size]
    parts = [LAYOUT, batch.sha256, part.images, states_of(part.images), pictures]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _write(rows: Sequence[Mapping[str, Any]], path: str, key: str) -> None:
    pyarrow, parquet = _import_parquet()
    kinds = {
        "image": pyarrow.string(),
        "sha256": pyarrow.string(),
        "score": pyarrow.float64(),
        "threshold": pyarrow.float64(),
        "p_value": pyarrow.float64(),
        "verdict": pyarrow.string(),
        "regions": pyarrow.int32(),
        "boxes": pyarrow.list_(pyarrow.list_(pyarrow.int32())),  # top, left, bottom, right
        "error": pyarrow.string(),
        "seconds": pyarrow.float64(),
    }
    schema = pyarrow.schema(list(kinds.items()), metadata={KEY: key.encode()})
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    with atomic_path(path) as temporary:
        parquet.write_table(pyarrow.table(columns, schema=schema), temporary)


def _kept_rows(path: str, key: str) -> list[dict[str, Any]] | None:
    """The rows of a part that was made of the same; None where it has to be made."""
    _, parquet = _import_parquet()
    url = url_of(path)
    try:
        if (size_and_state(url) is None) if url else not Path(path).is_file():
            return None
        with open_url(url) if url else Path(path).open("rb") as opened:
            file = parquet.ParquetFile(opened)
            if (file.schema_arrow.metadata or {}).get(KEY) != key.encode():
                return None
            return list(file.read().to_pylist())
    except Exception:  # one that is damaged is made again
        return None


def _begin(batch: Batch, record: Mapping[str, Any]) -> None:
    """Say what is to be in the folder. Parts of another model go; a folder of other things is left alone."""
    earlier = _earlier(batch)
    if earlier is None and _contents(batch):
        raise UserError(
            f"{batch.out} holds other files: name a new folder with --out, such as results.parquet"
        )
    if earlier is not None and earlier.get("model") != batch.sha256:
        _remove_parts(batch, 0)
    write_text(f"{batch.out}/{RECORD}", json.dumps({**record, "finished": False}))


def _earlier(batch: Batch) -> dict[str, Any] | None:
    place = f"{batch.out}/{RECORD}"
    with suppress(OSError, UserError, ValueError, TypeError):
        return dict(json.loads(read_url(place) if url_of(place) else Path(place).read_bytes()))
    return None


def _contents(batch: Batch) -> list[str]:
    """The names of the files in the folder."""
    if url_of(batch.out):
        return [Path(one).name for one in files_below(batch.out)]
    if Path(batch.out).exists() and not Path(batch.out).is_dir():
        raise UserError(f"{batch.out} is a file: --out names a folder, such as results.parquet")
    return os.listdir(batch.out) if Path(batch.out).is_dir() else []  # noqa: PTH208 (names)


def _remove_parts(batch: Batch, first: int) -> None:
    """Those from a number on."""
    for name in _contents(batch):
        number = name.removeprefix("part-").removesuffix(".parquet")
        if name == f"part-{number}.parquet" and number.isdecimal() and int(number) >= first:
            place = f"{batch.out}/{name}"
            remove_url(place) if url_of(place) else Path(place).unlink(missing_ok=True)


def _loaded(model: str, sha256: str) -> Detector:
    try:
        content, name = read_file(Path(model))
    except ModelFileError as error:
        raise ModelFileError(f"{error} (every worker reads it: put it where all of them can)") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelFileError(f"{name} is not the same file for every worker: copy it again")
    return Detector(from_bytes(content, name))


_detectors = Once(_loaded)


def _import_parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("--out takes pyarrow: pip install 'mhpatchcore[parquet]'") from None
    return pyarrow, parquet
