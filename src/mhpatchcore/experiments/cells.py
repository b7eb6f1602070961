"""A grid of cells, each of which fits a configuration on a data set, evaluates it, and records quality and cost.

A cell runs as `python -m mhpatchcore.experiments.cells FOLDER`, which reads its specification and prints its row, in a
process of its own, so that peak memory belongs to this cell alone. The verdicts on all images and the cell's figures go
into FOLDER, after everything has been measured. What has run is kept, and a cell that fails does not stop the others.

`fit_seconds` is t_fit of the paper, which knows no threshold: the time of calibration stands beside it. Images are
scored twice, alone and with their maps, so that both times are those of a whole run.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore import __version__
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.files import states_of
from mhpatchcore.runtime.files import write_csv, write_text

if TYPE_CHECKING:  # a cell loads it itself; planning a grid does not need it
    from mhpatchcore.evaluation.evaluate import Evaluation
    from mhpatchcore.result import Result

Row = dict[str, Any]
NOT_IN_CSV = ("telemetry", "problems", "files")
CELL = ("dataset", "preset", "backbone", "n_train")
PHASE = ("name", "wall_seconds", "cpu_seconds", "peak_rss", "items", "items_per_second", "bytes_stored")
TEXT = ("dataset", "preset", "backbone", "weights_sha256", "version", "name")
MS = 1000.0
PICTURES = 24  # on the page about a cell


@dataclass(frozen=True)
class CellSpec:
    """What a cell computes. `train` limits the normal images to a fixed nested subset.

    Descriptors may be in a kept `store`; the times of its fit are then shorter, and nothing else changes. With `grown`,
    sizes of such subsets, the model of the cell that has all but the last of them learns the further images; the first
    of these cells fits. Their models are kept.
    """

    data: str
    preset: str
    config: Config
    weights: str | None = None
    train: int | None = None
    figures: bool = True
    store: str | None = None
    grown: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        grown = f"grown-{'-'.join(map(str, self.grown))}" if self.grown else ""
        parts = (Path(self.data).name, self.preset, f"n{self.train}" if self.train else "", grown)
        return "--".join(filter(None, parts))

    @property
    def before(self) -> CellSpec | None:
        """The cell whose model this one goes on with."""
        return replace(self, train=self.grown[-2], grown=self.grown[:-1]) if len(self.grown) > 1 else None

    def dataset(self) -> Dataset:
        dataset = load_dataset(self.data)
        return dataset if self.train is None else dataset.subset(self.train)

    def key(self) -> str:
        """A hash of everything the result depends on: images and masks, settings, weights, version.

        Files are known by their place in the data set, size and time of change: contents take too long to read.
        """
        dataset = self.dataset()
        masks = [sample.mask for sample in dataset.test if sample.mask is not None]
        files = [*dataset.train, *(sample.path for sample in dataset.test), *masks]
        places = [os.path.relpath(path, self.data) for path in files]
        content = {
            "files": list(zip(places, states_of(files), strict=True)),
            "config": self.config.to_json(),
            "weights": self.weights and [Path(self.weights).name, *states_of([self.weights])],
            "version": __version__,
        } | ({"grown": self.grown} if self.grown else {})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"config": self.config.to_json()}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> CellSpec:
        parts = {"config": Config.from_json(fields["config"]), "grown": tuple(fields["grown"])}
        return CellSpec(**{**fields, **parts})


def run_cell(spec: CellSpec, folder: Path) -> Row:
    """Fit, score, evaluate, write verdicts and figures below `folder`; one row of results."""
    from mhpatchcore.detector import Detector
    from mhpatchcore.evaluation.evaluate import judge, unseen
    from mhpatchcore.fitting.execution import Execution
    from mhpatchcore.runtime.costs import Costs

    # of others, and of the cell before: times can be trusted only on a quiet machine
    load = os.getloadavg()[0]
    dataset = spec.dataset()
    telemetry = Costs()
    execution = Execution(telemetry=telemetry, store=spec.store)
    models = folder / "models"
    earlier = spec.before and Detector.load(models / f"{spec.before.name}.mhpc")
    started = time.perf_counter()
    if earlier and spec.before:
        known = set(spec.before.dataset().train)
        detector = earlier.updated([path for path in dataset.train if path not in known], execution=execution)
    else:
        detector = Detector.fit(dataset.train, spec.config, weights=spec.weights, execution=execution)
    fit_seconds = time.perf_counter() - started
    calibration_seconds = sum(phase.wall_seconds for phase in telemetry.phases if phase.name == "calibrate")
    fit_peak = telemetry.peak_rss
    tested, _ = unseen(dataset, detector.model)
    paths = [sample.path for sample in tested.test]
    deque(detector.score_many(paths[:1]))  # what is made with the first image is no image's time
    with telemetry.phase("score") as measured:
        results: deque[Result | None] = deque(detector.score_many(paths))
        measured.items = len(paths)
    infer_seconds = telemetry.phases[-1].wall_seconds
    with telemetry.phase("score and map") as measured:
        drawn = (result is not None and result.map.size > 0 for result in detector.score_many(paths))
        measured.items = sum(drawn)
    map_seconds = telemetry.phases[-1].wall_seconds
    peak = telemetry.peak_rss
    # matplotlib comes in here: the memory it takes is not the detector's
    from mhpatchcore.experiments.showing import write_figures, write_verdicts
    from mhpatchcore.report.evaluation import Gallery, render

    gallery = Gallery((sample.kind for sample in tested.test if sample.is_anomalous), PICTURES)
    # Metrics come after it: over pixels they take longer than the scores, and no production line computes them.
    with telemetry.phase("metrics") as measured:
        # none of the results is kept: with its map it is as large as its image
        watch = gallery.offer if spec.figures else None
        evaluation = judge(detector, tested, (results.popleft() for _ in paths), watch)
        measured.items = len(paths)
    info = detector.scales[0].backbone.info
    calibrated = spec.config.calibration != "none"
    row = {
        "dataset": dataset.name,
        "preset": spec.preset,
        "backbone": info.name,
        "weights_sha256": info.weights_sha256,
        "n_train": len(dataset.train),
        "n_learnt": detector.model.n_learnt,
        "n_available": len(load_dataset(spec.data).train),
        "grown_in": len(spec.grown),
        "stated_rate": spec.config.false_alarm if calibrated else None,
        **_quality(evaluation),
        "fit_seconds": fit_seconds - calibration_seconds,
        "calibration_seconds": calibration_seconds if calibrated else None,
        "infer_seconds": infer_seconds,
        "ms_per_image": MS * infer_seconds / len(paths),
        "ms_per_image_with_map": MS * map_seconds / len(paths),
        "fit_peak_rss": fit_peak,
        "peak_rss": peak,
        "baseline_rss": telemetry.baseline_rss,
        "rows": detector.model.rows,
        "dimensions": detector.scales[0].whitening.k,
        "cores": execution.workers,
        "load": load,
        "telemetry": telemetry.to_json(),
        "problems": list(evaluation.problems),
        "version": __version__,
    }
    files = [write_verdicts(evaluation, Path(spec.data), folder / "cells" / f"{spec.name}.csv")]
    if spec.grown:
        models.mkdir(exist_ok=True)
        detector.save(models / f"{spec.name}.mhpc")
        files.append(models / f"{spec.name}.mhpc")
    if spec.figures:
        page = render(detector, evaluation, gallery.items(), telemetry.to_json())
        files += write_figures(evaluation, page, folder / "figures" / spec.name)
    return row | {"files": [path.relative_to(folder).as_posix() for path in files]}


def _quality(evaluation: Evaluation) -> Row:
    """Columns of the metrics; None for what the data or the model do not define, since JSON has no NaN."""
    image, judges = evaluation.image, evaluation.has_threshold
    columns: Row = {
        "n_test": image.n_normal + image.n_anomalous,
        "n_anomalous": image.n_anomalous,
        "image_auroc": image.auroc,
        "image_ap": image.average_precision,
        "image_f1_max": image.f1_max,
    }
    for prefix, pixel in (("pixel", evaluation.pixel), ("whole_pixel", evaluation.whole_pixel)):
        columns[f"{prefix}_auroc"] = pixel and pixel.auroc
        columns[f"{prefix}_ap"] = pixel and pixel.average_precision
        columns[f"{prefix}_aupro"] = pixel and pixel.aupro
    columns["false_alarms"] = len(evaluation.false_alarms) if judges else None
    columns["misses"] = len(evaluation.misses) if judges else None
    columns["found_where_it_is"] = evaluation.found if judges else None
    return {name: None if value is not None and isnan(value) else value for name, value in columns.items()}


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

    def value(name: str, text: str) -> Any:
        if name in TEXT:  # BTAD calls its data sets 01, 02, 03
            return text
        return json.loads(text) if text else None

    with path.open(newline="", encoding="utf-8") as file:
        return [{name: value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _kept(spec: CellSpec, folder: Path) -> Outcome | None:
    """The result of an earlier run, if it was of the same data, settings and version and all its files are there."""
    try:
        kept = json.loads((folder / "cells" / f"{spec.name}.json").read_text())
        is_whole = all((folder / name).is_file() for name in kept["row"]["files"])
        return Outcome(spec, kept["row"]) if is_whole and kept["key"] == spec.key() else None
    # there is none, it is damaged, or of data that are gone: run it
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None


def _run(spec: CellSpec, folder: Path) -> Outcome:
    started = time.perf_counter()
    command = [sys.executable, "-m", "mhpatchcore.experiments.cells", str(folder)]
    given = json.dumps(spec.to_json())
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
        return Outcome(spec, None, error=lines[-1], fresh=True)
    row = json.loads(done.stdout.splitlines()[-1]) | {"cell_seconds": time.perf_counter() - started}
    write_text(folder / "cells" / f"{spec.name}.json", json.dumps({"key": spec.key(), "row": row}, indent=1))
    return Outcome(spec, row, fresh=True)


def main() -> None:
    spec = CellSpec.from_json(json.load(sys.stdin))
    try:
        print(json.dumps(run_cell(spec, Path(sys.argv[1]))))
    except UserError as error:
        sys.exit(" ".join(str(error).splitlines()))


if __name__ == "__main__":
    main()
