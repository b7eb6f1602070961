"""The peak of memory for one very large image in tiles: `python -m benchmarks.large`

An image of 12,000 × 9,000 pixels is made, gray or in colour, saved as JPEG, learnt from and scored, with its regions,
each in a process of its own, the fit with one worker.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks.commands import Row, answer_of, listed, parser_of, shown, write_json
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.system import own_peak, share_one_heap

HEIGHT, WIDTH = 9000, 12000
COLUMNS = {
    "image": "{kind}",
    "`--size`": "{size}",
    "tiles": "{tiles}",
    "fit, MB": "{fit:.0f}",
    "score, MB": "{score:.0f}",
    "score, s": "{seconds:.0f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=listed, default=["tile:512", "tile:256"])
    parser.add_argument("--kinds", type=listed, default=["gray", "colour"])
    options = parser.parse_args()
    write_json(options.json, shown(rows(options.kinds, options.sizes), COLUMNS))


def rows(kinds: Sequence[str], sizes: Sequence[str]) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        for kind in kinds:
            image = Path(folder) / f"{kind}.jpg"
            write_image(image, kind)
            for size in sizes:
                model = str(Path(folder) / "part.mhpc")
                learnt = answer_of("benchmarks.large", "fit", str(image), model, size)
                scored = answer_of("benchmarks.large", "score", str(image), model, size)
                yield {"kind": kind, "size": size, **learnt, **scored}


def write_image(path: Path, kind: str) -> None:
    """A chequered plate, some rows of squares lighter than others."""
    y, x = np.arange(HEIGHT)[:, None], np.arange(WIDTH)[None]
    gray = Image.fromarray(((x // 37 + y // 53) % 2 * 60 + 90 + (y // 600) % 5 * 9).astype(np.uint8))
    (gray if kind == "gray" else Image.merge("RGB", [gray] * 3)).save(path, quality=88)


def answer() -> None:
    what, image, model, size = sys.argv[1:]
    share_one_heap()
    if what == "fit":
        telemetry = Costs()  # it keeps the highest peak, which the kernel forgets between the phases
        config = Config(sizes=size, calibration="none")
        Detector.fit([image], config, execution=Execution(workers=1, telemetry=telemetry)).save(model)
        print(json.dumps({"fit": telemetry.peak_rss / 1e6}))
        return
    detector = Detector.load(model)
    started = time.perf_counter()
    result = detector.score(image)
    found = {"tiles": len(result.views), "regions": len(result.regions)}
    seconds = time.perf_counter() - started
    print(json.dumps({**found, "score": own_peak() / 1e6, "seconds": seconds}))


if __name__ == "__main__":
    main()
