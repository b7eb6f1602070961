"""Tasks on a Dask cluster: few and large ones, results in order.

The scheduler keeps something of every task it knows, so only a window of them is under way, and small items go
together. A task whose worker dies runs again elsewhere, and finds in the store what was done already. Tasks run with
one BLAS thread, and each process makes its own sessions: the bits are those of one machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np

from mhpatchcore import __version__
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.fitting.executor import limit_blas
from mhpatchcore.fitting.store import Store, entry_key
from mhpatchcore.inputs.sources import ImageLike, content_hash

Item = TypeVar("Item")
Out = TypeVar("Out")

TASKS_PER_WORKER = 16  # of a pass over small items
MOST_ITEMS = 64  # of a task
AHEAD = 4  # tasks for each worker that are under way or have come back early


@dataclass(frozen=True)
class DaskExecutor:
    """The workers of a cluster, through a client of `dask.distributed`."""

    client: Any
    remote: bool = True

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""
        threads: dict[str, int] = self.client.nthreads()
        return max(1, sum(threads.values()))

    def map(self, task: Callable[[Item], Out], items: Iterable[Item]) -> Iterator[Out]:
        size = _items_per_task(items, self.workers)
        under_way: deque[Any] = deque()
        rest = iter(items)
        try:
            while some := list(islice(rest, size)):
                under_way.append(self.client.submit(_each, task, some, pure=False))
                if len(under_way) >= AHEAD * self.workers:
                    yield from self._result(under_way.popleft())
            while under_way:
                yield from self._result(under_way.popleft())
        finally:
            for future in under_way:
                future.cancel()

    def _result(self, future: Any) -> list[Any]:
        from distributed import KilledWorker

        try:
            found: list[Any] = future.result()
            return found
        except KilledWorker as error:
            raise UserError(
                "workers of the cluster died again and again over one task, the last of them "
                f"{error.last_worker.address}: give them more memory, or see their logs; with the same store "
                "a new run goes on"
            ) from error
        except (CancelledError, OSError, TimeoutError) as error:
            if future.status == "error":  # of the task itself
                raise
            raise UserError(
                f"the cluster is gone ({in_one_line(error)}): start it and try again; with the same store it goes "
                "on"
            ) from error

    def check(self, store: Store, image: ImageLike | None, warn: Callable[[str], None]) -> None:
        """Refuse a cluster of which some worker could not do its tasks: it sees the store and the images, or not.

        An image that a worker alone cannot read might be taken for a broken one, and left out.
        """
        probe = entry_key("probe", token_hex())
        store.put(probe, {"x": np.zeros(1)})
        name = image if isinstance(image, str | Path) else None  # others travel with their tasks
        try:
            sha256 = content_hash(name) if name else ""
        except ImageError:
            sha256 = ""  # whether that matters is for who reads it to say
        try:
            found = self.client.run(_problem, store, probe, name, sha256, _versions())
        finally:
            store.path(probe).unlink(missing_ok=True)
        if not found:
            raise UserError("the cluster has no workers: start some (`dask worker ADDRESS --nthreads 1`)")
        for worker, (problem, versions) in sorted(found.items()):
            if problem:
                raise UserError(f"worker {worker} of the cluster {problem}")
            if versions != _versions():
                warn(
                    f"worker {worker} has {versions}, this machine {_versions()}: the last bits of the model may differ"
                )


def _problem(
    store: Store, probe: str, image: str | Path | None, sha256: str, versions: str
) -> tuple[str, str]:
    """On a worker: why it could not do its tasks, if so, and its versions."""
    ours, theirs = (text.partition(",")[0] for text in (_versions(), versions))
    if ours != theirs:
        return f"has {ours}, and this machine {theirs}: install the same", _versions()
    if store.found(probe) is None:
        return (
            f"does not see the store in {store.folder}: name a folder that all workers reach (`store=FOLDER`)",
            "",
        )
    try:
        store.put(probe, {"x": np.zeros(1)})
        if image and sha256 and content_hash(image) != sha256:
            return f"sees another image at {image}: give images that all workers reach", ""
    except UserError as error:
        return f"cannot work: {error}", ""
    return "", _versions()


def _versions() -> str:
    packages = [f"{name} {metadata.version(name)}" for name in ("numpy", "onnxruntime")]
    return ", ".join([f"mhpatchcore {__version__}", *packages])


def _items_per_task(items: Iterable[Any], workers: int) -> int:
    """How many items a task takes: a few tasks for every worker, none of them endless."""
    count = len(items) if isinstance(items, Sequence) else 0
    return min(MOST_ITEMS, max(1, count // (TASKS_PER_WORKER * workers)))


def _each(task: Callable[[Item], Out], items: Sequence[Item]) -> list[Out]:
    """On a worker."""
    limit_blas()
    return [task(item) for item in items]
