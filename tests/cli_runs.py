"""Ways to run the command line in tests: within this process, which is quick, or in one of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from small_detector import PIXELS

from mhpatchcore.cli import main
from mhpatchcore.demo.dataset import vial_image

SMALL = ("--augment", "none", "--size", "96", "-K", "200", "--local-rows", "64")
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}


@dataclass(frozen=True)
class Ran:
    """How a run ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def help(self) -> str:
        """A help page or a usage error without its boxes and line breaks."""
        return re.sub(r"[\s│]+", " ", self.out + self.err)


Run = Callable[..., Ran]


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder, so that the network's graph is built once for all tests."""
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], graphs: Path) -> Iterator[Run]:
    """`run("score", model, folder)` as the installed command does it, within this process."""
    for name, value in {**PLAIN, "MHPATCHCORE_CACHE": str(graphs)}.items():
        monkeypatch.setenv(name, value)

    def ran(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["mhpatchcore", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Ran(int(end.value.code or 0), captured.out, captured.err)

    yield ran


def run_process(*arguments: object, **environment: str) -> Ran:
    """The same by `python -m mhpatchcore`, with pipes for stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "mhpatchcore", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **PLAIN, **environment},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def write_vials(folder: Path, n: int, first: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + n):
        Image.fromarray(vial_image(seed, pixels=PIXELS)[0]).save(folder / f"{seed:03d}.png")
    return folder


def files_below(folder: Path) -> list[str]:
    """All files, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def assert_one_line_error(ran: Ran, code: int, *words: str) -> None:
    assert ran.code == code, ran
    assert ran.out == ""
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1, ran.err
    for word in words:
        assert word in ran.err
