"""The docs: links lead somewhere, commands and options exist, and the site is built without a warning."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from mhpatchcore.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the docs are not here")

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def command_lines(text: str, program: str) -> Iterator[str]:
    """Lines that call a program, in code blocks and in backticks; long ones joined."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        found = re.match(rf" {{4}}(?:\$ |sudo |.* \| )?({program} .*)", line)
        if found:
            yield found[1]
    yield from re.findall(rf"`({program} [^`]+)`", " ".join(joined.split()))


def words_of(line: str) -> list[str]:
    return shlex.split(line.split(" > ")[0].replace("…", ""), comments=True)


@page_by_page
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


@page_by_page
def test_commands_and_their_options_exist(page: Path) -> None:
    for line in command_lines(page.read_text(encoding="utf-8"), "mhpatchcore"):
        command, words = typer.main.get_command(app), words_of(line)[1:]
        if words[0].isupper():  # a placeholder, such as COMMAND
            continue
        while words and hasattr(command, "commands") and not words[0].startswith("-"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {"--help", *(flag for one in command.params for flag in (*one.opts, *one.secondary_opts))}
        for word in words:
            flag = word.split("=")[0]
            assert not re.match(r"--?[A-Za-z]", flag) or flag in known, f"{page.name}: {flag} in {line}"


@page_by_page
def test_benchmarks_that_pages_name_exist(page: Path) -> None:
    for name in re.findall(r"python -m (benchmarks[a-z_.]*[a-z])", page.read_text(encoding="utf-8")):
        assert find_spec(name) is not None, f"{page.name} names {name}"


def test_there_are_commands_to_check() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = list(command_lines(readme, "mhpatchcore"))
    assert len(lines) > 20 and any(
        line.startswith("mhpatchcore fit parts/good -o part.mhpc") for line in lines
    )


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not here")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    commands = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "--false-alarm" in commands and "--shrinkage" in commands and "--cluster" in commands
    assert "calibration_images" in (tmp_path / "reference" / "settings.html").read_text(encoding="utf-8")
    assert "deadline_ms" in (tmp_path / "reference" / "http.html").read_text(encoding="utf-8")
    assert "exclude_suspicious" in (tmp_path / "reference" / "python.html").read_text(encoding="utf-8")
