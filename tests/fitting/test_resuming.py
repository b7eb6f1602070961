"""A kept store: a fit that was killed goes on where it was, other settings find what they need, and the store stays
within its limit, whoever else works with it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_runs import write_vials
from same_model import assert_same_model
from small_detector import vials

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore.config import CHOICES
from mhpatchcore.fitting import banking, extraction
from mhpatchcore.fitting.storekeeping import entries_of, in_use_since, opened_store, trimmed
from mhpatchcore.runtime.store import Store, entry_key

SMALL = Config(augment="none", sizes=64, K=80, m_c=40, layers=("block2", "block4"), chunk_images=2)
OPTIONS = (
    "--augment",
    "none",
    "--size",
    "64",
    "-K",
    "80",
    "--local-rows",
    "40",
    "--layers",
    "block2,block4",
    "--chunk-images",
    "2",
)
N = 22


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("images") / "good", N)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was worked out, and not found in the store."""
    steps: list[str] = []
    for module, name in (
        (extraction, "load_image"),
        (banking, "moments_of"),
        (banking.BankTree, "leaf"),
        (banking.BankTree, "close"),
    ):
        monkeypatch.setattr(module, name, _counted(getattr(module, name), name, steps))
    return steps


def _counted(real: Callable[..., object], name: str, steps: list[str]) -> Callable[..., object]:
    def called(*arguments: object) -> object:
        steps.append(name)
        return real(*arguments)

    return called


@pytest.mark.parametrize("constructor", CHOICES["constructor"])
def test_a_second_fit_finds_all_that_the_first_has_worked_out(
    folder: Path, tmp_path: Path, done: list[str], constructor: str
) -> None:
    calibration = "none" if constructor == "kmeans" else "cross-image"
    config = SMALL.with_changes(constructor=constructor, calibration=calibration)
    plain = Detector.fit(folder, config)
    done.clear()
    execution = Execution(store=tmp_path / "store")
    assert_same_model(Detector.fit(folder, config, execution=execution), plain)
    assert done.count("load_image") == N and done.count("moments_of") == 11
    done.clear()
    assert_same_model(Detector.fit(folder, config, execution=execution), plain)
    assert done == []


def test_other_settings_do_without_the_network_and_without_what_they_share(
    folder: Path, tmp_path: Path, done: list[str]
) -> None:
    execution = Execution(store=tmp_path / "store")
    Detector.fit(folder, SMALL, execution=execution)
    done.clear()
    fewer = SMALL.with_changes(K=60)  # which takes as much of every chunk
    assert_same_model(Detector.fit(folder, fewer, execution=execution), Detector.fit(folder, fewer))
    kept = done[: done.index("load_image")]
    assert set(kept) == {"close"}, "nodes are closed anew, over the same summaries"
    for change in ({"shrinkage": 0.5}, {"constructor": "tree"}, {"m_c": 30}, {"local": 3}):
        done.clear()
        Detector.fit(folder, SMALL.with_changes(**change), execution=execution)
        assert "load_image" not in done and "moments_of" not in done


@pytest.mark.parametrize("kind", ["moments", "summary", "node", "image"])
def test_a_damaged_entry_of_any_kind_is_noticed_and_redone(folder: Path, tmp_path: Path, kind: str) -> None:
    execution = Execution(store=tmp_path / "store")
    first = Detector.fit(folder, SMALL, execution=execution)
    entries = sorted((tmp_path / "store" / kind).rglob("*.entry"))
    assert entries
    whole = [path.read_bytes() for path in entries]
    for path, content in zip(entries, whole, strict=True):
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert_same_model(Detector.fit(folder, SMALL, execution=execution), first)
    if kind != "summary":  # whose nodes are whole, but for the last ones
        assert [path.read_bytes() for path in entries] == whole


