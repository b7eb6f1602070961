"""The service under load, against the bare scoring graph: `python -m benchmarks.serving DATA`

DATA is a folder of images of good parts. A model is fitted on them and served in a process of its own; clients on the
same machine send the images as they are, each over one connection, as fast as they are answered. The floor is the same
graph in ONNX Runtime, called from as many threads as there are cores, on views that are prepared: no decoding, no map,
no HTTP. The two take turns, and the median of their ratio is given: of images per second, where the clients take their
share of the cores too, and of CPU time per image, which depends less on what else runs on the machine.

What HTTP costs is measured by requests one after the other over a connection that is kept: for the health of the
service, and for verdicts beside the seconds that they say they took.

Then parts come at a steady rate, as from a line, while no, some or many pages follow live (`serving_pages`). How long a
verdict takes is counted from the moment at which the part came.

Then as many requests as asked for are sent while the model file is replaced every second. Every answer is held against
what the model of its hash must say; resident memory is looked at all along.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.serving_clients import ask, asked, cpu_of, resident, service, steady
from mhpatchcore import Detector
from mhpatchcore.inputs.places import images_below
from mhpatchcore.runtime.system import available_cores

RATES = (0.05, 0.2)  # of the two models that replace each other
THROUGHPUT = {
    "clients": "{clients}",
    "bare graph, images/s": "{bare:.1f}",
    "decode and score, no HTTP, images/s": "{tool:.1f}",
    "service, images/s": "{service:.1f}",
    "service / bare graph": "{ratio:.2f}",
    "by CPU time": "{cpu_ratio:.2f}",
    "CPU time per image, ms": "{cpu_ms:.0f}",
    "memory, MB": "{memory_mb:.0f}",
    "median, ms": "{median_ms:.0f}",
    "p99, ms": "{p99_ms:.0f}",
}
HTTP = {
    "health, ms": "{health_ms:.1f}",
    "a verdict, ms": "{verdict_ms:.1f}",
    "of it waiting, decoding and computing, ms": "{own_ms:.1f}",
    "HTTP, ms": "{http_ms:.1f}",
}
PAGES = {
    "pages open": "{pages}",
    "parts": "{parts}",
    "median, ms": "{median_ms:.0f}",
    "p99, ms": "{p99_ms:.0f}",
    "p99, of that without pages": "{ratio:.2f}",
    "pictures": "{pictures}",
    "failed": "{failed}",
}
ENDURANCE = {
    "requests": "{requests}",
    "swaps": "{swaps}",
    "lost": "{lost}",
    "wrong": "{wrong}",
    "images/s": "{rate:.1f}",
    "p99, ms": "{p99_ms:.0f}",
    "memory after a tenth, MB": "{early_mb:.0f}",
    "at the end, MB": "{late_mb:.0f}",
    "at most, MB": "{most_mb:.0f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder of images of good parts")
    parser.add_argument("--model", type=Path, help="a model of these images (default: one is fitted)")
    parser.add_argument("--limit", type=int, default=100, help="images that are learnt and sent")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument(
        "--rounds", type=int, default=5, help="turns of which the median is reported; 0: none"
    )
    parser.add_argument(
        "--requests", type=int, default=5000, help="while the model is replaced every second; 0: none"
    )
    parser.add_argument("--pages", type=integers, default=[0, 3, 10], help="numbers of open pages")
    parser.add_argument("--rate", type=float, default=2.0, help="parts a second, while pages are open")
    parser.add_argument(
        "--watched", type=float, default=60.0, help="seconds of each number of pages; 0: none"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(options, Path(folder))
    write_json(options.json, found)


def run(options: argparse.Namespace, folder: Path) -> dict[str, list[Row]]:
    images = images_below(options.data)[: options.limit]
    bodies = [image.read_bytes() for image in images]
    model = folder / "part.mhpc"
    fitted = Detector.fit(images) if options.model is None else Detector.load(options.model)
    fitted.calibrated(RATES[0]).save(model)
    detector = Detector.load(model)
    found: dict[str, list[Row]] = {}
    with service(model) as (process, port):
        if options.rounds:
            row = _throughput(options, detector, images, bodies, process, port)
            found["throughput"] = shown([row], THROUGHPUT)
        if options.watched:
            found["http"] = shown([_http(bodies, port)], HTTP)
            found["pages"] = shown(_watched(options, bodies, port), PAGES)
        if options.requests:
            row = _endurance(options, detector, images, bodies, model, process, port)
            found["endurance"] = shown([row], ENDURANCE)
    return found


def _throughput(
    options: argparse.Namespace,
    detector: Detector,
    images: Sequence[Path],
    bodies: Sequence[bytes],
    process: int,
    port: int,
) -> Row:
    bare, each = bare_graph(detector, images), options.seconds
    rates: list[tuple[float, ...]] = []
    seconds: list[float] = []
    for turn in range(options.rounds + 1):
        graph = per_second(bare, each)
        tool = per_second(lambda i: _scored(detector, images[i % len(images)]), each)
        before, started = cpu_of(process), time.perf_counter()
        answers = asked(port, bodies, options.clients, _for(each))
        took, cpu = time.perf_counter() - started, cpu_of(process) - before
        if turn:  # the first warms up
            rates.append((graph.calls, graph.cpu, tool.calls, len(answers) / took, cpu / len(answers)))
            seconds += [one.seconds for one in answers]
    graphs, graph_cpu, tools, services, service_cpu = np.array(rates).T
    return {
        "clients": options.clients,
        "bare": float(np.median(graphs)),
        "tool": float(np.median(tools)),
        "service": float(np.median(services)),
        "ratio": float(np.median(services / graphs)),
        "cpu_ratio": float(np.median(graph_cpu / service_cpu)),
        "cpu_ms": 1e3 * float(np.median(service_cpu)),
        "memory_mb": resident(process),
        "tool_ratio": float(np.median(services / tools)),
        "median_ms": 1e3 * float(np.median(seconds)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
    }


def _http(bodies: Sequence[bytes], port: int, times: int = 100) -> Row:
    """What a request costs beside the work that it asks for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    health, verdicts, own = [], [], []
    for i in range(times):
        started = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        answered = time.perf_counter()
        answer: Any = ask(connection, bodies[i % len(bodies)])
        health.append(answered - started)
        verdicts.append(time.perf_counter() - answered)
        own.append(sum(answer["seconds"].values()))
    costs = {"health": health, "verdict": verdicts, "own": own, "http": np.subtract(verdicts, own)}
    return {f"{name}_ms": 1e3 * float(np.median(seconds)) for name, seconds in costs.items()}


