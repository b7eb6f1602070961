"""EIO, a full disk and a kill at every write of the commands that write models.

The n-th write, open, fsync, rename or mkdir fails, or ends the process, for n = 1, 2, 3, … until the command is through
(`shim.c`). Afterwards the model file is the old or the new one, never a third; a command that fails says so in one line
and leaves no temporary files; one that is killed leaves at most one beside its output, and its store is removed by
the next command.

A process that has imported everything, but has no threads yet, forks for each trial: that takes a tenth of a start.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.stress import tiny
from mhpatchcore.model.file import load, to_bytes

SHIM = Path(__file__).with_name("shim.c")
KINDS = {"e": "EIO", "s": "ENOSPC", "k": "kill"}
SECONDS = 120
ROOT, OUT, STORE = "faulty", "faulty/out/part.mhpc", "faulty/store"


def compiled_shim(folder: Path) -> Path | None:
    """The shim as a library; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SHIM, "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Struck:
    """One trial: the command, the kind of fault, the number of the write, and what was wrong (nothing, if all is well).

    `reached` is false for a command that has fewer writes.
    """

    command: str
    kind: str
    n: int
    reached: bool
    problem: str


def run_faults(folder: Path, steps: Mapping[str, int], until: float | None = None) -> Iterator[Struck]:
    """Of each command every so manieth write, as `steps` says, with every kind of fault, in a process of its own."""
    library = compiled_shim(folder)
    if library is None:
        return
    left = "" if until is None else str(until - time.monotonic())
    environment = os.environ | {"LD_PRELOAD": str(library), "FAULT_FOLDER": str(folder / ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stress.faults", str(folder), json.dumps(steps), left],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert server.stdout is not None
    for line in server.stdout:
        yield Struck(**json.loads(line))
    if server.wait() != 0:
        yield Struck("server", "", 0, True, f"it ended with {server.returncode}")


# what follows runs in the server


def _network(folder: Path) -> list[str]:
    return [
        "--backbone",
        str(folder / "tiny.onnx"),
        "--size",
        str(tiny.SIDE),
        "-K",
        "24",
        "--local-rows",
        "16",
    ]


def _fit(folder: Path) -> list[str]:
    return ["fit", str(folder / "good"), "-o", str(folder / OUT), *_network(folder), "-q", "--workers", "1"]


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "fit": _fit,
    "fit --store": lambda folder: [*_fit(folder), "--store", str(folder / STORE)],
    "update": lambda folder: [
        *("update", str(folder / OUT), str(folder / "fresh"), "-o", str(folder / OUT), "-q", "--workers", "1")
    ],
    "merge": lambda folder: ["merge", str(folder / OUT), str(folder / "other.mhpc"), "-o", str(folder / OUT)],
    "calibrate": lambda folder: [
        *("calibrate", str(folder / OUT), "--false-alarm", "20%", "--with", str(folder / "fresh")),
        *("-o", str(folder / OUT), "-q", "--workers", "1"),
    ],
    "save": lambda folder: ["save", str(folder / OUT)],
    "fit, network not in the cache": lambda folder: [
        *(
            "fit",
            str(folder / "good"),
            "-o",
            str(folder / OUT),
            "--size",
            "64",
            "-K",
            "24",
            "-q",
            "--workers",
            "1",
        )
    ],
}


def serve(folder: Path, steps: Mapping[str, int], seconds: float | None) -> None:
    ended = None if seconds is None else time.monotonic() + seconds
    _prepare(folder)
    for name, step in steps.items():
        expected = _undisturbed(folder, name)
        for kind in KINDS:
            n = 1
            while ended is None or time.monotonic() < ended:
                struck = _trial(folder, name, kind, n, expected)
                print(json.dumps(struck.__dict__), flush=True)
                if not struck.reached:
                    break
                n += step


def _prepare(folder: Path) -> None:
    tiny.write_network(folder)
    for name, first, n in (("good", 0, 6), ("fresh", 20, 3), ("elsewhere", 40, 6)):
        (folder / name).mkdir()
        for i, picture in enumerate(tiny.pictures(first, n)):
            Image.fromarray(picture).save(folder / name / f"{i}.png")
    for name, source in (("old.mhpc", "good"), ("other.mhpc", "elsewhere")):
        _fresh_root(folder)
        arguments = ["fit", str(folder / source), "-o", str(folder / name), *_network(folder), "-q"]
        code, said, _ = _forked(folder, arguments, 0, "e")
        if code != 0:
            raise RuntimeError(said)


def _undisturbed(folder: Path, name: str) -> str:
    """What the command makes where nothing fails."""
    _fresh_root(folder)
    code, said, count = _forked(folder, COMMANDS[name](folder), 10**9, "e")
    if code != 0 or not count:
        raise RuntimeError(f"{name}: {code} after {count} writes: {said}")
    return _essence(folder / OUT)


def _trial(folder: Path, name: str, kind: str, n: int, expected: str) -> Struck:
    _fresh_root(folder)
    old = (folder / OUT).read_bytes()
    code, said, count = _forked(folder, COMMANDS[name](folder), n, kind)
    reached = count is None or count >= n
    problem = _problem(folder, kind if reached else "", code, said, old, expected)
    if not problem and reached and kind == "k":  # the next one is not disturbed by what is left behind
        (folder / OUT).write_bytes(old)
        code, said, _ = _forked(folder, COMMANDS[name](folder), 0, "e")
        if code != 0 or _essence(folder / OUT) != expected:
            problem = f"afterwards: exit code {code}, {said}"
        if list((folder / ROOT / "tmp").glob("mhpatchcore*")):
            problem = "an abandoned store is still there"
    return Struck(name, KINDS[kind], n, reached, problem)


def _problem(folder: Path, kind: str, code: int, said: str, old: bytes, expected: str) -> str:
    """What is wrong with how the command ended; nothing, if all is well."""
    content = (folder / OUT).read_bytes()
    is_old, is_new = content == old, False
    if not is_old:
        try:
            is_new = _essence(folder / OUT) == expected
        except Exception as error:
            return f"a third file: {error}"
    if not (is_old or is_new):
        return "a third file, which can be loaded"
    beside = [path.name for path in (folder / OUT).parent.iterdir() if path.name != "part.mhpc"]
    stores = [path.name for path in (folder / ROOT / "tmp").iterdir()]
    if kind == "k":
        return f"left behind: {beside}, {stores}" if len(beside) > 1 or len(stores) > 1 else ""
    if beside or stores:
        return f"left behind: {beside}, {stores}"
    if code == 0:
        return "" if is_new else "exit code 0, but nothing was written"
    errors = [line for line in said.splitlines() if not line.startswith("warning: ")]
    if kind and len(errors) == 1 and errors[0].startswith("error: "):
        return ""
    return f"exit code {code}: {said}"


def _essence(path: Path) -> str:
    """A hash of the model without the times in its history."""
    content = to_bytes(load(path))
    length = int.from_bytes(content[:8], "little")
    document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["mhpatchcore"])
    document["history"] = [event["what"] for event in document["history"]]
    return hashlib.sha256(json.dumps(document).encode() + content[8 + length :]).hexdigest()


def _fresh_root(folder: Path) -> None:
    shutil.rmtree(folder / ROOT, ignore_errors=True)
    for name in ("out", "tmp", "cache"):
        (folder / ROOT / name).mkdir(parents=True)
    if (folder / "old.mhpc").exists():
        shutil.copyfile(folder / "old.mhpc", folder / OUT)


def _forked(folder: Path, arguments: list[str], n: int, kind: str) -> tuple[int, str, int | None]:
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


def _main() -> None:
    import mhpatchcore.backbone.building
    import mhpatchcore.backbone.custom
    import mhpatchcore.cli.app  # noqa: F401 (children find everything imported)

    folder, steps, left = sys.argv[1:]
    serve(Path(folder), json.loads(steps), float(left) if left else None)


if __name__ == "__main__":
    _main()
