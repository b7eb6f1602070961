"""A stand-in for the Hugging Face hub on this machine: repositories, uploads in one commit, downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0" * 40


@dataclass
class Hub:
    """What it has been given: files by repository and path, large ones by their hash."""

    url: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Answers):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(hub: Hub, cache: object) -> dict[str, str]:
    """What a process that is to use it has in its environment."""
    return {
        **{"HF_ENDPOINT": hub.url, "HF_HOME": str(cache), "HF_TOKEN": "hf_test", "NO_PROXY": "*"},
        **{"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    }


class _Answers(BaseHTTPRequestHandler):
    served: Hub

    def do_HEAD(self) -> None:
        self._file(with_body=False)

    def do_GET(self) -> None:
        self._file(with_body=True)

    def do_PUT(self) -> None:
        self.served.objects[self.path.rpartition("/")[2]] = self._body()
        self._answer({})

    def do_POST(self) -> None:
        content = self._body()
        if self.path == "/api/repos/create":
            asked = json.loads(content)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.served.private[name] = asked.get("private") is True or asked.get("visibility") == "private"
            self._answer({"url": f"{self.served.url}/{name}", "id": name})
        elif "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(".mhpc") else "regular",
                 "shouldIgnore": False}
                for one in json.loads(content)["files"]
            ]  # fmt: skip
            self._answer({"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                one
                | {"actions": {"upload": {"href": f"{self.served.url}/objects/{one['oid']}", "header": {}}}}
                for one in json.loads(content)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            self._commit(content)
        else:
            self._answer({"errors": [], "warnings": []})  # the check of a card

    def _commit(self, content: bytes) -> None:
        (repository,) = re.findall("/api/models/(.+)/commit/", self.path)
        for line in map(json.loads, content.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.served.files[f"{repository}/{value['path']}"] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.served.files[f"{repository}/{value['path']}"] = self.served.objects[value["oid"]]
        address = f"{self.served.url}/{repository}/commit/{COMMIT}"
        self._answer({"commitUrl": address, "commitOid": COMMIT, "success": True})

    def _file(self, with_body: bool) -> None:
        content = self.served.files.get(re.sub("/resolve/[^/]+/", "/", self.path).lstrip("/"))
        self.send_response(404 if content is None else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if with_body and content:
            self.wfile.write(content)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, what: dict[str, Any]) -> None:
        content = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
