"""A system without fcntl, resource, owners and /proc: models are fitted, saved, loaded and score all the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mhpatchcore

HIDDEN = """
import builtins, ctypes, os, pathlib, signal, sys
for name in ("fcntl", "resource"):
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
POSIX = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt"}


def test_it_works_where_there_is_no_posix(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIDDEN + USE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['folder', 'part.mhpc', 'store']"


def test_modules_of_one_system_are_imported_in_one_place() -> None:
    source = Path(mhpatchcore.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if POSIX & set(names):
                found.add(path.relative_to(source).as_posix())
    assert found == {"runtime/system.py"}
