"""The plan of a fit, as a value: which images are read, in which chunks, and in which order they make the bank.

Chunks are the unit of work and of rounding. Each is computed by itself on one thread, and their results are put
together by reductions of a fixed shape, so a model does not depend on batch size, workers or where tasks run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mhpatchcore.config import Config

Item = TypeVar("Item")


@dataclass(frozen=True)
class Located:
    """An image in the store: its index in the model, the entry that holds it, and its position there."""

    image: int
    entry: str
    position: int


@dataclass(frozen=True)
class Plan:
    """Indices of the images to learn from and of those held out for the threshold, cut into chunks as they are read."""

    learnt: tuple[tuple[int, ...], ...]
    held_out: tuple[tuple[int, ...], ...]


def make_plan(images: Sequence[int], held_out: Collection[int], config: Config) -> Plan:
    learnt = [image for image in images if image not in held_out]
    return Plan(cut(learnt, config.chunk_images), cut(sorted(held_out), config.chunk_images))


def bank_chunks(images: Sequence[Located], config: Config) -> tuple[tuple[Located, ...], ...]:
    """The chunks that make the bank: images in random order, or as they come if the configuration does not shuffle.

    Images that stand side by side are often alike, taken one after the other of the same lot. A chunk of them would
    spend its share of the bank on small differences.
    """
    if not config.shuffle:
        return cut(images, config.chunk_images)
    order = np.random.default_rng(config.seed).permutation(len(images))
    return cut([images[i] for i in order], config.chunk_images)


def cut(items: Sequence[Item], size: int) -> tuple[tuple[Item, ...], ...]:
    """
    >>> cut("abcde", 2)
    (('a', 'b'), ('c', 'd'), ('e',))
    """
    return tuple(tuple(items[i : i + size]) for i in range(0, len(items), size))
