"""Predictions for Label Studio to correct, and its labels back as a data set.

from mhpatchcore.integrations import label_studio

Path("tasks.json").write_text(json.dumps(label_studio.tasks(results)))
detector.evaluate(label_studio.dataset("export.json", images="parts", masks="masks"))

The labelling interface that both belong to:

    <View>
      <Image name="image" value="$image"/>
      <Choices name="verdict" toName="image"><Choice value="passed"/><Choice value="rejected"/></Choices>
      <RectangleLabels name="label" toName="image"><Label value="anomaly"/></RectangleLabels>
    </View>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mhpatchcore import __version__
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.datasets import Dataset, Sample
from mhpatchcore.integrations.coco import Polygon, labelled, read_json, rectangle
from mhpatchcore.result import Result

GOOD = ("passed", "good", "ok", "normal")
LOCAL = "/data/local-files/?d="  # how Label Studio names files of its local storage


def tasks(results: Iterable[Result], prefix: str = LOCAL) -> list[dict[str, Any]]:
    """A task for each image with the verdict and the regions as predictions, to be imported as JSON.

    `prefix` stands before the path of each image.
    """
    return [{"data": {"image": f"{prefix}{one.path}"}, "predictions": [_prediction(one)]} for one in results]


def dataset(export: str | Path, images: str | Path, masks: str | Path) -> Dataset:
    """The labelled images of an export as JSON, found by their names in a folder.

    An image with a rectangle or a polygon is defective, of the kind of the first one's label; one without is what its
    choice says: passed, good, ok and normal are good. Images without annotations are left out. Masks are drawn in the
    folder `masks`.
    """
    try:
        found = [_sample(task, Path(images), Path(masks)) for task in read_json(export)]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{export} is not an export of Label Studio as JSON: {error!r}") from error
    return Dataset(Path(export).stem, (), tuple(one for one in found if one is not None))


def _prediction(result: Result) -> dict[str, Any]:
    height, width = result.size
    verdict = {"from_name": "verdict", "to_name": "image", "type": "choices"}
    label: dict[str, Any] = {"from_name": "label", "to_name": "image", "type": "rectanglelabels"}
    label |= {"original_width": width, "original_height": height}
    found: list[dict[str, Any]] = [verdict | {"value": {"choices": [result.verdict]}}]
    for region in result.regions:
        x, y, wide, tall = region.box.xywh
        value = {"x": 100 * x / width, "y": 100 * y / height, "rotation": 0}
        value |= {"width": 100 * wide / width, "height": 100 * tall / height}
        found.append(label | {"value": value | {"rectanglelabels": [region.label]}})
    return {"model_version": f"mhpatchcore {__version__}", "score": result.score, "result": found}


def _sample(task: Mapping[str, Any], images: Path, masks: Path) -> Sample | None:
    """What the newest annotation of a task says; None where there is none."""
    said = [one for one in task.get("annotations", ()) if not one.get("was_cancelled")]
    if not said:
        return None
    name = PurePosixPath(task["data"]["image"].rpartition("=")[2] or task["data"]["image"]).name
    kinds, outlines, size, choice = [], list[Polygon](), (1, 1), "good"
    for one in said[-1]["result"]:
        value = one["value"]
        if one["type"] == "choices":
            choice = value["choices"][0]
        elif one["type"] in ("rectanglelabels", "polygonlabels"):
            size = (one["original_width"], one["original_height"])
            kinds.append(value[one["type"]][0])
            outlines.append(_outline(value, *size))
    kind = kinds[0] if kinds else None if choice.lower() in GOOD else choice
    return labelled(images / name, kind, outlines, size, masks)


def _outline(value: Mapping[str, Any], width: int, height: int) -> Polygon:
    """A rectangle or a polygon of percents, in pixels."""
    if "points" in value:
        return [(x * width / 100, y * height / 100) for x, y in value["points"]]
    sides = (value["x"] * width, value["y"] * height, value["width"] * width, value["height"] * height)
    return rectangle(*(round(side / 100) for side in sides))
