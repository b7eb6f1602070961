"""The record of verdicts under faults: EIO, a full disk and a kill at every write of it.

Three verdicts are recorded, one after the other. Whatever fails, and wherever the process ends: every row is whole, a
verdict that was said to be written is there, and the next one is written.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.stress.faults import KINDS, Struck, compiled_shim
from mhpatchcore.deploy import record as recording
from mhpatchcore.deploy.record import FILE, Keeping, Record, verdicts
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES

COMMAND, ROOT, VERDICTS = "record", "recorded", 3
IMAGE = bytes(20_000)


def run_record_faults(folder: Path, step: int, until: float | None = None) -> Iterator[Struck]:
    """Every so manieth write with every kind of fault, in a process of its own."""
    library = compiled_shim(folder)
    if library is None:
        return
    left = "inf" if until is None else str(until - time.monotonic())
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stress.record_faults", str(folder), str(step), left],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"LD_PRELOAD": str(library), "FAULT_FOLDER": str(folder / ROOT)},
        cwd=Path(__file__).parents[2],
    )
    assert server.stdout is not None
    for line in server.stdout:
        yield Struck(**json.loads(line))
    if server.wait() != 0:
        yield Struck(COMMAND, "", 0, True, f"the server ended with {server.returncode}")


def answer(n: int) -> dict[str, Any]:
    """A part as the service tells it."""
    region = {"box": [1, 2, 3, 4], "area": 4, "peak": 2.5, "peak_at": [1, 2]}
    texts = dict.fromkeys(("name", "model", "sha256", "image_sha256"), "x")
    numbers = {"score": 2.0, "threshold": 1.0, "p_value": 0.1, "size": [8, 8]}
    return {
        **{
            "id": str(n),
            "at": f"9999-01-01T00:00:0{n}.000+00:00",
            "part": str(n),
            "trial": False,
            "reason": None,
            "defect": None,
            "is_like_known": None,
            "camera": dict.fromkeys(MEASURES, 1.0),
        },
        **{"verdict": "rejected", "is_rejected": True, "regions": [region] * 20},
        **{"seconds": {"queue": 0.1, "decode": 0.1, "compute": 0.1}},
        **texts,
        **numbers,
    }


# what follows runs in the server


def serve(folder: Path, step: int, seconds: float) -> None:
    ended = time.monotonic() + seconds
    for kind in KINDS:
        n, reached = 1, True
        while reached and time.monotonic() < ended:
            shutil.rmtree(folder / ROOT, ignore_errors=True)
            (folder / ROOT).mkdir()
            said, count = _forked(folder / ROOT / FILE, n, kind)
            reached = count is None or count >= n
            print(
                json.dumps(
                    Struck(COMMAND, KINDS[kind], n, reached, _problem(folder / ROOT / FILE, said)).__dict__
                )
            )
            sys.stdout.flush()
            n += step


def _forked(path: Path, n: int, kind: str) -> tuple[set[str], int | None]:
    """Record with a fault at the n-th write: what was said to be written, and how many writes there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _record(path, n, kind, writing)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    os.waitpid(child, 0)
    counts = [int(line[1:]) for line in lines if line.startswith("#")]
    return {line for line in lines if not line.startswith("#")}, counts[0] if counts else None


def _record(path: Path, n: int, kind: str, pipe: int) -> None:
    """In the child: record, and end."""
    recording.AGAIN = 0.01
    shim = ctypes.CDLL(None)
    shim.fault_arm(ctypes.c_long(n), ctypes.c_char(kind.encode()))
    for i in range(VERDICTS):
        try:
            record = Record(path, Keeping(images="all"))
        except UserError:
            continue
        record.add(answer(i), IMAGE)
        record.close()
        if not record.lost:
            os.write(pipe, f"{i}\n".encode())
    count = shim.fault_count()
    shim.fault_arm(ctypes.c_long(0), ctypes.c_char(b"e"))
    os.write(pipe, f"#{count}\n".encode())
    os._exit(0)


def _problem(path: Path, said: set[str]) -> str:
    """What is wrong with a record after a fault; nothing, if all is well."""
    child = os.fork()  # a record has a thread, and the server must have none
    if child == 0:
        try:
            (path.parent / "problem").write_text(_found(path, said))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    problem = path.parent / "problem"
    return problem.read_text() if problem.exists() else "it cannot be read"


def _found(path: Path, said: set[str]) -> str:
    record = Record(path)  # it goes on
    record.add(answer(VERDICTS), None)
    record.close()
    with closing(sqlite3.connect(path)) as db:
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return "it is damaged"
        if db.execute("SELECT count(*) FROM images WHERE image != ?", (IMAGE,)).fetchone() != (0,):
            return "an image is not whole"
    rows = {one["id"]: one for one in verdicts(path)}
    if any(row != answer(int(id_)) for id_, row in rows.items()):
        return "a row is not whole"
    missing = (said | {str(VERDICTS)}) - set(rows)
    return f"verdicts are missing: {missing}" if missing else ""


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
