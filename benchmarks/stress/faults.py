"""EIO, a full disk and a kill at every write of the commands that write models.

The n-th write, open, fsync, rename or mkdir fails, or ends the process, for n = 1, 2, 3, … until the command is through
(`shim.c`). Afterwards the model file is the old or the new one, never a third; a command that fails says so in one line
and leaves no temporary files; one that is killed leaves at most one beside its output, which the next command removes
with its store. `inbox_faults` says what holds for an inbox besides.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from benchmarks.stress import inbox_faults, tiny
from benchmarks.stress.forking import ROOT, forked
from benchmarks.stress.inbox_faults import LINE, PREPARATION
from mhpatchcore.model.file import load, to_bytes

SHIM = Path(__file__).with_name("shim.c")
KINDS = {"e": "EIO", "s": "ENOSPC", "k": "kill"}
OUT, STORE = f"{ROOT}/out/part.mhpc", f"{ROOT}/store"


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
    arguments = ["fit", str(folder / "good"), "--name", "part", "-o", str(folder / OUT)]
    return [*arguments, *_network(folder), "-q", "--workers", "1"]


def _of_inbox(name: str, folder: Path) -> list[str]:
    return inbox_faults.COMMANDS[name](folder, folder / OUT)


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
    **{name: partial(_of_inbox, name) for name in inbox_faults.COMMANDS},
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
        arguments = ["fit", str(folder / source), "--name", "part", "-o", str(folder / name)]
        arguments += [*_network(folder), "-q"]
        _run_undisturbed(folder, arguments)
    _fresh_root(folder)
    for command in PREPARATION:
        _run_undisturbed(folder, command(folder, folder / OUT))
    shutil.copytree((folder / OUT).parent, folder / LINE)


def _run_undisturbed(folder: Path, arguments: list[str]) -> None:
    code, said, _ = forked(folder, arguments, 0, "e")
    if code != 0:
        raise RuntimeError(said)


def _undisturbed(folder: Path, name: str) -> str:
    """What the command makes where nothing fails."""
    _fresh_root(folder, name)
    code, said, count = forked(folder, COMMANDS[name](folder), 10**9, "e")
    if code != 0 or not count:
        raise RuntimeError(f"{name}: {code} after {count} writes: {said}")
    return _essence(folder / OUT)


def _trial(folder: Path, name: str, kind: str, n: int, expected: str) -> Struck:
    _fresh_root(folder, name)
    old = (folder / OUT).read_bytes()
    code, said, count = forked(folder, COMMANDS[name](folder), n, kind)
    reached = count is None or count >= n
    problem = _problem(folder, kind if reached else "", code, said, old, expected)
    if not problem and name in inbox_faults.COMMANDS:
        is_new, changes = (
            (folder / OUT).read_bytes() != old,
            expected != _essence(folder / LINE / "part.mhpc"),
        )
        before = inbox_faults.entries(folder / LINE / "part.mhpc")
        problem = inbox_faults.problem(folder / OUT, kind if reached else "", code, before, is_new, changes)
    if not problem and reached and kind == "k":  # the next one is not disturbed by what is left behind
        (folder / OUT).write_bytes(old)
        code, said, _ = forked(folder, COMMANDS[inbox_faults.NEXT.get(name, name)](folder), 0, "e")
        if code != 0 or _essence(folder / OUT) != expected:
            problem = f"afterwards: exit code {code}, {said}"
        if list((folder / ROOT / "tmp").glob("mhpatchcore*")) or _left_behind(folder):
            problem = "an abandoned store or temporary file is still there"
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
    beside = _left_behind(folder)
    stores = [path.name for path in (folder / ROOT / "tmp").iterdir()]
    if kind == "k":
        return f"left behind: {beside}, {stores}" if len(beside) > 1 or len(stores) > 2 else ""
    if beside or stores:
        return f"left behind: {beside}, {stores}"
    if code == 0:
        return "" if is_new or _essence(folder / OUT) == expected else "exit code 0, but nothing was written"
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


def _left_behind(folder: Path) -> list[str]:
    """Temporary files among the outputs."""
    return [path.name for path in (folder / OUT).parent.rglob(".*") if path.name != ".lock"]


def _fresh_root(folder: Path, name: str = "") -> None:
    shutil.rmtree(folder / ROOT, ignore_errors=True)
    for place in ("out", "tmp", "cache"):
        (folder / ROOT / place).mkdir(parents=True)
    if name in inbox_faults.COMMANDS:
        shutil.copytree(folder / LINE, (folder / OUT).parent, dirs_exist_ok=True)
    elif (folder / "old.mhpc").exists():
        shutil.copyfile(folder / "old.mhpc", folder / OUT)


def _main() -> None:
    import mhpatchcore.backbone.building
    import mhpatchcore.backbone.custom
    import mhpatchcore.cli.app  # noqa: F401 (children find everything imported)

    folder, steps, left = sys.argv[1:]
    serve(Path(folder), json.loads(steps), float(left) if left else None)


if __name__ == "__main__":
    _main()
