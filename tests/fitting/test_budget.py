"""The memory estimate, and fits within a budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import SMALL, Run, assert_one_line_error, graphs, run, run_process, write_vials

from mhpatchcore import Config
from mhpatchcore import backbone as backbones
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.budget import Footprint, chosen, estimated
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.runtime.texts import parse_size

__all__ = ["graphs", "run"]  # fixtures

NETWORK = Footprint(
    patches=(784,),
    stored=(800_000,),
    views=(600_000,),
    columns=1024,
    resident=10**8,
    activations=4 * 10**6,
    reached=2 * 10**8,
)


@pytest.mark.parametrize("text", ["600", "lots", "-1MB", "1.2.3GB", "5 parsecs", ""])
def test_no_amount_of_memory(text: str) -> None:
    with pytest.raises(UserError, match="600MB"):
        parse_size(text)


def test_the_estimate_grows_with_what_takes_memory() -> None:
    def peak(images: int = 1000, workers: int = 1, batch: int = 1, **changes: object) -> int:
        return estimated(NETWORK, Config(**changes), images, workers, batch).peak  # type: ignore[arg-type]

    assert peak(workers=2) > peak() and peak(batch=8) > peak()
    assert peak(K=100_000) > peak(K=5000) and peak(m_c=20_000) > peak(m_c=1024)
    # a reduction holds some nodes of every level, and levels grow with the logarithm of the number of images
    assert peak(images=1000) <= peak(images=100_000) < 1.6 * peak(images=1000)
    assert peak(images=2000, constructor="offline-greedy") > 1.8 * peak(constructor="offline-greedy")


def test_a_further_scale_takes_more() -> None:
    both = replace(
        NETWORK,
        patches=(784, 3136),
        stored=(800_000, 3_200_000),
        views=(600_000, 2_400_000),
    )
    one, two = (estimated(network, Config(), 1000, 1, 1) for network in (NETWORK, both))
    assert two.extract > 2 * one.extract and two.bank > one.bank and two.calibrate > one.calibrate


def test_measuring_the_networks_leaves_nothing_behind() -> None:
    network = backbones.load(height=96, width=96, threads=1)
    found = Footprint.measured([network])
    assert "session" not in vars(network)  # a fit loads its own
    assert (found.patches, found.stored, found.columns) == ((144,), (40 * 144 + 112 * 36,), 152)
    assert found.reached >= found.resident > 10**7 and found.activations > 10**4


def test_the_peak_is_never_below_what_has_been_reached() -> None:
    reached = replace(NETWORK, reached=10**12)
    assert estimated(reached, Config(), 100, 1, 1).peak == 10**12


def test_a_budget_takes_workers_last() -> None:
    free = Execution(workers=3, batch=4)
    needs = {
        (workers, batch): estimated(NETWORK, Config(), 1000, workers, batch).peak
        for workers in (1, 2, 3)
        for batch in (1, 2, 4)
    }
    for memory, expected in (
        (needs[3, 4], (3, 4)),
        (needs[3, 4] - 1, (3, 2)),
        (needs[3, 1] - 1, (2, 4)),
        (needs[1, 1], (1, 1)),
    ):
        way = chosen(free, memory, NETWORK, Config(), 1000)
        assert (way.workers, way.batch) == expected and way.peak <= memory
    with pytest.raises(UserError, match="cannot be done"):
        chosen(free, needs[1, 1] - 1, NETWORK, Config(), 1000)


def test_too_small_a_budget_is_refused_with_the_least_that_would_do(run: Run, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "good", 3)
    ran = run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL, "--memory", "10MB")
    assert_one_line_error(ran, 2, "10 MB", "it needs about", "one worker")
    assert_one_line_error(run("fit", folder, "-o", tmp_path / "part.mhpc", "--memory", "10"), 2, "512MiB")
    assert not (tmp_path / "part.mhpc").exists()


def test_the_estimate_is_told_before_and_holds(tmp_path: Path, graphs: Path) -> None:
    folder = write_vials(tmp_path / "good", 12)
    arguments = ("fit", folder, "-o", tmp_path / "part.mhpc", "--memory", "2GB", "--json")
    ran = run_process(*arguments, MHPATCHCORE_CACHE=str(graphs))
    assert ran.err.startswith("memory: about ") and ran.err.count("\n") == 1
    told = json.loads(ran.out)
    assert told["memory_peak"] <= told["memory_estimate"] < 1.6 * told["memory_peak"]
