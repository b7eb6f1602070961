"""`make stress`: mutated files by the ten thousand, and faults at every write, as a table; exit code 1 if any fails.

A trial is known by its family and its number: `python -m benchmarks.stress --only models --first 4510 --trials 1`
repeats it. `--minutes` bounds the whole run; families that had no time for all of their trials say so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path

from benchmarks.stress import configurations, images, inbox_faults, models, networks, weights
from benchmarks.stress.faults import COMMANDS, run_faults
from benchmarks.stress.processes import HARMLESS, REFUSED, Tally, run_trials
from benchmarks.stress.record_faults import COMMAND as RECORD
from benchmarks.stress.record_faults import run_record_faults
from benchmarks.stress.sinks import COMMAND as SINKS
from benchmarks.stress.sinks import run_sink_faults
from mhpatchcore.runtime.system import available_cores

FAMILIES = {
    module.FAMILY.name: module.FAMILY for module in (images, models, networks, weights, configurations)
}
TRIALS = {"images": 10_000, "models": 7_000, "networks": 4_000, "weights": 4_000, "settings": 4_000}
FAULTS = {  # at every write of commands that make models, and of what a line records and sends
    "faults": [name for name in COMMANDS if name not in inbox_faults.COMMANDS],
    "line": [SINKS, RECORD, *inbox_faults.COMMANDS],
}
SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="the whole run takes no longer (default 10)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the number of the first trial")
    parser.add_argument("--trials", type=int, help="so many of every family")
    parser.add_argument("--only", default="", metavar="NAMES", help=f"of {', '.join((*FAMILIES, *FAULTS))}")
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument(
        "--step", type=int, default=1, help="faults at every so many writes only (default 1: all)"
    )
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [*FAMILIES, *FAULTS]
    until = time.monotonic() + 60 * options.minutes
    columns = ("refused", 8), ("harmless", 9), ("wrong", 6), ("slowest", 8), ("memory", 8), ("time", 7)
    print(
        f"{'family':<10} {'trials':>15} " + " ".join(f"{name:>{width}}" for name, width in columns),
        flush=True,
    )
    failed = 0
    for name in [name for name in FAMILIES if name in chosen]:
        wanted = options.trials or TRIALS[name]
        with tempfile.TemporaryDirectory(prefix="mhpatchcore-stress-") as folder:
            family = FAMILIES[name]
            family.prepare(Path(folder))
            tally = run_trials(
                family, Path(folder), range(options.first, options.first + wanted), options.workers, until
            )
        _show(tally, wanted)
        failed += len(tally.failures)
    for name in [name for name in FAULTS if name in chosen]:
        failed += _faults(FAULTS[name], options.step, until)
    print("nothing was wrong" if not failed else f"{failed} trials were wrong")
    sys.exit(1 if failed else 0)


def _show(tally: Tally, wanted: int) -> None:
    trials = f"{tally.trials}" if tally.trials == wanted else f"{tally.trials} of {wanted}"
    print(
        f"{tally.name:<10} {trials:>15} {tally.count(REFUSED):>8} {tally.count(HARMLESS):>9} {len(tally.failures):>6} "
        f"{tally.slowest:>6.1f} s {tally.peak / 1e6:>5.0f} MB {tally.seconds:>5.0f} s",
        flush=True,
    )
    for seed, what in tally.failures[:SHOWN]:
        print(f"    --only {tally.name} --first {seed} --trials 1: {what[:300]}")


def _faults(commands: list[str], step: int, until: float) -> int:
    """A line for each command: how many writes of it failed in each way; the number of wrong ends."""
    with tempfile.TemporaryDirectory(prefix="mhpatchcore-stress-") as folder:
        trials: dict[str, Counter[str]] = {name: Counter() for name in commands}
        through: set[tuple[str, str]] = set()
        wrong = []
        place, steps = Path(folder), {name: step for name in commands if name in COMMANDS}
        sinks = run_sink_faults(place, until=until) if SINKS in commands else ()
        record = run_record_faults(place, step, until) if RECORD in commands else ()
        for struck in chain(sinks, record, run_faults(place, steps, until)):
            trials.setdefault(struck.command, Counter())[struck.kind] += struck.reached
            if struck.problem:
                wrong.append(struck)
            if not struck.reached:
                through.add((struck.command, struck.kind))
    if not any(sum(counts.values()) for counts in trials.values()):
        print(
            "faults: skipped, there is no C compiler (cc)"
            if until > time.monotonic()
            else "faults: no time was left"
        )
        return 0
    for name, counts in trials.items():
        each = ", ".join(
            f"{number} × {kind}{'' if (name, kind) in through else ' (no time for all)'}"
            for kind, number in counts.items()
        )
        print(f"faults     {name}: {each or 'no time was left'}")
    for struck in wrong[:SHOWN]:
        print(f"    {struck.command}, {struck.kind} at write {struck.n}: {struck.problem[:300]}")
    return len(wrong)


if __name__ == "__main__":
    main()
