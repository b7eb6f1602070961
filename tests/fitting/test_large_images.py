"""A budget of memory counts the decoding of large images."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_runs import assert_one_line_error, run_process
from PIL import Image

HEIGHT, WIDTH, IMAGES = 1800, 2400, 3
KINDS = {
    "png": ("png", {"compress_level": 1}),
    "jpg": ("jpg", {"quality": 85}),
    "progressive": ("jpg", {"progressive": True, "subsampling": 0}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] // 16
    made = {}
    for kind, (suffix, options) in KINDS.items():
        made[kind] = tmp_path_factory.mktemp(kind)
        for i in range(IMAGES):
            pixels = np.stack([x, y, (x + 40 * i) % 256], axis=2).astype(np.uint8)
            Image.fromarray(pixels).save(made[kind] / f"{i}.{suffix}", **options)
    return made


def fit(folder: Path, output: Path, memory: int) -> list[str]:
    small = ["--augment", "none", "--size", "64", "-K", "50", "--local-rows", "32", "--chunk-images", "2"]
    return ["fit", str(folder), "-o", str(output), *small, "--memory", f"{memory}MB", "--json"]


def peak_of(process: subprocess.Popen[str]) -> int:
    """The most memory that a process ever had, looked at until it ends."""
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
        peak = max(peak, *(1024 * int(line.split()[1]) for line in lines), 0)
        time.sleep(0.002)
    return peak


@pytest.mark.parametrize("kind", ["png", "progressive"])
def test_what_is_foreseen_holds(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mhpatchcore", *fit(folders[kind], tmp_path / "part.mhpc", 1000)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = peak_of(process)
    out, err = process.communicate()
    assert process.returncode == 0, err
    told = json.loads(out)
    assert max(peak, told["memory_peak"]) <= told["memory_estimate"] <= 1000e6


def test_one_image_that_does_not_fit_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    """A little less than such a fit takes, in processes of their own: this one has seen other tests."""
    whole = run_process(*fit(folders["progressive"], tmp_path / "part.mhpc", 1000), "--workers", 1)
    enough = json.loads(whole.out)["memory_estimate"] // 10**6 - 12
    ran = run_process(*fit(folders["progressive"], tmp_path / "other.mhpc", enough), "--workers", 1)
    assert_one_line_error(
        ran, 2, f"cannot be done in {enough} MB", "decoding", ".jpg takes", "save such images smaller"
    )
    assert not (tmp_path / "other.mhpc").exists()
