"""One image from its pixels to the score, as a multiple of the bare network: `python -m benchmarks.scoring DATA`

DATA is a folder of normal images. The bare network runs on views that are prepared, at every scale, in ONNX Runtime on
all cores; the detector gets the decoded image and has the same cores. Both are called in turns, and medians are given,
with and without the map over the original image.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benchmarks.commands import Row, integers, shown
from benchmarks.networks import Subject, floor_of, measuring_command, subjects
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Detector
from mhpatchcore.inputs.loading import load_pixels

DIFFERENT = 8  # images that take turns
FITTED = 100  # enough for the rows asked for: speed depends on their number alone
WARM_UP = 5
COLUMNS = {
    "network": "{network}",
    "rows": "{rows:,}",
    "bare network, ms": "{bare_ms:.1f}",
    "score, ms": "{score_ms:.1f}",
    "× bare": "{score_ratio:.2f}",
    "score and map, ms": "{map_ms:.1f}",
    "× bare with map": "{map_ratio:.2f}",
}


def main() -> None:
    measuring_command(__doc__, run, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--K", type=integers, default=[1000, 5000], help="bank rows, by commas")
    parser.add_argument("--calls", type=int, default=40, help="scores of which the median is taken")


def run(options: argparse.Namespace) -> list[Row]:
    rows = (row for one in subjects(options) for row in scoring_rows(one, options.K, options.calls))
    return shown(rows, COLUMNS)


def scoring_rows(subject: Subject, banks: Sequence[int], calls: int) -> Iterator[Row]:
    """Milliseconds of the bare network and of the detector, taken in turns, for banks of several sizes."""
    floor = floor_of(subject, threads=0)
    some = subject.images[:DIFFERENT]
    pixels, views = [load_pixels(path) for path in some], [floor.decode(path) for path in some]
    for K in banks:
        config = subject.config.with_changes(K=K)
        detector = Detector.fit(subject.images[:FITTED], config, weights=subject.weights)
        works = (
            lambda i: floor.run(views[i % len(views)]),
            lambda i, detector=detector: detector.score(pixels[i % len(pixels)]),
            lambda i, detector=detector: detector.score(pixels[i % len(pixels)]).map,
        )
        times = interleaved(works, calls, WARM_UP)
        bare, score, mapped = (1e3 * seconds for seconds in medians(times))
        yield {
            "network": subject.name,
            "rows": detector.model.rows,
            "bare_ms": bare,
            "score_ms": score,
            "score_ratio": ratio(times[:, 1], times[:, 0]),
            "map_ms": mapped,
            "map_ratio": ratio(times[:, 2], times[:, 0]),
        }


if __name__ == "__main__":
    main()
