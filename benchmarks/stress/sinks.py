"""A receiver of messages that redirects, is slow, dies or lies: `watch` loses none, and keeps their order.

Every message meets some of these faults before it is taken. It counts as delivered only by a POST of the whole message
that is answered with a status of 200 to 299.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.stress.faults import Struck
from mhpatchcore.deploy.watch import services
from mhpatchcore.deploy.watch.journal import Arrived, Journal
from mhpatchcore.deploy.watch.services import Forwarding, webhook
from mhpatchcore.deploy.watch.status import Status

COMMAND, MESSAGES = "sinks", 5
SLOW, LATE = 0.2, 0.5  # seconds: how long the sender waits, and when a slow receiver answers
MOST = 60.0  # seconds of a trial
KINDS = ("redirect", "slow", "dead", "lying")


class Sink(ThreadingHTTPServer):
    """It takes a message after up to three faults, and remembers the ids of those that it took."""

    daemon_threads = True

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kind, self.random, self.taken = kind, random.Random(seed), list[str]()

    def handle_error(self, request: object, client_address: object) -> None:
        """Senders that have hung up are no news."""


class Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        id_ = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"]
        if self.path == "/" and self.server.random.random() < 0.6:
            getattr(self, self.server.kind)()
        else:
            self.server.taken.append(id_)
            self._answer(204)

    def do_GET(self) -> None:
        """A page, as after a login: it has the message no more than anybody else."""
        self._answer(200)

    def redirect(self) -> None:
        code = self.server.random.choice((301, 302, 303, 307, 308))
        self._answer(code, self.server.random.choice(("/moved", "/", "http://localhost:1/", "ftp://there")))

    def slow(self) -> None:
        time.sleep(LATE)
        self._answer(204)

    def dead(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 2"[: self.server.random.randrange(11)])

    def lying(self) -> None:
        self.wfile.write(
            self.server.random.choice(
                (b"200 OK\r\n\r\n", b"HTTP/1.1 999\r\n\r\n", b"\0" * 100, b"HTTP/1.1 100 Continue\r\n\r\n")
            )
        )
        self.close_connection = True

    def _answer(self, status: int, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def run_sink_faults(folder: Path, trials: int = 5, until: float | None = None) -> Iterator[Struck]:
    """So many trials of every kind; `n` of a trial is its seed."""
    before = services.TIMEOUT, services.SHORTEST, services.LONGEST
    services.TIMEOUT, services.SHORTEST, services.LONGEST = SLOW, 0.01, 0.02  # type: ignore[assignment]
    try:
        for kind in KINDS:
            for seed in range(trials):
                if until is not None and time.monotonic() > until:
                    return
                yield Struck(COMMAND, kind, seed, True, _problem(folder / f"{kind}{seed}.sqlite", kind, seed))
            yield Struck(COMMAND, kind, trials, False, "")
    finally:
        services.TIMEOUT, services.SHORTEST, services.LONGEST = before


def _problem(path: Path, kind: str, seed: int) -> str:
    """What is wrong with the messages that a receiver has got; nothing, if all is well."""
    journal, sent = Journal(path), [str(n) for n in range(MESSAGES)]
    for n in range(MESSAGES):
        file = Arrived(f"{n}.png", n, n)
        journal.finish(journal.add(file, f"{n}", {"id": str(n), "image": file.name}, (COMMAND,)))
    with _receiving(kind, seed) as sink:
        send = webhook(f"http://127.0.0.1:{sink.server_port}/")
        forwarding = Forwarding(journal, COMMAND, send, Status(lambda message: None))
        end = time.monotonic() + MOST
        while journal.waiting([COMMAND]) and time.monotonic() < end:
            time.sleep(0.01)
        forwarding.end()
        taken, left = sink.taken, journal.waiting([COMMAND])
    journal.close()
    if left:
        return f"{left} messages still wait"
    # a message may come twice, as its id tells, but not out of order
    return "" if list(dict.fromkeys(taken)) == sent else f"sent {sent}, and received {taken}"


@contextmanager
def _receiving(kind: str, seed: int) -> Iterator[Sink]:
    with Sink(kind, seed) as sink:
        thread = threading.Thread(target=sink.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield sink
        finally:
            sink.shutdown()
            thread.join()
