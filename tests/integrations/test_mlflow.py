"""A detector in MLflow: saved and logged, loaded as a pyfunc."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_detector import small_detector, vials

mlflow = pytest.importorskip("mlflow")
pandas = pytest.importorskip("pandas")

from mhpatchcore.integrations.mlflow import log_model, save_model  # noqa: E402


def test_a_saved_model_scores_paths_tables_and_arrays(tmp_path: Path) -> None:
    detector, images = small_detector(), np.stack(vials(50, 2))
    paths = [str(tmp_path / f"{i}.png") for i in range(2)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    save_model(detector, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    expected = [result.score for result in detector.score_many(paths)]
    for given in (paths, pandas.DataFrame({"image": paths}), images):
        table = loaded.predict(given)
        assert table["score"].tolist() == expected
    assert table["verdict"].tolist() == [result.verdict for result in detector.score_many(paths)]


def test_a_model_is_logged_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.joinpath("runs").as_uri())
    with mlflow.start_run():
        info = log_model(small_detector(), "part")
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert loaded.predict(np.stack(vials(50, 1)))["score"].tolist() == [
        small_detector()(vials(50, 1)[0]).score
    ]
