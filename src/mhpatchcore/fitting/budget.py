"""What a fit will take in memory, told before it starts, and how to carry it out within a budget.

What is resident once the network is loaded and has run is measured, not guessed: interpreter, libraries, weights,
activations. On top of that each phase holds arrays whose sizes follow from the settings. The phases come one after the
other, so the peak is that of the largest. Only `workers` and `batch` are chosen here: no model depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank.always_full import FAN_IN
from mhpatchcore.bank.farthest_first import BLOCK
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.describing import VIEWS_PER_ENTRY
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import number_of_views
from mhpatchcore.fitting.summing import MOMENTS_FAN_IN
from mhpatchcore.inputs.footprint import largest_decoding
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.metric.distances import QUERIES_PER_BLOCK, ROWS_PER_TASK, TARGETS_PER_BLOCK
from mhpatchcore.runtime.memory import in_words, share_one_heap
from mhpatchcore.runtime.parallel import available_cores
from mhpatchcore.runtime.telemetry import current_rss, own_peak

HALF, SINGLE, DOUBLE = 2, 4, 8
# 99 % of the variance took up to 0.82·d directions (EfficientNet-Lite0 on magnetic tile; ResNet-18 0.68·d there)
USUAL_VARIANCE, USUAL_SHARE = 0.99, 0.85
# freed pieces that the C library cannot use again; names, threads and other things that are not counted
SLACK, SMALL_THINGS = 1.2, 10_000_000
GRAPH_TOOLS = 20_000_000  # what comes with writing a scoring graph


@dataclass(frozen=True)
class Estimate:
    """Bytes of peak memory: what has been reached already, what is resident, and what each phase adds to it."""

    workers: int
    batch: int
    reached: int
    resident: int
    extract: int
    bank: int
    calibrate: int

    @property
    def peak(self) -> int:
        return max(self.reached, self.resident + max(self.extract, self.bank, self.calibrate))

    def __str__(self) -> str:
        phases = ", ".join(
            f"{name} {in_words(getattr(self, name))}" for name in ("extract", "bank", "calibrate")
        )
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return (
            f"about {in_words(self.peak)} with {workers} ({in_words(self.resident)} resident; {phases} more)"
        )


@dataclass(frozen=True)
class Footprint:
    """What decides the size of the arrays: the networks' outputs and what they leave in memory.

    For each scale the patches of a view, the numbers that are stored of it and its bytes of pixels. `resident` bytes
    are there with all networks loaded, `activations` come for each image that runs through the largest of them.
    `decoding` is what the image that takes most, `largest`, takes while it is decoded.
    """

    patches: tuple[int, ...]
    stored: tuple[int, ...]
    views: tuple[int, ...]
    columns: int
    resident: int
    activations: int
    reached: int
    decoding: int = 0
    largest: str = ""

    @staticmethod
    def measured(backbones: Sequence[Backbone]) -> Footprint:
        """Load the networks and run each once; they go again, since a fit loads its own."""
        infos = [backbone.info for backbone in backbones]
        loaded = [replace(backbone) for backbone in backbones]
        for backbone in loaded:
            backbone.session  # noqa: B018 (made when first asked for)
        before = current_rss()
        for backbone, info in zip(loaded, infos, strict=True):
            backbone(np.zeros((1, info.height, info.width, 3), np.uint8))
        outputs = SINGLE * max(info.stored for info in infos)
        return Footprint(
            patches=tuple(info.patches for info in infos),
            stored=tuple(info.stored for info in infos),
            views=tuple(info.height * info.width * 3 for info in infos),
            columns=infos[0].dim,
            resident=before,
            activations=max(current_rss() - before, 2 * outputs),
            reached=own_peak(),
        )


def within_budget(
    execution: Execution, backbones: Sequence[Backbone], config: Config, images: Sequence[ImageLike]
) -> Execution:
    """The execution with as many workers, then as large a batch, as its budget allows; itself without a budget."""
    if execution.memory is None:
        return execution
    if execution.runs_on.remote:
        raise UserError("a budget is for this machine: the workers of a cluster have limits of their own")
    share_one_heap()
    decoding, largest = largest_decoding(images, config.views)
    network = replace(Footprint.measured(backbones), decoding=decoding, largest=largest)
    estimate = chosen(execution, execution.memory, network, config, max(number_of_views(images, config)))
    execution.foresee(estimate)
    return replace(execution, workers=estimate.workers, batch=estimate.batch)


def chosen(execution: Execution, memory: int, network: Footprint, config: Config, images: int) -> Estimate:
    """The fastest way to stay within `memory` bytes, or a refusal that names the least that would do."""
    ways = [
        estimated(network, config, images, workers, batch)
        for workers in range(execution.workers, 0, -1)
        for batch in _halvings(execution.batch)
    ]
    for way in ways:
        if way.peak <= memory:
            return way
    needed = in_words(ways[-1].peak)
    if estimated(replace(network, decoding=0), config, images, 1, 1).peak <= memory:
        decoding = f"decoding {network.largest} takes {in_words(network.decoding)}"
        raise UserError(
            f"a fit cannot be done in {in_words(memory)}: {decoding}, and all together about {needed} with one worker; "
            "give it as much, or save such images smaller"
        )
    raise UserError(
        f"a fit cannot be done in {in_words(memory)}: it needs about {needed} with one worker; "
        "give it as much, or take a smaller network, smaller views or a smaller bank"
    )


def estimated(network: Footprint, config: Config, images: int, workers: int, batch: int) -> Estimate:
    """The peak of a fit of so many images."""
    sizes = _Sizes(network, config, images, workers)
    running = workers * batch * network.activations
    return Estimate(
        workers,
        batch,
        network.reached,
        network.resident + running + SMALL_THINGS,
        extract=int(SLACK * sizes.extract()),
        bank=int(SLACK * sizes.bank()),
        calibrate=int(SLACK * sizes.calibrate()),
    )


@dataclass(frozen=True)
class _Sizes:
    """Bytes of the arrays that are alive together in each phase."""

    network: Footprint
    config: Config
    images: int
    workers: int

    @property
    def ahead(self) -> int:
        """Chunks under way or waiting to be taken, beside those being worked on."""
        return 1 if self.workers > 1 else 0

    @property
    def chunk_images(self) -> int:
        return min(self.config.chunk_images, self.images)

    @property
    def views_at_once(self) -> int:
        """Views of a scale that go through the network before their descriptors are written."""
        return max(self.chunk_images, VIEWS_PER_ENTRY) if self.config.tiled else self.chunk_images

    @property
    def patches(self) -> int:
        """Of a view of the scale that has the most."""
        return max(self.network.patches)

    @property
    def chunks(self) -> int:
        return -(-self.images // self.config.chunk_images)

    @property
    def reduced(self) -> int:
        """k: as it is set, or what a share of the variance is assumed to take, since only the first pass can tell."""
        c, d = self.config, self.network.columns
        if c.reduction == "none" or (c.components is None and (c.variance or 1) > USUAL_VARIANCE):
            return d
        return min(c.components or ceil(USUAL_SHARE * d), d)

    @property
    def patch(self) -> int:
        """A patch on its way into the bank: z and origin."""
        return SINGLE * self.reduced + 16

    @property
    def scatter(self) -> int:
        return DOUBLE * self.network.columns**2

    def extract(self) -> int:
        views = self.views_at_once * (sum(self.network.views) + SINGLE * max(self.network.views))
        stored = HALF * self.views_at_once * sum(self.network.stored)
        # widened to float32 and float64, once more where a layer is taken to a coarser grid
        values = self.chunk_images * max(self.network.stored)
        moments = (SINGLE + 2 * DOUBLE) * values + 3 * self.scatter
        levels = 1 + max(self.chunks, 1).bit_length() // (MOMENTS_FAN_IN.bit_length() - 1)
        held = (levels + 2) * len(self.network.patches) * self.scatter
        # a worker decodes its images one after the other, before it runs the network
        task = views + max(self.network.decoding, 2 * stored + moments)
        return self.workers * task + self.ahead * self.scatter + held

    def bank(self) -> int:
        c = self.config
        rows = self.chunk_images * self.patches
        search = SINGLE * (ROWS_PER_TASK * (TARGETS_PER_BLOCK + self.reduced) + 2 * BLOCK**2)
        # whitened, with a copy while chunks are put together
        chunk = HALF * self.chunk_images * max(self.network.stored) + 2 * rows * self.patch + search
        summary = max(c.m_c, -(-2 * c.K // self.chunks))
        levels = 1 + max(self.chunks, 1).bit_length() // (FAN_IN.bit_length() - 1)
        held = {
            "always-full": min(2 * self.chunks * summary, (levels + 2) * FAN_IN * max(c.K, c.m_c)),
            "tree": (self.chunks.bit_length() + 1) * c.m_c + 2 * c.K,
            "geores": (self.chunks.bit_length() + 1) * max(c.m_c, c.q or c.K) + 2 * c.K,
            "offline-greedy": 2 * self.images * self.patches,
            "kmeans": 6 * c.K,
        }[c.constructor]
        waiting = min(summary, rows) * self.patch
        return self.workers * chunk + self.ahead * waiting + held * self.patch

    def calibrate(self) -> int:
        fraction, k = self.config.fraction, self.reduced
        K = self.config.K if fraction is None else int(fraction * self.images * self.patches)
        # raw, whitened, and as targets in a graph and its session, at every scale
        bank = len(self.network.patches) * K * (HALF * self.network.columns + 16 + 5 * SINGLE * k)
        table = (available_cores() + 1) * SINGLE * QUERIES_PER_BLOCK * K
        # all distances between an image's patches and the bank are formed, in arenas that every scale keeps, and once
        # more where images are ranked
        image = SINGLE * sum(self.network.patches) * (K + 4 * k) + HALF * max(self.network.stored)
        return bank + max(table, self.workers * image) + GRAPH_TOOLS


def _halvings(batch: int) -> list[int]:
    """
    >>> _halvings(6)
    [6, 3, 1]
    """
    return [batch] if batch == 1 else [batch, *_halvings(batch // 2)]
