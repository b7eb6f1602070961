"""The example notebook runs from beginning to end, against a stand-in for the hub."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image
from tests.integrations.hub_stand_in import environment, running_hub

nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_folder_to_verdict.ipynb"


def test_the_notebook_goes_from_a_folder_to_the_hub_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with running_hub() as hub:
        for name, value in environment(hub, tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute()
        assert "me/vials/model.mhpc" in hub.files
    shown = [cell.outputs[-1].get("data", {}) for cell in notebook.cells if cell.cell_type == "code"]
    fitted, scored, table, pipeline, back = shown
    assert "it should reject about" in fitted["text/html"] and "image/png" in scored
    assert (
        "text/html" in table
        and pipeline["text/plain"].endswith("-1])")
        and back["text/plain"] == "'rejected'"
    )
    with Image.open(tmp_path / "why.png") as picture:
        assert picture.width > 3 * 128
    with (tmp_path / "results.csv").open() as file:
        assert [row["verdict"] for row in csv.DictReader(file)][-1] == "rejected"
