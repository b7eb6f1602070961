"""Costs are measured phase by phase, and a phase is not charged with what another one used."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mhpatchcore.runtime import telemetry as measured
from mhpatchcore.runtime.telemetry import Telemetry, children_peak, current_rss, own_peak

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
    telemetry = Telemetry()
    with telemetry.phase("extract") as told:
        time.sleep(0.05)
        told.items = 10
    with telemetry.phase("bank") as told:
        told.items = 1
    extract, bank = telemetry.phases
    assert (extract.name, extract.items, bank.name, bank.items) == ("extract", 10, "bank", 1)
    assert extract.wall_seconds >= 0.05 > extract.cpu_seconds >= 0
    assert extract.items_per_second == pytest.approx(10 / extract.wall_seconds)


def test_a_phase_that_fails_is_measured_all_the_same() -> None:
    telemetry = Telemetry()
    with pytest.raises(ZeroDivisionError), telemetry.phase("bank"):
        raise ZeroDivisionError
    assert [phase.name for phase in telemetry.phases] == ["bank"]


def test_costs_are_charged_to_the_phase_that_causes_them() -> None:
    telemetry = Telemetry()
    with telemetry.phase("extract"):
        started = time.thread_time()
        sum(range(3_000_000))
        telemetry.move(time.thread_time() - started, "extract", "moments")
        telemetry.stored("extract", 1000)
        telemetry.stored("extract", 500)
    for name in ("moments", "extract"):
        with telemetry.phase(name):
            pass
    first, moments, second = telemetry.phases
    assert moments.cpu_seconds > 0.02 > first.cpu_seconds > -0.02
    assert (first.bytes_stored, moments.bytes_stored, second.bytes_stored) == (1500, 0, 0)


def test_cpu_time_counts_children() -> None:
    telemetry = Telemetry()
    with telemetry.phase("score"):
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert telemetry.phases[0].cpu_seconds > 0.01


def test_a_short_spike_is_seen_in_its_phase_alone(resettable: None) -> None:
    telemetry = Telemetry()
    before = current_rss()
    for name in ("calm", "spike", "after"):
        with telemetry.phase(name):
            if name == "spike":
                spike()
    calm, spiky, after = (phase.peak_rss for phase in telemetry.phases)
    assert spiky > before + 0.9 * SPIKE
    assert calm < before + 0.5 * SPIKE and after < before + 0.5 * SPIKE
    assert telemetry.peak_rss == spiky


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_the_peak_of_the_whole_covers_what_lies_outside_the_phases(resettable: None, when: str) -> None:
    spike()
    telemetry = Telemetry()
    before = current_rss()
    assert telemetry.peak_rss < before + 0.5 * SPIKE  # what was before it does not count
    for moment in ("before", "between", "after"):
        if moment == when:
            spike()
        if moment != "after":
            with telemetry.phase(moment):
                pass
    assert telemetry.peak_rss > before + 0.9 * SPIKE
    assert all(phase.peak_rss < before + 0.5 * SPIKE for phase in telemetry.phases)


def test_a_child_counts_in_the_phase_it_ran_in(resettable: None) -> None:
    size = max(own_peak(), children_peak()) + 50 * MB
    telemetry = Telemetry()
    with telemetry.phase("child"):
        subprocess.run([sys.executable, "-c", f"b'x' * {size}"], check=True)
    with telemetry.phase("after"):
        pass
    child, after = (phase.peak_rss for phase in telemetry.phases)
    assert child >= size > after
    assert telemetry.peak_rss == child == children_peak()


def test_without_the_reset_a_peak_is_that_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(measured.Path, "write_text", forbidden)
    telemetry = Telemetry()
    with telemetry.phase("score"):
        pass
    assert telemetry.phases[0].peak_rss >= current_rss() // 2


def test_everything_travels_as_json() -> None:
    telemetry = Telemetry()
    with telemetry.phase("score") as told:
        told.items = 1
    written = json.loads(json.dumps(telemetry.to_json()))
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
