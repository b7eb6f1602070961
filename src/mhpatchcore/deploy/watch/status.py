"""How a watch is doing: what it has judged, what keeps it from its work, and an address where both can be asked for."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mhpatchcore.deploy.watch.journal import Journal
from mhpatchcore.errors import UserError

STUCK = 120.0  # seconds without a look at the folder or a verdict: something hangs


class Status:
    """What a watch has done, and its present problems by their cause. Its threads write, the address reads.

    A problem is told once when it comes, and once when it is over.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self.verdicts: Counter[str] = Counter()
        self._moved = time.monotonic()

    def set_problem(self, cause: str, why: str = "") -> None:
        """Say what is wrong with the folder, the judge or a target; with an empty text, that nothing is."""
        with self._lock:
            before = self._problems.pop(cause, "")
            if why:
                self._problems[cause] = why
        if why and why != before:
            self.tell(why)
        elif before and not why:
            self.tell(f"over: {before}")

    def looked(self) -> None:
        self._moved = time.monotonic()

    def judged(self, verdict: str) -> None:
        with self._lock:
            self.verdicts[verdict] += 1
        self.looked()

    @property
    def problems(self) -> dict[str, str]:
        silent = time.monotonic() - self._moved
        stuck = {"watch": f"nothing has happened for {silent:.0f} seconds"} if silent > STUCK else {}
        with self._lock:
            return self._problems | stuck


def health(status: Status, waiting: dict[str, int]) -> tuple[int, str]:
    """The status of the answer, 503 where there is a problem, and JSON."""
    problems = status.problems
    told = {"healthy": not problems, "problems": problems, "files": status.verdicts, "waiting": waiting}
    return 503 if problems else 200, json.dumps(told) + "\n"


def metrics(status: Status, waiting: dict[str, int]) -> str:
    """The same for Prometheus; `waiting` counts the messages that have not gone out, by target."""
    problems = status.problems
    lines = [
        *(f'files_total{{verdict="{verdict}"}} {n}' for verdict, n in status.verdicts.copy().items()),
        *(f'messages_waiting{{target="{target}"}} {n}' for target, n in waiting.items()),
        *(f'problem{{cause="{cause}"}} 1' for cause in problems),
        f"healthy {int(not problems)}",
    ]
    return "".join(f"mhpatchcore_watch_{line}\n" for line in lines)


@contextmanager
def answering(
    status: Status, journal: Journal, targets: tuple[str, ...], host: str, port: int
) -> Iterator[int]:
    """Answer GET /health and GET /metrics until the block ends; the port, which is a free one for port 0."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            with closing(Journal(journal.path)) as own:
                waiting = {target: own.waiting([target]) for target in targets}
            answers = {
                "/health": (*health(status, waiting), "application/json"),
                "/metrics": (200, metrics(status, waiting), "text/plain; version=0.0.4"),
            }
            code, text, kind = answers.get(self.path, (404, "ask for /health or /metrics\n", "text/plain"))
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody wants a line for every scrape."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"cannot listen at {host}, port {port}: {why}; choose another --status-port"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="status", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
