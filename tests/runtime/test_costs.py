"""Costs are measured phase by phase, and a phase is not charged with what another one used."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.system import children_peak, current_rss, own_peak

MB = 1_000_000
SPIKE = 200 * MB


def spike() -> None:
    """Memory straight from the system: what an array leaves behind the C library may keep for later."""
    with mmap.mmap(-1, SPIKE) as memory:
        for page in range(0, SPIKE, mmap.PAGESIZE):
            memory[page] = 1


@pytest.fixture
def resettable() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the kernel does not let this process reset its high-water mark")


def test_phases_have_names_times_and_items() -> None:
    costs = Costs()
    with costs.phase("extract") as told:
        time.sleep(0.05)
        told.items = 10
    with costs.phase("bank") as told:
        told.items = 1
    extract, bank = costs.phases
    assert (extract.name, extract.items, bank.name, bank.items) == ("extract", 10, "bank", 1)
    assert extract.wall_seconds >= 0.05 > extract.cpu_seconds >= 0
    assert extract.items_per_second == pytest.approx(10 / extract.wall_seconds)


def test_a_phase_that_fails_is_measured_all_the_same() -> None:
    costs = Costs()
    with pytest.raises(ZeroDivisionError), costs.phase("bank"):
        raise ZeroDivisionError
    assert [phase.name for phase in costs.phases] == ["bank"]


def test_what_is_stored_is_counted_for_its_phase() -> None:
    costs = Costs()
    with costs.phase("extract"):
        costs.stored("extract", 1000)
        costs.stored("extract", 500)
    for name in ("moments", "extract"):
        with costs.phase(name):
            pass
    assert [phase.bytes_stored for phase in costs.phases] == [1500, 0, 0]


def test_cpu_time_counts_children() -> None:
    costs = Costs()
    with costs.phase("score"):
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert costs.phases[0].cpu_seconds > 0.01


def test_a_short_spike_is_seen_in_its_phase_alone(resettable: None) -> None:
    costs = Costs()
    before = current_rss()
    for name in ("calm", "spike", "after"):
        with costs.phase(name):
            if name == "spike":
                spike()
    calm, spiky, after = (phase.peak_rss for phase in costs.phases)
    assert spiky > before + 0.9 * SPIKE
    assert calm < before + 0.5 * SPIKE and after < before + 0.5 * SPIKE
    assert costs.peak_rss == spiky


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_the_peak_of_the_whole_covers_what_lies_outside_the_phases(resettable: None, when: str) -> None:
    spike()
    costs = Costs()
    before = current_rss()
    assert costs.peak_rss < before + 0.5 * SPIKE  # what was before it does not count
    for moment in ("before", "between", "after"):
        if moment == when:
            spike()
        if moment != "after":
            with costs.phase(moment):
                pass
    assert costs.peak_rss > before + 0.9 * SPIKE
    assert all(phase.peak_rss < before + 0.5 * SPIKE for phase in costs.phases)


def test_a_child_counts_in_the_phase_it_ran_in(resettable: None) -> None:
    size = max(own_peak(), children_peak()) + 50 * MB
    costs = Costs()
    with costs.phase("child"):
        subprocess.run([sys.executable, "-c", f"b'x' * {size}"], check=True)
    with costs.phase("after"):
        pass
    child, after = (phase.peak_rss for phase in costs.phases)
    assert child >= size > after
    assert costs.peak_rss == child == children_peak()


def test_without_the_reset_a_peak_is_that_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", forbidden)
    costs = Costs()
    with costs.phase("score"):
        pass
    assert costs.phases[0].peak_rss >= current_rss() // 2


def test_everything_travels_as_json() -> None:
    costs = Costs()
    with costs.phase("score") as told:
        told.items = 1
    written = json.loads(json.dumps(costs.to_json()))
    assert set(written) == {"baseline_rss", "peak_rss", "phases"}
    assert {
        "name",
        "wall_seconds",
        "cpu_seconds",
        "peak_rss",
        "items",
        "items_per_second",
        "bytes_stored",
    } == set(written["phases"][0])
    assert written["peak_rss"] >= written["phases"][0]["peak_rss"] > 0
