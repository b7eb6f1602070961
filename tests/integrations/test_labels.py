"""Labels of COCO and Label Studio: predictions go out, corrected ones come back as data sets and inbox parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_detector import small_detector, vials

from mhpatchcore import Results, UserError
from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.inputs.datasets import Dataset, read_mask
from mhpatchcore.integrations import coco, label_studio


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Of three good parts and three with noise in a square, as files."""
    rng = np.random.default_rng(0)
    for i, image in enumerate(vials(50, 6)):
        if i >= 3:
            image[20:40, 10:30] = rng.integers(0, 256, (20, 20, 3))
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    return small_detector().score([tmp_path / f"{i}.png" for i in range(6)])


def check(labels: Dataset, rejected: list[bool], results: Results) -> None:
    """The data set has the regions of the results as masks, and is evaluated."""
    assert [sample.is_anomalous for sample in labels.test] == rejected
    for sample, result in zip(labels.test, results, strict=True):
        if sample.mask is not None:
            boxes = np.zeros(result.size, bool)
            for region in result.regions:
                boxes[region.box.top : region.box.bottom, region.box.left : region.box.right] = True
            np.testing.assert_array_equal(read_mask(sample.mask, *result.size), boxes)
    evaluation = small_detector().evaluate(labels)
    assert evaluation.image.n_anomalous == sum(rejected) and evaluation.pixel is not None


def test_coco_goes_out_and_comes_back(results: Results, tmp_path: Path) -> None:
    document = results.to_coco()
    for image in document["images"]:
        image["file_name"] = Path(image["file_name"]).name
    (tmp_path / "labels.json").write_text(json.dumps(document))
    labels = coco.dataset(tmp_path / "labels.json", tmp_path, tmp_path / "masks")
    check(labels, [bool(result.regions) for result in results], results)
    assert coco.add_to_inbox(labels, tmp_path / "part.mhpc", "me") == 6
    parts = Inbox.beside(tmp_path / "part.mhpc").parts("part")
    assert sorted(part.label for part in parts) == sorted(
        "defect" if sample.is_anomalous else "good" for sample in labels.test
    )


def test_polygons_are_drawn_and_run_lengths_refused(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "images": [{"id": 7, "file_name": "0.png", "width": 10, "height": 8}],
        "categories": [{"id": 3, "name": "crack"}],
        "annotations": [
            {
                "image_id": 7,
                "category_id": 3,
                "bbox": [0, 0, 1, 1],
                "segmentation": [[2, 2, 5, 2, 5, 4, 2, 4]],
            }
        ],
    }
    (tmp_path / "labels.json").write_text(json.dumps(document))
    (sample,) = coco.dataset(tmp_path / "labels.json", tmp_path, tmp_path).test
    expected = np.zeros((8, 10), bool)
    expected[2:5, 2:6] = True
    assert sample.kind == "crack" and sample.mask is not None
    np.testing.assert_array_equal(read_mask(sample.mask, 8, 10), expected)
    document["annotations"][0]["segmentation"] = {"counts": [1], "size": [8, 10]}
    (tmp_path / "labels.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="run lengths"):
        coco.dataset(tmp_path / "labels.json", tmp_path, tmp_path)


def test_label_studio_gets_predictions_and_gives_labels(results: Results, tmp_path: Path) -> None:
    tasks = label_studio.tasks(results)
    assert tasks[5]["data"]["image"] == f"/data/local-files/?d={tmp_path / '5.png'}"
    corrected = [
        {"data": task["data"], "annotations": [{"result": task["predictions"][0]["result"]}]}
        for task in tasks
    ]
    corrected.append({"data": {"image": "later.png"}, "annotations": []})
    (tmp_path / "export.json").write_text(json.dumps(corrected))
    labels = label_studio.dataset(tmp_path / "export.json", tmp_path, tmp_path / "masks")
    assert [sample.path.name for sample in labels.test] == [f"{i}.png" for i in range(6)]
    check(labels, [result.is_rejected or bool(result.regions) for result in results], results)


@pytest.mark.parametrize("read", [coco.dataset, label_studio.dataset])
def test_what_is_no_export_is_refused_in_a_line(read: Any, tmp_path: Path) -> None:
    for content in ("no JSON", '[{"a": 1, "annotations": [{}]}]'):
        (tmp_path / "labels.json").write_text(content)
        with pytest.raises(UserError, match=r"labels\.json"):
            read(tmp_path / "labels.json", tmp_path, tmp_path)
