"""What a fit will take in memory, estimated before it starts, and how to carry it out within a budget.

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
from mhpatchcore.fitting.moments import MOMENTS_FAN_IN
from mhpatchcore.inputs.loading import largest_decoding
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.metric.distances import QUERIES_PER_BLOCK, ROWS_PER_TASK, TARGETS_PER_BLOCK
from mhpatchcore.runtime.parallel import available_cores, share_one_heap
from mhpatchcore.runtime.system import current_rss, own_peak
from mhpatchcore.runtime.texts import format_bytes

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
            f"{name} {format_bytes(getattr(self, name))}" for name in ("extract", "bank", "calibrate")
        )
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"about {format_bytes(self.peak)} with {workers} ({format_bytes(self.resident)} resident; {phases} more)"


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
    needed = format_bytes(ways[-1].peak)
    if estimated(replace(network, decoding=0), config, images, 1, 1).peak <= memory:
        decoding = f"decoding {network.largest} takes {format_bytes(network.decoding)}"
        raise UserError(
            f"a fit cannot be done in {format_bytes(memory)}: {decoding}, and all together about {needed} with one "
            "worker; give it as much, or save such images smaller"
        )
    raise UserError(
        f"a fit cannot be done in {format_bytes(memory)}: it needs about {needed} with one worker; "
        "give it as much, or take a smaller network, smaller views or a smaller bank"
    )


def estimated(network: Footprint, config: Config, images: int, workers: int, batch: int) -> Estimate:
    """The peak of a fit of so many images: the arrays that are alive together in each phase."""
    running = workers * batch * network.activations
    return Estimate(
        workers,
        batch,
        network.reached,
        network.resident + running + SMALL_THINGS,
        extract=int(SLACK * _extract_bytes(network, config, images, workers)),
        bank=int(SLACK * _bank_bytes(network, config, images, workers)),
        calibrate=int(SLACK * _calibrate_bytes(network, config, images, workers)),
    )


def _chunks(config: Config, images: int) -> tuple[int, int]:
    """Images of a chunk, and how many chunks there are."""
    return min(config.chunk_images, images), -(-images // config.chunk_images)


def _reduced(config: Config, d: int) -> int:
    """k: as it is set, or what a share of the variance is assumed to take, since only the first pass can tell."""
    if config.reduction == "none" or (config.components is None and (config.variance or 1) > USUAL_VARIANCE):
        return d
    return min(config.components or ceil(USUAL_SHARE * d), d)


def _levels(chunks: int, fan_in: int) -> int:
    """Of a tree over so many chunks."""
    return 1 + max(chunks, 1).bit_length() // (fan_in.bit_length() - 1)


def _extract_bytes(network: Footprint, config: Config, images: int, workers: int) -> int:
    chunk_images, chunks = _chunks(config, images)
    # views of a scale that go through the network before their descriptors are written
    at_once = max(chunk_images, VIEWS_PER_ENTRY) if config.tiled else chunk_images
    views = at_once * (sum(network.views) + SINGLE * max(network.views))
    stored = HALF * at_once * sum(network.stored)
    scatter = DOUBLE * network.columns**2
    # widened to float32 and float64, once more where a layer is taken to a coarser grid
    moments = (SINGLE + 2 * DOUBLE) * chunk_images * max(network.stored) + 3 * scatter
    held = (_levels(chunks, MOMENTS_FAN_IN) + 2) * len(network.patches) * scatter
    # a worker decodes its images one after the other, before it runs the network
    task = views + max(network.decoding, 2 * stored + moments)
    waiting = scatter if workers > 1 else 0
    return workers * task + waiting + held


def _bank_bytes(network: Footprint, config: Config, images: int, workers: int) -> int:
    chunk_images, chunks = _chunks(config, images)
    K, m_c, patches, reduced = config.K, config.m_c, max(network.patches), _reduced(config, network.columns)
    patch = SINGLE * reduced + 16  # on its way into the bank: z and origin
    rows = chunk_images * patches
    search = SINGLE * (ROWS_PER_TASK * (TARGETS_PER_BLOCK + reduced) + 2 * BLOCK**2)
    # whitened, with a copy while chunks are put together
    chunk = HALF * chunk_images * max(network.stored) + 2 * rows * patch + search
    summary = max(m_c, -(-2 * K // chunks))
    held = {
        "always-full": min(2 * chunks * summary, (_levels(chunks, FAN_IN) + 2) * FAN_IN * max(K, m_c)),
        "tree": (chunks.bit_length() + 1) * m_c + 2 * K,
        "geores": (chunks.bit_length() + 1) * max(m_c, config.q or K) + 2 * K,
        "offline-greedy": 2 * images * patches,
        "kmeans": 6 * K,
    }[config.constructor]
    waiting = min(summary, rows) * patch if workers > 1 else 0
    return workers * chunk + waiting + held * patch


def _calibrate_bytes(network: Footprint, config: Config, images: int, workers: int) -> int:
    fraction, reduced = config.fraction, _reduced(config, network.columns)
    K = config.K if fraction is None else int(fraction * images * max(network.patches))
    # raw, whitened, and as targets in a graph and its session, at every scale
    bank = len(network.patches) * K * (HALF * network.columns + 16 + 5 * SINGLE * reduced)
    table = (available_cores() + 1) * SINGLE * QUERIES_PER_BLOCK * K
    # all distances between an image's patches and the bank are formed, in arenas that every scale keeps, and once
    # more where images are ranked
    image = SINGLE * sum(network.patches) * (K + 4 * reduced) + HALF * max(network.stored)
    return bank + max(table, workers * image) + GRAPH_TOOLS


def _halvings(batch: int) -> list[int]:
    """
    >>> _halvings(6)
    [6, 3, 1]
    """
    return [batch] if batch == 1 else [batch, *_halvings(batch // 2)]