def _watched(options: argparse.Namespace, bodies: Sequence[bytes], port: int) -> Iterator[Row]:
    """How long verdicts take while pages are open."""
    alone = None
    for pages in options.pages:
        command = [sys.executable, "-m", "benchmarks.serving_pages", port, pages, options.watched]
        looking = (
            subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) if pages else None
        )
        time.sleep(3)  # all of them are there
        seconds = steady(port, bodies, options.rate, options.watched - 5)
        counts, _ = looking.communicate(timeout=120) if looking else ('{"pictures": 0, "failed": 0}', None)
        p99 = 1e3 * float(np.percentile(seconds, 99))
        alone = alone or p99
        row = {
            "pages": pages,
            "parts": len(seconds),
            "median_ms": 1e3 * float(np.median(seconds)),
            "p99_ms": p99,
        }
        yield row | {"ratio": p99 / alone} | json.loads(counts)


def _endurance(
    options: argparse.Namespace,
    detector: Detector,
    images: Sequence[Path],
    bodies: Sequence[bytes],
    model: Path,
    process: int,
    port: int,
) -> Row:
    """Many requests, a swap every second; every answer is checked."""
    scores = [result.score for result in detector.score_many(images) if result is not None]
    versions = [detector.calibrated(rate) for rate in RATES]
    thresholds: dict[str, float] = {}
    memory: list[float] = []
    over, swaps = threading.Event(), 0

    def replace() -> None:
        nonlocal swaps
        while not over.wait(1.0):
            version = versions[swaps % len(versions)]
            version.save(model)  # one after the other: the hash is that of this version
            thresholds[digest(model)] = version.threshold
            swaps += 1

    def watch() -> None:
        while not over.wait(0.5):
            memory.append(resident(process))

    with ThreadPoolExecutor(2) as threads:
        thresholds[digest(model)] = detector.threshold
        beside = [threads.submit(work) for work in (replace, watch)]
        started = time.perf_counter()
        answers = asked(port, bodies, options.clients, _count(options.requests))
        took = time.perf_counter() - started
        over.set()
        for one in beside:
            one.result()
    lost = sum(one.answer is None for one in answers)
    wrong = sum(
        one.answer is not None
        and (
            one.answer["score"] != scores[one.image]
            or one.answer["threshold"] != thresholds[str(one.answer["sha256"])]
        )
        for one in answers
    )
    return {
        "requests": len(answers),
        "swaps": swaps,
        "lost": lost,
        "wrong": wrong,
        "rate": len(answers) / took,
        "p99_ms": 1e3 * float(np.percentile([one.seconds for one in answers], 99)),
        "early_mb": float(np.median(memory[len(memory) // 10 : len(memory) // 10 + 5])),
        "late_mb": float(np.median(memory[-5:])),
        "most_mb": max(memory),
    }


def bare_graph(detector: Detector, images: Sequence[Path]) -> Callable[[int], object]:
    """The scoring graph alone, at every scale, on views that are prepared."""
    runtime, views = detector.runtime, detector.config.views
    sessions = runtime.side_by_side
    prepared = []
    for image in images[:16]:
        source = detector.opened(image)
        prepared.append(
            [
                source.pixels(view, one.where)
                for view, head in zip(views, runtime.heads, strict=True)
                for one in source.placed(view, head.grid)
            ]
        )

    def once(i: int) -> object:
        seen = prepared[i % len(prepared)]
        return [runtime.score(scale, sessions[scale], pixels) for scale, pixels in enumerate(seen)]

    return once


def _scored(detector: Detector, image: Path) -> object:
    return detector.score_opened(detector.opened(image)).regions


@dataclass(frozen=True)
class Speed:
    """Calls per second on all cores, and seconds of CPU time for each."""

    calls: float
    cpu: float


def per_second(work: Callable[[int], object], seconds: float) -> Speed:
    started, cpu = time.perf_counter(), time.process_time()
    end = started + seconds

    def repeated(first: int) -> int:
        done = 0
        while time.perf_counter() < end:
            work(first + done)
            done += 1
        return done

    with ThreadPoolExecutor(available_cores()) as threads:
        calls = sum(threads.map(repeated, range(available_cores())))
    # the last calls end later than asked for
    return Speed(calls / (time.perf_counter() - started), (time.process_time() - cpu) / calls)


def _for(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def _count(n: int) -> Callable[[], bool]:
    left, lock = iter(range(n)), threading.Lock()

    def goes_on() -> bool:
        with lock:
            return next(left, None) is not None

    return goes_on


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
