"""`mhpatchcore benchmark DATA`, `mhpatchcore ladder DATA`, `mhpatchcore presets`: the paper's experiments."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted, warn
from mhpatchcore.cli.options import listed
from mhpatchcore.cli.paths import check_folder, with_name
from mhpatchcore.cli.settings import read_settings
from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.experiments.cells import CellSpec, Outcome, run_grid
from mhpatchcore.experiments.ladder import STREAM, ladder_cells, write_ladder
from mhpatchcore.experiments.tables import write_tables
from mhpatchcore.inputs.datasets import find_categories, load_dataset
from mhpatchcore.presets import LADDER_SIZES, OPEN_NETWORK, PAPER, PRESETS, WIDE_RESNET, preset

OutOption = typer.Option(..., "--out", "-o", help="Folder for results; finished cells in it are kept.")
BackboneOption = typer.Option(None, help="Backbone for all cells (default: efficientnet_lite0).")
TagOption = typer.Option(None, help="Training recipe of the backbone's weights from the hub.")
StoreOption = typer.Option(
    None,
    metavar="DIR",
    help="Keep what is worked out in this folder, where the next configuration finds it; times of fits are then not "
    "those of whole ones.",
)
SettingsOption = typer.Option(None, help="A TOML file of settings that override every preset.")


@command()
def benchmark(
    data: Path = typer.Argument(..., help="A data set: one category, or a folder of categories."),
    out: Path = OutOption,
    paper: bool = typer.Option(
        False,
        "--paper",
        help="The paper's eleven configurations with its network, whose weights are on the hub, or with --backbone.",
    ),
    presets: str = typer.Option(
        None,
        help="Names, separated by commas (see `mhpatchcore presets`), or all that leave the network open (default). "
        "With --paper: further ones.",
    ),
    categories: str = typer.Option("all", help="Names, separated by commas, or all."),
    backbone: str = BackboneOption,
    tag: str = TagOption,
    weights: options.Weights = None,
    settings: Path = SettingsOption,
    store: Path = StoreOption,
    train: int = typer.Option(
        None, min=1, metavar="N", help="Learn from a fixed subset of this many normal images."
    ),
) -> Answer:
    """Run configurations over data sets and write the paper's tables and figures. Resumes where it stopped.

    On data sets of the paper the tables have its published values beside the measured ones.

    Examples:
    mhpatchcore benchmark mvtec/ --paper --out results/
    mhpatchcore benchmark mvtec/ --presets patchcore,mh,default --categories bottle,pill --out results/
    """
    check_folder(out)
    names = _names(paper, presets)
    folders = _chosen(find_categories(with_name(data)), categories)
    changes = (WIDE_RESNET if paper and not backbone else {}) | _changes(backbone, tag, settings)
    file, kept = (str(path) if path else None for path in (weights, store))
    specs = [
        CellSpec(str(folder), name, _config(name, changes), file, train, store=kept)
        for folder in folders
        for name in names
    ]
    outcomes = _run(specs, out)
    rows = _rows(outcomes)
    evaluated = {outcome.spec.data: outcome.spec for outcome in outcomes if outcome.row is not None}
    files = write_tables(rows, [spec.dataset().statistics() for spec in evaluated.values()], out)
    figures = [out / "figures" / outcome.spec.name for outcome in outcomes if outcome.row is not None]
    return _answer(outcomes, [*files, *figures])


@command()
def ladder(
    data: Path = typer.Argument(..., help="One category with many normal images."),
    out: Path = OutOption,
    sizes: str = typer.Option(
        ",".join(map(str, LADDER_SIZES)),
        help="Numbers of normal images; larger ones than there are fall away.",
    ),
    presets: str = typer.Option("", help="Configurations besides the paper's three, separated by commas."),
    update: bool = typer.Option(
        False,
        "--update",
        help="Also let a model grow from size to size, learning only the further images, beside a fit to all of them.",
    ),
    backbone: str = BackboneOption,
    tag: str = TagOption,
    weights: options.Weights = None,
    settings: Path = SettingsOption,
    store: Path = StoreOption,
) -> Answer:
    """The RAM-matched subset ladder: how quality and memory grow with the number of normal images.

    Every size is a fixed subset that contains the smaller ones. The memory to be matched is that of the stream on all
    images, which is run as well.

    Example: mhpatchcore ladder mvtec/casting --out ladder/
    """
    check_folder(out)
    data = with_name(data)
    there_are = len(load_dataset(data).train)
    numbers = _numbers(sizes, there_are, data)
    changes = _changes(backbone, tag, settings)
    file, kept = (str(path) if path else None for path in (weights, store))
    specs = [
        CellSpec(str(data), name, _config(name, changes), file, n, figures=False, store=kept)
        for n, name in ladder_cells(numbers, there_are, listed(presets))
    ]
    if update:
        stream = CellSpec(str(data), STREAM, _config(STREAM, changes), file, figures=False, store=kept)
        specs += [replace(stream, train=n, grown=tuple(numbers[: i + 1])) for i, n in enumerate(numbers)]
    outcomes = _run(specs, out)
    return _answer(outcomes, write_ladder(_rows(outcomes), out))


@command()
def presets() -> Answer:
    """List the named configurations, for `fit --preset NAME` and `benchmark --presets NAME,NAME`."""
    facts = {name: preset.config.to_json() for name, preset in PRESETS.items()}
    return Answer(facts, [f"{name:20} {one.title:36} {one.role}" for name, one in PRESETS.items()])


def _config(name: str, changes: dict[str, Any]) -> Config:
    return preset(name).config.with_changes(**changes)


def _names(paper: bool, presets: str | None) -> tuple[str, ...]:
    if presets == "all" or not (presets or paper):
        return OPEN_NETWORK
    return tuple(dict.fromkeys([*(PAPER if paper else ()), *listed(presets or "")]))


def _changes(backbone: str | None, tag: str | None, settings: Path | None) -> dict[str, Any]:
    given = {name: value for name, value in (("backbone", backbone), ("tag", tag)) if value}
    return read_settings(settings) | given


def _chosen(folders: Sequence[Path], categories: str) -> list[Path]:
    known = {folder.name: folder for folder in folders}
    names = known if categories == "all" else listed(categories)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"there is no category '{unknown[0]}'; there are: {', '.join(known)}")
    return [known[name] for name in names]


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


def _run(specs: Sequence[CellSpec], out: Path) -> list[Outcome]:
    """Run the cells, with a line on stderr for each, and the time that the rest will take at the pace of fresh ones."""
    if not specs:
        raise UserError("there is nothing to run: name presets and categories, or leave the flags out")
    print(f"{counted(len(specs), 'cell')} to run, results in {out}", file=sys.stderr)
    started, fresh = time.perf_counter(), 0

    def report(done: int, total: int, outcome: Outcome) -> None:
        nonlocal fresh
        fresh += outcome.fresh
        left = (time.perf_counter() - started) / max(fresh, 1) * (total - done)
        when = f"{done}/{total}" + (f", about {left / 60:.0f} min left" if fresh else "")
        print(f"[{when}] {outcome.spec.name}: {_describe(outcome)}", file=sys.stderr, flush=True)

    return run_grid(specs, out, report)


def _rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [outcome.row for outcome in outcomes if outcome.row is not None]


def _describe(outcome: Outcome) -> str:
    row = outcome.row
    if row is None:
        return f"FAILED: {outcome.error}"
    aurocs = [
        f"{kind} {row[f'{kind}_auroc']:.4f}"
        for kind in ("image", "pixel")
        if row[f"{kind}_auroc"] is not None
    ]
    costs = (
        f"fit {row['fit_seconds']:.1f} s",
        f"{row['ms_per_image']:.1f} ms/image",
        f"{row['peak_rss'] / 1e6:.0f} MB",
    )
    return "  ".join([*aurocs, *costs, *([] if outcome.fresh else ["(kept)"])])


def _answer(outcomes: Sequence[Outcome], files: Sequence[Path]) -> Answer:
    failed = [{"cell": o.spec.name, "error": o.error} for o in outcomes if o.row is None]
    if failed:
        print(f"{len(failed)} of {counted(len(outcomes), 'cell')} failed", file=sys.stderr)
    facts = {"cells": _rows(outcomes), "failed": failed, "files": [str(path) for path in files]}
    return Answer(facts, [f"wrote {path}" for path in files], exit_code=6 if failed else 0)
