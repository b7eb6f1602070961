"""Compare variants over categories: `python -m benchmarks.accuracy DATA --variants FILE.toml --out FOLDER`.

FILE.toml has one table per variant, with settings of `Config`; `preset = "name"` starts from a preset. Finished cells
in FOLDER/cells.csv are kept. The last table is leave-one-category-out: for every category, the variant that the others
would have chosen, and what it gives on the one left out.
"""

from __future__ import annotations

import argparse
import csv
import time
import tomllib
from pathlib import Path

import numpy as np

from benchmarks.accuracy.descriptors import load_descriptors
from benchmarks.accuracy.judging import judge
from mhpatchcore.config import Config
from mhpatchcore.datasets import find_categories
from mhpatchcore.presets import preset

VARIANTS = Path(__file__).with_name("variants.toml")
COLUMNS = ("variant", "category", "image", "pixel", "aupro", "rows", "k", "seconds")


def main() -> None:
    options = _options()
    variants = read_variants(Path(options.variants))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    cells = _read(out / "cells.csv")
    folders = find_categories(options.data) if options.data else []
    if options.categories:
        folders = [folder for folder in folders if folder.name in options.categories.split(",")]
    for folder in folders:
        for name, config in variants.items():
            if (name, folder.name) in cells or (options.only and name not in options.only.split(",")):
                continue
            if options.backbone:
                config = config.with_changes(backbone=options.backbone)
            started = time.perf_counter()
            data = load_descriptors(folder, config, options.weights, Path(options.cache), options.limit)
            quality = judge(data, config)
            seconds = time.perf_counter() - started
            cells[name, folder.name] = [
                name, folder.name, f"{quality.image:.4f}", f"{quality.pixel:.4f}", f"{quality.aupro:.4f}",
                str(quality.rows), str(quality.k), f"{seconds:.0f}",
            ]  # fmt: skip
            print(*cells[name, folder.name], flush=True)
            _write(out / "cells.csv", list(cells.values()))
    print(summary(list(cells.values())))


def read_variants(path: Path) -> dict[str, Config]:
    variants = {}
    for name, table in tomllib.loads(path.read_text()).items():
        base = preset(table.pop("preset")).config if "preset" in table else Config()
        # TOML has no null: 0 says that there is no crop
        variants[name] = base.with_changes(
            **{k: None if (k, v) == ("resize", 0) else v for k, v in table.items()}
        )
    return variants


def summary(cells: list[list[str]]) -> str:
    """Markdown: every variant's categories (image / pixel), the means, and leave-one-category-out."""
    categories = sorted({cell[1] for cell in cells})
    names = list(dict.fromkeys(cell[0] for cell in cells))
    image = {(c[0], c[1]): float(c[2]) for c in cells}
    pixel = {(c[0], c[1]): float(c[3]) for c in cells}
    names = [n for n in names if all((n, c) in image for c in categories)]
    lines = [
        "| variant | " + " | ".join(categories) + " | mean image | mean pixel |",
        "|---" * (len(categories) + 3) + "|",
    ]
    for n in names:
        row = [f"{image[n, c]:.3f} / {pixel[n, c]:.3f}" for c in categories]
        means = np.mean([image[n, c] for c in categories]), np.nanmean([pixel[n, c] for c in categories])
        lines.append(f"| {n} | " + " | ".join(row) + f" | {means[0]:.4f} | {means[1]:.4f} |")
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
    parser.add_argument("--weights", default=None, help="a local weights file")
    parser.add_argument(
        "--limit", type=int, default=None, help="at most so many training images (a fixed subset)"
    )
    return parser.parse_args()


def _read(path: Path) -> dict[tuple[str, str], list[str]]:
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {(row[0], row[1]): row for row in list(csv.reader(file))[1:]}


def _write(path: Path, cells: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *cells])


if __name__ == "__main__":
    main()
