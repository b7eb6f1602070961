"""`fit --report`, `--suspicious` and `--exclude-suspicious`: the page, what is printed, and what the model keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_runs import SMALL, Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from small_detector import PIXELS
from test_report import Page

from mhpatchcore import Detector
from mhpatchcore.fitting.checks import LEVELS, Coverage
from mhpatchcore.report.fit import MAX_POINTS, coverage_figure, variance_figure

__all__ = ["graphs", "run"]  # fixtures

ODD = "<odd> & strange.png"


@pytest.fixture(scope="module")
def normals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_vials(tmp_path_factory.mktemp("fit") / "good", 11)
    with Image.open(folder / "004.png") as picture:
        pixels = np.array(picture)
    pixels[20:40, 20:50] = np.random.default_rng(0).integers(0, 256, (20, 30, 1))
    Image.fromarray(pixels).save(folder / ODD)
    assert pixels.shape == (PIXELS, PIXELS, 3)
    return folder


def test_the_page(run: Run, normals: Path, tmp_path: Path) -> None:
    model, report = tmp_path / "part.mhpc", tmp_path / "fit.html"
    ran = run("fit", normals, "-o", model, *SMALL, "--report", report, "--exclude-suspicious", "1")
    assert (ran.code, ran.err) == (0, "") and f"open: {report}" in ran.out and f"left out   {ODD}" in ran.out
    html = report.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", html)
    page = Page(html)
    assert "Learnt from 11 images, 1 left out as suspicious" in page.text
    figures = [image["alt"] for image in page.all("img") if "svg" in image["src"]]
    assert [text.split()[0] for text in figures] == ["Histogram", "Retained", "Distances"]
    names = re.findall(r'<strong class="name">(.*?)</strong>', html.replace("<wbr>", ""))
    assert names[0] == "&lt;odd&gt; &amp; strange.png" and len(names) == 12
    assert html.count(">left out<") == 1
    menu = [link["href"] for link in page.all("a")]
    assert menu == [f"#{section['id']}" for section in page.all("section")]
    for word in ("coverage", "rank", "moments", "Weights SHA-256", "false_alarm"):
        assert word in page.text
    assert files_below(tmp_path) == ["fit.html", "part.mhpc"]


def test_patches_are_those_of_all_scales(run: Run, normals: Path, tmp_path: Path) -> None:
    model, report = tmp_path / "part.mhpc", tmp_path / "fit.html"
    run("fit", normals, "-o", model, *SMALL, "--size", "64,96", "--report", report)
    n = sum(scale.moments.n for scale in Detector.load(model).scales)
    text = Page(report.read_text(encoding="utf-8")).text
    assert f"{n} patches, " in text and f"12 ({n} patches)" in text
    assert f", {n} patches" in run("info", model).out


def test_suspects_are_named(run: Run, normals: Path, tmp_path: Path) -> None:
    model = tmp_path / "part.mhpc"
    ran = run("fit", normals, "-o", model, *SMALL, "--suspicious", 3)
    lines = ran.out.splitlines()
    start = lines.index("  suspicious (× the typical image)")
    assert lines[start + 1].endswith(ODD) and "left out" not in ran.out
    assert lines[start + 4].startswith("next: ")
    told = json.loads(run("fit", normals, "-o", model, *SMALL, "--suspicious", 3, "--json").out)
    assert told["suspicious"][0]["image"] == ODD and len(told["suspicious"]) == 3
    assert told["excluded"] == []


def test_what_was_left_out_is_kept_and_shown(run: Run, normals: Path, tmp_path: Path) -> None:
    model = tmp_path / "part.mhpc"
    told = json.loads(run("fit", normals, "-o", model, *SMALL, "--exclude-suspicious", "8%", "--json").out)
    assert told["excluded"] == [ODD] and told["images"] == 11
    assert Detector.load(model).model.excluded == (ODD,)
    assert re.search(rf"left out +{re.escape(ODD)}", run("info", model).out)
    assert json.loads(run("info", model, "--json").out)["excluded"] == [ODD]


@pytest.mark.parametrize(
    ("given", "word"), [("many", "10 or 5%"), ("-1", "number of images"), ("80%", "at most half")]
)
def test_nonsense_is_refused(run: Run, normals: Path, tmp_path: Path, given: str, word: str) -> None:
    ran = run("fit", normals, "-o", tmp_path / "part.mhpc", *SMALL, "--exclude-suspicious", given)
    assert_one_line_error(ran, 2, word)
    assert files_below(tmp_path) == []


def test_a_report_that_cannot_be_written_is_refused_at_once(run: Run, normals: Path, tmp_path: Path) -> None:
    ran = run("fit", normals, "-o", tmp_path / "part.mhpc", "--report", tmp_path)
    assert_one_line_error(ran, 2, "cannot write", "fit.html")


def test_one_image_has_a_page_too(run: Run, normals: Path, tmp_path: Path) -> None:
    ran = run(
        "fit", normals / "000.png", "-o", tmp_path / "part.mhpc", *SMALL, "--report", tmp_path / "fit.html"
    )
    assert ran.code == 0
    text = Page((tmp_path / "fit.html").read_text()).text
    assert "Learnt from 1 image" in text and "The model has no threshold" in text


def test_long_fits_are_drawn_by_their_worst_stretches() -> None:
    quantiles = np.tile(np.array([1.0, 2.0, 3.0, 4.0], np.float32), (400, 1))
    quantiles[123] = 9
    (axes,) = coverage_figure(Coverage((8,) * 400, quantiles)).axes
    assert len(axes.lines) == len(LEVELS)
    for line in axes.lines:
        assert len(line.get_xdata()) == MAX_POINTS and max(line.get_ydata()) == 9
        assert line.get_xdata()[-1] == 3200


def test_the_kept_directions_are_marked() -> None:
    (axes,) = variance_figure(np.array([6.0, 3.0, 1.0, 0.0]), 2).axes
    assert axes.get_legend().get_texts()[0].get_text() == "2 kept, 90 %"
