"""Compare variants over categories: `python -m benchmarks.accuracy DATA --variants FILE.toml --out FOLDER`.

FILE.toml has one table per variant, with settings of `Config` (see trials.py); `--variants` defaults to the file beside
this one. Finished cells in FOLDER/cells.csv are kept. The last table is leave-one-category-out: for every category, the
variant that the others would have chosen, and what it gives on the one left out.

`--normals 1,2,5,10` learns from so many images, `--shuffles 5` from the same images in other orders, `--halves 5` from
random halves of them; each gives rows of its own, named variant@what.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy.descriptors import Descriptors, Source, load_descriptors
from benchmarks.accuracy.judging import judge
from benchmarks.accuracy.trials import read_trials
from mhpatchcore.inputs.datasets import find_categories
from mhpatchcore.runtime.arrays import Array

VARIANTS = Path(__file__).with_name("variants.toml")
COLUMNS = ("variant", "category", "image", "pixel", "aupro", "found", "rows", "k", "seconds")


def main() -> None:
    options = _options()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    cells = _read(out / "cells.csv")
    folders = find_categories(options.data) if options.data else []
    if options.categories:
        folders = [folder for folder in folders if folder.name in options.categories.split(",")]
    source = Source(
        dict(pair.split("=", 1) for pair in options.weights),
        Path(options.cache),
        options.limit,
        options.tests,
    )
    for folder in folders:
        for name, trial in read_trials(Path(options.variants)).items():
            if options.only and name not in options.only.split(","):
                continue
            if options.backbone:
                trial = replace(trial, config=trial.config.with_changes(backbone=options.backbone))
            data: Descriptors | None = None
            for what in _whats(options):
                row = f"{name}@{what}" if what else name
                if (row, folder.name) in cells:
                    continue
                started = time.perf_counter()
                data = data or load_descriptors(folder, trial, source)
                quality = judge(data, trial, _order(data.n_train, what))
                seconds = time.perf_counter() - started
                cells[row, folder.name] = [
                    row, folder.name, f"{quality.image:.4f}", f"{quality.pixel:.4f}", f"{quality.aupro:.4f}",
                    f"{quality.found:.4f}", str(quality.rows), str(quality.k), f"{seconds:.0f}",
                ]  # fmt: skip
                print(*cells[row, folder.name], flush=True)
                _write(out / "cells.csv", list(cells.values()))
    print(summary(list(cells.values())))


def _whats(options: argparse.Namespace) -> list[str]:
    """What to learn from: everything, or every subset and order that was asked for."""
    whats = [f"{n} normals" for n in options.normals.split(",") if n]
    whats += [f"shuffle {seed}" for seed in range(1, options.shuffles + 1)]
    whats += [f"half {seed}" for seed in range(1, options.halves + 1)]
    return whats or [""]


def _order(n: int, what: str) -> Array | None:
    """The images to learn from, and their order; the first few of one fixed shuffle are nested."""
    if not what:
        return None
    kind, number = (
        (what.split()[0], int(what.split()[1])) if what[0].isalpha() else ("", int(what.split()[0]))
    )
    shuffled = np.random.default_rng(number if kind else 0).permutation(n)
    if kind == "shuffle":
        return shuffled
    return np.sort(shuffled[: n // 2 if kind else number])


def summary(cells: list[list[str]]) -> str:
    """Markdown: every variant's categories (image / pixel AUROC), the means, and leave-one-category-out."""
    categories = sorted({cell[1] for cell in cells})
    names = list(dict.fromkeys(cell[0] for cell in cells))
    measures = [{(c[0], c[1]): float(c[column]) for c in cells} for column in range(2, 6)]
    image, pixel = measures[:2]
    names = [n for n in names if all((n, c) in image for c in categories)]
    lines = [
        "| variant | " + " | ".join(categories) + " | mean image | mean pixel | mean AUPRO | mean found |",
        "|---" * (len(categories) + 5) + "|",
    ]
    for n in names:
        row = [f"{image[n, c]:.3f} / {pixel[n, c]:.3f}" for c in categories]
        means = [f"{np.nanmean([measure[n, c] for c in categories]):.4f}" for measure in measures]
        lines.append("| " + " | ".join([n, *row, *means]) + " |")
    if len(categories) < 2:
        return "\n".join(lines)
    lines += ["", "Leave one category out (by mean image AUROC of the others):", ""]
    for left in categories:
        others = [c for c in categories if c != left]
        best = max(names, key=lambda n: float(np.mean([image[n, c] for c in others])))
        lines.append(f"- {left}: the others choose {best}, which gives {image[best, left]:.4f} there")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="?", help="a folder of categories; without it only the tables are printed"
    )
    parser.add_argument("--variants", default=str(VARIANTS), help="TOML file of variants")
    parser.add_argument("--out", required=True, help="folder for cells.csv")
    parser.add_argument("--cache", default=".cache/descriptors", help="folder for descriptors")
    parser.add_argument("--categories", default="", help="names separated by commas")
    parser.add_argument("--only", default="", help="variants, separated by commas")
    parser.add_argument("--backbone", default="", help="backbone for all variants")
    parser.add_argument("--weights", action="append", default=[], help="backbone=FILE, a local weights file")
    parser.add_argument(
        "--normals", default="", help="learn from so many images: numbers separated by commas"
    )
    parser.add_argument("--shuffles", type=int, default=0, help="so many other orders of the images")
    parser.add_argument("--halves", type=int, default=0, help="so many random halves of the images")
    parser.add_argument(
        "--limit", type=int, default=None, help="at most so many training images (a fixed subset)"
    )
    parser.add_argument("--tests", type=int, default=None, help="at most so many test images, evenly spread")
    return parser.parse_args()


def _read(path: Path) -> dict[tuple[str, str], list[str]]:
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    if tuple(head) != COLUMNS:
        raise SystemExit(
            f"{path} has other columns than {', '.join(COLUMNS)}: choose another folder for --out"
        )
    return {(row[0], row[1]): row for row in rows}


def _write(path: Path, cells: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *cells])


if __name__ == "__main__":
    main()
