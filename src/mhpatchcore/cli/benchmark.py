"""`mhpatchcore benchmark DATA`, `mhpatchcore ladder DATA`, `mhpatchcore presets`: the paper's experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli.console import JsonFlag, print_json
from mhpatchcore.cli.settings import read_settings
from mhpatchcore.config import Config
from mhpatchcore.datasets import find_categories, load_dataset
from mhpatchcore.errors import UserError
from mhpatchcore.experiments.cell import CellSpec
from mhpatchcore.experiments.grid import Outcome, run_grid
from mhpatchcore.experiments.ladder import LADDER, write_ladder
from mhpatchcore.experiments.writing import write_tables
from mhpatchcore.presets import LADDER_SIZES, PRESETS, preset

OutOption = typer.Option(..., "--out", help="Folder for results; finished cells in it are kept.")
BackboneOption = typer.Option(None, help="Backbone for all cells. [default: efficientnet_lite0]")
WeightsOption = typer.Option(None, help="A local weights file for the backbone.")
SettingsOption = typer.Option(None, help="A TOML file of settings that override every preset.")


def benchmark(
    data: Path = typer.Argument(..., help="A data set: one category, or a folder of categories."),
    out: Path = OutOption,
    presets: str = typer.Option(
        "all", help="Names, separated by commas (see `mhpatchcore presets`), or all."
    ),
    categories: str = typer.Option("all", help="Names, separated by commas, or all."),
    backbone: str = BackboneOption,
    weights: Path = WeightsOption,
    settings: Path = SettingsOption,
    train: int = typer.Option(None, help="Learn from a fixed subset of this many normal images."),
    as_json: bool = JsonFlag,
) -> None:
    """Run configurations over data sets and write the paper's tables and figures. Resumes where it stopped.

    Example: mhpatchcore benchmark mvtec/ --presets patchcore,mh,default --categories bottle,pill --out results/
    """
    names = list(PRESETS) if presets == "all" else presets.split(",")
    folders = find_categories(data)
    if categories != "all":
        known = {folder.name: folder for folder in folders}
        unknown = [name for name in categories.split(",") if name not in known]
        if unknown:
            raise UserError(f"no category '{unknown[0]}' in {data}; there are: {', '.join(known)}")
        folders = [known[name] for name in categories.split(",")]
    changes = _changes(backbone, settings)
    specs = [
        CellSpec(str(folder), name, _config(name, changes), str(weights) if weights else None, train)
        for folder in folders
        for name in names
    ]
    outcomes = run_grid(specs, out, _reporter(as_json))
    statistics = [load_dataset(folder).statistics() for folder in folders]
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    files = write_tables(rows, statistics, out)
    _finish(outcomes, files, as_json)


def ladder(
    data: Path = typer.Argument(..., help="One category with many normal images."),
    out: Path = OutOption,
    sizes: str = typer.Option(",".join(map(str, LADDER_SIZES)), help="Numbers of normal images."),
    backbone: str = BackboneOption,
    weights: Path = WeightsOption,
    settings: Path = SettingsOption,
    as_json: bool = JsonFlag,
) -> None:
    """The RAM-matched subset ladder: how quality and memory grow with the number of normal images.

    Every size is a fixed subset that contains the smaller ones.
    """
    try:
        numbers = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise UserError(f"--sizes are whole numbers separated by commas, not '{sizes}'") from None
    changes = _changes(backbone, settings)
    file = str(weights) if weights else None
    specs = [CellSpec(str(data), name, _config(name, changes), file, n) for n in numbers for name in LADDER]
    outcomes = run_grid(specs, out, _reporter(as_json))
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    _finish(outcomes, write_ladder(rows, out), as_json)


def presets(as_json: bool = JsonFlag) -> None:
    """List the named configurations."""
    if as_json:
        print_json({name: preset.config.to_json() for name, preset in PRESETS.items()})
        return
    for name, entry in PRESETS.items():
        print(f"{name:20} {entry.title:36} {entry.role}")


def _config(name: str, changes: dict[str, Any]) -> Config:
    return preset(name).config.with_changes(**changes)


def _changes(backbone: str | None, settings: Path | None) -> dict[str, Any]:
    return read_settings(settings) | ({"backbone": backbone} if backbone else {})


def _reporter(quiet: bool) -> Callable[[int, int, Outcome], None]:
    import time

    started = time.perf_counter()
    fresh_cells = 0

    def report(done: int, total: int, outcome: Outcome) -> None:
        nonlocal fresh_cells
        fresh_cells += outcome.fresh
        if quiet:
            return
        if outcome.row is None:
            text = f"FAILED: {outcome.error}"
        else:
            pixel = outcome.row["pixel_auroc"]
            text = f"image {outcome.row['image_auroc']:.4f}" + (f"  pixel {pixel:.4f}" if pixel else "")
            text += f"  fit {outcome.row['fit_seconds']:.1f} s  {outcome.row['ms_per_image']:.1f} ms/image"
            text += f"  {outcome.row['peak_rss'] / 1e6:.0f} MB" + ("" if outcome.fresh else "  (kept)")
        left = (time.perf_counter() - started) / max(fresh_cells, 1) * (total - done)
        print(f"[{done}/{total}, about {left / 60:.0f} min left] {outcome.spec.name}: {text}", flush=True)

    return report


def _finish(outcomes: Sequence[Outcome], files: Sequence[Path], as_json: bool) -> None:
    failed = [{"cell": o.spec.name, "error": o.error} for o in outcomes if o.row is None]
    if as_json:
        rows = [outcome.row for outcome in outcomes if outcome.row is not None]
        print_json({"cells": rows, "failed": failed, "files": [str(path) for path in files]})
    else:
        for path in files:
            print(f"wrote {path}")
    if failed:
        raise typer.Exit(6)
