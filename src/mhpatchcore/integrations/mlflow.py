"""Detectors in MLflow: logged with a run, registered, served, and loaded as a pyfunc.

from mhpatchcore.integrations.mlflow import log_model

info = log_model(detector, "part")
mlflow.pyfunc.load_model(info.model_uri).predict(["parts/new/0001.png"])
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mlflow import pyfunc

from mhpatchcore import __version__
from mhpatchcore.detector import Detector
from mhpatchcore.inputs.sources import Images
from mhpatchcore.results import Results

FILE, COLUMN = "part.mhpc", "image"
REQUIREMENTS = [f"mhpatchcore=={__version__}", "pandas"]


class PatchCoreModel(pyfunc.PythonModel):  # type: ignore[misc]  # which has no types
    """What MLflow loads; its input is a table with a column `image` of paths, a list of paths, or (N, H, W, 3)."""

    def load_context(self, context: Any) -> None:
        """Load the model file that was logged."""
        self.detector = Detector.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # types would be a schema
        """A table with a row for each image: score, verdict, p-value and so on."""
        images: Images = list(model_input[COLUMN]) if hasattr(model_input, "columns") else model_input
        return Results(self.detector.score_many(images)).to_frame()


def save_model(detector: Detector, path: str | Path) -> None:
    """Write a detector as a new folder in MLflow's format."""
    _written(detector, lambda **model: pyfunc.save_model(str(path), **model))


def log_model(detector: Detector, name: str, **options: Any) -> Any:
    """Log a detector with the run that is active; options are those of `mlflow.pyfunc.log_model`."""
    return _written(detector, lambda **model: pyfunc.log_model(name=name, **model, **options))


def _written(detector: Detector, write: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, FILE)
        detector.save(file)
        described = {"artifacts": {"model": str(file)}, "pip_requirements": REQUIREMENTS}
        return write(python_model=PatchCoreModel(), **described)
