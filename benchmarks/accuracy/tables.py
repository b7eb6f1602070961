"""What the cells say: means over categories and seeds, how much chance moves them, and choices left out one by one.

A line is compared with the default on the categories and seeds that both have. Lines that lack a category of the study
have no means: they would be means of something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarks.accuracy.cells import FEW, Cell, Variant
from mhpatchcore.runtime.arrays import Doubles

FIGURES = {
    "image": "image AUROC",
    "found": "defects found",  # the share of them, at the stated false-alarm rate
    "pixel": "pixel AUROC",
    "aupro": "AUPRO",
}
DEFAULT = "default"
NONE = "–"


def values_of(cells: Sequence[Cell], variant: str, figure: str) -> dict[tuple[str, int], float]:
    """A figure of a variant by category and seed, where there is one."""
    found = {(c.category, c.seed): getattr(c, figure) for c in cells if c.variant == variant}
    return {key: value for key, value in found.items() if not np.isnan(value)}


def table_of(cells: Sequence[Cell], variant: str, figure: str) -> tuple[list[str], list[int], Doubles]:
    """Categories, seeds that all of them have, and the figure by both (C, S)."""
    values = values_of(cells, variant, figure)
    categories = sorted({category for category, _ in values})
    seeds = sorted(
        seed for seed in {s for _, s in values} if all((name, seed) in values for name in categories)
    )
    return categories, seeds, np.array([[values[name, seed] for seed in seeds] for name in categories])


def variants_of(cells: Sequence[Cell]) -> list[str]:
    """The default first."""
    return sorted(dict.fromkeys(cell.variant for cell in cells), key=lambda name: name != DEFAULT)


def categories_of(cells: Sequence[Cell], figure: str = "image") -> list[str]:
    return sorted({cell.category for cell in cells if not np.isnan(getattr(cell, figure))})


def whole_lines(cells: Sequence[Cell], variants: Iterable[str]) -> list[str]:
    """Those of the variants that have every category of the study."""
    names = categories_of(cells)
    return [variant for variant in variants if names and table_of(cells, variant, "image")[0] == names]


def means_of(cells: Sequence[Cell], variant: str) -> dict[str, float]:
    """Every figure's mean over categories and seeds; none of a line that lacks a category."""
    if not whole_lines(cells, [variant]):
        return {}
    tables = {figure: table_of(cells, variant, figure)[2] for figure in FIGURES}
    return {figure: float(table.mean()) for figure, table in tables.items() if table.size}


