"""The paper's grid and its page: `python -m benchmarks.results DATA --backbone FILE.onnx`; without DATA only the page.

DATA is a folder of categories. Every preset runs on --categories with one network: the embedded one, a named one with
--weights FILE, or a network of one's own in an ONNX file. `--ladder CATEGORY` runs the subset ladder on a category with
many normal images instead. Everything is resumed where it stopped, and each network's results stay in a folder of their
own. The page, docs/results.md with its figures, is written from benchmarks/results/*/cells.csv alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.commands import parser_of, write_json
from benchmarks.results.page import LADDER_FOLDER, network_folders, write_page
from mhpatchcore import Config
from mhpatchcore.experiments.cells import read_rows
from mhpatchcore.presets import LADDER_SIZES

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def main() -> None:
    options = _options()
    if options.data:
        arguments = command(options)
        print(f"mhpatchcore {' '.join(arguments)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "mhpatchcore", *arguments], check=True)
    print(f"wrote {write_page(options.results, options.docs)}")
    folders = [*network_folders(options.results), options.results / LADDER_FOLDER]
    tables = [folder / "cells.csv" for folder in folders if (folder / "cells.csv").is_file()]
    write_json(options.json, {path.parent.name: read_rows(path) for path in tables})


def command(options: argparse.Namespace) -> Sequence[str]:
    """What is run; the folder of its results is named after the network, or ladder."""
    network = [f"--backbone={options.backbone}"] if options.backbone else []
    network += [f"--weights={options.weights}"] if options.weights else []
    if options.ladder:
        where = ["ladder", str(options.data / options.ladder), f"--sizes={options.sizes}"]
        grows = ["--update"] if options.update else []
        return [*where, *grows, *network, f"--out={options.results / LADDER_FOLDER}"]
    name = Path(options.backbone or Config().backbone).stem
    what = [f"--categories={options.categories}", f"--presets={options.presets}"]
    return ["benchmark", str(options.data), *what, *network, f"--out={options.results / name}"]


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "data", nargs="?", type=Path, help="a folder of categories; the page alone if there is none"
    )
    parser.add_argument("--categories", default="bottle,pill,carpet,transistor", help="by commas, or all")
    parser.add_argument("--presets", default="all", help="by commas, or all that leave the network open")
    parser.add_argument(
        "--backbone", help="a network by name, or an .onnx file with its description beside it"
    )
    parser.add_argument("--weights", metavar="FILE", help="a weights file for a named network")
    parser.add_argument("--ladder", metavar="CATEGORY", help="the subset ladder on this category instead")
    parser.add_argument("--update", action="store_true", help="on the ladder a model grows as well")
    parser.add_argument("--sizes", default=",".join(map(str, LADDER_SIZES)), help="of the ladder's subsets")
    parser.add_argument("--results", type=Path, default=HERE, metavar="FOLDER", help="where results are kept")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER", help="where the page goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
