"""A model that is ready: sessions made once and shared; detectors that travel to threads, processes and copies."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model
from small_detector import small_detector, vials

from mhpatchcore import Detector
from mhpatchcore.errors import ModelFileError
from mhpatchcore.model import runtime
from mhpatchcore.model.file import to_bytes


@pytest.fixture(scope="module", params=[{}, {"sizes": "64,96"}], ids=["one scale", "two scales"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "part.mhpc"
    small_detector(**request.param).save(path)
    return path


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of threads of all sessions that are made."""
    made: list[int] = []
    make = runtime.make_session

    def counted(graph: bytes, threads: int = 0) -> object:
        made.append(threads)
        return make(graph, threads)

    monkeypatch.setattr(runtime, "make_session", counted)
    yield made


def test_a_detector_that_nobody_uses_goes_at_once_with_its_sessions(saved: Path) -> None:
    """A service that waits for the garbage collector holds the sessions and threads of many models meanwhile."""
    gc.disable()
    try:
        detector = Detector.load(saved)
        detector.runtime.warm_up()
        runtime = weakref.ref(detector.runtime)
        del detector
        assert runtime() is None
    finally:
        gc.enable()


def test_sessions_are_made_once_and_those_for_lists_when_first_used(saved: Path, sessions: list[int]) -> None:
    detector = Detector.load(saved)
    alone = [0] * len(detector.scales)  # one of each scale, which takes all cores
    assert sessions == []
    for picture in vials(50, 3):
        detector.score(picture)
    assert sessions == alone
    for _ in range(2):
        detector.score(vials(50, 3))
        assert sessions == [*alone, *[1] * len(alone)]


def test_a_warm_model_has_all_its_sessions(saved: Path, sessions: list[int]) -> None:
    detector = Detector.load(saved)
    detector.runtime.warm_up()
    made = list(sessions)
    detector.score(vials(50, 3))
    assert sessions == made == [0] * len(detector.scales) + [1] * len(detector.scales)


def test_a_list_is_scored_by_sessions_that_are_made_once(saved: Path, sessions: list[int]) -> None:
    detector = Detector.load(saved)
    pictures = vials(50, 5)
    first = [result.score for result in detector.score(pictures)]
    for _ in range(3):
        assert [result.score for result in detector.score(pictures)] == first
        assert [one.score for one in detector.score_many(pictures, workers=3) if one] == first
    assert len(sessions) == len(detector.scales)


def test_a_network_that_does_not_run_is_refused_by_the_first_score(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("no\nkernel")

    detector = Detector.load(saved)
    monkeypatch.setattr(runtime, "scored_by", failing)
    with pytest.raises(
        ModelFileError, match=rf"^{re.escape(str(saved))} is damaged.*does not run: no kernel"
    ):
        detector.score(vials(50, 1)[0])
    monkeypatch.setattr(runtime, "make_session", failing)
    with pytest.raises(ModelFileError, match="does not run: no kernel"):
        list(Detector.load(saved).score_many(vials(50, 1)))


def test_one_at_a_time_and_side_by_side_agree(saved: Path) -> None:
    detector, pictures = Detector.load(saved), vials(50, 4)
    for picture, result in zip(pictures, detector.score(pictures), strict=True):
        alone = detector.score(picture)
        assert result.score == pytest.approx(alone.score, rel=1e-5)
        assert np.allclose(result.map, alone.map, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("listed", [False, True], ids=["one image", "a list"])
def test_eight_threads_make_the_first_call_together(saved: Path, sessions: list[int], listed: bool) -> None:
    pictures = vials(50, 2)
    known = Detector.load(saved)
    wanted = [result.score for result in (known.score(pictures) if listed else map(known.score, pictures))]
    sessions.clear()
    fresh, ready = Detector(known.model), threading.Barrier(8)

    def first(_: int) -> list[float]:
        ready.wait()
        return [result.score for result in (fresh.score(pictures) if listed else map(fresh.score, pictures))]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(first, range(8)))
    assert found == [wanted] * 8
    assert len(sessions) == len(fresh.scales)


def test_a_detector_pickles_and_copies_at_any_time(saved: Path) -> None:
    picture = vials(50, 1)[0]
    fresh, used = Detector.load(saved), Detector.load(saved)
    wanted = used.score(picture).score
    used.score([picture])
    for detector in (fresh, used, pickle.loads(pickle.dumps(used)), copy.copy(used)):
        for twin in (pickle.loads(pickle.dumps(detector)), copy.deepcopy(detector)):
            assert to_bytes(twin.model) == to_bytes(detector.model)
            assert_same_model(twin, detector)
            assert twin.score(picture).score == wanted


@pytest.mark.parametrize(("sizes", "times"), [("64", 0), ("tile:64", 1), ("64,tile:48", 1)])
def test_memory_goes_back_after_the_last_tile(
    sizes: str, times: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A large image needs the room to be decoded in; in between it is kept for the next tile."""
    given: list[object] = []
    letting_go = runtime.letting_go
    monkeypatch.setattr(runtime, "letting_go", lambda: given.append(1) or letting_go())
    small_detector(sizes=sizes).save(tmp_path / "part.mhpc")
    detector, pictures = Detector.load(tmp_path / "part.mhpc"), vials(50, 2)
    first = [detector.score(picture).score for picture in pictures]
    assert len(given) == 2 * times
    assert [detector.score(picture).score for picture in pictures] == first


def test_results_pickle_too(saved: Path) -> None:
    result = Detector.load(saved).score(vials(50, 1)[0])
    there = pickle.loads(pickle.dumps(result))
    assert (there.score, there.threshold) == (result.score, result.threshold)
    assert np.array_equal(there.map, result.map) and there.regions == result.regions


def test_a_detector_works_in_a_pool_of_processes(saved: Path, tmp_path: Path) -> None:
    detector = Detector.load(saved)
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path, picture in zip(paths, vials(50, 2), strict=True):
        Image.fromarray(picture).save(path)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = [result.score for result in pool.map(detector.score, paths)]
    assert there == [detector.score(path).score for path in paths]
