"""A small model in a file, images as bytes, and a service in a process of its own."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from small_detector import small_detector, vials

from mhpatchcore.demo.dataset import vial_image


def write_model(path: Path, false_alarm: float = 0.2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    small_detector().calibrated(false_alarm).save(path)
    return path


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def good(seed: int = 100) -> np.ndarray:
    return vials(seed, 1)[0]


def bad(seed: int = 100) -> np.ndarray:
    """A part with a stain that no good one has."""
    pixels = vial_image(seed, pixels=64)[0].copy()
    pixels[20:44, 20:44] = (255, 0, 255)
    return pixels


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@dataclass(frozen=True)
class Running:
    """A service in its own process."""

    process: subprocess.Popen[str]
    url: str

    def end(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


@contextmanager
def running(*arguments: object, port: int = 0) -> Iterator[Running]:
    """`mhpatchcore serve …` at a port of this machine, a free one by default, until the block ends."""
    port = port or free_port()
    command = [sys.executable, "-m", "mhpatchcore", "serve", *map(str, arguments), "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url)
        yield Running(process, url)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def _wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    """The address is printed once the service takes requests, and not before."""
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if line.startswith("serving "):
            assert line.endswith(f" at {url}\n") and httpx.get(f"{url}/v2/health/ready").status_code == 200
            return
    raise AssertionError("".join(printed))
