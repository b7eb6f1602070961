"""Fits on a Dask cluster: the same file with any number of workers, whatever happens to them; refusals in one line."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Run, assert_one_line_error, graphs, run, write_vials
from same_model import assert_same_model
from small_detector import vials

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.config import CHOICES
from mhpatchcore.fitting import extraction, trees
from mhpatchcore.fitting.checks import ImageChecks
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.runtime.store import Store

distributed = pytest.importorskip("distributed")
dask_clusters = pytest.importorskip("mhpatchcore.fitting.dask_executor")

__all__ = ["graphs", "run"]  # fixtures

SMALL = Config(augment="none", sizes=64, K=60, m_c=20, layers=("block2", "block4"), chunk_images=2)
OPTIONS = (
    "--augment",
    "none",
    "--size",
    "64",
    "-K",
    "60",
    "--local-rows",
    "20",
    "--layers",
    "block2,block4",
    "--chunk-images",
    "2",
)
N = 37


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("images") / "good", N)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskExecutor]:
    with dask_clusters.executor_of("local:2") as executor:
        yield executor


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 16 chunks, though there are few."""
    monkeypatch.setattr(trees, "RUNS_PER_WORKER", 0.5)


def scaled(cluster: DaskExecutor, workers: int) -> None:
    """So many workers from now on. Asked again and again: one that was about to end when it was counted is replaced."""
    until = time.monotonic() + 60
    cluster.client.cluster.scale(workers)
    while len(cluster.client.nthreads()) != workers and time.monotonic() < until:
        time.sleep(0.5)
        cluster.client.cluster.scale(workers)
    assert len(cluster.client.nthreads()) == workers


