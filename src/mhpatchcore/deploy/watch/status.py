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


def answers(status: Status, waiting: dict[str, int]) -> dict[str, tuple[int, str, str]]:
    """What is answered at each path: a status (503 where there is a problem), a text, and its kind.

    `waiting` counts the messages that have not gone out, by target. The metrics are for Prometheus.
    """
    problems, files = status.problems, status.verdicts.copy()
    health = {"healthy": not problems, "problems": problems, "files": files, "waiting": waiting}
    lines = [
        *(f'files_total{{verdict="{verdict}"}} {n}' for verdict, n in files.items()),
        *(f'messages_waiting{{target="{target}"}} {n}' for target, n in waiting.items()),
        *(f'problem{{cause="{cause}"}} 1' for cause in problems),
        f"healthy {int(not problems)}",
    ]
    metrics = "".join(f"mhpatchcore_watch_{line}\n" for line in lines)
    return {
        "/health": (503 if problems else 200, json.dumps(health) + "\n", "application/json"),
        "/metrics": (200, metrics, "text/plain; version=0.0.4"),
    }


@contextmanager
def answering(
    status: Status, journal: Journal, targets: tuple[str, ...], host: str, port: int
) -> Iterator[None]:
    """Answer GET /health and GET /metrics until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            with closing(Journal(journal.path)) as own:
                told = answers(status, {target: own.waiting([target]) for target in targets})
            code, text, kind = told.get(self.path, (404, "ask for /health or /metrics\n", "text/plain"))
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
        why = f"{host}, port {port}: {error.strerror or error}"
        raise UserError(f"cannot listen at {why}; choose another --status-port") from error
    server.daemon_threads = True
    with server:
        threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
