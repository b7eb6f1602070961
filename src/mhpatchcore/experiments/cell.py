"""One cell of a grid: fit one configuration on one data set, evaluate it, and record quality and cost.

Run as `python -m mhpatchcore.experiments.cell SPEC.json RESULT.json`, in a process of its own, so that peak memory
belongs to this cell alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhpatchcore import __version__
from mhpatchcore.config import Config
from mhpatchcore.datasets import Dataset, load_dataset
from mhpatchcore.files import write_text

MS = 1000.0


@dataclass(frozen=True)
class CellSpec:
    """What a cell computes. `train` limits the normal images to a fixed nested subset."""

    data: str
    preset: str
    config: Config
    weights: str | None = None
    train: int | None = None
    label: str = ""

    @property
    def name(self) -> str:
        parts = [Path(self.data).name, self.preset, self.label, f"n{self.train}" if self.train else ""]
        return "--".join(part for part in parts if part)

    def dataset(self) -> Dataset:
        dataset = load_dataset(self.data)
        return dataset if self.train is None else dataset.subset(self.train)

    def key(self) -> str:
        """A hash of everything the result depends on: images (names and sizes), settings, weights, version."""
        dataset = self.dataset()
        files = [*dataset.train, *(sample.path for sample in dataset.test)]
        content = {
            "files": [(path.name, path.stat().st_size) for path in files],
            "config": self.config.to_json(),
            "weights": None
            if self.weights is None
            else [Path(self.weights).name, Path(self.weights).stat().st_size],
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
            "label": self.label,
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> CellSpec:
        return CellSpec(**{**fields, "config": Config.from_json(fields["config"])})


def run_cell(spec: CellSpec) -> dict[str, Any]:
    """Fit and evaluate; one flat row of results."""
    from mhpatchcore.detector import Detector
    from mhpatchcore.evaluation import evaluate
    from mhpatchcore.extraction import Execution
    from mhpatchcore.telemetry import Telemetry

    dataset = spec.dataset()
    telemetry = Telemetry()
    started = time.perf_counter()
    detector = Detector.fit(
        dataset.train, spec.config, weights=spec.weights, execution=Execution(progress=telemetry.progress)
    )
    fit_seconds = time.perf_counter() - started
    telemetry.finish()
    fit_peak = telemetry.peak_rss
    started = time.perf_counter()
    evaluation = evaluate(detector, dataset, progress=telemetry.progress)
    infer_seconds = time.perf_counter() - started
    telemetry.finish()
    pixel = evaluation.pixel
    return {
        "dataset": dataset.name,
        "preset": spec.preset,
        "label": spec.label,
        "backbone": detector.backbone.info.name,
        "weights_sha256": detector.backbone.info.weights_sha256,
        "n_train": len(dataset.train),
        "n_test": len(dataset.test),
        "n_anomalous": evaluation.image.n_anomalous,
        "image_auroc": evaluation.image.auroc,
        "image_ap": evaluation.image.average_precision,
        "image_f1_max": evaluation.image.f1_max,
        "pixel_auroc": None if pixel is None else pixel.auroc,
        "pixel_ap": None if pixel is None else pixel.average_precision,
        "pixel_aupro": None if pixel is None else pixel.aupro,
        "false_alarms": len(evaluation.false_alarms),
        "misses": len(evaluation.misses),
        "fit_seconds": fit_seconds,
        "infer_seconds": infer_seconds,
        "ms_per_image": MS * infer_seconds / len(dataset.test),
        "fit_peak_rss": fit_peak,
        "peak_rss": telemetry.peak_rss,
        "baseline_rss": telemetry.baseline_rss,
        "rows": len(detector.bank_raw),
        "dimensions": detector.whitening.k,
        "telemetry": telemetry.to_json(),
        "problems": list(evaluation.problems),
        "version": __version__,
    }


def main() -> None:
    spec_path, result_path = sys.argv[1:]
    spec = CellSpec.from_json(json.loads(Path(spec_path).read_text()))
    write_text(result_path, json.dumps(run_cell(spec), indent=1))


if __name__ == "__main__":
    main()