@pytest.mark.parametrize("kind", ["views", "image"])
def test_a_damaged_block_of_tiles_is_noticed_and_only_its_image_redone(
    tmp_path: Path, done: list[str], kind: str
) -> None:
    images = vials(0, 3, pixels=150)  # nine tiles each: a block of eight, and the rest with the image's entry
    config = SMALL.with_changes(sizes="tile:64")
    execution = Execution(store=tmp_path)
    first = Detector.fit(images, config, execution=execution)
    assert_same_model(first, Detector.fit(images, config))
    path = sorted((tmp_path / kind).rglob("*.entry"))[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    done.clear()
    assert_same_model(Detector.fit(images, config, execution=execution), first)
    assert done.count("load_image") == 1 and path.read_bytes() == whole


def command(folder: Path, model: Path, store: Path, *more: str) -> list[str]:
    arguments = ["fit", str(folder), "-o", str(model), *OPTIONS, "--store", str(store), "-q", *more]
    return [sys.executable, "-m", "mhpatchcore", *arguments]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_fit_that_is_killed_again_and_again_ends_with_the_same_file(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    store = tmp_path / "store"
    subprocess.run(command(folder, tmp_path / "whole.mhpc", tmp_path / "other"), check=True, env=environment)
    for entries in (5, 20, 42):  # killed while images are read, and while the bank is made
        fit = subprocess.Popen(command(folder, tmp_path / "part.mhpc", store), env=environment)
        while fit.poll() is None and len(list(entries_of(store))) < entries:
            time.sleep(0.002)
        fit.send_signal(signal.SIGKILL)
        fit.wait()
    assert not (tmp_path / "part.mhpc").exists(), "the last one was killed too"
    subprocess.run(command(folder, tmp_path / "part.mhpc", store), check=True, env=environment)
    assert sha256(tmp_path / "part.mhpc") == sha256(tmp_path / "whole.mhpc")
    assert in_use_since(store) == float("inf")
    assert [path for path in store.rglob(".*") if path.name != ".lock"] == [], "nothing half-written is left"


def test_processes_on_one_store_do_not_hurt_each_other(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    subprocess.run(command(folder, tmp_path / "whole.mhpc", tmp_path / "other"), check=True, env=environment)
    more = (("--store-limit", "1MB"), ("--store-limit", "1MB"))
    fits = [
        subprocess.Popen(command(folder, tmp_path / f"{i}.mhpc", tmp_path / "store", *one), env=environment)
        for i, one in enumerate(more)
    ]
    assert [fit.wait() for fit in fits] == [0, 0]
    assert {sha256(tmp_path / f"{i}.mhpc") for i in range(2)} == {sha256(tmp_path / "whole.mhpc")}


def aged(store: Store, kind: str, n: int, age: float) -> list[Path]:
    """Entries of 1,000 bytes and a little, of an age in seconds."""
    paths = []
    for i in range(n):
        key = entry_key(kind, i)
        store.put(key, {"x": np.zeros(1000, np.uint8)})
        os.utime(store.path(key), (time.time() - age,) * 2)
        paths.append(store.path(key))
    return paths


def test_what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays(tmp_path: Path) -> None:
    with opened_store(tmp_path) as store:
        pass
    old, recent = aged(store, "image", 5, 3600), aged(store, "moments", 5, 60)
    assert trimmed(tmp_path, 10**6) == []
    store.found(entry_key("image", 0))  # which is now the last that was used
    assert {entry.path for entry in trimmed(tmp_path, 7000)} == set(old[1:])
    assert {entry.path for entry in trimmed(tmp_path, older=30)} == set(recent)
    assert [entry.path for entry in entries_of(tmp_path)] == [old[0]]
    older = aged(store, "node", 3, 60)
    with opened_store(tmp_path) as mine:
        (used,) = aged(mine, "summary", 1, -1)
        assert {entry.path for entry in trimmed(tmp_path, 0)} == {*older, old[0]}
        assert trimmed(tmp_path, 0) == [] and used.exists()
    assert [entry.path for entry in trimmed(tmp_path, 0)] == [used]


def test_a_store_of_a_running_fit_is_not_emptied_by_another(tmp_path: Path) -> None:
    with opened_store(tmp_path) as first:
        paths = aged(first, "image", 3, 0)
        with opened_store(tmp_path):
            assert trimmed(tmp_path, 0) == []
        assert all(path.exists() for path in paths)


def test_more_than_the_limit_is_told_where_all_of_it_is_needed(folder: Path, tmp_path: Path) -> None:
    warnings: list[str] = []
    execution = Execution(store=tmp_path / "store", store_limit=1000, warn=warnings.append)
    Detector.fit(folder, SMALL, execution=execution)
    assert any("more than its limit of 1 kB: all of it is in use" in one for one in warnings)
    with pytest.raises(UserError, match="a limit is for a store that is kept"):
        Execution(store_limit=1000)
