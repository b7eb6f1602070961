"""`mhpatchcore store`: what a store holds, and how to make it less."""

from __future__ import annotations

import json
from pathlib import Path

from cli_runs import SMALL, Run, assert_one_line_error, graphs, run, write_vials

from mhpatchcore.fitting.storekeeping import entries_of

__all__ = ["graphs", "run"]  # fixtures

N = 6


def test_the_command_tells_and_cleans(run: Run, tmp_path: Path) -> None:
    store, folder = tmp_path / "store", write_vials(tmp_path / "good", N)
    assert run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL, "--store", store, "-q").code == 0
    told = run("store", "info", store)
    assert told.code == 0 and "descriptors of images" in told.out and f"{N}" in told.out
    facts = json.loads(run("store", "info", store, "--json").out)
    assert facts["kinds"]["image"]["entries"] == N and facts["in_use"] is False
    assert facts["bytes"] == sum(entry.size for entry in entries_of(store))
    cleaned = json.loads(run("store", "clean", store, "--older", "1h", "--json").out)
    assert cleaned["deleted"] == 0
    cleaned = json.loads(run("store", "clean", store, "--to", "0MB", "--json").out)
    assert cleaned["entries"] == 0 and cleaned["freed_bytes"] == facts["bytes"]
    assert_one_line_error(run("store", "clean", store), 2, "--older", "--to")
    assert_one_line_error(run("store", "clean", store, "--older", "soon"), 2, "'soon' is not an age")
    assert_one_line_error(run("store", "info", store, "--to", "1GB"), 2, "store clean")
    assert_one_line_error(run("store", "sell", store), 2, "store info")
    assert_one_line_error(run("store", "info", tmp_path / "none"), 2, "there is no store in")
