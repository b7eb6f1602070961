"""Rows as a grid gives them, made up, for tests of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS: dict[str, Any] = {
    "dataset": "bottle",
    "preset": "mh",
    "backbone": "efficientnet_lite0",
    "weights_sha256": "57934424",
    "n_train": 200,
    "n_learnt": 200,
    "n_available": 200,
    "grown_in": 0,
    "stated_rate": 0.03,
    "n_test": 80,
    "n_anomalous": 60,
    "image_auroc": 0.9,
    "image_ap": 0.9,
    "image_f1_max": 0.9,
    "pixel_auroc": 0.95,
    "pixel_ap": 0.5,
    "pixel_aupro": 0.85,
    "whole_pixel_auroc": 0.96,
    "whole_pixel_ap": 0.45,
    "whole_pixel_aupro": 0.84,
    "false_alarms": 1,
    "misses": 2,
    "found_where_it_is": 55,
    "fit_seconds": 10.0,
    "calibration_seconds": 2.5,
    "infer_seconds": 1.0,
    "ms_per_image": 12.5,
    "ms_per_image_with_map": 14.5,
    "fit_peak_rss": 400_000_000,
    "peak_rss": 500_000_000,
    "baseline_rss": 30_000_000,
    "rows": 1000,
    "dimensions": 100,
    "cores": 2,
    "load": 1.5,
    "telemetry": {"phases": []},
    "problems": [],
    "version": "0.1.0",
    "files": [],
    "cell_seconds": 15.0,
}


def made_up(**values: Any) -> dict[str, Any]:
    return COLUMNS | values


def made_up_grid(datasets: Sequence[str], presets: Sequence[str]) -> list[dict[str, Any]]:
    """A row for every pair; later presets are a little better and cost a little more."""
    return [
        made_up(
            dataset=dataset,
            preset=preset,
            n_test=10 * (d + 1),
            image_auroc=0.9 + 0.005 * p - 0.01 * d,
            pixel_auroc=0.95 + 0.002 * p,
            fit_seconds=10.0 + p,
            ms_per_image=5.0 + p + 3 * d,
            peak_rss=(400 + 20 * p + 100 * d) * 1_000_000,
        )
        for d, dataset in enumerate(datasets)
        for p, preset in enumerate(presets)
    ]
