"""The plan of a fit: which images in which chunks, and in which order they make the bank."""

from __future__ import annotations

import pickle

from mhpatchcore.backbone.stored import Located
from mhpatchcore.config import Config
from mhpatchcore.fitting.plan import bank_chunks, make_plan
from mhpatchcore.inputs.views import Geometry


def located(n: int) -> list[Located]:
    return [Located(i, 0, "entry", i, Geometry(8, 8, 0, 0, 8, 8)) for i in range(n)]


def test_held_out_images_are_read_last_and_in_chunks_of_their_own() -> None:
    plan = make_plan(range(3, 13), [12, 4, 7], Config(chunk_images=3, augment="none"))
    assert plan.learnt == ((3, 5, 6), (8, 9, 10), (11,))
    assert plan.held_out == ((4, 7, 12),)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_bank_is_made_from_mixed_images() -> None:
    images, config = located(43), Config(chunk_images=8)
    mixed = bank_chunks(images, config)
    assert [len(chunk) for chunk in mixed] == [8, 8, 8, 8, 8, 3]
    assert sorted(one.image for chunk in mixed for one in chunk) == list(range(43))
    numbers = [[one.image for one in chunk] for chunk in mixed]
    assert all(max(chunk) - min(chunk) > 8 for chunk in numbers[:5])
    assert mixed == bank_chunks(images, config)
    assert mixed != bank_chunks(images, config.with_changes(seed=1))


def test_unless_they_are_to_be_taken_as_they_come() -> None:
    chunks = bank_chunks(located(10), Config(chunk_images=4, shuffle=False))
    assert [[one.image for one in chunk] for chunk in chunks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
