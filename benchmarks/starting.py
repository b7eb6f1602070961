"""From nothing to a first score: `python -m benchmarks.starting DATA`

DATA is a folder of normal images. Seconds from a new process to the score of one image, of one that only imports the
libraries that a score takes, and of `--version`; and of loading a model in a process that is there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.commands import Row, shown
from benchmarks.networks import Subject, measuring_command, subjects
from benchmarks.timing import interleaved, medians
from mhpatchcore import Detector

FITTED = 40
LIBRARIES = "import numpy, onnx, onnxruntime, PIL.Image, safetensors, typer"
COLUMNS = {
    "network": "{network}",
    "new process to the first score, s": "{first_score_s:.2f}",
    "the libraries alone, s": "{libraries_s:.2f}",
    "--version, s": "{version_s:.2f}",
    "loading a model, ms": "{load_ms:.0f}",
    "model, MB": "{model_mb:.1f}",
}


def main() -> None:
    measuring_command(__doc__, run)


def run(options: argparse.Namespace) -> list[Row]:
    return shown((start_row(one, options.rounds) for one in subjects(options)), COLUMNS)


def start_row(subject: Subject, rounds: int) -> Row:
    command = [sys.executable, "-m", "mhpatchcore"]
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model.mhpc"
        Detector.fit(subject.images[:FITTED], subject.config, weights=subject.weights).save(model)
        score = [*command, "score", str(model), str(subject.images[0]), "--quiet"]
        works = (
            lambda _: subprocess.run(score, check=True, capture_output=True),
            lambda _: subprocess.run([sys.executable, "-c", LIBRARIES], check=True, capture_output=True),
            lambda _: subprocess.run([*command, "--version"], check=True, capture_output=True),
            lambda _: Detector.load(model),
        )
        first, libraries, version, loading = medians(interleaved(works, rounds))
        size = model.stat().st_size
    return {
        "network": subject.name,
        "first_score_s": first,
        "libraries_s": libraries,
        "version_s": version,
        "load_ms": 1e3 * loading,
        "model_mb": size / 1e6,
    }


if __name__ == "__main__":
    main()
