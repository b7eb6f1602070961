"""What the cells say: means over categories and seeds, how much chance moves them, and choices left out one by one.

A line is compared with the default on the categories and seeds that both have. Lines that lack a category of the study
have no means: they would be means of something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarks.accuracy.cells import FEW, Cell, Variant
from mhpatchcore.runtime.arrays import Doubles

FIGURES = {"image": "image AUROC", "pixel": "pixel AUROC", "aupro": "AUPRO"}
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
    head = [f"| | what it is | {' | '.join(FIGURES.values())} | sampling error | seeds |", "|---" * 7 + "|"]
    rows = []
    for name, line in lines.items():
        means = means_of(cells, name)
        told = (f"{means[figure]:.3f}" if figure in means else NONE for figure in FIGURES)
        counts = f"{sampling_error(cells, name)} | {seeds_of(cells, name)}"
        rows.append(f"| {name} | {line.why} | {' | '.join(told)} | {counts} |")
    return "\n".join([*head, *rows])


def sampling_error(cells: Sequence[Cell], variant: str) -> str:
    """How far other test images would move the mean image AUROC: categories are independent, so their errors add as
    squares."""
    errors = values_of(cells, variant, "error")
    by_category = [
        np.mean([error for (category, _), error in errors.items() if category == name])
        for name in categories_of(cells)
        if any(category == name for category, _ in errors)
    ]
    if len(by_category) < len(categories_of(cells)):
        return NONE
    return f"± {np.sqrt(np.sum(np.square(by_category))) / len(by_category):.3f}"


def ingredients(cells: Sequence[Cell], lines: Mapping[str, Variant]) -> str:
    """What each change does to the default's means, on the same categories and seeds; of lines that are whole."""
    head = [
        f"| | what is changed | {' | '.join(FIGURES.values())} | categories better / worse | seeds |",
        "|---" * 7 + "|",
    ]
    rows = []
    for name in whole_lines(cells, lines) if whole_lines(cells, [DEFAULT]) else []:
        told = (f"{difference(cells, name, figure):+.3f}" for figure in FIGURES)
        counts = f"{better_and_worse(cells, name)} | {seeds_of(cells, name)}"
        rows.append(f"| {name} | {lines[name].why} | {' | '.join(told)} | {counts} |")
    return "\n".join([*head, *rows])


def seeds_of(cells: Sequence[Cell], variant: str) -> str:
    """How many seeds the means are over."""
    return str(len(table_of(cells, variant, "image")[1])) if whole_lines(cells, [variant]) else NONE


def difference(cells: Sequence[Cell], variant: str, figure: str) -> float:
    """The mean difference to the default, over the categories and seeds that both have."""
    ours, default = values_of(cells, variant, figure), values_of(cells, DEFAULT, figure)
    return float(np.mean([ours[key] - default[key] for key in ours if key in default]))


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
    head = ["| | seeds | mean, by seed | the mean moves by | a category by at most |", "|---" * 5 + "|"]
    rows = []
    for variant in variants:
        names, seeds, table = table_of(cells, variant, "image")
        if len(seeds) < 2 or names != categories_of(cells):
            continue
        by_seed = ", ".join(f"{mean:.4f}" for mean in table.mean(axis=0))
        moves = np.ptp(table, axis=1)
        worst = f"{moves.max():.3f} ({names[int(moves.argmax())]})"
        rows.append(f"| {variant} | {len(seeds)} | {by_seed} | {np.ptp(table.mean(axis=0)):.4f} | {worst} |")
    return "\n".join([*head, *rows])


def by_category(cells: Sequence[Cell], figure: str, variants: Sequence[str]) -> str:
    """A line for each variant, a column for each category: means over seeds."""
    names = categories_of(cells, figure)
    lines = [f"| {FIGURES[figure]} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for variant in variants:
        categories, _, table = table_of(cells, variant, figure)
        mean = dict(zip(categories, table.mean(axis=1), strict=True)) if table.size else {}
        lines.append(f"| {variant} | {' | '.join(f'{mean[n]:.3f}' if n in mean else NONE for n in names)} |")
    return "\n".join(lines)


def left_out(cells: Sequence[Cell], variants: Sequence[str]) -> str:
    """For each category the variant that the others would have chosen by image AUROC, and what it gives there."""
    chosen_from = whole_lines(cells, variants)
    mean = {}
    for variant in chosen_from:
        categories, _, table = table_of(cells, variant, "image")
        mean[variant] = dict(zip(categories, table.mean(axis=1), strict=True))
    lines = ["| left out | chosen by the others | there | default there | best there |", "|---" * 5 + "|"]
    for name in categories_of(cells) if DEFAULT in mean and len(mean) > 1 else []:
        others = [other for other in categories_of(cells) if other != name]
        chosen = max(chosen_from, key=lambda variant: np.mean([mean[variant][other] for other in others]))
        best = max(chosen_from, key=lambda variant: mean[variant][name])
        told = f"{mean[chosen][name]:.3f} | {mean[DEFAULT][name]:.3f} | {mean[best][name]:.3f} ({best})"
        lines.append(f"| {name} | {chosen} | {told} |")
    return "\n".join(lines)


def few_normals(cells: Sequence[Cell]) -> str:
    """Means over categories of lines that learn from few images, and how far another draw moves them."""
    head = ["| normal images |", *(f" {name} |" for name in FIGURES.values()), " image AUROC, by draw |"]
    rows = []
    for variant in sorted({cell.variant for cell in cells}, key=lambda name: int(name.split(FEW)[1])):
        means, (_, _, table) = means_of(cells, variant), table_of(cells, variant, "image")
        told = " | ".join(f"{means[figure]:.3f}" if figure in means else NONE for figure in FIGURES)
        draws = ", ".join(f"{mean:.3f}" for mean in table.mean(axis=0))
        rows.append(f"| {variant.split(FEW)[1]} | {told} | {draws} |")
    return "\n".join(["".join(head), "|---" * 5 + "|", *rows])
