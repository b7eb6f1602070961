"""A system without fcntl, resource, owners and /proc: models are fitted, saved, loaded and score all the same."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import mhpatchcore

HIDDEN = """
import builtins, ctypes, os, pathlib, signal, sys
for name in ("fcntl", "resource", "pwd"):
    sys.modules[name] = None  # importing it fails
for name in ("geteuid", "getuid", "fchmod", "fchown", "chown", "sched_getaffinity", "memfd_create", "sysconf",
             "preadv", "pread"):
    if hasattr(os, name):
        delattr(os, name)
del signal.SIGHUP
library = ctypes.CDLL
def load(name, *given, **more):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")  # as on Windows
    return library(name, *given, **more)
ctypes.CDLL = load
read = pathlib.Path.read_text
def read_text(self, *given, **more):
    if str(self).startswith("/proc/"):
        raise FileNotFoundError(str(self))
    return read(self, *given, **more)
pathlib.Path.read_text = read_text
"""
USE = """
import numpy as np
from pathlib import Path
from mhpatchcore import Detector, Execution
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.files import atomic_folder, remove_abandoned, write_text
from mhpatchcore.runtime.system import HAS_LOCKS
assert not HAS_LOCKS
images = [vial_image(seed, pixels=64)[0] for seed in range(6)]
execution = Execution(store="store", telemetry=Costs())
detector = Detector.fit(images, sizes=64, K=50, execution=execution)
again = Detector.fit(images, sizes=64, K=50, execution=execution)  # from the store
detector.save("part.mhpc"), detector.save("part.mhpc")
assert Detector.load("part.mhpc").score(images[0]).score == again.score(images[0]).score
with atomic_folder("folder") as folder:
    write_text(folder / "a.txt", "whole")
remove_abandoned(Path())
print(sorted(path.name for path in Path().iterdir()))
"""
LINE = """
from pathlib import Path
from fastapi.testclient import TestClient
from PIL import Image
from mhpatchcore.cli import main
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.deploy.serve.app import create_app
Path("parts").mkdir()
for seed in range(6):
    Image.fromarray(vial_image(seed, pixels=64)[0]).save(f"parts/{seed}.png")
def run(*arguments):
    sys.argv = ["mhpatchcore", *arguments]
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    assert code in (None, 0, 1), (arguments, code)
run("fit", "parts", "-o", "part.mhpc", "--size", "64", "-K", "50", "-q")
run("score", "part.mhpc", "parts", "--csv", "scores.csv", "--heatmaps", "heat", "-q")
run("watch", "part.mhpc", "parts", "--out", "results", "--once", "--settle", "0", "-q")
run("inbox", "add", "part.mhpc", "good", "parts/0.png")
with TestClient(create_app([Path("part.mhpc")])) as client:
    answer = client.post("/v1/models/part/score", content=Path("parts/1.png").read_bytes())
    assert answer.status_code == 200 and answer.json()["results"][0]["score"] > 0, answer.text
    assert client.post("/v1/models/part/score", content=b"no image").status_code == 422
assert {"heat", "inbox.sqlite", "results", "scores.csv"} <= {path.name for path in Path().iterdir()}
"""
POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt"}
CALLS = {
    *(
        "geteuid",
        "getuid",
        "chown",
        "fchown",
        "fchmod",
        "fork",
        "killpg",
        "setsid",
        "mkfifo",
        "statvfs",
        "sysconf",
    ),
    *("pread", "preadv", "pwrite", "memfd_create", "sched_getaffinity", "mallopt", "malloc_trim", "CDLL"),
    *("madvise", "MADV_DONTNEED", "MAP_PRIVATE", "MAP_ANONYMOUS"),
}


def test_it_works_where_there_is_no_posix(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIDDEN + USE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['folder', 'part.mhpc', 'store']"


def test_the_line_works_where_there_is_no_posix(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-c", HIDDEN + LINE]
    own = {**os.environ, "TMPDIR": str(tmp_path)}  # where no process with locks takes it for abandoned
    done = subprocess.run(
        command, cwd=tmp_path / "work", env=own, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_only_one_system_has_is_in_one_place() -> None:
    source = Path(mhpatchcore.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            calls = {node.attr} if isinstance(node, ast.Attribute) else set()
            is_proc = isinstance(node, ast.Constant) and str(node.value).startswith("/proc")
            if POSIX & set(names) or CALLS & calls or is_proc:
                found.add(path.relative_to(source).as_posix())
    assert found == {"runtime/system.py"}
