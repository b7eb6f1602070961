"""Tasks on a Dask cluster: few and large ones, results in order.

A cluster is named by its address: `tcp://HOST:PORT` of a Dask scheduler, or `local:N` for N processes of this machine.

The scheduler keeps something of every task it knows, so only a window of them is under way, and small items go
together. A task whose worker dies runs again elsewhere, and finds in the store what was done already. Tasks run with
one BLAS thread, and each process makes its own sessions: the bits are those of one machine.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np

from mhpatchcore import __version__
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.inputs.sources import ImageLike, content_hash
from mhpatchcore.runtime.parallel import limit_blas
from mhpatchcore.runtime.store import Store, entry_key

Item = TypeVar("Item")
Out = TypeVar("Out")

TASKS_PER_WORKER = 16  # of a pass over small items
MOST_ITEMS = 64  # of a task
AHEAD = 4  # tasks for each worker that are under way or have come back early
SECONDS = 10  # in which a scheduler answers


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
        count = len(items) if isinstance(items, Sequence) else 0
        # a few tasks for every worker, none of them endless
        size = min(MOST_ITEMS, max(1, count // (TASKS_PER_WORKER * self.workers)))
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

    def for_large_tasks(self) -> tuple[DaskExecutor, int]:
        return self, 1

    def _result(self, future: Any) -> list[Any]:
        from distributed import KilledWorker

        again = "with the same store a new run goes on"
        try:
            found: list[Any] = future.result()
            return found
        except KilledWorker as error:
            raise UserError(
                "workers of the cluster died again and again over one task, the last of them "
                f"{error.last_worker.address}: give them more memory, or see their logs; {again}"
            ) from error
        except (CancelledError, OSError, TimeoutError) as error:
            if future.status == "error":  # of the task itself
                raise
            raise UserError(f"the cluster is gone ({in_one_line(error)}): start it again; {again}") from error

    def check(self, store: Store | None, image: ImageLike | None, warn: Callable[[str], None]) -> None:
        """Refuse a cluster of which some worker could not do its tasks: it sees the store and the images, or not.

        An image that a worker alone cannot read might be taken for a broken one, and left out.
        """
        probe, ours = entry_key("probe", token_hex()), _versions()
        name = image if isinstance(image, str | Path) else None  # others travel with their tasks
        sha256 = ""
        if name:
            with suppress(ImageError):  # whether that matters is decided where it is read
                sha256 = content_hash(name)
        try:
            if store is not None:
                store.put(probe, {"x": np.zeros(1)})
            found = self.client.run(_problem, store, probe, name, sha256, ours)
        finally:
            if store is not None:
                store.path(probe).unlink(missing_ok=True)
        if not found:
            raise UserError("the cluster has no workers: start some (`dask worker ADDRESS --nthreads 1`)")
        for worker, (problem, theirs) in sorted(found.items()):
            if problem:
                raise UserError(f"worker {worker} of the cluster {problem}")
            if theirs != ours:
                warn(
                    f"worker {worker} has {theirs}, this machine {ours}: the last bits of the model may differ"
                )


def _problem(
    store: Store | None, probe: str, image: str | Path | None, sha256: str, versions: str
) -> tuple[str, str]:
    """On a worker: why it could not do its tasks, if so, and its versions."""
    problem, here = "", _versions()
    ours, theirs = (text.partition(",")[0] for text in (here, versions))
    try:
        if ours != theirs:
            problem = f"has {ours}, and this machine {theirs}: install the same"
        elif store is not None and store.found(probe) is None:
            where = "name a folder that all workers reach (`store=FOLDER`)"
            problem = f"does not see the store in {store.folder}: {where}"
        elif image and sha256 and content_hash(image) != sha256:
            problem = f"does not see the same {image}: give images that all workers reach, by the same name"
        elif store is not None:
            store.put(probe, {"x": np.zeros(1)})
    except UserError as error:
        problem = f"cannot work: {error}"
    return problem, here


def _versions() -> str:
    packages = [f"{name} {metadata.version(name)}" for name in ("numpy", "onnxruntime")]
    return ", ".join([f"mhpatchcore {__version__}", *packages])


def _each(task: Callable[[Item], Out], items: Sequence[Item]) -> list[Out]:
    """On a worker."""
    limit_blas()
    return [task(item) for item in items]


@contextmanager
def executor_of(address: str) -> Iterator[DaskExecutor]:
    """The workers of a cluster, whose dashboard is named on stderr. A local one ends with the block."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise UserError("a cluster needs Dask: pip install 'mhpatchcore[dask]'") from error
    here = re.fullmatch(r"local:([1-9]\d*)", address)
    if here is None and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", address):
        raise UserError(f"a cluster is tcp://HOST:PORT of a Dask scheduler, or local:N, not '{address}'")
    with ExitStack() as ending:
        try:
            target = ending.enter_context(_local_cluster(distributed, int(here[1]))) if here else address
            client = distributed.Client(target, timeout=SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise UserError(
                f"no Dask scheduler answers at {address} ({in_one_line(error)}): start one (`dask scheduler`), or "
                "check the address"
            ) from error
        ending.callback(client.close)
        n, dashboard = len(client.nthreads()), client.dashboard_link or "off"
        print(f"cluster: {n} worker{'' if n == 1 else 's'}, dashboard {dashboard}", file=sys.stderr)
        yield DaskExecutor(client)


def _local_cluster(distributed: Any, workers: int) -> Any:
    """Processes of this machine with one thread each, on the loopback alone; the dashboard takes any free port.

    They are not profiled: Dask keeps what it has seen of an hour, and their memory would grow by 5 MB a minute.
    """
    with import_module("dask").config.set({"distributed.worker.profile.enabled": False}):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        )
