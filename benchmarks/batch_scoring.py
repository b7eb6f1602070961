"""Batch scoring against scoring in one process: `python -m benchmarks.batch_scoring DATA`

DATA is a folder of normal images, of which the first are learnt. All work takes the same images and tells the same of
them: scores and boxes. Taken in turns are `Detector.score_many` on threads, a table written on threads, and a table
written by a cluster of as many processes on this machine. Told are images for each second of CPU time, of all processes
together, which others on the machine disturb little; and for each second of the clock, which they do disturb. The
preset is the fastest one, where what is not scoring weighs most.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, parser_of, shown, write_json
from benchmarks.timing import medians, ratio
from mhpatchcore import Detector
from mhpatchcore.batch import scoring
from mhpatchcore.fitting.dask_executor import executor_of
from mhpatchcore.fitting.execution import Executor, Threads
from mhpatchcore.inputs.places import images_below
from mhpatchcore.runtime.arrays import Doubles

NAMES = ("score_many on threads", "table on threads", "table on a cluster")
COLUMNS = {
    "work": "{work}",
    "images a CPU second": "{per_cpu:.1f}",
    "× score_many": "{cpu_ratio:.2f}",
    "images a second": "{per_second:.1f}",
    "× score_many by the clock": "{ratio:.2f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--learnt", type=int, default=24)
    parser.add_argument("--part", type=int, default=16, help="images of a part: each worker has several")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="fast")
    options = parser.parse_args()
    write_json(options.json, shown(rows(options), COLUMNS))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    scoring.PART = options.part
    every = images_below(options.data)
    images = [every[i % len(every)] for i in range(options.images)]
    detector = Detector.fit(every[: options.learnt], preset=options.preset)
    with tempfile.TemporaryDirectory() as folder, executor_of(f"local:{options.workers}") as cluster:
        model, numbers = Path(folder, "part.mhpc"), count()
        detector.save(model)

        def table(executor: Executor) -> None:
            batch = scoring.Batch.of(model, Path(folder, str(next(numbers))))
            assert all(done.scored for done in scoring.score_batch(batch, images, executor))

        def both_clocks() -> Doubles:
            """Seconds of CPU time of this process and of all workers, and of the clock."""
            there = cluster.client.run(time.process_time).values()
            return np.array([time.process_time() + sum(there), time.perf_counter()])

        works = (
            lambda: [result and result.regions for result in detector.score_many(images, options.workers)],
            lambda: table(Threads(options.workers)),
            lambda: table(cluster),
        )
        taken = np.array([[_taken(work, both_clocks) for work in works] for _ in range(1 + options.rounds)])
    cpu, clock = taken[1:, :, 0], taken[1:, :, 1]  # the first round warms up
    per_cpu, per_second = ([len(images) / one for one in medians(times)] for times in (cpu, clock))
    for i, name in enumerate(NAMES):
        yield {
            "work": name,
            "per_cpu": per_cpu[i],
            "cpu_ratio": ratio(cpu[:, 0], cpu[:, i]),
            "per_second": per_second[i],
            "ratio": ratio(clock[:, 0], clock[:, i]),
        }


def _taken(work: Callable[[], object], clocks: Callable[[], Doubles]) -> Doubles:
    started = clocks()
    work()
    return clocks() - started


if __name__ == "__main__":
    main()