def file_of(detector: Detector, path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    detector.save(path)
    return path.read_bytes()


def test_the_file_is_the_same_with_any_number_of_workers(
    cluster: DaskExecutor, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    expected = file_of(Detector.fit(folder, SMALL), tmp_path / "plain.mhpc", monkeypatch)
    for workers, most in ((2, 4), (4, 0.5), (1, 4)):
        scaled(cluster, workers)
        monkeypatch.setattr(trees, "RUNS_PER_WORKER", most)
        detector = Detector.fit(folder, SMALL, client=cluster.client)
        assert file_of(detector, tmp_path / "far.mhpc", monkeypatch) == expected
    scaled(cluster, 2)


@pytest.mark.parametrize("constructor", CHOICES["constructor"])
def test_every_constructor_gives_the_same_model(
    cluster: DaskExecutor, folder: Path, small_runs: None, constructor: str
) -> None:
    calibration = "none" if constructor == "kmeans" else "held-out"
    config = SMALL.with_changes(constructor=constructor, calibration=calibration, shrinkage="ledoit-wolf")
    assert_same_model(Detector.fit(folder, config, client=cluster.client), Detector.fit(folder, config))


def test_suspects_and_coverage_are_the_same(cluster: DaskExecutor, small_runs: None) -> None:
    images, checks = vials(0, 20), ImageChecks(rank=True, exclude=2, coverage=True)
    far = Detector.study(images, SMALL, checks, execution=Execution(executor=cluster))
    here = Detector.study(images, SMALL, checks)
    assert_same_model(far.detector, here.detector)
    assert [(one.name, one.score) for one in far.suspects] == [(one.name, one.score) for one in here.suspects]
    assert far.coverage is not None and here.coverage is not None
    assert far.coverage.to_json() == here.coverage.to_json()


def slow_down(seconds: float) -> None:
    """On a worker: every chunk takes longer from now on."""
    real: Callable[..., Any] = getattr(extraction, "_real", extraction.describe)
    extraction._real = real  # type: ignore[attr-defined]

    def slow(*arguments: Any) -> Any:
        time.sleep(seconds)
        return real(*arguments)

    extraction.describe = slow


def test_a_killed_worker_and_a_slow_one_change_nothing(
    cluster: DaskExecutor, folder: Path, tmp_path: Path
) -> None:
    processes: dict[str, int] = cluster.client.run(os.getpid)
    slow, killed = list(processes)
    cluster.client.run(partial(slow_down, 0.05), workers=[slow])
    seen: list[str] = []

    def progress(phase: str, done: int, total: int) -> None:
        seen.append(phase)
        if phase == "extract" and done >= 6 and seen.count("killed") == 0:
            seen.append("killed")
            os.kill(processes[killed], signal.SIGKILL)

    execution = Execution(store=tmp_path, progress=progress)
    detector = Detector.fit(folder, SMALL, execution=execution, client=cluster.client)
    assert "killed" in seen
    assert_same_model(detector, Detector.fit(folder, SMALL))
    scaled(cluster, 2)
    cluster.client.run(partial(slow_down, 0.0))


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_every_worker_ends_in_one_line(cluster: DaskExecutor) -> None:
    cluster.client.cluster.scheduler.allowed_failures = 0
    with pytest.raises(
        UserError, match=r"workers of the cluster died .* with the same store a new run goes on"
    ) as caught:
        list(cluster.map(die, [1]))
    assert "\n" not in str(caught.value)
    cluster.client.cluster.scheduler.allowed_failures = 3
    scaled(cluster, 2)


def test_an_error_of_a_task_is_that_of_one_machine(
    cluster: DaskExecutor, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    paths = [*sorted(folder.iterdir())[:8], tmp_path / "bad.png"]
    with pytest.raises(UserError, match=r"bad\.png"):
        Detector.fit(paths, SMALL, client=cluster.client)
    warnings: list[str] = []
    careful = Execution(skip_broken=True, warn=warnings.append)
    assert Detector.fit(paths, SMALL, client=cluster.client, execution=careful).model.n_learnt == 8
    assert any("bad.png" in one for one in warnings)


class Elsewhere:
    """A client of workers on another machine, where some folder is not what it is here."""

    def __init__(self, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
        self.change = change

    def run(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        return {"tcp://10.0.0.7:40001": function(*self.change(arguments))}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda a: (Store(Path("/nowhere")), *a[1:]),
            "does not see the store in /nowhere: name a folder that all workers reach",
        ),
        (lambda a: (*a[:2], "/nowhere/1.png", *a[3:]), "cannot work: there is no image /nowhere/1.png"),
        (lambda a: (*a[:2], __file__, *a[3:]), "does not see the same"),
        (
            lambda a: (*a[:4], "mhpatchcore 0.0.1, numpy 1"),
            "and this machine mhpatchcore 0.0.1: install the same",
        ),
    ],
)
def test_a_worker_that_could_not_do_its_tasks_is_refused(
    folder: Path, tmp_path: Path, change: Callable[..., Any], words: str
) -> None:
    image = sorted(folder.iterdir())[0]
    executor = DaskExecutor(Elsewhere(change))
    with pytest.raises(UserError) as caught:
        executor.check(Store(tmp_path), image, print)
    assert words in str(caught.value) and "tcp://10.0.0.7:40001" in str(caught.value)
    assert list(tmp_path.rglob("*.entry")) == []
    DaskExecutor(Elsewhere(lambda arguments: arguments)).check(Store(tmp_path), image, print)


def test_a_cluster_without_workers_is_refused(tmp_path: Path) -> None:
    class Empty:
        def run(self, *_: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(UserError, match="the cluster has no workers: start some"):
        DaskExecutor(Empty()).check(Store(tmp_path), None, print)


def test_what_cannot_be_reached_is_named(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_clusters, "SECONDS", 0.5)
    fit = ("fit", folder, "-o", tmp_path / "part.mhpc", *OPTIONS, "-q")
    assert_one_line_error(
        run(*fit, "--cluster", "tcp://127.0.0.1:1"), 2, "no Dask scheduler answers at tcp://127.0.0.1:1"
    )
    assert_one_line_error(run(*fit, "--cluster", "two"), 2, "tcp://HOST:PORT", "local:N", "'two'")
    assert not (tmp_path / "part.mhpc").exists()


def test_the_command_fits_on_a_cluster(run: Run, cluster: DaskExecutor, folder: Path, tmp_path: Path) -> None:
    address = cluster.client.scheduler.address
    model = tmp_path / "part.mhpc"
    ran = run("fit", folder, "-o", model, *OPTIONS, "-q", "--cluster", address, "--store", tmp_path / "store")
    assert ran.code == 0 and "cluster: 2 workers, dashboard http://127.0.0.1:" in ran.err
    assert_same_model(Detector.load(model), Detector.fit(folder, SMALL))
    budget = run("fit", folder, "-o", model, *OPTIONS, "--cluster", address, "--memory", "1GB", "-q")
    assert budget.code == 2 and "the workers of a cluster have limits of their own" in budget.err
