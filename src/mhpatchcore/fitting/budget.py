"""What a fit will take in memory, estimated before it starts, and how to carry it out within a budget.

What is resident once the network is loaded and has run is measured, not guessed: interpreter, libraries, weights,
activations. On top of that each phase holds arrays whose sizes follow from the settings. The phases come one after the
other, so the peak is that of the largest. Only `workers` and `batch` are chosen here: no model depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log2

import numpy as np

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import number_of_views
from mhpatchcore.inputs.loading import largest_decoding
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.runtime.system import available_cores, current_rss, own_peak, share_one_heap
from mhpatchcore.runtime.texts import format_bytes

HALF, SINGLE, DOUBLE = 2, 4, 8
# 99 % of the variance took up to 0.82·d directions (EfficientNet-Lite0 on magnetic tile; ResNet-18 0.68·d there)
USUAL_VARIANCE, USUAL_SHARE = 0.99, 0.85
# freed pieces that the C library cannot use again; names, threads and other things that are not counted
SLACK, SMALL_THINGS = 1.2, 10_000_000
GRAPH_TOOLS = 20_000_000  # what comes with writing a scoring graph
SEARCH = 4_000_000  # buffers in which distances are formed, by each worker


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
        return Footprint(
            patches=tuple(info.patches for info in infos),
            stored=tuple(info.stored for info in infos),
            views=tuple(info.height * info.width * 3 for info in infos),
            columns=infos[0].dim,
            resident=before,
            activations=max(current_rss() - before, 2 * SINGLE * max(info.stored for info in infos)),
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
    batches = [execution.batch >> halvings for halvings in range(execution.batch.bit_length())]
    for workers, batch in product(range(execution.workers, 0, -1), batches):
        way = estimated(network, config, images, workers, batch)
        if way.peak <= memory:
            return way
    why, cure = "", "give it as much, or take a smaller network, smaller views or a smaller bank"
    if estimated(replace(network, decoding=0), config, images, 1, 1).peak <= memory:
        why = f"decoding {network.largest} takes {format_bytes(network.decoding)}, and all together "
        cure = "give it as much, or save such images smaller"
    raise UserError(
        f"a fit cannot be done in {format_bytes(memory)}: {why}it needs about {format_bytes(way.peak)} with one "
        f"worker; {cure}"
    )


def estimated(network: Footprint, config: Config, images: int, workers: int, batch: int) -> Estimate:
    """The peak of a fit of so many images: the arrays that are alive together in each phase."""
    chunk, chunks = min(config.chunk_images, images), ceil(images / config.chunk_images)
    # of a binary tree over the chunks; one of four nodes has half as many
    levels = 1 + int(log2(max(chunks, 1)))
    d, patches, scales = network.columns, max(network.patches), len(network.patches)
    k = d  # as it is set, or what a share of the variance is assumed to take, since only the first pass can tell
    if config.reduction != "none" and (config.components or (config.variance or 1) <= USUAL_VARIANCE):
        k = min(config.components or ceil(USUAL_SHARE * d), d)
    patch = SINGLE * k + 16  # on its way into the bank: z and origin
    others = 1 if workers > 1 else 0  # results that wait for their turn

    # a worker decodes its images one after the other, before it runs the network and writes descriptors; then these
    # are widened to float32 and float64, once more where a layer is taken to a coarser grid
    pixels = chunk * (sum(network.views) + SINGLE * max(network.views))
    stored, scatter = HALF * chunk * sum(network.stored), DOUBLE * d**2
    moments = (SINGLE + 2 * DOUBLE) * chunk * max(network.stored) + 3 * scatter
    extract = workers * (pixels + max(network.decoding, 2 * stored + moments))
    extract += (others + (levels // 4 + 3) * scales) * scatter

    # chunks are whitened, with a copy while they are put together
    K, m_c, rows = config.K, config.m_c, chunk * patches
    summary = max(m_c, ceil(2 * K / chunks))
    held = {
        "always-full": min(2 * chunks * summary, 4 * (levels // 2 + 3) * max(K, m_c)),
        "tree": (levels + 1) * m_c + 2 * K,
        "geores": (levels + 1) * max(m_c, config.q or K) + 2 * K,
        "offline-greedy": 2 * images * patches,
        "kmeans": 6 * K,
    }[config.constructor]
    bank = workers * (HALF * chunk * max(network.stored) + 2 * rows * patch + SEARCH)
    bank += (others * min(summary, rows) + held) * patch

    # rows are raw, whitened, and targets in a graph and its session, at every scale; all distances between an image's
    # patches and the bank are formed, in arenas that every scale keeps, and once more where images are ranked
    K = K if config.fraction is None else int(config.fraction * images * patches)
    image = SINGLE * sum(network.patches) * (K + 4 * k) + HALF * max(network.stored)
    calibrate = scales * K * (HALF * d + 16 + 5 * SINGLE * k) + GRAPH_TOOLS
    calibrate += max((available_cores() + 1) * 128 * SINGLE * K, workers * image)

    resident = network.resident + workers * batch * network.activations + SMALL_THINGS
    phases = (int(SLACK * size) for size in (extract, bank, calibrate))
    return Estimate(workers, batch, network.reached, resident, *phases)
