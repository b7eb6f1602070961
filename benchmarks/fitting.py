"""A whole fit, as a multiple of what it cannot avoid: `python -m benchmarks.fitting DATA`

DATA is a folder of normal images. The floor is decoding every image and running the bare network once on each of its
views, all cores busy in both. Floor and fit are taken in turns, and the median over the rounds of their ratio is given;
a second table has the fit's phases, as multiples of the same floor. The third is the peak memory of a fit in a process
of its own; `--memory 300,2875` asks for fits of so many images.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.commands import Row, integers, shown
from benchmarks.networks import Subject, floor_of, measuring_command, subjects
from benchmarks.one_fit import measured_fit
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Detector, Execution
from mhpatchcore.runtime.costs import Costs, Phase, cpu_seconds
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.system import available_cores

DIFFERENT = 8  # prepared views that take turns: those of all images would fill the memory
COLUMNS = {
    "network": "{network}",
    "images": "{images}",
    "K": "{K:,}",
    "decode, s": "{decode_s:.2f}",
    "bare network, s": "{network_s:.2f}",
    "fit, s": "{fit_s:.2f}",
    "× (decode + network)": "{ratio:.2f}",
    "× network": "{network_ratio:.2f}",
}
PHASES = {
    "network": "{network}",
    "phase of the fit": "{phase}",
    "wall, s": "{wall_s:.2f}",
    "CPU, s": "{cpu_s:.2f}",
    "× (decode + network)": "{ratio:.2f}",
}
MEMORY = {
    "network": "{network}",
    "images": "{images}",
    "peak, MB": "{peak_mb:.0f}",
    "estimate, MB": "{estimate_mb:.0f}",
    "wall, s": "{seconds:.1f}",
}


def main() -> None:
    measuring_command(__doc__, run, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory", type=integers, help="numbers of images, by commas (default: as many as are timed)"
    )


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    chosen = list(subjects(options))
    found = {"fits": shown((fit_row(one, options.rounds) for one in chosen), COLUMNS)}
    print()
    shown((phase for row in found["fits"] for phase in row["phases"]), PHASES)
    print()
    found["memory"] = shown((row for one in chosen for row in memory_rows(one, options.memory)), MEMORY)
    return found


def fit_row(subject: Subject, rounds: int) -> Row:
    """Wall seconds of decoding alone, of the bare network alone, and of the fit with its phases."""
    floor, images = floor_of(subject, threads=1), subject.images
    views = [floor.decode(path) for path in images[:DIFFERENT]]
    measured: list[list[Phase]] = []

    def fit(_: int) -> None:
        telemetry, started, cpu = Costs(), time.perf_counter(), cpu_seconds()
        execution = Execution(telemetry=telemetry)
        Detector.fit(images, subject.config, weights=subject.weights, execution=execution)
        wall, cpu = time.perf_counter() - started, cpu_seconds() - cpu
        measured.append([*telemetry.phases, rest_of(wall, cpu, telemetry)])

    times = interleaved(
        (
            lambda _: _busy(floor.decode, images),
            lambda _: _busy(floor.run, (views[i % len(views)] for i in range(len(images)))),
            fit,
        ),
        rounds,
    )
    decode, network, whole = medians(times)
    least = decode + network
    return {
        "network": subject.name,
        "images": len(images),
        "K": subject.config.K,
        "decode_s": decode,
        "network_s": network,
        "fit_s": whole,
        "ratio": ratio(times[:, 2], times[:, 0] + times[:, 1]),
        "network_ratio": ratio(times[:, 2], times[:, 1]),
        "phases": [
            {"network": subject.name, "phase": name, "wall_s": wall, "cpu_s": cpu, "ratio": wall / least}
            for name, (wall, cpu) in phase_seconds(measured[-rounds:]).items()
        ],
    }


def rest_of(wall: float, cpu: float, telemetry: Costs) -> Phase:
    """What a fit does between its phases: loading the network, making graphs and sessions."""
    wall -= sum(phase.wall_seconds for phase in telemetry.phases)
    cpu -= sum(phase.cpu_seconds for phase in telemetry.phases)
    return Phase("between them", wall, cpu, telemetry.peak_rss, 0)


def phase_seconds(fits: list[list[Phase]]) -> dict[str, list[float]]:
    """Wall and CPU seconds of each phase, all scales together: medians over the fits."""
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for phases in fits:
        for name in dict.fromkeys(phase.name for phase in phases):
            same = [phase for phase in phases if phase.name == name]
            seconds[name].append((sum(p.wall_seconds for p in same), sum(p.cpu_seconds for p in same)))
    return {name: medians(np.array(each)) for name, each in seconds.items()}


def memory_rows(subject: Subject, sizes: Sequence[int] | None) -> Iterator[Row]:
    """Peak resident memory of fits in processes of their own, over the number of images."""
    for n in sizes or [len(subject.images)]:
        yield {"network": subject.name, **measured_fit(subject.folder, n, subject.config, subject.weights)}


def _busy(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """All cores at work on items, one thread each."""
    for _ in ordered_map(work, items, available_cores(), ahead=4):
        pass


if __name__ == "__main__":
    main()
