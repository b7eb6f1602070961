"""A command in a process of its own, with a fault at its n-th write (`shim.c`).

A process that has imported everything, but has no threads yet, forks for each trial: that takes a tenth of a start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = "faulty"  # the folder whose writes are counted
SECONDS = 120


def forked(folder: Path, arguments: list[str], n: int, kind: str) -> tuple[int, str, int | None]:
    """Run a command with a fault at its n-th write: exit code, what it said on stderr, writes (None if killed)."""
    said, counted = folder / "said", folder / "counted"
    counted.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _become(folder, arguments, n, kind, said, counted)
    deadline = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -1, f"no end after {SECONDS} s", None
        time.sleep(0.005)
    count = int(counted.read_text()) if counted.exists() else None
    return os.waitstatus_to_exitcode(status), said.read_text(), count


def _become(folder: Path, arguments: list[str], n: int, kind: str, said: Path, counted: Path) -> None:
    """In the child: run the command and end."""
    code: Any = 1
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.environ |= {"MHPATCHCORE_CACHE": str(folder / ROOT / "cache"), "NO_COLOR": "1"}
        tempfile.tempdir = str(folder / ROOT / "tmp")
        shim = ctypes.CDLL(None)
        shim.fault_arm(ctypes.c_long(n), ctypes.c_char(kind.encode()))
        code = _run(arguments)
        count = shim.fault_count()
        shim.fault_arm(ctypes.c_long(0), ctypes.c_char(b"e"))
        counted.write_text(str(count))
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _run(arguments: list[str]) -> Any:
    from mhpatchcore import Detector, UserError
    from mhpatchcore.cli import main

    if arguments[0] == "save":
        try:
            Detector.load(arguments[1]).calibrated(0.2).save(arguments[1])
            return 0
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    sys.argv = ["mhpatchcore", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0
