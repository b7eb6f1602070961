"""Executors: results in order, nothing piles up, errors arrive, and BLAS uses one thread in every process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from process_executor import Processes
from threadpoolctl import threadpool_info

from mhpatchcore.fitting.execution import Executor, Threads


def scaled(factor: int, x: int) -> int:
    return factor * x


def inverse(x: int) -> float:
    return 1 / x


def where_and_with(_: int) -> tuple[int, list[int]]:
    """The process, and how many threads BLAS uses there."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return os.getpid(), [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.mark.parametrize("executor", [Threads(1), Threads(3), Processes(2)], ids=str)
def test_results_come_in_order_and_errors_in_their_place(executor: Executor) -> None:
    assert list(executor.map(partial(scaled, 3), range(7))) == [0, 3, 6, 9, 12, 15, 18]
    results = executor.map(inverse, [2, 1, 0, 4])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("executor", [Threads(2), Processes(1)], ids=str)
def test_items_are_taken_as_they_are_needed(executor: Executor) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    results = executor.map(partial(scaled, 2), items())
    assert [next(results) for _ in range(5)] == [0, 2, 4, 6, 8]
    assert len(taken) <= 5 + executor.workers + 2
    results.close()  # type: ignore[attr-defined]


def test_processes_are_others_and_limit_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    found = list(Processes(1).map(where_and_with, range(2)))
    assert all(process != os.getpid() for process, _ in found)
    assert all(threads and set(threads) == {1} for _, threads in found)
