"""Places elsewhere for tests, on this machine: a real S3 server (moto's) and a small web server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest

BUCKET = "s3://line"


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server with an empty bucket, which the environment leads to; its address."""
    fsspec, s3fs = pytest.importorskip("fsspec"), pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        # what earlier servers of this process were given is still there
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
        fsspec.filesystem("s3").mkdir(BUCKET)
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()
            s3fs.S3FileSystem.clear_instance_cache()


def upload(folder: Path, url: str) -> str:
    """Put a folder's files under a URL."""
    import fsspec

    system = fsspec.filesystem(url.partition(":")[0])
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            system.put_file(str(path), f"{url}/{path.relative_to(folder).as_posix()}")
    return url


class WebServer(ThreadingHTTPServer):
    """Gives the files of a folder, and counts how often each was asked for, and all `contacts`.

    `failures` of the next requests break off in the middle; `status` is what it answers otherwise; without `parts` it
    sends whole files whatever was asked for.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.asked, self.contacts = folder, Counter[str](), 0
        self.failures, self.status, self.parts = 0, 200, True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self.server.asked[self.path] += 1
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        self.server.contacts += 1
        path = self.server.folder / self.path.partition("?")[0].lstrip("/")
        if self.server.status != 200 or not path.is_file():
            self.send_error(self.server.status if self.server.status != 200 else 404)
            return
        content, code = path.read_bytes(), 200
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part and self.server.parts:
            content, code = content[int(part[1]) : int(part[2]) + 1], 206
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and self.server.failures:
            self.server.failures -= 1
            content = content[: len(content) // 2]
            self.close_connection = True
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nobody listens."""


@contextmanager
def web_server(folder: Path) -> Iterator[WebServer]:
    pytest.importorskip("aiohttp")
    with WebServer(folder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
