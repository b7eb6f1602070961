"""`python -m benchmarks.results DATA --resnet18 WEIGHTS` runs the experiments; without DATA it only writes the page.

DATA is a folder with the categories bottle, pill and casting. Everything is resumed where it stopped. The page,
docs/results.md with its figures, is written from benchmarks/results/*/{cells,phases}.csv alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results.page import write_page

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
GRID, MANY = "bottle,pill", "casting"


def main() -> None:
    options = _options()
    if options.data:
        for name, command in commands(Path(options.data), options.resnet18, options.sizes).items():
            if name in options.parts.split(","):
                print(f"{name}: mhpatchcore {' '.join(command)}", file=sys.stderr, flush=True)
                subprocess.run([sys.executable, "-m", "mhpatchcore", *command], check=True)
    print(f"wrote {write_page(HERE, DOCS)}")


def commands(data: Path, resnet18: str | None, sizes: str) -> dict[str, Sequence[str]]:
    """What is run, by the folder it leaves its results in."""
    grid = ["benchmark", str(data), "--categories", GRID]
    found = {
        "lite0": [*grid, "--out", str(HERE / "lite0")],
        "ladder": ["ladder", str(data / MANY), "--sizes", sizes, "--out", str(HERE / "ladder")],
    }
    if resnet18:
        network = ["--backbone", "resnet18", "--weights", resnet18]
        found["resnet18"] = [*grid, *network, "--out", str(HERE / "resnet18")]
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", help="a folder of categories; the page alone if there is none")
    parser.add_argument("--resnet18", metavar="FILE", help="genuine ResNet-18 weights; left out without them")
    parser.add_argument("--sizes", default="300,500,750,1000,1500,2000", help="of the ladder's subsets")
    parser.add_argument("--parts", default="lite0,resnet18,ladder", help="what to run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
