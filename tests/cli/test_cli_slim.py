"""Where only what scoring needs is installed (packaging/requirements-score.txt)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runs import write_vials
from small_detector import small_detector, with_threshold

from mhpatchcore.deploy.bundle import write_bundle

LEFT_OUT = ("scipy", "sklearn", "matplotlib", "huggingface_hub", "jinja2", "markupsafe", "joblib")
SLIM = f"import sys; sys.modules |= dict.fromkeys({LEFT_OUT}); from mhpatchcore.cli import main; main()"


def slim(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SLIM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that rejects everything, its bundle, and an image."""
    folder = tmp_path_factory.mktemp("line")
    with_threshold(small_detector(), 1e-3).save(folder / "part.mhpc")
    write_bundle(folder / "part.mhpc", folder / "bundle")
    write_vials(folder / "parts", 1, first=50)
    return folder


def test_scores_regions_and_heatmaps(line: Path, tmp_path: Path) -> None:
    done = slim("score", line / "part.mhpc", line / "parts", "--heatmaps", tmp_path / "heat", "--json", "-q")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["verdict"] == "rejected" and row["regions"] and len(list((tmp_path / "heat").iterdir())) == 1
    expected = with_threshold(small_detector(), 1e-3).score(next((line / "parts").iterdir()))
    assert np.isclose(row["score"], expected.score, rtol=1e-6)


def test_a_bundle_is_verified(line: Path) -> None:
    done = slim("verify", line / "bundle")
    assert done.returncode == 0 and "this machine computes the same" in done.stdout, done.stderr


def test_what_needs_more_says_so_in_one_line(line: Path, tmp_path: Path) -> None:
    done = slim("fit", line / "parts", "-o", tmp_path / "other.mhpc", "--report", tmp_path / "fit.html", "-q")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "which is not installed: pip install mhpatchcore" in done.stderr
