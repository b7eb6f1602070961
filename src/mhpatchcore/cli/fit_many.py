"""`mhpatchcore fit-many PARTS -o models`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.paths import check_folder
from mhpatchcore.config import Config
from mhpatchcore.runtime.system import share_one_heap
from mhpatchcore.runtime.urls import shown

SUMMARY = "summary.html"
SOME_FAILED = 6


@command("workers", "skip_broken", rare=("weights", "cluster"))
def fit_many(
    parts: Path = typer.Argument(
        ...,
        help="A folder with a folder for each product. Images of good parts are in its good/ (or ok/, normal/) or "
        "train/good/, or in the folder itself.",
    ),
    out: Path = options.folder("The folder for the models, one for each product.", *options.OUT, default=...),
    *,
    config: Config,
    all_good: options.AllGood = False,
    weights: options.Weights = None,
    run: Run,
    device: options.Device = None,
    cluster: options.Cluster = None,
) -> Answer:
    """Learn a model for every product, one for each subfolder, and write a page about them all.

    Example: mhpatchcore fit-many plant/parts -o plant/models

    The next run fits only products whose images or settings have changed. A product that cannot be fitted does not
    stop the others.
    """
    from mhpatchcore.batch.many import Recipe, fit_products, products_in, write_summary
    from mhpatchcore.inputs.files import absolute_name

    check_folder(out)
    products = products_in(parts)
    share_one_heap()
    local_weights = None if weights is None else absolute_name(weights)
    recipe = Recipe(config, absolute_name(out), local_weights, run.execution.skip_broken, all_good)
    fitted = []
    width = max(len(printable(product.name)) for product in products)
    progress = run.execution.progress
    with run.on(cluster) as executor:
        progress("products", 0, len(products))
        for one in fit_products(recipe, products, executor):
            fitted.append(one)
            progress("products", len(fitted), len(products))
            for message in () if one.kept else one.warnings:
                warn(f"{one.product}: {message}")
            if one.error is not None:
                warn(f"{one.product}: {one.error}")
            elif not run.as_json:
                print(f"{printable(one.product):{width}}  {_line(one)}", flush=True)
    seconds, page = run.seconds, f"{recipe.out}/{SUMMARY}"
    write_summary(recipe, products, fitted, seconds, page)
    failed = [one.product for one in fitted if one.error is not None]
    kept = sum(one.kept for one in fitted)
    fresh = len(fitted) - len(failed) - kept
    if failed:
        print(f"{len(failed)} of {counted(len(fitted), 'product')} failed", file=sys.stderr)
    facts = {"models": shown(out), "failed": failed, "seconds": seconds, "summary": page}
    facts |= {"products": [one.to_json() for one in fitted]}
    lines = (
        f"{counted(fresh, 'model')} fitted in {seconds:.1f} s, {kept} kept, {len(failed)} failed",
        f"open: {shown(out / SUMMARY)}",
    )
    return Answer(facts, lines, exit_code=SOME_FAILED if failed else 0)


def _line(one: Any) -> str:
    threshold = "none" if one.threshold is None else f"{one.threshold:.4g}"
    line = f"{one.images:5d} images  threshold {threshold:>7}"
    if one.false_alarm is not None:
        line += f", about {one.false_alarm:.2%} of good parts exceed it"
    line += "  (kept)" if one.kept else f"  {one.seconds:.1f} s"
    if one.odd:
        line += f"  far beyond all others: {printable(', '.join(one.odd))}"
    return line
