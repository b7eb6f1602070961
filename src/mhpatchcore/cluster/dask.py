"""A cluster by its address: `tcp://HOST:PORT` of a Dask scheduler, or `local:N` for N processes of this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.fitting.dask_executor import DaskExecutor

SECONDS = 10  # in which a scheduler answers


def _on_stderr(message: str) -> None:
    print(message, file=sys.stderr)


@contextmanager
def executor_of(address: str, tell: Callable[[str], None] = _on_stderr) -> Iterator[DaskExecutor]:
    """The workers of a cluster; `tell` hears where its dashboard is. A local one ends with the block."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise UserError("a cluster needs Dask: pip install 'mhpatchcore[dask]'") from error
    here = re.fullmatch(r"local:([1-9]\d*)", address)
    if here is None and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+", address):
        raise UserError(f"--cluster takes tcp://HOST:PORT of a Dask scheduler, or local:N, not '{address}'")
    try:
        target: Any = address
        if here is not None:
            target = _local_cluster(distributed, int(here[1]))
        client = distributed.Client(target, timeout=SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(
            f"no Dask scheduler answers at {address} ({in_one_line(error)}): start one (`dask scheduler`), or check "
            "the address"
        ) from error
    try:
        tell(told(client))
        yield DaskExecutor(client)
    finally:
        client.close()
        if here is not None:
            target.close()


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


def told(client: Any) -> str:
    """How large a cluster is and where its dashboard is."""
    workers = len(client.nthreads())
    return f"cluster: {workers} {'worker' if workers == 1 else 'workers'}, dashboard {client.dashboard_link or 'off'}"
