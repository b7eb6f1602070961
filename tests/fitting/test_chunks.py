"""The order in which images make the bank."""

from __future__ import annotations

from mhpatchcore.backbone.stored import StoredView
from mhpatchcore.config import Config
from mhpatchcore.fitting.banking import bank_chunks
from mhpatchcore.inputs.views import Geometry


def located(n: int) -> list[StoredView]:
    return [StoredView(i, 0, "entry", i, Geometry(8, 8, 0, 0, 8, 8)) for i in range(n)]


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
