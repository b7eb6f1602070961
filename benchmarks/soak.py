"""A line for as long as asked for: `python -m benchmarks.soak DATA --minutes 60`

DATA is a folder of images of good parts. `serve` and `watch` run in processes of their own. All the time parts come by
HTTP and as files at a steady rate, a webhook takes the results of the files, and pages follow live. Every few seconds
somebody labels a part, previews a change, sets the threshold, goes back, or puts another model file in place.

Memory, open handles and threads of both processes are looked at every second. At the end every file must have been
judged, moved, listed and reported exactly once, no request may have failed, and nothing may have grown: the last tenth
is held against the second.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.commands import Row, parser_of, shown, write_json
from benchmarks.serving_clients import ask, resident, service
from mhpatchcore import Detector
from mhpatchcore.inputs.places import images_below

COLUMNS = {
    "process": "{process}",
    "memory in the second tenth, MB": "{early_memory:.0f}",
    "in the last, MB": "{late_memory:.0f}",
    "at most, MB": "{most_memory:.0f}",
    "handles": "{early_handles:.0f} → {late_handles:.0f}",
    "threads": "{early_threads:.0f} → {late_threads:.0f}",
}
RATES = (0.05, 0.2)  # of the two models that replace each other
CHANGE_EVERY = 5.0  # seconds
PATIENCE = 120.0  # seconds for what is under way at the end


class Sink(ThreadingHTTPServer):
    """It takes every message, and counts them by the image they are about."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: Counter[str] = Counter()


