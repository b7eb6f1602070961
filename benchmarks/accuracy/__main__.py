"""Compare variants over categories: `python -m benchmarks.accuracy DATA --out FOLDER`; without DATA only its tables.

Every line of variants.toml is fitted and judged on every category with every seed; finished cells in FOLDER/cells.csv
are kept. `--store` keeps descriptors, so that variants of one view run the network once. `--normals 1,2,4,8` learns
from so few images, drawn anew for every seed. `--backbone FILE` takes another network for all lines. `--page FILE`
puts the tables into a page, between the markers of the study, which is called like FOLDER.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.accuracy.cells import FEW, Variant, read_cells, read_variants, run_cell, write_cells
from benchmarks.accuracy.costs import VARIANTS, read_costs
from benchmarks.accuracy.page import paste, study_tables
from benchmarks.accuracy.tables import FIGURES
from mhpatchcore.inputs.datasets import find_categories


def main() -> None:
    options = _options()
    path = Path(options.out) / "cells.csv"
    variants = read_variants(Path(options.variants))
    if options.only:
        variants = {name: variants[name] for name in options.only.split(",")}
    if options.data:
        _run(options, variants, path)
    cells = [cell for cell in read_cells(path) if not options.only or cell.variant.split(FEW)[0] in variants]
    tables = study_tables(cells, variants, read_costs(path.with_name("costs.csv")))
    for name, table in tables.items():
        print(f"{name}\n\n{table}\n")
    if options.page:
        print(f"{options.page}: {', '.join(paste(Path(options.page), Path(options.out).name, tables))}")


def _run(options: argparse.Namespace, variants: dict[str, Variant], path: Path) -> None:
    cells = read_cells(path)
    done = {(cell.variant, cell.category, cell.seed) for cell in cells}
    folders = [
        folder
        for folder in find_categories(options.data)
        if not options.categories or folder.name in options.categories.split(",")
    ]
    store = Path(options.store) if options.store else None
    draws = [int(n) for n in options.normals.split(",")] if options.normals else [None]
    for folder in folders:
        for variant in variants.values():
            if options.backbone:
                variant = replace(variant, config=variant.config.with_changes(backbone=options.backbone))
            for normals in draws:
                named = variant if normals is None else replace(variant, name=f"{variant.name}{FEW}{normals}")
                for seed in map(int, options.seeds.split(",")):
                    if (named.name, folder.name, seed) in done:
                        continue
                    train = options.train if normals is None else normals
                    cell = run_cell(named, folder, seed, train, options.test, store, normals is not None)
                    cells.append(cell)
                    write_cells(path, cells)
                    figures = " ".join(f"{getattr(cell, figure):.4f}" for figure in FIGURES)
                    line = f"{cell.variant} {cell.category} seed {seed}: {figures}  {cell.seconds:.0f} s"
                    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("data", nargs="?", help="a folder of categories")
    parser.add_argument("--out", required=True, help="folder of cells.csv")
    parser.add_argument("--variants", default=str(VARIANTS))
    parser.add_argument("--only", help="names of variants, separated by commas")
    parser.add_argument("--categories", help="names of categories, separated by commas")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--train", type=int, help="learn from at most so many images of a category")
    parser.add_argument("--test", type=int, help="judge on at most so many")
    parser.add_argument("--normals", help="numbers of images to learn from, separated by commas")
    parser.add_argument("--backbone", help="another network for all variants")
    parser.add_argument("--store", help="a folder that keeps descriptors")
    parser.add_argument("--page", help="a page to put the tables into, such as docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
