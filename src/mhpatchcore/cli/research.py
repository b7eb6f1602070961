"""`mhpatchcore benchmark DATA`, `mhpatchcore ladder DATA`, `mhpatchcore presets`: the paper's experiments."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted, warn
from mhpatchcore.cli.options import listed
from mhpatchcore.cli.paths import with_name
from mhpatchcore.errors import UserError
from mhpatchcore.experiments.cells import CellSpec, Outcome, run_grid
from mhpatchcore.experiments.ladder import STREAM, ladder_cells, write_ladder
from mhpatchcore.experiments.tables import write_tables
from mhpatchcore.inputs.datasets import find_categories, load_dataset
from mhpatchcore.presets import LADDER_SIZES, OPEN_NETWORK, PAPER, PRESETS, WIDE_RESNET, preset


@dataclass(frozen=True)
class Cells:
    """How the cells of an experiment are computed, and where their results go."""

    out: Path = options.out("Folder for results; finished cells in it are kept.", "results/")
    backbone: str | None = options.option("Backbone for all cells (default: efficientnet_lite0).")
    tag: str | None = options.option("Training recipe of the backbone's weights from the hub.")
    weights: options.Weights = None
    settings: Path | None = options.file("A TOML file of settings that override every preset.")
    store: Path | None = options.folder(
        "Keep what is worked out in this folder, where the next configuration finds it; times of fits are then not "
        "those of whole ones."
    )

    def spec(self, data: Path, name: str, paper: bool = False, **more: Any) -> CellSpec:
        """A cell: a preset on a data set, with the options' changes; `paper` takes the paper's network."""
        changes = dict(WIDE_RESNET) if paper and not self.backbone else {}
        changes |= options.read_settings(self.settings)
        changes |= {name: value for name in ("backbone", "tag") if (value := getattr(self, name))}
        weights, store = (str(path) if path else None for path in (self.weights, self.store))
        config = preset(name).config.with_changes(**changes)
        return CellSpec(str(data), name, config, weights, store=store, **more)

    def run(self, specs: Sequence[CellSpec]) -> list[Outcome]:
        """Run cells, with a line on stderr for each, and the time that the rest will take at the pace of fresh ones."""
        if not specs:
            raise UserError("there is nothing to run: name presets and categories, or leave the flags out")
        print(f"{counted(len(specs), 'cell')} to run, results in {self.out}", file=sys.stderr)
        started, fresh = time.perf_counter(), 0

        def report(done: int, total: int, outcome: Outcome) -> None:
            nonlocal fresh
            fresh += outcome.fresh
            left = (time.perf_counter() - started) / max(fresh, 1) * (total - done)
            when = f"{done}/{total}" + (f", about {left / 60:.0f} min left" if fresh else "")
            print(f"[{when}] {outcome.spec.name}: {_describe(outcome)}", file=sys.stderr, flush=True)

        return run_grid(specs, self.out, report)


@command()
def benchmark(
    data: Path = options.argument("A data set: one category, or a folder of categories."),
    *,
    cells: Cells,
    paper: bool = options.flag(
        "--paper",
        "The paper's eleven configurations with its network, or with --backbone.",
    ),
    presets: str = options.option(
        "Names, separated by commas (see `mhpatchcore presets`), or all that leave the network open (default). With "
        "--paper: further ones."
    ),
    categories: str = options.option("Names, separated by commas, or all.", default="all"),
    train: int = options.number("Learn from a fixed subset of this many normal images."),
) -> Answer:
    """Run configurations over data sets and write the paper's tables and figures. Resumes where it stopped.

    On data sets of the paper the tables have its published values beside the measured ones.

    Examples:
    mhpatchcore benchmark mvtec/ --paper --out results/
    mhpatchcore benchmark mvtec/ --presets patchcore,mh,default --categories bottle,pill --out results/
    """
    names = dict.fromkeys([*(PAPER if paper else ()), *listed(presets or "")])
    if presets == "all" or not (presets or paper):
        names = dict.fromkeys(OPEN_NETWORK)
    folders = {folder.name: folder for folder in find_categories(with_name(data))}
    chosen = folders if categories == "all" else listed(categories)
    unknown = [name for name in chosen if name not in folders]
    if unknown:
        raise UserError(f"there is no category '{unknown[0]}'; there are: {', '.join(folders)}")
    specs = [cells.spec(folders[folder], name, paper, train=train) for folder in chosen for name in names]
    outcomes = cells.run(specs)
    finished = [outcome.spec for outcome in outcomes if outcome.row is not None]
    evaluated = {spec.data: spec for spec in finished}
    statistics = [spec.dataset().statistics() for spec in evaluated.values()]
    files = write_tables(_rows(outcomes), statistics, cells.out)
    return _answer(outcomes, [*files, *(cells.out / "figures" / spec.name for spec in finished)])


@command()
def ladder(
    data: Path = options.argument("One category with many normal images."),
    *,
    cells: Cells,
    sizes: str = options.option(
        "Numbers of normal images; larger ones than there are fall away.",
        default=",".join(map(str, LADDER_SIZES)),
    ),
    presets: str = options.option("Configurations besides the paper's three, with commas.", default=""),
    update: bool = options.flag(
        "--update",
        "Also let a model learn on from size to size, beside a fit to each.",
    ),
) -> Answer:
    """The RAM-matched subset ladder: how quality and memory grow with the number of normal images.

    Every size is a fixed subset that contains the smaller ones. The memory to be matched is that of the stream on all
    images, which is run as well.

    Example: mhpatchcore ladder mvtec/casting --out ladder/
    """
    data = with_name(data)
    there_are = len(load_dataset(data).train)
    numbers = _numbers(sizes, there_are, data)
    specs = [
        cells.spec(data, name, train=n, figures=False)
        for n, name in ladder_cells(numbers, there_are, listed(presets))
    ]
    if update:
        stream = cells.spec(data, STREAM, figures=False)
        specs += [replace(stream, train=n, grown=tuple(numbers[: i + 1])) for i, n in enumerate(numbers)]
    outcomes = cells.run(specs)
    return _answer(outcomes, write_ladder(_rows(outcomes), cells.out))


@command()
def presets() -> Answer:
    """List the named configurations, for `fit --preset NAME` and `benchmark --presets NAME,NAME`."""
    facts = {name: preset.config.to_json() for name, preset in PRESETS.items()}
    return Answer(facts, [f"{name:20} {one.title:36} {one.role}" for name, one in PRESETS.items()])


def _numbers(sizes: str, there_are: int, data: Path) -> list[int]:
    """The sizes that are possible with so many normal images."""
    try:
        numbers = sorted({int(size) for size in listed(sizes)})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise UserError(f"--sizes are whole numbers separated by commas, for example 100,200, not '{sizes}'")
    possible = [n for n in numbers if n <= there_are]
    if not possible:
        raise UserError(f"{data} has {there_are} normal images to learn from: choose smaller --sizes")
    if len(possible) < len(numbers):
        warn(f"{data} has {there_are} normal images: the sizes above that are left out")
    return possible


def _rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [outcome.row for outcome in outcomes if outcome.row is not None]


def _describe(outcome: Outcome) -> str:
    row = outcome.row
    if row is None:
        return f"FAILED: {outcome.error}"
    aurocs = {kind: row[f"{kind}_auroc"] for kind in ("image", "pixel")}
    return "  ".join(
        [
            *(f"{kind} {auroc:.4f}" for kind, auroc in aurocs.items() if auroc is not None),
            f"fit {row['fit_seconds']:.1f} s",
            f"{row['ms_per_image']:.1f} ms/image",
            f"{row['peak_rss'] / 1e6:.0f} MB",
            *([] if outcome.fresh else ["(kept)"]),
        ]
    )


def _answer(outcomes: Sequence[Outcome], files: Sequence[Path]) -> Answer:
    failed = [{"cell": o.spec.name, "error": o.error} for o in outcomes if o.row is None]
    if failed:
        print(f"{len(failed)} of {counted(len(outcomes), 'cell')} failed", file=sys.stderr)
    facts = {"cells": _rows(outcomes), "failed": failed, "files": [str(path) for path in files]}
    return Answer(facts, [f"wrote {path}" for path in files], exit_code=6 if failed else 0)
