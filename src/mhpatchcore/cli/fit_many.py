"""`mhpatchcore fit-many PARTS -o models`"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli.console import (
    AllGoodFlag,
    JsonFlag,
    QuietFlag,
    SkipBrokenFlag,
    WorkersOption,
    counted,
    print_json,
    printable,
    progress_display,
    warn,
)
from mhpatchcore.cli.paths import check_folder
from mhpatchcore.cli.running import ClusterOption, running_on
from mhpatchcore.cli.settings import PresetOption, SettingsOption, WeightsOption, settings_from, with_settings
from mhpatchcore.errors import UserError
from mhpatchcore.presets import preset as named
from mhpatchcore.runtime.memory import share_one_heap
from mhpatchcore.runtime.urls import shown, url_of

SUMMARY = "summary.html"
SOME_FAILED = 6


@with_settings
def fit_many(
    parts: Path = typer.Argument(
        ...,
        help="A folder with a folder for each product. Images of good parts are in its good/ (or ok/, normal/) or "
        "train/good/, or in the folder itself.",
    ),
    output: Path = typer.Option(
        ..., "--output", "-o", help="The folder for the models, one for each product."
    ),
    *,
    changes: dict[str, Any],
    all_good: bool = AllGoodFlag,
    weights: Path = WeightsOption,
    settings: Path = SettingsOption,
    preset: str = PresetOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
    cluster: str = ClusterOption,
    skip_broken: bool = SkipBrokenFlag,
) -> None:
    """Learn a model for every product: one for each subfolder, and a page about them all.

    Example: mhpatchcore fit-many plant/parts -o plant/models

    Run again, it fits only products whose images or settings have changed. One that cannot be fitted does not stop
    the others.
    """
    from mhpatchcore.cluster.many import Recipe, fit_products, products_in
    from mhpatchcore.cluster.page import write_summary
    from mhpatchcore.inputs.files import absolute_name

    config = settings_from(settings, changes, named(preset).config)
    check_folder(output)
    products = products_in(parts)
    if url_of(output) is None and output.is_file():
        raise UserError(f"{output} is a file: -o names a folder for the models")
    share_one_heap()
    recipe = Recipe(
        config,
        absolute_name(output),
        None if weights is None else absolute_name(weights),
        skip_broken,
        all_good,
    )
    started, fitted = time.perf_counter(), []
    width = max(len(printable(product.name)) for product in products)
    with running_on(cluster, workers) as executor, progress_display(quiet) as progress:
        progress("products", 0, len(products))
        for one in fit_products(recipe, products, executor):
            fitted.append(one)
            progress("products", len(fitted), len(products))
            for message in () if one.kept else one.warnings:
                warn(f"{one.product}: {message}")
            if one.error is not None:
                warn(f"{one.product}: {one.error}")
            elif not as_json:
                print(f"{printable(one.product):{width}}  {_line(one)}", flush=True)
    seconds = time.perf_counter() - started
    page = f"{recipe.out}/{SUMMARY}"
    write_summary(recipe, products, fitted, seconds, page)
    failed = [one.product for one in fitted if one.error is not None]
    if as_json:
        facts = {"models": shown(output), "failed": failed, "seconds": round(seconds, 2), "summary": page}
        print_json(facts | {"products": [one.to_json() for one in fitted]})
    else:
        kept = sum(one.kept for one in fitted)
        fresh = len(fitted) - len(failed) - kept
        print(f"{counted(fresh, 'model')} fitted in {seconds:.1f} s, {kept} kept, {len(failed)} failed")
        print(f"open: {shown(output / SUMMARY)}")
    if failed:
        print(f"{len(failed)} of {counted(len(fitted), 'product')} failed", file=sys.stderr)
        raise typer.Exit(SOME_FAILED)


def _line(one: Any) -> str:
    threshold = "none" if one.threshold is None else f"{one.threshold:.4g}"
    told = f"{one.images:5d} images  threshold {threshold:>7}"
    if one.false_alarm is not None:
        told += f", about {one.false_alarm:.2%} of good parts exceed it"
    told += "  (kept)" if one.kept else f"  {one.seconds:.1f} s"
    if one.odd:
        told += f"  far beyond all others: {printable(', '.join(one.odd))}"
    return told
