"""A service in a process of its own, what it uses, and clients that ask it over connections that they keep."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCORE = "/v1/models/part/score?map=none"


@dataclass(frozen=True)
class Answered:
    """One answer: which image, its seconds, and what the service answered; None where it did not."""

    image: int
    seconds: float
    answer: dict[str, object] | None


@contextmanager
def service(model: Path) -> Iterator[tuple[int, int]]:
    """`mhpatchcore serve MODEL`, and its process and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "mhpatchcore", "serve", str(model), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"the service has ended: {' '.join(command)}")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def asked(port: int, bodies: Sequence[bytes], clients: int, goes_on: Callable[[], bool]) -> list[Answered]:
    """All answers to clients that ask one after the other, as long as `goes_on()`."""

    def client(number: int) -> list[Answered]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        answers, i = [], number
        while goes_on():
            image = i % len(bodies)
            started = time.perf_counter()
            answer = ask(connection, bodies[image])
            answers.append(Answered(image, time.perf_counter() - started, answer))
            i += clients
        connection.close()
        return answers

    with ThreadPoolExecutor(clients) as threads:
        return [one for answers in threads.map(client, range(clients)) for one in answers]


def ask(connection: http.client.HTTPConnection, body: bytes) -> dict[str, object] | None:
    try:
        connection.request("POST", SCORE, body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            return None
        answer: dict[str, object] = json.loads(content)["results"][0]
        return answer
    except (OSError, http.client.HTTPException):
        connection.close()
        return None


def steady(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> list[float]:
    """Seconds from each part's coming to its verdict, at a rate that does not depend on the answers."""
    began, own = time.perf_counter() + 0.5, threading.local()

    def one(i: int) -> float:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        comes = began + i / rate
        time.sleep(max(0.0, comes - time.perf_counter()))
        assert ask(own.connection, bodies[i % len(bodies)]) is not None
        return time.perf_counter() - comes

    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(one, range(int(rate * seconds))))


def cpu_of(process: int) -> float:
    """Seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Resident memory of a process now, in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
