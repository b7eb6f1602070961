"""The first half of a fit: images become descriptors, chunk by chunk, spooled so that they can be read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.spool import Spool
from mhpatchcore.inputs.images import ImageLike, load_view
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import available_cores, ordered_map

if TYPE_CHECKING:
    from mhpatchcore.fitting.budget import Estimate

Out = TypeVar("Out")


def _silent(*_: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Execution:
    """How work is carried out. Nothing here changes the model.

    `spool` is "disk", or "none" to run the backbone again in every pass. `progress(phase, done, total)` hears
    of every chunk, `warn(message)` of every image that is skipped because it cannot be read, and
    `spent(phase, cpu_seconds, bytes_spooled)` of costs that cannot be seen from outside (see `telemetry.py`). With a
    budget of `memory` bytes `workers` and `batch` are upper bounds, and `foresee(estimate)` hears of the peak to be
    expected.
    """

    workers: int = field(default_factory=available_cores)
    batch: int = 1
    spool: str = "disk"
    spool_folder: str | Path | None = None
    memory: int | None = None
    skip_broken: bool = False
    progress: Callable[[str, int, int], None] = _silent
    warn: Callable[[str], None] = _silent
    spent: Callable[[str, float, int], None] = _silent
    foresee: Callable[[Estimate], None] = _silent

    def __post_init__(self) -> None:
        if self.spool not in ("disk", "none"):
            raise UserError(f"the spool is disk or none, not '{self.spool}'")
        if self.workers < 1 or self.batch < 1:
            raise UserError("workers and batch are at least 1")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Descriptors (len(images)·h·w, d) of a few images, given by their index in the training set."""

    images: tuple[int, ...]
    rows: Array


class Extraction:
    """The training images `taken` (indices into `images`), cut into chunks and run through the backbone.

    `first` runs the backbone over all chunks and spools them; after that `again` reads them as often as
    needed. Close it to give the disk space back.
    """

    def __init__(
        self,
        images: Sequence[ImageLike],
        taken: Sequence[int],
        backbone: Backbone,
        config: Config,
        execution: Execution,
    ) -> None:
        self.images, self.taken = images, taken
        self.backbone, self.config, self.execution = backbone, config, execution
        self.members: list[tuple[int, ...]] = []
        self._entry: dict[int, int] = {}  # images that could be read, and where they stand in the spool
        self._plan = _cut(taken, config.chunk_images)
        self.spool: Spool | None = None
        if execution.spool == "disk":
            rows = len(taken) * backbone.patches_per_image
            self.spool = Spool(backbone.info.columns, config.stored_as, execution.spool_folder, rows)

    def first(self, function: Callable[[Chunk], Out], phase: str = "extract") -> Iterator[tuple[Chunk, Out]]:
        """Every chunk with `function` of it, in order; chunks are computed in parallel and spooled."""
        if self.members:  # it has been through them before, and some are left out now
            yield from self.again("relearn", lambda chunk: (chunk, function(chunk)))
            return

        def work(members: tuple[int, ...]) -> tuple[Chunk, Out]:
            chunk = self._extract(members, self.execution.warn)
            return chunk, function(chunk)

        done = 0
        self.execution.progress(phase, done, len(self.taken))
        for members, (chunk, result) in zip(
            self._plan, ordered_map(work, self._plan, self.execution.workers), strict=True
        ):
            if chunk.images:  # all of them may have been left out
                self.members.append(chunk.images)
                self._entry |= {image: len(self._entry) + i for i, image in enumerate(chunk.images)}
                if self.spool is not None:
                    self.spool.append(chunk.rows, len(chunk.images))
                    self.execution.spent(phase, 0.0, chunk.rows.nbytes)
                yield chunk, result
            done += len(members)
            self.execution.progress(phase, done, len(self.taken))

    def again(self, phase: str, function: Callable[[Chunk], Out]) -> Iterator[Out]:
        """`function` of every chunk in order, computed in parallel, from the spool or the backbone."""
        done, total = 0, sum(map(len, self.members))
        self.execution.progress(phase, done, total)
        work = ordered_map(lambda members: function(self.read(members)), self.members, self.execution.workers)
        for members, result in zip(self.members, work, strict=True):
            yield result
            done += len(members)
            self.execution.progress(phase, done, total)

    def read(self, members: tuple[int, ...]) -> Chunk:
        """Some of the images that `first` has been through."""
        if self.spool is None:
            return self._extract(members, _silent)
        return Chunk(members, self.spool.read(*(self._entry[image] for image in members)))

    def without(self, left_out: Collection[int]) -> Extraction:
        """As if some images had never been there: the others are numbered and cut into chunks anew.

        The descriptors stay where they are, so this is to be closed by closing the original.
        """
        kept = [i for i in range(len(self.images)) if i not in left_out]
        number = {old: new for new, old in enumerate(kept)}
        rest = copy(self)
        rest.images = [self.images[i] for i in kept]
        rest.taken = [number[i] for i in self.taken if i in number]
        rest._entry = {number[i]: entry for i, entry in self._entry.items() if i in number}
        rest._plan = _cut(rest.taken, self.config.chunk_images)
        readable = (tuple(i for i in members if i in rest._entry) for members in rest._plan)
        rest.members = [members for members in readable if members]
        return rest

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()

    def _extract(self, members: Sequence[int], warn: Callable[[str], None]) -> Chunk:
        """Decode and run the backbone; an image that cannot be read is an error or, if asked, left out."""
        views, kept = [], []
        for image in members:
            try:
                views.append(load_view(self.images[image], self.config.preprocessing)[0])
                kept.append(image)
            except ImageError as error:
                if not self.execution.skip_broken:
                    raise
                warn(f"skipped: {error}")
        return Chunk(tuple(kept), stored_descriptors(views, self.backbone, self.config, self.execution.batch))


def _cut(taken: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(taken[i : i + size]) for i in range(0, len(taken), size)]


def mixed_chunks(members: Sequence[tuple[int, ...]], config: Config) -> list[tuple[int, ...]]:
    """Chunks of the same images in random order; as they are if the configuration does not shuffle.

    Images that stand side by side are often alike, taken one after the other of the same lot. A chunk of them would
    spend its share of the bank on small differences.
    """
    if not config.shuffle:
        return list(members)
    images = [image for chunk in members for image in chunk]
    order = np.random.default_rng(config.seed).permutation(len(images))
    return _cut([images[i] for i in order], config.chunk_images)


def stored_descriptors(views: Sequence[Array], backbone: Backbone, config: Config, batch: int = 1) -> Array:
    """Descriptors (len(views)·h·w, d), rounded to the type in which they are spooled and kept in the bank."""
    rows = np.empty((len(views), backbone.patches_per_image, backbone.info.columns), config.stored_as)
    largest = float(np.finfo(config.stored_as).max)
    for start in range(0, len(views), batch):
        descriptors = backbone(np.stack(views[start : start + batch]))
        if (
            not max(-float(descriptors.min()), float(descriptors.max())) < largest
        ):  # also where there is a NaN
            raise UserError(
                f"descriptors exceed the range of {config.stored_as}: use --stored-as float32, or check the weights"
            )
        rows[start : start + batch] = descriptors.reshape(-1, *rows.shape[1:])
    return rows.reshape(-1, backbone.info.columns)
