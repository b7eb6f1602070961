"""One cell of a grid: fit one configuration on one data set, evaluate it, and record quality and cost.

Run as `python -m mhpatchcore.experiments.cell SPEC.json RESULT.json FOLDER`, in a process of its own, so that peak
memory belongs to this cell alone. The verdicts on all images and the cell's figures go into FOLDER, after everything
has been measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mhpatchcore import __version__
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.runtime.files import write_text

if TYPE_CHECKING:  # a cell loads them itself; who plans a grid does not need them
    from mhpatchcore.runtime.telemetry import Telemetry

MS = 1000.0
Out = TypeVar("Out")


@dataclass(frozen=True)
class CellSpec:
    """What a cell computes. `train` limits the normal images to a fixed nested subset."""

    data: str
    preset: str
    config: Config
    weights: str | None = None
    train: int | None = None
    figures: bool = True

    @property
    def name(self) -> str:
        parts = [Path(self.data).name, self.preset, f"n{self.train}" if self.train else ""]
        return "--".join(part for part in parts if part)

    def dataset(self) -> Dataset:
        dataset = load_dataset(self.data)
        return dataset if self.train is None else dataset.subset(self.train)

    def key(self) -> str:
        """A hash of everything the result depends on: images and masks, settings, weights, version.

        Files are known by their place in the data set, size and time of change: contents take too long to read.
        """
        dataset, root = self.dataset(), Path(self.data)
        masks = [sample.mask for sample in dataset.test if sample.mask is not None]
        files = [*dataset.train, *(sample.path for sample in dataset.test), *masks]
        content = {
            "files": [(os.path.relpath(path, root), *_state(path)) for path in files],
            "config": self.config.to_json(),
            "weights": self.weights and [Path(self.weights).name, *_state(Path(self.weights))],
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "preset": self.preset,
            "config": self.config.to_json(),
            "weights": self.weights,
            "train": self.train,
            "figures": self.figures,
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> CellSpec:
        return CellSpec(**{**fields, "config": Config.from_json(fields["config"])})


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def run_cell(spec: CellSpec, folder: Path) -> dict[str, Any]:
    """Fit, evaluate, write verdicts and figures below `folder`; one row of results."""
    from mhpatchcore.detector import Detector
    from mhpatchcore.evaluation.evaluate import evaluate
    from mhpatchcore.fitting.extraction import Execution
    from mhpatchcore.runtime.telemetry import Telemetry

    load = os.getloadavg()[
        0
    ]  # of others, and of the cell before: times can be trusted only on a quiet machine
    dataset = spec.dataset()
    telemetry = Telemetry()
    execution = Execution(progress=telemetry.progress, spent=telemetry.spent)
    started = time.perf_counter()
    detector = Detector.fit(dataset.train, spec.config, weights=spec.weights, execution=execution)
    fit_seconds = time.perf_counter() - started
    telemetry.finish()
    fit_peak = telemetry.peak_rss
    detector.graph  # noqa: B018 (made when first asked for: neither the fit nor the images take that time)
    started = time.perf_counter()
    results = deque(
        _watched(detector.score_many([sample.path for sample in dataset.test]), dataset, telemetry)
    )
    infer_seconds = time.perf_counter() - started
    telemetry.finish()
    peak = telemetry.peak_rss
    # Metrics come after it: over pixels they take longer than the scores, and no production line computes them.
    evaluation = evaluate(
        detector,
        dataset,
        progress=lambda _, done, total: telemetry.progress("metrics", done, total),
        results=_given_away(results),
    )
    telemetry.finish()
    image, pixel = evaluation.image, evaluation.pixel
    row = {
        "dataset": dataset.name,
        "preset": spec.preset,
        "backbone": detector.backbone.info.name,
        "weights_sha256": detector.backbone.info.weights_sha256,
        "n_train": len(dataset.train),
        "n_test": len(dataset.test),
        "n_anomalous": image.n_anomalous,
        "image_auroc": _known(image.auroc),
        "image_ap": _known(image.average_precision),
        "image_f1_max": _known(image.f1_max),
        "pixel_auroc": pixel and _known(pixel.auroc),
        "pixel_ap": pixel and _known(pixel.average_precision),
        "pixel_aupro": pixel and _known(pixel.aupro),
        "false_alarms": len(evaluation.false_alarms),
        "misses": len(evaluation.misses),
        "fit_seconds": fit_seconds,
        "infer_seconds": infer_seconds,
        "ms_per_image": MS * infer_seconds / len(dataset.test),
        "fit_peak_rss": fit_peak,
        "peak_rss": peak,
        "baseline_rss": telemetry.baseline_rss,
        "rows": len(detector.bank_raw),
        "dimensions": detector.whitening.k,
        "cores": execution.workers,
        "load": load,
        "telemetry": telemetry.to_json(),
        "problems": list(evaluation.problems),
        "version": __version__,
    }
    # matplotlib comes in here: the memory it takes is not the detector's
    from mhpatchcore.experiments.showing import write_figures, write_verdicts

    verdicts = write_verdicts(evaluation, Path(spec.data), folder / "cells" / f"{spec.name}.csv")
    files = [verdicts]
    if spec.figures:
        files += write_figures(detector, dataset, evaluation, folder / "figures" / spec.name)
    return row | {"files": [path.relative_to(folder).as_posix() for path in files]}


def _watched(results: Iterable[Out], dataset: Dataset, telemetry: Telemetry) -> Iterator[Out]:
    """The results as they come, heard of as phase "score"."""
    total = len(dataset.test)
    telemetry.progress("score", 0, total)
    for done, result in enumerate(results, start=1):
        telemetry.progress("score", done, total)
        yield result


def _given_away(results: deque[Out]) -> Iterator[Out]:
    """One after the other, none of them kept: with its map a result is as large as its image."""
    while results:
        yield results.popleft()


def _known(value: float) -> float | None:
    """None for a figure that the data do not define: JSON has no NaN."""
    return None if isnan(value) else value


def main() -> None:
    spec_path, result_path, folder = sys.argv[1:]
    spec = CellSpec.from_json(json.loads(Path(spec_path).read_text()))
    try:
        row = run_cell(spec, Path(folder))
    except UserError as error:
        sys.exit(" ".join(str(error).splitlines()))
    write_text(result_path, json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
