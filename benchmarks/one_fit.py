"""One fit in a process of its own, measured: `python -m benchmarks.one_fit FOLDER --images 48 --set K=1000`

A peak of memory belongs to a process: what ran in it before would count. Beside it stands the estimate that
`fit --memory` goes by; a second table has the phases.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.commands import Row, answer_of, parser_of, shown, write_json
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.inputs.places import images_below
from mhpatchcore.runtime.costs import Costs, cpu_seconds

UNLIMITED = 10**15
COLUMNS = {
    "images": "{images}",
    "rows": "{rows:,}",
    "dimensions": "{dimensions}",
    "wall, s": "{seconds:.1f}",
    "CPU, s": "{cpu_seconds:.1f}",
    "peak, MB": "{peak_mb:.0f}",
    "estimate, MB": "{estimate_mb:.0f}",
}
PHASES = {
    "phase": "{name}",
    "wall, s": "{wall_seconds:.2f}",
    "CPU, s": "{cpu_seconds:.2f}",
    "peak, MB": "{peak_mb:.0f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="a folder of normal images")
    parser.add_argument("--images", type=int, default=200, help="the first so many")
    parser.add_argument("--weights", help="a weights file for the network")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, in TOML")
    options = parser.parse_args()
    config = Config().with_changes(**tomllib.loads("\n".join(options.set)))
    (found,) = shown([measured_fit(options.folder, options.images, config, options.weights)], COLUMNS)
    print(f"\nThe estimate: {found['estimate']}\n")
    shown(found["phases"], PHASES)
    write_json(options.json, found)


def measured_fit(folder: Path, images: int, config: Config, weights: str | None = None) -> Row:
    """Peak memory (MB, whole and by phase), its estimate, and seconds of a fit of the first `images` of a folder."""
    order = {"folder": str(folder), "images": images, "weights": weights, "config": config.to_json()}
    return answer_of("benchmarks.one_fit", order=order)


def answer() -> None:
    """In the process itself: the order comes in as JSON, the figures go out."""
    order = json.load(sys.stdin)
    telemetry = Costs()
    images = images_below(Path(order["folder"]))[: order["images"]]
    foreseen: list[Any] = []
    execution = Execution(memory=UNLIMITED, foresee=foreseen.append, telemetry=telemetry)
    started, cpu = time.perf_counter(), cpu_seconds()
    config = Config.from_json(order["config"])
    detector = Detector.fit(images, config, weights=order["weights"], execution=execution)
    found = {
        "images": len(images),
        "rows": detector.model.rows,
        "dimensions": detector.scales[0].whitening.k,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_mb": telemetry.peak_rss / 1e6,
        "estimate_mb": foreseen[0].peak / 1e6,
        "estimate": str(foreseen[0]),
        "phases": [phase | {"peak_mb": phase["peak_rss"] / 1e6} for phase in telemetry.to_json()["phases"]],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
