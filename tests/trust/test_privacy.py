"""Nothing leaves the machine: fit and score open no socket, and write only outputs, cache and temporary files."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnxruntime
import pytest
from cli_runs import write_vials
from small_detector import vials

from mhpatchcore import Detector
from mhpatchcore.backbone.session import silent_onnx_runtime

STRACE = shutil.which("strace")
NETWORK = re.compile(r"^\d+ +(socket|connect|sendto|sendmsg|bind|socketpair)\(")
OPENED = re.compile(r'^\d+ +openat\((?:AT_FDCWD|\d+)<(.*?)>, "(.*?)", (\S+?)[,)].* = \d+')
MADE = re.compile(
    r"^\d+ +(?:mkdir|rename|unlink|rmdir|symlink|link|truncate|chmod|creat)(?:at2?)?\((.*)\) += 0"
)
PLACED = re.compile(r'(?:(?:AT_FDCWD|\d+)<(.*?)>, )?"(.*?)"')  # a path, and the folder it starts from
WRITES = ("O_WRONLY", "O_RDWR", "O_CREAT")
NO_FILES = ("/dev/null", "/proc/self/clear_refs")
SMALL = ("--augment", "none", "--size", "64", "-K", "50", "--local-rows", "32", "-q")


def traced(folder: Path, *command: object, **environment: str) -> tuple[list[str], set[str]]:
    """Run a program with a home of its own: its calls to the network, and the paths it has written to."""
    log, home, temporary = folder / "trace", folder / "home", folder / "tmp"
    for place in (home, temporary):
        place.mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "LD_LIBRARY_PATH")}
    own = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    assert STRACE is not None
    done = subprocess.run(
        [
            STRACE,
            "-f",
            "-qq",
            "-y",
            "-s",
            "4096",
            "-e",
            "trace=%network,%file",
            "-o",
            log,
            *map(str, command),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=kept | own | environment,  # without CI, which silences telemetry too
    )
    assert done.returncode == 0, done.stderr
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if NETWORK.match(line)], written_paths(lines, folder)


def written_paths(lines: list[str], folder: Path) -> set[str]:
    paths = set()
    for line in lines:
        opened = OPENED.match(line)
        if opened is not None and any(flag in opened[3] for flag in WRITES):
            paths.add(os.path.normpath(Path(opened[1]) / opened[2]))
        made = MADE.match(line)
        if made is not None:
            paths |= {os.path.normpath(folder / start / path) for start, path in PLACED.findall(made[1])}
    return paths - set(NO_FILES)


def outside(paths: set[str], *places: Path) -> list[str]:
    return sorted(path for path in paths if not any(Path(path).is_relative_to(place) for place in places))


needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


@needs_strace
def test_fit_and_score_open_no_socket_and_write_only_their_outputs(tmp_path: Path) -> None:
    write_vials(tmp_path / "good", 4)
    command = (sys.executable, "-m", "mhpatchcore")
    cache, temporary = tmp_path / "home" / ".cache" / "mhpatchcore", tmp_path / "tmp"
    calls, paths = traced(tmp_path, *command, "fit", "good", "-o", "out/part.mhpc", *SMALL)
    assert calls == []
    assert outside(paths, tmp_path / "out", cache, cache.parent, temporary) == []
    assert {str(tmp_path / "out" / "part.mhpc"), str(cache)} <= paths, "the trace shows what is written"
    assert [path.name for path in cache.parent.iterdir()] == ["mhpatchcore"]
    calls, paths = traced(tmp_path, *command, "score", "out/part.mhpc", "good", "--masks", "masks", "-q")
    assert calls == []
    assert outside(paths, tmp_path / "masks", temporary) == []
    assert list(temporary.iterdir()) == []


@needs_strace
def test_the_trace_would_show_telemetry(tmp_path: Path) -> None:
    """The same look at ONNX Runtime by itself, where it reports its use."""
    script = tmp_path / "alone.py"
    script.write_text("import onnxruntime\n")
    _, paths = traced(tmp_path, sys.executable, script)
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 29):
        assert outside(paths, tmp_path / "tmp") != []
        _, paths = traced(tmp_path, sys.executable, script, ORT_DISABLE_TELEMETRY="1")
    assert outside(paths, tmp_path / "tmp") == []


def test_no_name_is_looked_up_and_no_connection_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError(f"something goes to the network: {arguments}")

    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    detector = Detector.fit(vials(0, 4), sizes=64, K=50)
    detector.save(tmp_path / "part.mhpc")
    Detector.load(tmp_path / "part.mhpc").score(vials(9, 1)[0])
    with pytest.raises(AssertionError, match="network"):
        socket.create_connection(("localhost", 1))


def test_telemetry_is_off_before_and_after_onnx_runtime_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    asked = []
    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", lambda: asked.append(True))
    silent_onnx_runtime()
    Detector.fit(vials(0, 2), sizes=64, K=50)
    assert len(asked) > 1, "every session is made by a silent runtime"


def test_the_hub_is_not_even_loaded_for_the_embedded_network(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.stack(vials(0, 2)))
    script = (
        "import sys, numpy, mhpatchcore\n"
        f"mhpatchcore.Detector.fit(numpy.load({str(tmp_path / 'images.npy')!r}), sizes=64, K=50)\n"
        "sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
