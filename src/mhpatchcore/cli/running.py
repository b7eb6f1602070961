"""Where a command's tasks run: the cores of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from mhpatchcore.cli.console import RUN
from mhpatchcore.fitting.executor import Executor, Threads
from mhpatchcore.runtime.parallel import available_cores

ClusterOption = typer.Option(
    None,
    "--cluster",
    metavar="WHERE",
    help="Run on a Dask cluster: tcp://host:8786, the address of its scheduler, or local:N, N processes here.",
    rich_help_panel=RUN,
)


@contextmanager
def running_on(cluster: str | None, workers: int | None) -> Iterator[Executor]:
    """The executor for as long as the block lasts."""
    if cluster is None:
        yield Threads(workers or available_cores())
        return
    from mhpatchcore.cluster.dask import executor_of

    with executor_of(cluster) as executor:
        yield executor
