"""What a kept store saves a second fit: `python -m benchmarks.storing DATA`

DATA is a folder of normal images. Each round begins with an empty store (`fit --store FOLDER`) and fits twice, the
second time with another number of bank rows: decoding and the network are not needed again.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial

from benchmarks.commands import Row, shown
from benchmarks.networks import Subject, measuring_command, subjects
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Config, Detector, Execution

COLUMNS = {
    "network": "{network}",
    "images": "{images}",
    "first fit, s": "{first_s:.2f} (K = {first_K:,})",
    "second fit, s": "{second_s:.2f} (K = {second_K:,})",
    "second / first": "{part:.2f}",
}


def main() -> None:
    measuring_command(__doc__, run)


def run(options: argparse.Namespace) -> list[Row]:
    return shown((store_row(one, options.rounds) for one in subjects(options)), COLUMNS)


def store_row(subject: Subject, rounds: int) -> Row:
    first = subject.config
    second = first.with_changes(K=first.K // 2)
    with tempfile.TemporaryDirectory() as scratch:
        stores = [tempfile.mkdtemp(dir=scratch) for _ in range(rounds)]

        def fit(config: Config, round_: int) -> None:
            execution = Execution(store=stores[round_])
            Detector.fit(subject.images, config, weights=subject.weights, execution=execution)

        times = interleaved((partial(fit, first), partial(fit, second)), rounds, warm_up=0)
    first_s, second_s = medians(times)
    return {
        "network": subject.name,
        "images": len(subject.images),
        "first_K": first.K,
        "second_K": second.K,
        "first_s": first_s,
        "second_s": second_s,
        "part": ratio(times[:, 1], times[:, 0]),
    }


if __name__ == "__main__":
    main()
