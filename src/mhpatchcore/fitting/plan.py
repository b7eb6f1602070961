"""The plan of a fit, as a value: which images are read, in which chunks, and in which order they make the bank.

Chunks are the unit of work and of rounding. Each is computed by itself on one thread, and their results are put
together by reductions of a fixed shape, so a model does not depend on batch size, workers or where tasks run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeVar

import numpy as np

from mhpatchcore.backbone.stored import Located
from mhpatchcore.config import Config
from mhpatchcore.fitting.executor import Executor
from mhpatchcore.inputs.turns import AUTO, EVERY_TURN, TURNS, Turn
from mhpatchcore.runtime.parallel import whole_subtrees

Item = TypeVar("Item")

RUNS = (256, 16)  # chunks of a far away task: whole subtrees, whether 2, 4 or 16 nodes make one
RUNS_PER_WORKER = 4


@dataclass(frozen=True)
class Plan:
    """Indices of the images to learn from and of those held out for the threshold, cut into chunks as they are read."""

    learnt: tuple[tuple[int, ...], ...]
    held_out: tuple[tuple[int, ...], ...]


def turns_of(config: Config) -> tuple[Turn, ...]:
    """How the views of an image are turned before they are learnt; all ways, while it is to be found out."""
    return EVERY_TURN if config.augment == AUTO else TURNS[config.augment]


def make_plan(images: Sequence[int], held_out: Collection[int], config: Config) -> Plan:
    learnt = [image for image in images if image not in held_out]
    return Plan(cut(learnt, images_at_once(config)), cut(sorted(held_out), images_at_once(config)))


def images_at_once(config: Config) -> int:
    """Images of one task: a chunk of views is then full, but an image that is cut into tiles has many of its own."""
    return 1 if config.tiled else max(1, config.chunk_images // len(turns_of(config)))


def bank_chunks(views: Sequence[Located], config: Config) -> tuple[tuple[Located, ...], ...]:
    """The chunks that make the bank: views in random order, or as they come if the configuration does not shuffle.

    Images that stand side by side are often alike, taken one after the other of the same lot. A chunk of them would
    spend its share of the bank on small differences.
    """
    if not config.shuffle:
        return cut(views, config.chunk_images)
    order = np.random.default_rng(config.seed).permutation(len(views))
    return cut([views[i] for i in order], config.chunk_images)


def runs_of(chunks: Sequence[Item], fan_in: int, executor: Executor) -> list[tuple[int, tuple[Item, ...]]]:
    """The tasks over some chunks: whole subtrees of their tree, each with its level; single chunks, if nothing is far.

    Far away a task is as large as leaves every worker a few: a scheduler is slowed down by many, and only the root of
    each subtree is asked for.
    """
    most = RUNS_PER_WORKER * executor.workers
    run = next((size for size in RUNS if len(chunks) >= most * size), 1) if executor.remote else 1
    levels = round(log(run, fan_in))
    return [(level, tuple(some)) for level, some in whole_subtrees(chunks, fan_in, levels)]


def cut(items: Sequence[Item], size: int) -> tuple[tuple[Item, ...], ...]:
    """
    >>> cut("abcde", 2)
    (('a', 'b'), ('c', 'd'), ('e',))
    """
    return tuple(tuple(items[i : i + size]) for i in range(0, len(items), size))
