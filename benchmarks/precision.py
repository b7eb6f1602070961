"""int8 beside fp32: `python -m benchmarks.precision DATA --categories bottle,pill [--weights resnet18=FILE]`

For each network the CPU time of one image on one thread and how far the descriptors are off; for each category the
image AUROC of both, the mean over several seeds, because one run alone moves by more than int8 does. The networks are
efficientnet_lite0 and those that --weights names.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, listed, parser_of, shown, write_json
from benchmarks.networks import DEFAULT
from benchmarks.quality import quality_of
from benchmarks.timing import interleaved, ratio
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.fitting.fit import load_networks
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.runtime.arrays import Array

TIMED = 16
PRECISIONS = ("fp32", "int8")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder of categories")
    parser.add_argument("--categories", type=listed, default=["bottle", "pill"])
    parser.add_argument("--weights", action="append", default=[], metavar="NETWORK=FILE")
    parser.add_argument("--networks", type=listed, help="only these, by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, help="at most so many normal images of a category")
    options = parser.parse_args()
    given = dict(pair.split("=", 1) for pair in options.weights)
    datasets = [load_dataset(options.data / name) for name in options.categories]
    if options.limit:
        datasets = [one.subset(min(options.limit, len(one.train))) for one in datasets]
    columns = {"network": "{network}", "int8 / fp32 time": "{time:.2f}", "descriptors off by": "{error:.0%}"}
    columns |= {f"{d.name}, fp32 → int8": f"{{{d.name}_fp32:.4f}} → {{{d.name}_int8:.4f}}" for d in datasets}
    networks = options.networks or [DEFAULT, *given]
    rows = (precision_row(name, given.get(name), datasets, options.seeds) for name in networks)
    write_json(options.json, shown(rows, columns))


def precision_row(network: str, weights: str | None, datasets: Sequence[Dataset], seeds: int) -> Row:
    configs = [Config(backbone=network, precision=precision) for precision in PRECISIONS]
    row: Row = {"network": network, **compared(datasets[0], configs, weights)}
    for dataset in datasets:
        for config in configs:
            aurocs = list(image_aurocs(dataset, config, weights, seeds))
            row[f"{dataset.name}_{config.precision}"] = float(np.mean(aurocs))
    return row


def compared(dataset: Dataset, configs: Sequence[Config], weights: str | None) -> Row:
    """CPU time of int8 over that of fp32, all scales, and the error of descriptors over their spread (both RMS)."""
    networks, shaped = zip(
        *(load_networks(config, dataset.train, weights) for config in configs), strict=True
    )
    # images that the ranges have not been taken from
    images = [
        [seen for seen, _ in load_views(sample.path, shaped[0].views)] for sample in dataset.test[:TIMED]
    ]

    def described(backbones: Sequence[Backbone], i: int) -> list[Array]:
        views = images[i % len(images)]
        return [backbone.descriptors(view) for backbone, view in zip(backbones, views, strict=True)]

    works = [lambda i, backbones=backbones: described(backbones, i) for backbones in networks]
    times = interleaved(works, 2 * len(images), clock=time.process_time)
    errors = []
    for scale in range(len(networks[0])):
        plain, small = (
            np.stack([described(backbones, i)[scale] for i in range(len(images))]) for backbones in networks
        )
        spread = float((plain - plain.mean(axis=(0, 1, 2))).std())
        errors.append(float(np.sqrt(np.mean((plain - small) ** 2))) / spread)
    return {"time": ratio(times[:, 1], times[:, 0]), "error": float(np.mean(errors))}


def image_aurocs(dataset: Dataset, config: Config, weights: str | None, seeds: int) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as scratch:  # the network sees every image once for all seeds
        for seed in range(seeds):
            execution = Execution(store=scratch)
            detector = Detector.fit(dataset.train, config, weights=weights, seed=seed, execution=execution)
            yield quality_of(detector, dataset.test).auroc


if __name__ == "__main__":
    main()
