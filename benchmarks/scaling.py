"""What a cluster costs and gains, on this machine: `python -m benchmarks.scaling FOLDER`

FOLDER holds images. The same fit runs on local clusters of 1, 2, … worker processes (--workers): seconds on the clock
and CPU seconds of the workers for reading images, moments, the bank and scoring, and the bytes that travel for each
image, beside those that travel once (the rows of the bank). Then: what a scheduler keeps of a task, what the
plan of many images takes, and from all this what --million images take on --machines workers (`simulated`): every pass
is a number of equal tasks, so many at a time, and the levels of the tree follow one another.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from distributed import Client

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.scaling_run import resident
from mhpatchcore import Config, Detector, Execution
from mhpatchcore.backbone.stored import StoredImage, StoredView, views_at
from mhpatchcore.bank.constructors import FAN_IN, Patches, reduced
from mhpatchcore.batch.scoring import Batch, score_batch
from mhpatchcore.fitting import trees
from mhpatchcore.fitting.banking import MOMENTS_FAN_IN, bank_chunks
from mhpatchcore.fitting.dask_executor import DaskExecutor, executor_of
from mhpatchcore.fitting.extraction import images_at_once
from mhpatchcore.fitting.storekeeping import entries_of
from mhpatchcore.fitting.trees import RUNS, cut, runs_of
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.system import current_rss

PASSES = ("extract", "moments", "bank", "score")
STRONG = {
    "workers": "{workers}",
    **{f"{name}, s": f"{{{name}_s:.1f}}" for name in PASSES},
    **{f"{name}, CPU s": f"{{{name}_cpu:.1f}}" for name in PASSES},
    "bytes that travel for an image": ", ".join(f"{name} {{{name}_bytes:,.0f}}" for name in PASSES),
    "moments of a task": "{moments_bytes:,.0f}",
    "rows of the bank": "{rows_bytes:,.0f}",
}
SCHEDULER_TASKS = 20_000
PLANNED = 200_000


@dataclass
class Counting:
    """A client that counts what travels, by pass; what is not counted per image is apart."""

    client: Any
    current: str = ""
    bytes: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def submit(self, function: Any, *arguments: Any, **how: Any) -> CountingFuture:
        self.bytes[self.current] += len(cloudpickle.dumps((function, arguments)))
        self.tasks[self.current] += 1
        return CountingFuture(self, self.client.submit(function, *arguments, **how))


@dataclass
class CountingFuture:
    counting: Counting
    future: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.future, name)

    def result(self) -> Any:
        found = self.future.result()
        current, size = self.counting.current, len(pickle.dumps(found))
        rows = any(isinstance(one, np.ndarray) for one in found)  # of the bank, at the end
        self.counting.bytes["rows" if rows else current] += size
        return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=integers, default=[1, 2])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--million", type=float, default=10)
    parser.add_argument("--machines", type=int, default=100)
    options = parser.parse_args()
    images = images_below(options.folder)[: options.images]
    trees.RUNS_PER_WORKER = 1  # large tasks, as of many images
    strong = shown((strong_row(images, workers) for workers in options.workers), STRONG)
    small = {"scheduler": scheduler_bytes(), "plan": planning(PLANNED), "close": closing_seconds(Config())}
    print()
    for facts in small.values():
        print("\n".join(f"{name}: {value:,.3g}" for name, value in facts.items()))
    costs = unit_costs(strong[0], small)
    print()
    whole = shown(simulated(int(options.million * 1e6), options.machines, costs), SIMULATED)
    write_json(options.json, {"strong": strong, "small": small, "costs": costs, "simulated": whole})


def strong_row(images: list[Path], workers: int) -> Row:
    """One fit and one batch of scores on a cluster of so many processes."""
    row: Row = {"workers": workers, "images": len(images)}
    with tempfile.TemporaryDirectory() as scratch, executor_of(f"local:{workers}") as executor:
        counting = Counting(executor.client)
        cpu = {"": cpu_of(counting)}

        def progress(phase: str, done: int, total: int) -> None:
            if done == 0 and phase != counting.current:
                counting.current = phase
                cpu[phase] = cpu_of(counting)

        telemetry = Costs()
        execution = Execution(
            store=f"{scratch}/store", executor=DaskExecutor(counting), progress=progress, telemetry=telemetry
        )
        detector = Detector.fit(images, Config(), execution=execution)
        row["store_bytes"] = sum(one.size for one in entries_of(Path(scratch, "store"))) / len(images)
        detector.save(f"{scratch}/part.mhpc")
        progress("score", 0, 1)
        started = time.perf_counter()
        done = score_batch(Batch.of(f"{scratch}/part.mhpc", f"{scratch}/out"), images, DaskExecutor(counting))
        assert sum(1 for _ in done)
        row["score_s"] = time.perf_counter() - started
        progress("end", 0, 1)
        for name in ("extract", "moments", "bank"):
            row[f"{name}_s"] = sum(one.wall_seconds for one in telemetry.phases if one.name == name)
    begins = list(cpu)
    for name in PASSES:
        following = begins[begins.index(name) + 1]
        row[f"{name}_cpu"] = cpu[following] - cpu[name]
        row[f"{name}_bytes"] = counting.bytes[name] / len(images)
    row["rows_bytes"] = counting.bytes["rows"]
    return row


def cpu_of(client: Any) -> float:
    return float(sum(client.run(time.process_time).values()))


def scheduler_bytes() -> dict[str, float]:
    """What a scheduler keeps of every task it knows, of tiny ones that have ended."""
    with tempfile.TemporaryDirectory() as scratch:
        file = f"{scratch}/scheduler.json"
        dask = [sys.executable, "-m", "dask"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        here = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", file]
        scheduler = subprocess.Popen([*dask, "scheduler", "--port", "0", *here], **quiet)
        worker = subprocess.Popen(
            [*dask, "worker", "--nthreads", "1", "--no-dashboard", "--scheduler-file", file], **quiet
        )
        try:
            until = time.monotonic() + 30
            while not Path(file).exists() and time.monotonic() < until:
                time.sleep(0.1)
            with Client(scheduler_file=file, timeout=30, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=30)
                client.gather(client.map(abs, range(100)))
                before, started = resident(scheduler.pid), time.perf_counter()
                futures = client.map(abs, range(SCHEDULER_TASKS), pure=False)
                client.gather(futures)
                seconds = time.perf_counter() - started
                kept = (resident(scheduler.pid) - before) / SCHEDULER_TASKS
        finally:
            for process in (worker, scheduler):
                process.terminate()
                process.wait()
    return {"scheduler, bytes of a task": kept, "scheduler, seconds of a task": seconds / SCHEDULER_TASKS}


def planning(n: int) -> dict[str, float]:
    """What the client needs for every image, at one scale: seconds to plan, bytes to know where it is."""
    config, before, started = Config(), current_rss(), time.perf_counter()
    far = DaskExecutor(_Workers())
    runs_of(cut(range(n), images_at_once(config)), MOMENTS_FAN_IN, far)
    where = Geometry(8, 8, 0, 0, 8, 8)
    none = np.empty(0, np.float32)
    images = [
        StoredImage(i, ((StoredView(i, 0, f"image/{i:064d}", 0, where),),), ((),), "", none, none)
        for i in range(n)
    ]
    runs_of(bank_chunks(views_at(0, images), config), FAN_IN, far)
    seconds = time.perf_counter() - started
    return {
        "plan, seconds of a million images": 1e6 * seconds / n,
        "plan, bytes of an image": (current_rss() - before) / n,
    }


class _Workers:
    def nthreads(self) -> dict[str, int]:
        return {str(i): 1 for i in range(100)}


def closing_seconds(config: Config) -> dict[str, float]:
    """A node of the default bank: four times K rows become K."""
    z = np.random.default_rng(0).normal(size=(FAN_IN * config.K, 88)).astype(np.float32)
    with one_blas_thread():
        started = time.process_time()
        reduced(Patches(z, np.zeros((len(z), 4), np.int32)), config.K)
        return {"a node of the bank, CPU seconds": time.process_time() - started}


def unit_costs(one_worker: Row, small: dict[str, dict[str, float]]) -> dict[str, float]:
    """What an image, a node and a task cost."""
    n = one_worker["images"]
    costs = {f"{name} seconds": one_worker[f"{name}_cpu"] / n for name in PASSES}
    travelling = {f"{name} bytes": one_worker[f"{name}_bytes"] for name in PASSES}
    return (
        costs
        | travelling
        | {"store bytes": one_worker["store_bytes"]}
        | {
            "node seconds": small["close"]["a node of the bank, CPU seconds"],
            "task bytes": small["scheduler"]["scheduler, bytes of a task"],
            "client bytes": small["plan"]["plan, bytes of an image"],
            "plan seconds": small["plan"]["plan, seconds of a million images"],
        }
    )


SIMULATED = {
    "pass": "{name}",
    "tasks": "{tasks:,}",
    "seconds": "{seconds:,.0f}",
    "travels, GB": "{travels:.1f}",
}


def simulated(images: int, workers: int, costs: dict[str, float], scales: int = 2) -> Iterator[Row]:
    """What a fit with default settings takes on a cluster whose workers are as fast as a core of this machine."""
    chunks = ceil(images / Config().chunk_images)
    run = RUNS[0]
    runs = ceil(chunks / run)
    for name in ("extract", "moments", "bank"):
        per_run = run * Config().chunk_images * costs[f"{name} seconds"]
        travels = images * costs[f"{name} bytes"] / 1e9
        yield {"name": name, "tasks": runs, "seconds": ceil(runs / workers) * per_run, "travels": travels}
    level, nodes, merged = 0, runs, 16
    while nodes >= 2 * merged:
        tasks = nodes // merged
        closes = merged // FAN_IN + 1
        seconds = scales * ceil(tasks / workers) * closes * costs["node seconds"]
        level += 1
        yield {"name": f"nodes, level {level}", "tasks": tasks, "seconds": seconds, "travels": 0.0}
        nodes = tasks + nodes % merged
    seconds = scales * (nodes // FAN_IN + 2) * costs["node seconds"]
    yield {"name": "the last nodes, on the client", "tasks": 0, "seconds": seconds, "travels": 0.0}


if __name__ == "__main__":
    main()
