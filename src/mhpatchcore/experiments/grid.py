"""A grid of cells: planned, resumed, run one process at a time; a cell that fails does not stop the others."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.experiments.cell import CellSpec
from mhpatchcore.runtime.files import write_csv, write_text

Row = dict[str, Any]
NOT_IN_CSV = ("telemetry", "problems", "files")
CELL = ("dataset", "preset", "backbone", "n_train")
PHASE = ("name", "wall_seconds", "cpu_seconds", "peak_rss", "items", "items_per_second", "bytes_stored")
TEXT = ("dataset", "preset", "backbone", "weights_sha256", "version", "name")


@dataclass(frozen=True)
class Outcome:
    """A cell's row of results, or why there is none; `fresh` if it was computed just now."""

    spec: CellSpec
    row: Row | None
    error: str | None = None
    fresh: bool = False


def run_grid(
    specs: Sequence[CellSpec], folder: Path, report: Callable[[int, int, Outcome], None] | None = None
) -> list[Outcome]:
    """Run every cell that is not finished yet, write cells.csv, phases.csv and cells.json, and return all outcomes."""
    outcomes = []
    for done, spec in enumerate(specs, start=1):
        outcome = _kept(spec, folder) or _run(spec, folder)
        outcomes.append(outcome)
        write_rows([o.row for o in outcomes if o.row is not None], folder)
        if report is not None:
            report(done, len(specs), outcome)
    return outcomes


def write_rows(rows: Sequence[Row], folder: Path) -> None:
    """All rows as tidy CSV, their phases as another, and everything as JSON."""
    write_text(folder / "cells.json", json.dumps(list(rows), indent=1))
    if rows:
        write_csv(folder / "cells.csv", [column for column in rows[0] if column not in NOT_IN_CSV], rows)
        phases = [
            {name: row[name] for name in CELL} | phase for row in rows for phase in row["telemetry"]["phases"]
        ]
        write_csv(folder / "phases.csv", [*CELL, *PHASE], phases)


def read_rows(path: Path) -> list[Row]:
    """Rows of a cells.csv, numbers as numbers and missing ones as None."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(name: str, text: str) -> Any:
    if name in TEXT:  # BTAD calls its data sets 01, 02, 03
        return text
    if text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _path(spec: CellSpec, folder: Path) -> Path:
    return folder / "cells" / f"{spec.name}.json"


def _kept(spec: CellSpec, folder: Path) -> Outcome | None:
    """The result of an earlier run, if it was of the same data, settings and version and all its files are there."""
    path = _path(spec, folder)
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text())
        is_whole = all((folder / name).is_file() for name in kept["row"]["files"])
        return Outcome(spec, kept["row"]) if is_whole and kept["key"] == spec.key() else None
    # damaged, or of data that are gone: run it again
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None


def _run(spec: CellSpec, folder: Path) -> Outcome:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        spec_path, result_path = Path(scratch, "spec.json"), Path(scratch, "result.json")
        spec_path.write_text(json.dumps(spec.to_json()))
        arguments = [str(path) for path in (spec_path, result_path, folder)]
        command = [sys.executable, "-m", "mhpatchcore.experiments.cell", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not result_path.is_file():
            lines = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
            return Outcome(spec, None, error=lines[-1], fresh=True)
        row = json.loads(result_path.read_text())
    row["cell_seconds"] = time.perf_counter() - started
    write_text(_path(spec, folder), json.dumps({"key": spec.key(), "row": row}, indent=1))
    return Outcome(spec, row, fresh=True)
