"""What the cells say: means over categories and seeds, how much chance moves them, and choices left out one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy.cells import Cell
from mhpatchcore.runtime.arrays import Doubles

FIGURES = ("image", "pixel", "aupro")


def table_of(cells: Sequence[Cell], variant: str, figure: str) -> tuple[list[str], Doubles]:
    """Categories, and a figure by category and seed (C, S); only seeds that all categories have."""
    mine = [cell for cell in cells if cell.variant == variant and not np.isnan(getattr(cell, figure))]
    categories = sorted({cell.category for cell in mine})
    seeds = sorted(
        set.intersection(*({c.seed for c in mine if c.category == name} for name in categories))
        if categories
        else ()
    )
    by_key = {(cell.category, cell.seed): getattr(cell, figure) for cell in mine}
    return categories, np.array([[by_key[name, seed] for seed in seeds] for name in categories])


def summary(cells: Sequence[Cell]) -> str:
    """A line for each variant: means, spread of the image AUROC over seeds, and against the first variant."""
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    if "default" in variants:
        variants = ["default", *(name for name in variants if name != "default")]
    lines = [
        "| | image | pixel | AUPRO | spread of the mean | of a category | better / worse than default |",
        "|---|---|---|---|---|---|---|",
    ]
    for variant in variants:
        _, images = table_of(cells, variant, "image")
        if images.size == 0:
            continue
        means = [table_of(cells, variant, figure)[1] for figure in FIGURES]
        told = " | ".join(f"{table.mean():.4f}" if table.size else "–" for table in means)
        spread, worst = np.ptp(images.mean(axis=0)), np.ptp(images, axis=1).max()
        lines.append(f"| {variant} | {told} | {spread:.4f} | {worst:.3f} | {_against(cells, variant)} |")
    return "\n".join(lines)


def by_category(cells: Sequence[Cell], figure: str) -> str:
    """A line for each variant, a column for each category: means over seeds."""
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    names = sorted({cell.category for cell in cells if not np.isnan(getattr(cell, figure))})
    lines = [f"| {figure} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for variant in variants:
        categories, table = table_of(cells, variant, figure)
        mean = dict(zip(categories, table.mean(axis=1), strict=True)) if table.size else {}
        lines.append(f"| {variant} | {' | '.join(f'{mean[n]:.3f}' if n in mean else '–' for n in names)} |")
    return "\n".join(lines)


def left_out(cells: Sequence[Cell], variants: Sequence[str]) -> str:
    """For each category the variant that the others would have chosen by image AUROC, and what it gives there."""
    tables = {name: table_of(cells, name, "image") for name in variants}
    names = sorted(set.intersection(*(set(categories) for categories, _ in tables.values())))
    mean = {
        variant: dict(zip(categories, table.mean(axis=1), strict=True))
        for variant, (categories, table) in tables.items()
    }
    lines = ["| left out | chosen by the others | there | best there |", "|---|---|---|---|"]
    for name in names:
        others = [other for other in names if other != name]
        chosen = max(variants, key=lambda variant: np.mean([mean[variant][other] for other in others]))
        best = max(variants, key=lambda variant: mean[variant][name])
        lines.append(f"| {name} | {chosen} | {mean[chosen][name]:.3f} | {mean[best][name]:.3f} ({best}) |")
    return "\n".join(lines)


def _against(cells: Sequence[Cell], variant: str) -> str:
    """In how many categories a variant is better or worse than the default by more than the seeds move the two."""
    if variant == "default":
        return ""
    names, ours = table_of(cells, variant, "image")
    others, default = table_of(cells, "default", "image")
    if default.size == 0:
        return ""
    reference = dict(zip(others, default, strict=True))
    better = worse = 0
    for name, values in zip(names, ours, strict=True):
        if name in reference:
            chance = (np.ptp(values) + np.ptp(reference[name])) / 2
            difference = values.mean() - reference[name].mean()
            better, worse = better + (difference > chance), worse + (-difference > chance)
    return f"{better} / {worse}"
