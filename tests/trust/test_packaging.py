"""What is built, installed and pinned: wheel and sdist, the lock file, the lowest versions, the audit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cli_runs import write_vials
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = ROOT / "requirements-dev.lock"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)", re.MULTILINE)


def pins() -> dict[str, Version]:
    return {canonicalize_name(name): Version(version) for name, version in PIN.findall(LOCK.read_text())}


def required() -> list[Requirement]:
    """Everything that the project asks for, its extras too, but not itself."""
    extras = [one for group in PROJECT["optional-dependencies"].values() for one in group]
    found = [Requirement(one) for one in (*PROJECT["dependencies"], *extras)]
    return [one for one in found if one.name != PROJECT["name"]]


def test_the_lock_pins_all_that_is_asked_for_within_its_bounds() -> None:
    known = pins()
    for requirement in required():
        name = canonicalize_name(requirement.name)
        assert name in known, f"{name} is not in the lock: make lock"
        assert known[name] in requirement.specifier, f"{name} {known[name]}: make lock"


def test_the_lock_has_a_hash_for_every_pin_and_names_no_place() -> None:
    text = LOCK.read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins()) > 30
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted-host| @ ", text)


def test_every_bound_is_a_lowest_version_that_can_be_installed() -> None:
    script = [sys.executable, ROOT / "scripts" / "oldest.py"]
    lowest = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lowest) == len(PROJECT["dependencies"])
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in lowest)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": []}]},
            0,
            "0 vulnerabilities in 1 packages",
        ),
        (
            {
                "dependencies": [
                    {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
                ]
            },
            1,
            "a 1: CVE-1, mended in 2",
        ),
        ({"dependencies": [{"name": "a", "skip_reason": "not found"}]}, 0, "1 are unknown"),
        (None, 0, "nothing is known"),
    ],
)
def test_the_audit_tells_safe_from_unknown(answer: object, code: int, said: str, tmp_path: Path) -> None:
    program = tmp_path / "pip-audit"
    text = "" if answer is None else json.dumps(answer)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o700)
    command = [sys.executable, ROOT / "scripts" / "audit.py", program, LOCK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code and said in done.stdout


def test_what_is_no_python_is_declared_as_part_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = ROOT / "src" / "mhpatchcore"
    kept = {path for pattern in declared["mhpatchcore"] for path in folder.glob(pattern)}
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == kept


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A wheel and an sdist, built from a copy of the sources, and a Python with the wheel."""
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "source" / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / "source" / name)
    python = folder / "venv" / "bin" / "python"
    run = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([*run, "build"], check=True)
    subprocess.run([python, "-m", "build", "--outdir", folder / "dist", folder / "source"], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    subprocess.run([*run, wheel], check=True)
    return wheel, sdist, python


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_whole_package(built: tuple[Path, Path, Path]) -> None:
    wheel, sdist, _ = built
    folder = ROOT / "src"
    suffixes = (".py", ".j2", ".json", ".typed")
    expected = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in suffixes}
    expected = {name for name in expected if name.startswith("mhpatchcore/")}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert expected <= in_wheel and {f"src/{name}" for name in expected} <= in_sdist
    assert not [name for name in in_wheel if name.startswith(("tests", "benchmarks"))]


@pytest.mark.slow
def test_the_installed_wheel_fits_and_scores(built: tuple[Path, Path, Path], tmp_path: Path) -> None:
    program = built[2].with_name("mhpatchcore")
    good = write_vials(tmp_path / "good", 6)
    small = ("--size", "64", "-K", "50", "--report", tmp_path / "fit.html")
    subprocess.run([program, "fit", good, "-o", tmp_path / "part.mhpc", *small], check=True, cwd=tmp_path)
    command = [program, "score", tmp_path / "part.mhpc", good, "--json"]
    scored = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert len(json.loads(scored.stdout)) == 6
    assert "<html" in (tmp_path / "fit.html").read_text(encoding="utf-8")
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    assert told.strip() == f"mhpatchcore {PROJECT['version']}"
