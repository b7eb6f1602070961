"""int8 beside fp32: `python -m benchmarks.precision DATA --categories bottle,pill [--weights resnet18=FILE]`

For each network the time of one image on one thread and how far the descriptors are off; for each category the image
AUROC of both, the mean over several seeds of the bank's random part, because one run alone moves by more than int8
does. The networks are efficientnet_lite0 and those that --weights names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mhpatchcore import Config, Detector
from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.quantising import at_precision
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.images import load_view
from mhpatchcore.runtime.arrays import Array

TIMED = 16


def main() -> None:
    options = _options()
    given = dict(pair.split("=", 1) for pair in options.weights)
    datasets = [load_dataset(options.data / name) for name in options.categories.split(",")]
    names = [f"{dataset.name}, fp32 → int8" for dataset in datasets]
    print("| network | int8 / fp32 time | descriptors off by | " + " | ".join(names) + " |")
    print("|---" * (len(datasets) + 3) + "|", flush=True)
    for network in options.networks.split(",") if options.networks else ("efficientnet_lite0", *given):
        ratio, error = compared(datasets[0], network, given.get(network))
        cells = [f"{network} | {ratio:.2f} | {error:.0%}"]
        for dataset in datasets:
            configs = [
                [Config(backbone=network, precision=precision, seed=seed) for seed in range(options.seeds)]
                for precision in ("fp32", "int8")
            ]
            means = [
                np.mean([image_auroc(dataset, config, given.get(network)) for config in same])
                for same in configs
            ]
            cells.append(f"{means[0]:.4f} → {means[1]:.4f}")
        print("| " + " | ".join(cells) + " |", flush=True)


def compared(dataset: Dataset, network: str, weights: str | None) -> tuple[float, float]:
    """Time of int8 over that of fp32, on one thread, and the error of descriptors over their spread (both RMS)."""
    config = Config(backbone=network)
    size = config.size
    plain = backbones.load(network, weights=weights, height=size, width=size, threads=1)
    small = at_precision(plain, "int8", dataset.train, config.preprocessing)
    # images that the ranges have not been taken from
    views = [load_view(sample.path, config.preprocessing)[0][None] for sample in dataset.test[:TIMED]]
    exact, rounded = (np.concatenate([run(view) for view in views]) for run in (plain, small))
    spread = float((exact - exact.mean(axis=(0, 1, 2))).std())
    error = float(np.sqrt(np.mean((exact - rounded) ** 2))) / spread
    return _seconds(small, views) / _seconds(plain, views), error


def _seconds(network: Backbone, views: Sequence[Array]) -> float:
    """The least CPU time over a few rounds: other processes only add to it."""
    rounds = []
    for _ in range(3):
        started = time.process_time()
        for view in views:
            network(view)
        rounds.append(time.process_time() - started)
    return min(rounds)


def image_auroc(dataset: Dataset, config: Config, weights: str | None) -> float:
    detector = Detector.fit(dataset.train, config, weights=weights)
    labels = np.array([sample.is_anomalous for sample in dataset.test])
    results = detector.score([sample.path for sample in dataset.test])
    return auroc(labels, np.array([one.score for one in results]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a folder of categories")
    parser.add_argument("--categories", default="bottle,pill")
    parser.add_argument("--weights", action="append", default=[], metavar="NETWORK=FILE")
    parser.add_argument("--networks", default="", help="only these, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