class _Taking(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken[json.loads(content)["image"]] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Line:
    """What goes on at a line until its time is over: each method is the work of a thread."""

    def __init__(self, options: argparse.Namespace, images: list[Path], folder: Path, port: int) -> None:
        self.rate, self.images, self.folder, self.port = options.rate, images, folder, port
        self.end = time.monotonic() + 60 * options.minutes
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def _each(self, seconds: float) -> Iterator[int]:
        """Numbers at a steady pace, until the end."""
        began = time.monotonic() + seconds
        for n in itertools.count():
            time.sleep(max(0.0, began + n * seconds - time.monotonic()))
            if time.monotonic() > self.end:
                return
            yield n

    def send_parts(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for n in self._each(1 / self.rate):
            self.counts["parts by HTTP"] += 1
            if ask(connection, self.images[n % len(self.images)].read_bytes()) is None:
                self.failed.append(f"part {n} got no verdict")

    def write_files(self) -> None:
        for n in self._each(1 / self.rate):
            image = self.images[n % len(self.images)]
            temporary = self.folder / "inbox" / f"{n}.tmp"
            shutil.copyfile(image, temporary)
            temporary.rename(temporary.with_suffix(image.suffix))
            self.counts["files"] += 1

    def change(self) -> None:
        """Somebody labels, previews, sets the threshold, goes back or swaps."""
        acts = [self._label, self._preview, self._set_threshold, self._undo, self._swap]
        for n in self._each(CHANGE_EVERY):
            act = acts[n % len(acts)]
            try:
                act(n)
                self.counts[act.__name__.strip("_").replace("_", " ")] += 1
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                self.failed.append(f"{act.__name__}: {error}")

    def _label(self, n: int) -> None:
        part = self._ask("GET", "/v1/parts")[0]["id"]
        self._ask("POST", "/v1/inbox", {"id": part, "label": "good", "who": "soak", "note": str(n)})

    def _preview(self, n: int) -> None:
        asked = {"action": "recalibrate", "false_alarm": RATES[n % 2], "who": "soak"}
        job = self._ask("POST", "/v1/models/part/preview", asked)
        while job["state"] in ("queued", "running") and time.monotonic() < self.end + PATIENCE:
            time.sleep(0.2)
            job = self._ask("GET", f"/v1/jobs/{job['id']}")
        if job["state"] != "ready":
            raise RuntimeError(f"a job is {job['state']}: {job['error']}")
        self._ask("POST", f"/v1/jobs/{job['id']}/discard")

    def _set_threshold(self, n: int) -> None:
        seen = self._ask("GET", "/v1/models/part")["sha256"]
        asked = {"false_alarm": 0.01 + n % 40 / 100, "instead_of": seen, "who": "soak"}
        self._ask("PUT", "/v1/models/part/threshold", asked)

    def _undo(self, n: int) -> None:
        seen = self._ask("GET", "/v1/models/part")["sha256"]
        self._ask("POST", "/v1/models/part/undo", {"instead_of": seen, "who": "soak"})

    def _swap(self, n: int) -> None:
        temporary = self.folder / "models" / ".part"
        shutil.copyfile(self.folder / f"{n % 2}.mhpc", temporary)
        temporary.rename(self.folder / "models" / "part.mhpc")
        time.sleep(2)  # for the service to find it, before somebody changes what was there before

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {told[:200]!r}")
            return json.loads(told)
        finally:
            connection.close()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder of images of good parts")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.0, help="parts a second, by HTTP and again as files")
    parser.add_argument("--pages", type=int, default=1, help="pages that follow live")
    parser.add_argument("--limit", type=int, default=40, help="images that are learnt and sent")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mhpatchcore-soak-") as folder:
        found = run(options, Path(folder))
    write_json(options.json, found)
    sys.exit(1 if found["problems"] else 0)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    images = images_below(options.data)[: options.limit]
    for name in ("models", "inbox", "out"):
        (folder / name).mkdir()
    fitted = Detector.fit(images, preset="fast", name="part")
    for i, rate in enumerate(RATES):
        fitted.calibrated(rate).save(folder / f"{i}.mhpc")
    shutil.copyfile(folder / "0.mhpc", folder / "models" / "part.mhpc")
    with ExitStack() as ending:
        sink = ending.enter_context(Sink())
        threading.Thread(target=sink.serve_forever, daemon=True).start()
        ending.callback(sink.shutdown)
        serving, port = ending.enter_context(service(folder / "models"))
        watching = ending.enter_context(_watch(folder, port, sink.server_port))
        line = Line(options, images, folder, port)
        samples = _goes_on(line, options, {"serve": serving, "watch": watching})
        done = _until(lambda: sum(sink.taken.values()) >= line.counts["files"])
    problems = line.failed + _problems(line, folder, sink) + ([] if done else ["not all was told in time"])
    rows = shown([_row(name, values) for name, values in samples.items()], COLUMNS)
    print(", ".join(f"{n} × {what}" for what, n in line.counts.items()))
    print("\n".join(problems[:20]) or "nothing was lost, doubled or refused")
    return {"processes": rows, "counts": line.counts, "problems": problems}


@contextmanager
def _watch(folder: Path, port: int, sink: int) -> Iterator[int]:
    """`mhpatchcore watch` with the model of the service; its process."""
    out, address = folder / "out", f"http://127.0.0.1:{port}/v1/models/part"
    command = [
        sys.executable,
        "-m",
        "mhpatchcore",
        "watch",
        address,
        str(folder / "inbox"),
        "--out",
        str(out),
    ]
    command += ["--sort", "--csv", str(out / "all.csv"), "--webhook", f"http://127.0.0.1:{sink}/"]
    process = subprocess.Popen([*command, "--settle", "0.2", "--quiet"])
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _goes_on(line: Line, options: argparse.Namespace, processes: dict[str, int]) -> dict[str, list[Row]]:
    """Let the line go on to its end; what its processes took, second by second."""
    threads = [threading.Thread(target=work) for work in (line.send_parts, line.write_files, line.change)]
    pages = [sys.executable, "-m", "benchmarks.serving_pages", str(line.port), str(options.pages)]
    following = subprocess.Popen([*pages, str(60 * options.minutes)], stdout=subprocess.PIPE)
    for thread in threads:
        thread.start()
    samples: dict[str, list[Row]] = {name: [] for name in processes}
    while time.monotonic() < line.end:
        for name, process in processes.items():
            handles, tasks = (len([*Path(f"/proc/{process}", kind).iterdir()]) for kind in ("fd", "task"))
            samples[name].append({"memory": resident(process), "handles": handles, "threads": tasks})
        time.sleep(1)
    for thread in threads:
        thread.join()
    pictures = json.loads(following.communicate(timeout=PATIENCE)[0])
    line.counts.update({"picture": pictures["pictures"], "picture that did not come": pictures["failed"]})
    return samples


def _row(name: str, samples: list[Row]) -> Row:
    tenth = max(1, len(samples) // 10)
    row: Row = {"process": name, "most_memory": max(one["memory"] for one in samples)}
    for when, some in (("early", samples[tenth : 2 * tenth]), ("late", samples[-tenth:])):
        row |= {
            f"{when}_{what}": median(one[what] for one in some) for what in ("memory", "handles", "threads")
        }
    return row


def _problems(line: Line, folder: Path, sink: Sink) -> list[str]:
    """Files that were not judged, moved, listed and reported exactly once."""
    n = line.counts["files"]
    with (folder / "out" / "all.csv").open(newline="") as file:
        listed = Counter(row["image"] for row in csv.DictReader(file))
    moved = [one for one in (folder / "out").rglob("*") if one.suffix == line.images[0].suffix]
    told = []
    for what, counts in (("listed", listed), ("reported", sink.taken)):
        if len(counts) != n or set(counts.values()) != {1}:
            told.append(
                f"of {n} files {len(counts)} were {what}, one {max(counts.values(), default=0)} times"
            )
    if len(moved) != n:
        told.append(f"of {n} files {len(moved)} were moved")
    return told


def _until(happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not happened() and time.monotonic() < end:
        time.sleep(0.1)
    return happened()


if __name__ == "__main__":
    main()