def main_lines(cells: Sequence[Cell], lines: Mapping[str, Variant]) -> str:
    """The lines that a reader asks for first: what they are, and their means."""
    head = ["", "what it is", *FIGURES.values(), "sampling error", "seeds"]
    rows = [
        [name, line.why, *mean_texts(cells, name), sampling_error(cells, name), seeds_of(cells, name)]
        for name, line in lines.items()
    ]
    return markdown(head, rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(markdown(["", "n"], [["a", "1"]]))
    | | n |
    |---|---|
    | a | 1 |
    """
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def mean_texts(cells: Sequence[Cell], variant: str) -> list[str]:
    """Every figure's mean, or a dash."""
    means = means_of(cells, variant)
    return [f"{means[figure]:.3f}" if figure in means else NONE for figure in FIGURES]


def sampling_error(cells: Sequence[Cell], variant: str) -> str:
    """How far other test images would move the mean image AUROC: categories are independent, so their errors add as
    squares."""
    errors = values_of(cells, variant, "error")
    by_category = [
        np.mean([error for (category, _), error in errors.items() if category == name])
        for name in categories_of(cells)
        if any(category == name for category, _ in errors)
    ]
    if not by_category or len(by_category) < len(categories_of(cells)):
        return NONE
    return f"± {np.sqrt(np.sum(np.square(by_category))) / len(by_category):.3f}"


def ingredients(cells: Sequence[Cell], lines: Mapping[str, Variant]) -> str:
    """What each change does to the default's means, on the same categories and seeds; of lines that are whole."""
    head = ["", "what is changed", *FIGURES.values(), "categories better / worse", "seeds"]
    rows = []
    for name in whole_lines(cells, lines) if whole_lines(cells, [DEFAULT]) else []:
        changes = [difference(cells, name, figure) for figure in FIGURES]
        texts = [NONE if np.isnan(change) else f"{change:+.3f}" for change in changes]
        rows.append([name, lines[name].why, *texts, better_and_worse(cells, name), seeds_of(cells, name)])
    return markdown(head, rows)


def seeds_of(cells: Sequence[Cell], variant: str) -> str:
    """How many seeds the means are over."""
    return str(len(table_of(cells, variant, "image")[1])) if whole_lines(cells, [variant]) else NONE


def difference(cells: Sequence[Cell], variant: str, figure: str) -> float:
    """The mean difference to the default, over the categories and seeds that both have; NaN if they share none."""
    ours, default = values_of(cells, variant, figure), values_of(cells, DEFAULT, figure)
    differences = [ours[key] - default[key] for key in ours if key in default]
    return float(np.mean(differences)) if differences else np.nan


def better_and_worse(cells: Sequence[Cell], variant: str) -> str:
    """In how many categories a variant is better or worse than the default by more than the seeds move the two."""
    names, _, ours = table_of(cells, variant, "image")
    others, _, default = table_of(cells, DEFAULT, "image")
    reference = dict(zip(others, default, strict=True))
    better = worse = 0
    for name, values in zip(names, ours, strict=True):
        if name in reference:
            chance = max(np.ptp(values), np.ptp(reference[name]))
            apart = values.mean() - reference[name].mean()
            better, worse = better + (apart > chance), worse + (-apart > chance)
    return f"{better} / {worse}"


def spread(cells: Sequence[Cell], variants: Sequence[str]) -> str:
    """How far seeds move the image AUROC: that of the mean over categories, and of the category they move most."""
    head = ["", "seeds", "mean, by seed", "the mean moves by", "a category by at most"]
    rows = []
    for variant in variants:
        names, seeds, table = table_of(cells, variant, "image")
        if len(seeds) < 2 or names != categories_of(cells):
            continue
        by_seed = ", ".join(f"{mean:.4f}" for mean in table.mean(axis=0))
        moves = np.ptp(table, axis=1)
        worst = f"{moves.max():.3f} ({names[int(moves.argmax())]})"
        rows.append([variant, str(len(seeds)), by_seed, f"{np.ptp(table.mean(axis=0)):.4f}", worst])
    return markdown(head, rows)


def by_category(cells: Sequence[Cell], figure: str, variants: Sequence[str]) -> str:
    """A line for each variant, a column for each category: means over seeds."""
    names = categories_of(cells, figure)
    rows = []
    for variant in variants:
        categories, _, table = table_of(cells, variant, figure)
        mean = dict(zip(categories, table.mean(axis=1), strict=True)) if table.size else {}
        rows.append([variant, *(f"{mean[name]:.3f}" if name in mean else NONE for name in names)])
    return markdown([FIGURES[figure], *names], rows)


def left_out(cells: Sequence[Cell], variants: Sequence[str]) -> str:
    """For each category the variant that the others would have chosen by image AUROC, and what it gives there."""
    chosen_from = whole_lines(cells, variants)
    mean = {}
    for variant in chosen_from:
        categories, _, table = table_of(cells, variant, "image")
        mean[variant] = dict(zip(categories, table.mean(axis=1), strict=True))
    rows = []
    for name in categories_of(cells) if DEFAULT in mean and len(mean) > 1 else []:
        others = [other for other in categories_of(cells) if other != name]
        chosen = max(chosen_from, key=lambda variant: np.mean([mean[variant][other] for other in others]))
        best = max(chosen_from, key=lambda variant: mean[variant][name])
        there = [f"{mean[variant][name]:.3f}" for variant in (chosen, DEFAULT, best)]
        rows.append([name, chosen, *there[:2], f"{there[2]} ({best})"])
    return markdown(["left out", "chosen by the others", "there", "default there", "best there"], rows)


def few_normals(cells: Sequence[Cell]) -> str:
    """Means over categories of lines that learn from few images, and how far another draw moves them."""
    rows = []
    for variant in sorted({cell.variant for cell in cells}, key=lambda name: int(name.split(FEW)[1])):
        _, _, table = table_of(cells, variant, "image")
        draws = ", ".join(f"{mean:.3f}" for mean in table.mean(axis=0))
        rows.append([variant.split(FEW)[1], *mean_texts(cells, variant), draws])
    return markdown(["normal images", *FIGURES.values(), "image AUROC, by draw"], rows)
