"""Benchmarks measure what they say: every command can be called, and what they share is right."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks.commands", reason="benchmarks are not here")

from benchmarks import depth_of_tree, fitting, networks, scaling, suspicious, timing, verdicts
from benchmarks.commands import shown, write_json

from mhpatchcore import Config
from mhpatchcore.bank.constructors import Stream
from mhpatchcore.config import Size
from mhpatchcore.runtime.costs import Phase

COMMANDS = (
    *("__main__", "verdicts", "decoding", "drift", "exporting", "fitting", "growth", "one_fit"),
    "peers.__main__",
    *("precision", "results.__main__", "returned_parts", "scoring", "starting", "storing", "suspicious"),
    *("depth_of_tree", "scaling", "scaling_run", "updating", "aligned", "large", "tiles"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert module.__doc__.splitlines()[0] in told and "--json FILE" in told


def test_a_table_grows_line_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def rows() -> Any:
        yield {"n": 1, "share": 0.25}
        assert capsys.readouterr().out == "| images | found |\n|---|---|\n| 1 | 25% |\n"
        yield {"n": 2, "share": 0.5}

    found = shown(rows(), {"images": "{n}", "found": "{share:.0%}"})
    assert capsys.readouterr().out == "| 2 | 50% |\n"
    write_json(tmp_path / "found.json", found)
    assert '"share": 0.5' in (tmp_path / "found.json").read_text()


def test_works_are_timed_in_turns_without_the_first_rounds() -> None:
    called: list[tuple[str, int]] = []
    ticks = iter(range(100))
    works = (lambda i: called.append(("a", i)), lambda i: (called.append(("b", i)), next(ticks)))
    times = timing.interleaved(works, rounds=2, warm_up=1, clock=lambda: float(next(ticks)))
    assert called == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert times.tolist() == [[1, 2], [1, 2]]
    assert timing.medians(times) == [1, 2] and timing.ratio(times[:, 1], times[:, 0]) == 2


def test_phases_of_all_scales_count_together() -> None:
    def fit(seconds: float) -> list[Phase]:
        return [Phase(name, seconds, 2 * seconds, 0, 1) for name in ("extract", "bank", "bank")]

    assert fitting.phase_seconds([fit(1), fit(2), fit(9)]) == {"extract": [2, 4], "bank": [4, 8]}


def test_verdicts_are_counted_at_the_stated_and_at_the_true_rate() -> None:
    rng = np.random.default_rng(0)
    known, others = np.exp(rng.normal(3, 0.2, (2, 400)))
    realised, within, found, limit = verdicts._judged(verdicts.ALL, 0.05, known, others, others + 100)
    assert 0.02 < realised < 0.09 and within == 1.0 and found == limit == 1.0
    assert verdicts.true_threshold(np.arange(1.0, 101.0), 0.02) == 98.0


def test_means_over_draws() -> None:
    rows = [
        {"category": "bottle", "planted": 5, "seed": i, "hits": i, "clean_auroc": 0.5 + i} for i in (0, 1)
    ]
    (mean,) = suspicious.means(rows)
    assert (mean["hits"], mean["clean_auroc"], mean["planted"]) == (0.5, 1.0, 5)


def test_the_bare_network_ends_in_the_last_layer(tmp_path: Path) -> None:
    config, weights = networks.measured_settings("efficientnet_lite0", None)
    assert config == Config() and weights is None
    graph = networks.bare_graph("efficientnet_lite0", None, Size(64, 96))
    session = networks.make_session(graph)
    (last,) = session.run(None, {"image": np.zeros((1, 64, 96, 3), np.float32)})
    assert last.shape[2:] == (4, 6)


def test_random_weights_make_a_network_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config, weights = networks.measured_settings("resnet18", None)
    assert config.sizes == (Size(224, 224),) and config.local == 1 and config.components
    assert weights is not None and Path(weights).parent == tmp_path
    graph = networks.bare_graph("resnet18", weights, Size(64, 64))
    (last,) = networks.make_session(graph).run(None, {"image": np.ones((1, 64, 64, 3), np.float32)})
    assert last.shape == (1, 256, 4, 4) and np.isfinite(last).all() and last.std() > 0


def test_the_made_up_stream_can_be_read_again_and_its_radius_is_that_of_the_farthest_row() -> None:
    stream = Stream(range(3), read=partial(depth_of_tree.made_up, 3))
    first, again = ([one.z for one in stream.patches()] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    bank = depth_of_tree.made_up(3, 0).take(np.arange(5))
    apart = np.linalg.norm(np.concatenate(first)[:, None] - bank.z[None], axis=2).min(axis=1)
    assert depth_of_tree.radius(stream, bank) == pytest.approx(apart.max(), rel=1e-4)
    assert [depth_of_tree.levels_of(n) for n in (1, 3, 4, 15, 16, 64)] == [0, 0, 1, 1, 2, 3]


def test_a_cluster_of_more_workers_takes_less_time_and_the_same_tasks() -> None:
    names = ("extract", "moments", "bank", "score")
    costs = {f"{name} seconds": 0.01 for name in names} | {f"{name} bytes": 500.0 for name in names}
    costs |= {"node seconds": 0.5}
    few, many = (list(scaling.simulated(10**6, workers, costs)) for workers in (10, 100))
    assert [row["tasks"] for row in few] == [row["tasks"] for row in many]
    assert few[0]["tasks"] == 489 and few[0]["seconds"] == pytest.approx(49 * 2048 * 0.01)
    assert all(ours["seconds"] <= theirs["seconds"] for ours, theirs in zip(many, few, strict=True))
    assert few[0]["travels"] == pytest.approx(1e-9 * 10**6 * 500)
