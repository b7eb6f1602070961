"""A short run of `make stress`: some hundred mutated files of every kind, in a process with limits."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from benchmarks.stress import configurations, images, models, networks, weights
from benchmarks.stress.processes import HARMLESS, REFUSED, Family, Tally, run_trials

FAMILIES = [module.FAMILY for module in (images, models, networks, weights, configurations)]
TRIALS = 500
SECONDS = 600.0  # never reached: a machine as slow as that has other troubles
MEMORY = 700e6


def prepare(folder: Path) -> None:
    for family in FAMILIES:
        (folder / family.name).mkdir()
        family.prepare(folder / family.name)


def undamaged(folder: Path) -> None:
    for family in FAMILIES:
        family.undamaged(folder / family.name)


def attempt(folder: Path, seed: int) -> str:
    """The families take turns."""
    family = FAMILIES[seed % len(FAMILIES)]
    return family.attempt(folder / family.name, seed)


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    folder = tmp_path_factory.mktemp("mutations")
    prepare(folder)
    family = Family("all", prepare, undamaged, attempt)
    return run_trials(family, folder, range(TRIALS), 1, time.monotonic() + SECONDS)


def test_no_crash_no_hang_no_traceback_and_no_other_verdict(tally: Tally) -> None:
    named = partial("--only {0} --first {1}: {2}".format)
    wrong = [named(FAMILIES[seed % len(FAMILIES)].name, seed, what) for seed, what in tally.failures]
    assert wrong == []


def test_there_were_enough_of_both_kinds_within_bounds(tally: Tally) -> None:
    assert tally.trials == TRIALS
    assert tally.count(REFUSED) > tally.trials / 3 and tally.count(HARMLESS) > tally.trials / 20
    assert tally.peak < MEMORY
