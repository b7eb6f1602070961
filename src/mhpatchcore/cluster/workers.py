"""Whether the workers of a cluster can do what they are to do, before they begin."""

from __future__ import annotations

from pathlib import Path

from mhpatchcore import __version__
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.fitting.executor import Executor
from mhpatchcore.inputs.sources import content_hash


def check_workers(executor: Executor, image: str | Path | None) -> None:
    """Refuse a cluster of which some worker has another version, or does not see the image as this machine does.

    It would take every image for a broken one.
    """
    if not isinstance(executor, DaskExecutor):
        return
    found = executor.client.run(_problem, image, _hash(image), __version__)
    if not found:
        raise UserError("the cluster has no workers: start some (`dask worker ADDRESS --nthreads 1`)")
    for worker, problem in sorted(found.items()):
        if problem:
            raise UserError(f"worker {worker} of the cluster {problem}")


def _problem(image: str | Path | None, sha256: str, version: str) -> str:
    """On a worker."""
    if version != __version__:
        return f"has mhpatchcore {__version__}, and this machine {version}: install the same"
    if _hash(image) != sha256:
        return f"does not see {image}: give images that all workers reach, by the same name"
    return ""


def _hash(image: str | Path | None) -> str:
    try:
        return content_hash(image) if image is not None else ""
    except ImageError:
        return ""
