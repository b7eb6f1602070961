"""What a fit will take in memory, told before it starts, and how to carry it out within a budget.

What is resident once the network is loaded and has run is measured, not guessed: interpreter, libraries, weights,
activations. On top of that each phase holds arrays whose sizes follow from the settings. The phases come one after the
other, so the peak is that of the largest. Only `workers` and `batch` are chosen here: no model depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.bank.farthest_first import BLOCK, ROWS_PER_TASK
from mhpatchcore.bank.geores import usual_candidates
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.extraction import Execution
from mhpatchcore.metric.distances import QUERIES_PER_BLOCK, TARGETS_PER_BLOCK
from mhpatchcore.metric.whitening import ROWS_PER_BLOCK
from mhpatchcore.runtime.memory import in_words, share_one_heap
from mhpatchcore.runtime.parallel import available_cores
from mhpatchcore.runtime.telemetry import current_rss, own_peak

SINGLE, DOUBLE = 4, 8
# 99 % of the variance took up to 0.82·d directions (EfficientNet-Lite0 on magnetic tile; ResNet-18 0.68·d there)
USUAL_VARIANCE, USUAL_SHARE = 0.99, 0.85
# freed pieces that the C library cannot use again; names, threads and other things that are not counted
SLACK, SMALL_THINGS = 1.2, 10_000_000


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
    """What decides the size of the arrays: the network's output and what it leaves in memory.

    `resident` bytes are there with the network loaded, `activations` come for each image that runs through it.
    """

    patches: int
    columns: int
    view: int
    resident: int
    activations: int
    reached: int

    @staticmethod
    def measured(backbone: Backbone) -> Footprint:
        """Load the network and run it once."""
        height, width = backbone.info.height, backbone.info.width
        backbone.session  # noqa: B018 (made when first asked for)
        before = current_rss()
        backbone(np.zeros((1, height, width, 3), np.uint8))
        ran = current_rss()
        outputs = SINGLE * backbone.patches_per_image * backbone.info.columns
        return Footprint(
            patches=backbone.patches_per_image,
            columns=backbone.info.columns,
            view=height * width * 3 * SINGLE,
            resident=before,
            activations=max(ran - before, 2 * outputs),
            reached=own_peak(),
        )


def within_budget(execution: Execution, backbone: Backbone, config: Config, images: int) -> Execution:
    """The execution with as many workers, then as large a batch, as its budget allows; itself without a budget."""
    if execution.memory is None:
        return execution
    share_one_heap()
    estimate = chosen(execution, execution.memory, Footprint.measured(backbone), config, images)
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
    raise UserError(
        f"a fit cannot be done in {in_words(memory)}: it needs about {in_words(ways[-1].peak)} with one worker; "
        "give it as much, or take a smaller network, --size, --rows or --local-rows"
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
    def rows(self) -> int:
        return min(self.config.chunk_images, self.images) * self.network.patches

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
    def stored(self) -> int:
        """Descriptors of a chunk as they are spooled."""
        return self.rows * self.network.columns * np.dtype(self.config.stored_as).itemsize

    @property
    def patch(self) -> int:
        """A patch on its way into the bank: z, raw descriptor, origin."""
        return SINGLE * self.reduced + self.stored // self.rows + 12

    @property
    def scatter(self) -> int:
        return DOUBLE * self.network.columns**2

    def extract(self) -> int:
        views = min(self.config.chunk_images, self.images) * self.network.view
        # widened to float32, then to float64, from which the scatter is made
        values = self.rows * self.network.columns
        moments = DOUBLE * values + self.scatter + max(SINGLE * values, 2 * self.scatter)
        each = views + self.stored + moments
        waiting = self.stored + self.scatter
        return self.workers * each + self.ahead * waiting + 3 * self.scatter

    def bank(self) -> int:
        c = self.config
        search = SINGLE * (ROWS_PER_TASK * (TARGETS_PER_BLOCK + self.reduced) + 2 * BLOCK**2)
        whitened = SINGLE * (self.rows * self.reduced + ROWS_PER_BLOCK * self.network.columns)
        chunk = self.stored + whitened + search
        summary = max(c.m_c, -(-2 * c.K // self.chunks))
        held = {
            "always-full": min(self.chunks * summary, 4 * max(c.K, c.m_c) + summary) + 2 * c.K,
            "tree": (self.chunks.bit_length() + 1) * c.m_c + 2 * c.K,
            "geores": (self.chunks.bit_length() + 1) * c.m_c
            + 2 * c.K
            + 2 * (c.q or usual_candidates(c.K, c.alpha)),
            "offline-greedy": 2 * self.images * self.network.patches,
            "kmeans": 6 * c.K,
            "random": 3 * c.K,
        }[c.constructor]
        waiting = min(summary, self.rows) * self.patch
        return self.workers * chunk + self.ahead * waiting + held * self.patch

    def calibrate(self) -> int:
        fraction, k = self.config.fraction, self.reduced
        K = self.config.K if fraction is None else int(fraction * self.images * self.network.patches)
        bank = K * self.patch + 4 * SINGLE * K * k  # searched whole for its spacing, then in parts
        table = (available_cores() + 1) * SINGLE * QUERIES_PER_BLOCK * K
        # all products with a part of the bank are formed where images are ranked
        image = (
            SINGLE * self.network.patches * (K // self.config.parts + self.network.columns + 2 * k)
            + self.stored
        )
        return bank + max(table, self.workers * image)


def _halvings(batch: int) -> list[int]:
    """
    >>> _halvings(6)
    [6, 3, 1]
    """
    return [batch] if batch == 1 else [batch, *_halvings(batch // 2)]
