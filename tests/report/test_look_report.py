"""`mhpatchcore look`: the page, what is printed, and its JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from test_report import Page

__all__ = ["graphs", "run"]  # fixtures

ODD = "<odd> & strange.png"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_vials(tmp_path_factory.mktemp("look") / "good", 5)
    with Image.open(folder / "004.png") as picture:
        picture.save(folder / ODD)
        picture.crop((0, 0, 60, 90)).save(folder / "small.png")
    (folder / "broken.png").write_bytes(b"nothing")
    return folder


def test_the_page(run: Run, parts: Path, tmp_path: Path) -> None:
    report = tmp_path / "look.html"
    ran = run("look", parts, "--size", "64,tile:64", "--roi", "0.1,0.1,0.9,0.9", "--report", report)
    assert (ran.code, ran.err) == (0, "") and f"open: {report}" in ran.out
    html = report.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", html)
    page = Page(html)
    assert "7 images to learn from, 1 that cannot be used" in page.text
    menu = [link["href"] for link in page.all("a")]
    assert menu == [f"#{section['id']}" for section in page.all("section")]
    assert "region of interest" in page.text and "seen as 64 × 64, tile" in page.text
    # dashed: tiles; drawn through: the region; each once in the legend
    for kind in ("truth", "predicted"):
        assert html.count(f'class="outline {kind}"') == 6 + 1
    assert "broken.png" in page.text and "--skip-broken" in page.text
    assert "&lt;odd&gt; &amp; strange.png" in html and "<odd>" not in html
    assert all(a.get("alt") for a in page.all("img")) and all(
        a.get("aria-label") or a.get("aria-hidden") for a in page.all("svg")
    )
    assert files_below(tmp_path) == ["look.html"]


def test_what_is_printed(run: Run, parts: Path) -> None:
    lines = run("look", parts, "--size", 64).out.splitlines()
    assert lines[0].endswith("good: 7 images")
    assert any(line.startswith("  size ") and "60 × 90 (1)" in line for line in lines)
    assert f"  duplicates  004.png, {ODD}" in lines
    assert sum(line.startswith("  broken") for line in lines) == 1 and "suggested" in lines


def test_json_tells_everything(run: Run, parts: Path) -> None:
    told = json.loads(run("look", parts, "--size", 64, "--json").out)
    assert len(told["images"]) == 7 and list(told["broken"]) == ["broken.png"]
    assert told["duplicates"] == [["004.png", ODD]] and told["views"] == ["64"] and told["window"] == "0,255"
    assert sum(told["histogram"]["counts"]) > 0 and told["report"] is None
    assert {"what", "why", "options"} == set(told["suggestions"][0])


def test_deep_images_have_their_window_drawn(run: Run, tmp_path: Path) -> None:
    for i in range(3):
        values = np.random.default_rng(i).integers(200, 3000, (40, 40)).astype(np.uint16)
        Image.fromarray(values).save(tmp_path / f"{i}.png")
    report = tmp_path / "look.html"
    assert run("look", tmp_path, "--size", 64, "--report", report).code == 0
    text = Page(report.read_text(encoding="utf-8")).text
    assert "12 of 16 bits" in text and "PNG I;16, 16-bit" in text


def test_refusals(run: Run, tmp_path: Path, parts: Path) -> None:
    assert_one_line_error(run("look", tmp_path / "nothing"), 2, "nothing", "check the path")
    assert_one_line_error(run("look", parts, "--report", tmp_path), 2, "folder")
    (tmp_path / "a.png").write_text("x")
    assert_one_line_error(run("look", tmp_path), 3, "a.png")
