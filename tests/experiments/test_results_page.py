"""docs/results.md is what the kept results say, and the page copes with what has not been run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made_up_rows import made_up, made_up_grid

from mhpatchcore.experiments.cells import write_rows
from mhpatchcore.experiments.ladder import ladder_cells
from mhpatchcore.presets import OPEN_NETWORK

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="benchmarks are not here")


def page(results: Path, docs: Path) -> str:
    code = f"from pathlib import *; from benchmarks.results.page import *; write_page({results!r}, {docs!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return (docs / "results.md").read_text()


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    kept = ROOT / "docs" / "results.md"
    assert page(ROOT / "benchmarks" / "results", tmp_path) == kept.read_text(), "run `make results`"
    for figure in (tmp_path / "results").glob("*"):
        assert (ROOT / "docs" / "results" / figure.name).is_file()
        assert figure.stat().st_size < 100_000


def ladder_rows() -> list[dict[str, Any]]:
    """Two sizes, and the stream on all images."""
    aurocs = {"patchcore": 0.95, "mh": 0.97, "geores-k2000": 0.93}
    return [
        made_up(
            dataset="casting",
            preset=name,
            n_train=n,
            n_available=900,
            image_auroc=aurocs.get(name, 0.95),
            pixel_auroc=None,
            load=3.5,
            peak_rss=(n if name == "patchcore" else 450) * 1_000_000,
        )
        for n, name in ladder_cells((300, 500), 900)
    ]


def test_a_page_of_made_up_results(tmp_path: Path) -> None:
    grid = made_up_grid(("bottle", "pill"), OPEN_NETWORK)
    write_rows(grid, tmp_path / "efficientnet_lite0")
    write_rows([row | {"backbone": "mine.onnx"} for row in grid[:3]], tmp_path / "mine")
    write_rows(ladder_rows(), tmp_path / "ladder")
    text = page(tmp_path, tmp_path / "docs")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## EfficientNet-Lite0, the embedded network",
        "## mine.onnx, a network of one's own",
        "## The ladder on casting",
    ]
    n = 2 * len(OPEN_NETWORK)
    assert f"{n} cells took {n * 15 / 60:.1f} minutes on 2 cores" in text
    assert text.count("times in this section say nothing") == 1
    assert "| casting | image | 900 | 80 | 60 |" in text
    assert "| | Image AUROC | Defects found (%) | False alarms (%) |" in text
    assert "| Streaming Mahalanobis PatchCore · mean of 2 |" in text
    # later presets are better in the made-up grid: the paper's canonical setting comes after the offline reference
    assert "| The offline reference stays ahead | patchcore − mh | +0.002 | −0.010 | no |" in text
    assert "| Whitening helps the streaming bank | mh − streaming-euclidean | +0.010 | +0.005 | yes |" in text
    assert "n\\* is 500: offline PatchCore with 500 images takes 0.50 GB and reaches 0.950;" in text
    assert "`mh` with all 900 images takes 0.45 GB and reaches 0.970." in text
    assert "`mh` is ahead of offline PatchCore of the same size at 300, 500 images." in text
    assert "`geores-k2000` is behind offline PatchCore of the same size at 300, 500 images." in text
    assert "**Published and measured: AUROC**" in text
    # of a configuration that has not run everywhere nothing is concluded
    of_mine = text[text.index("## mine.onnx") : text.index("## The ladder")]
    assert "Not run on all of these data sets yet: " in of_mine and "mh-kmeans" in of_mine
    assert "Not run on all" not in text[: text.index("## mine.onnx")]


def test_without_results_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    text = page(tmp_path, tmp_path / "docs")
    assert "##" not in text and "Nothing has been run yet." in text
