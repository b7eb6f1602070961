"""Runs of chunks as tasks: the same model whatever the size of a task, and only keys come back from far away."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model
from small_detector import vials

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.config import CHOICES
from mhpatchcore.fitting import trees
from mhpatchcore.fitting.execution import Threads
from mhpatchcore.fitting.trees import runs_of
from mhpatchcore.runtime.parallel import tree_nodes, whole_subtrees

SMALL = Config(augment="none", sizes=64, K=60, m_c=20, layers=("block2", "block4"), chunk_images=1)
N = 23


@dataclass(frozen=True)
class Far:
    """As far away as possible: all that travels is pickled, and counted."""

    travelled: list[int]
    workers: int = 2
    remote: bool = True

    def map(self, task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            result = pickle.dumps(pickle.loads(pickle.dumps(task))(pickle.loads(pickle.dumps(item))))
            self.travelled.append(len(result))
            yield pickle.loads(result)

    def check(self, *_: Any) -> None: ...


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 16 chunks, and nodes merged far away, though there are few."""
    monkeypatch.setattr(trees, "RUNS_PER_WORKER", 0.5)
    monkeypatch.setattr(trees, "MERGED", 4)


@pytest.mark.parametrize("fan_in", [2, 3, 4])
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_whole_subtrees_make_the_same_tree(fan_in: int, levels: int) -> None:
    for n in range(1, 70):
        leaves = [f"{i}," for i in range(n)]
        merge, close = (lambda a, b: a + b), "({})".format
        runs = whole_subtrees(leaves, fan_in, levels)
        assert [leaf for _, run in runs for leaf in run] == leaves
        roots = [tree_nodes(run, fan_in, merge, close)[0] for _, run in runs]
        again = tree_nodes(roots, fan_in, merge, close, [level for level, _ in runs])
        assert again == tree_nodes(leaves, fan_in, merge, close)


def test_far_away_a_task_is_a_whole_subtree_and_every_worker_has_a_few() -> None:
    chunks = range(10_000)
    for workers, longest in ((2, 256), (100, 16), (1000, 1)):
        far = partial(runs_of, chunks, 4, Far([], workers))
        sizes = [len(run) for _, run in far()]
        assert max(sizes) == longest and sum(sizes) == 10_000 and sizes == sorted(sizes, reverse=True)
    assert {len(run) for _, run in runs_of(chunks, 4, Threads(2))} == {1}


@pytest.mark.parametrize("constructor", CHOICES["constructor"])
def test_far_away_the_model_is_the_same(constructor: str, small_runs: None, tmp_path: Path) -> None:
    calibration = "none" if constructor == "kmeans" else "cross-image"
    config = SMALL.with_changes(constructor=constructor, calibration=calibration)
    images = vials(0, N)
    images[7] = images[3]
    plain = Detector.fit(images, config)
    for store in (None, tmp_path):
        execution = Execution(store=store, executor=Far([]))
        assert_same_model(Detector.fit(images, config, execution=execution), plain)


def test_only_small_things_travel(small_runs: None) -> None:
    far = Far([])
    Detector.fit(vials(0, N), SMALL, execution=Execution(executor=far))
    assert max(far.travelled) < 16 * 2_000


def test_images_that_cannot_be_read_change_nothing_else(tmp_path: Path, small_runs: None) -> None:
    for i, picture in enumerate(vials(0, N)):
        Image.fromarray(picture).save(tmp_path / f"{i:02d}.png")
    for i in (0, 5, 17):
        (tmp_path / f"{i:02d}.png").write_bytes(bytes([i]))
    executors = (None, Far([]), Threads(3))
    models = [
        Detector.fit(tmp_path, SMALL, execution=Execution(skip_broken=True, executor=one))
        for one in executors
    ]
    assert models[0].model.n_learnt == N - 3
    for other in models[1:]:
        assert_same_model(other, models[0])


def test_nodes_tell_apart_whatever_decides_them(tmp_path: Path) -> None:
    images, execution = vials(0, 9), Execution(store=tmp_path)
    configs = [
        SMALL.with_changes(**change)
        for change in (
            {},
            {"K": 50},
            {"m_c": 18},
            {"seed": 3},
            {"shuffle": False},
            {"variance": 0.9},
            {"floor": 0.1},
        )
    ]
    for config in configs:
        assert_same_model(
            Detector.fit(images, config, execution=execution),
            Detector.fit(images, config, execution=Execution()),
        )
    assert np.unique([Detector.fit(images, one).model.rows for one in configs]).tolist() == [50, 60]
