"""Batch scoring against scoring in one process: `python -m benchmarks.batch_scoring DATA`

DATA is a folder of normal images, of which the first are learnt. All work takes the same images and tells the same of
them: scores and boxes. Taken in turns are `Detector.score_many` on threads, a table written on threads, and a table
written by a cluster of as many processes on this machine. A ratio of 1 is as many images a second and core.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.commands import Row, parser_of, shown, write_json
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Detector
from mhpatchcore.cluster import scoring
from mhpatchcore.cluster.dask import executor_of
from mhpatchcore.fitting.executor import Executor, Threads
from mhpatchcore.inputs.folders import images_below

COLUMNS = {
    "work": "{work}",
    "images a second": "{speed:.1f}",
    "× score_many": "{ratio:.2f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--learnt", type=int, default=48)
    parser.add_argument("--part", type=int, default=16, help="images of a part: each worker has several")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    write_json(options.json, shown(rows(options), COLUMNS))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    scoring.PART = options.part
    every = images_below(options.data)
    images = [every[i % len(every)] for i in range(options.images)]
    detector = Detector.fit(every[: options.learnt])
    with tempfile.TemporaryDirectory() as folder, executor_of(f"local:{options.workers}") as cluster:
        model, numbers = Path(folder, "part.mhpc"), count()
        detector.save(model)

        def table(executor: Executor) -> None:
            batch = scoring.Batch.of(model, Path(folder, str(next(numbers))))
            assert all(done.scored for done in scoring.score_batch(batch, images, executor))

        works = (
            lambda _: [result and result.regions for result in detector.score_many(images, options.workers)],
            lambda _: table(Threads(options.workers)),
            lambda _: table(cluster),
        )
        times = interleaved(works, options.rounds)
    names = ("score_many on threads", "table on threads", "table on a cluster")
    for i, (name, seconds) in enumerate(zip(names, medians(times), strict=True)):
        yield {"work": name, "speed": len(images) / seconds, "ratio": ratio(times[:, 0], times[:, i])}


if __name__ == "__main__":
    main()
