"""What accuracy costs: `python -m benchmarks.accuracy.costs FOLDER --out results/` adds FOLDER/costs.csv to a study.

FOLDER holds normal images. Each headline of variants.toml is fitted in a process of its own, which measures its CPU
time and peak memory. Then all detectors score the same images in turns: a time is also given as a multiple of the
default's, which does not depend on what else the machine does. `--plot FILE` draws accuracy against time.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.accuracy.cells import Cell, Variant, read_cells, read_variants
from benchmarks.accuracy.tables import DEFAULT, FIGURES, markdown, mean_texts, means_of
from benchmarks.commands import listed, parser_of, write_json
from benchmarks.one_fit import measured_fit
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Detector
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.places import images_below
from mhpatchcore.model.file import to_bytes
from mhpatchcore.runtime.files import atomic_path, write_csv

VARIANTS = Path(__file__).with_name("variants.toml")
DIFFERENT = 8  # images that take turns
MB = 1e6
TICKS = (0.1, 0.2, 0.5, 1, 2, 5)  # of the plot


@dataclass(frozen=True)
class Cost:
    """What a line takes: milliseconds for one image on all cores, also as a multiple of the default's; the fit's CPU
    seconds and peak memory; the size of the model file.
    """

    variant: str
    score_ms: float
    of_default: float
    fit_cpu_seconds: float
    fit_peak_mb: float
    model_mb: float


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="normal images; without it costs.csv is shown")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the study")
    parser.add_argument("--images", type=int, default=150, help="learn from the first so many")
    parser.add_argument("--calls", type=int, default=60, help="scores of which the median is taken")
    parser.add_argument("--only", type=listed, help="names of variants, separated by commas")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="accuracy against time, as a picture")
    options = parser.parse_args()
    lines = {name: line for name, line in read_variants(VARIANTS).items() if line.headline}
    if options.only:
        lines = {name: lines[name] for name in dict.fromkeys([DEFAULT, *options.only])}
    table, cells = options.out / "costs.csv", read_cells(options.out / "cells.csv")
    if options.folder:
        write_costs(table, measured(lines, options.folder, options.images, options.calls))
    costs = read_costs(table)
    print(cost_table(costs, cells))
    if options.plot:
        draw(costs, cells, options.plot)
    write_json(options.json, [asdict(cost) for cost in costs])


def measured(lines: Mapping[str, Variant], folder: Path, images: int, calls: int) -> list[Cost]:
    """The costs of these lines, of which one is the default."""
    paths = images_below(folder)[:images]
    fits = {name: measured_fit(folder, images, line.config) for name, line in lines.items()}
    detectors = {name: Detector.fit(paths, line.config) for name, line in lines.items()}
    pixels = [load_pixels(path) for path in paths[:DIFFERENT]]
    works = [
        lambda i, detector=detector: detector.score(pixels[i % len(pixels)])
        for detector in detectors.values()
    ]
    times = interleaved(works, calls, warm_up=5)
    reference = times[:, list(lines).index(DEFAULT)]
    return [
        Cost(
            name,
            round(1e3 * seconds, 1),
            round(ratio(times[:, i], reference), 3),
            round(fits[name]["cpu_seconds"], 1),
            round(fits[name]["peak_mb"]),
            round(len(to_bytes(detectors[name].model)) / MB, 1),
        )
        for i, (name, seconds) in enumerate(zip(lines, medians(times), strict=True))
    ]


def read_costs(path: Path) -> list[Cost]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Cost(**{name: value if name == "variant" else float(value) for name, value in row.items()})  # type: ignore[arg-type]
        for row in rows
    ]


def write_costs(path: Path, costs: Sequence[Cost]) -> None:
    write_csv(path, [field.name for field in fields(Cost)], [asdict(cost) for cost in costs])


def cost_table(costs: Sequence[Cost], cells: Sequence[Cell]) -> str:
    """Accuracy and what it takes, a line each."""
    head = ["", *FIGURES.values(), "ms an image", "× default", "fit, CPU s", "fit, peak MB", "model, MB"]
    rows = []
    for cost in costs:
        times = [f"{cost.score_ms:.0f}", f"{cost.of_default:.2f}", f"{cost.fit_cpu_seconds:.0f}"]
        sizes = [f"{cost.fit_peak_mb:.0f}", f"{cost.model_mb:.0f}"]
        rows.append([cost.variant, *mean_texts(cells, cost.variant), *times, *sizes])
    return markdown(head, rows)


def draw(costs: Sequence[Cost], cells: Sequence[Cell], path: Path) -> None:
    """Image AUROC against the time of one image; what nothing beats in both is joined by a line."""
    from matplotlib.figure import Figure

    points = [
        (cost.of_default, means_of(cells, cost.variant)["image"], cost.variant)
        for cost in costs
        if means_of(cells, cost.variant)
    ]
    best = [one for one in points if not any(o[0] <= one[0] and o[1] > one[1] for o in points)]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*[one[:2] for one in sorted(best)], strict=True), color="0.7", zorder=1)
    for time, auroc, name in points:
        axes.scatter(time, auroc, color="tab:blue" if (time, auroc, name) in best else "tab:gray", zorder=2)
        axes.annotate(name, (time, auroc), xytext=(6, -10), textcoords="offset points")
    axes.set(xlabel="time of one image, as a multiple of the default's", ylabel="image AUROC", xscale="log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.margins(0.2)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


if __name__ == "__main__":
    main()
