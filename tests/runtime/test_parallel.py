"""Work over threads: results in order, nothing piles up; BLAS limits that overlap; what is made once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mhpatchcore.runtime.parallel import Memoised, one_blas_thread, ordered_map
from mhpatchcore.runtime.system import available_cores


def blas_threads() -> list[int]:
    np.zeros(1)  # its BLAS is loaded
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def several_blas_threads() -> Iterator[None]:
    """So that a limit of one can be told from none, also on a machine of one core."""
    with threadpool_limits(limits=3, user_api="blas"):
        assert set(blas_threads()) == {3}
        yield
        assert set(blas_threads()) == {3}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order(workers: int) -> None:
    def slow_at_first(x: int) -> int:
        time.sleep(0.02 if x == 0 else 0)
        return x * x

    assert list(ordered_map(slow_at_first, range(20), workers)) == [x * x for x in range(20)]


def test_nothing_piles_up() -> None:
    taken: list[int] = []
    results = ordered_map(lambda x: x, (taken.append(i) or i for i in range(100)), workers=2, ahead=1)  # type: ignore[func-returns-value]
    for done in range(1, 50):
        next(results)
        assert len(taken) <= done + 2 + 1
    results.close()  # type: ignore[attr-defined]


def test_an_error_arrives_in_its_place() -> None:
    results = ordered_map(lambda x: 1 // x, [2, 1, 0, 1], workers=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_block_uses_one_thread_and_leaves_what_was_there() -> None:
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError


def test_blocks_may_end_in_the_order_in_which_they_began() -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(one_blas_thread())
    second.enter_context(one_blas_thread())
    first.close()
    assert set(blas_threads()) == {1}
    second.close()


def test_blocks_of_many_threads_overlap() -> None:
    seen: list[int] = []

    def block(i: int) -> None:
        for _ in range(5):
            with one_blas_thread():
                time.sleep(0.001 * (i % 3))
                seen.extend(blas_threads())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(block, range(8)))
    assert seen and set(seen) == {1}


def test_what_is_made_once_is_made_once_by_threads_that_ask_together() -> None:
    made: list[str] = []

    @Memoised
    def costly(name: str) -> object:
        made.append(name)
        time.sleep(0.05)
        return object()

    ready = threading.Barrier(8)

    def ask(_: int) -> object:
        ready.wait()
        return costly("network")

    with ThreadPoolExecutor(8) as pool:
        assert len({id(one) for one in pool.map(ask, range(8))}) == 1
    assert made == ["network"]
    assert costly("other") is not costly("network") and made == ["network", "other"]


def test_at_least_one_core_is_there() -> None:
    assert available_cores() >= 1
