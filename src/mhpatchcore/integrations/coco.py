"""Labels of COCO files as data sets for `evaluate`, or as parts in the inbox; `Results.to_coco` writes such files.

from mhpatchcore.integrations.coco import dataset

detector.evaluate(dataset("labels.json", images="parts", masks="masks"))
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.datasets import Dataset, Sample
from mhpatchcore.report.drawing import save_picture

Polygon = Sequence[tuple[float, float]]


def dataset(annotations: str | Path, images: str | Path, masks: str | Path) -> Dataset:
    """The labelled images of a COCO file: one without annotations is good, others are of their first one's category.

    File names are relative to the folder `images`; masks are drawn in the folder `masks`.
    """
    document, labels = read_json(annotations), defaultdict[Any, list[Mapping[str, Any]]](list)
    samples = []
    try:
        names = {one["id"]: one["name"] for one in document["categories"]}
        for one in document["annotations"]:
            labels[one["image_id"]].append(one)
        for image in document["images"]:
            own, size = labels[image["id"]], (image["width"], image["height"])
            kind = names[own[0]["category_id"]] if own else None
            outlines = [outline for one in own for outline in _outlines(one)]
            samples.append(labelled(Path(images, image["file_name"]), kind, outlines, size, Path(masks)))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{annotations} is not a COCO file of boxes and polygons: {error!r}") from error
    return Dataset(Path(annotations).stem, (), tuple(samples))


def add_to_inbox(labels: Dataset, model: str | Path, who: str = "") -> int:
    """Keep labelled images in the inbox beside a model file, as good or defective; returns how many.

    `labels` is what `dataset` has read, here or in `label_studio`, and `who` the one who labelled them.
    """
    inbox, name = Inbox.beside(Path(model)), Path(model).stem
    for one in labels.test:
        label = "defect" if one.is_anomalous else "good"
        inbox.add(name, label, one.path.read_bytes(), one.path.name, who=who, note=one.kind)
    return len(labels.test)


def labelled(
    image: Path, kind: str | None, outlines: Sequence[Polygon], size: tuple[int, int], masks: Path
) -> Sample:
    """A test image of a kind of defect, or None for a good one; its mask of width × height is drawn in a folder."""
    if kind is None:
        return Sample(image, "good", False)
    if not outlines:
        return Sample(image, kind, True)
    drawn = Image.new("L", size)
    for outline in outlines:
        ImageDraw.Draw(drawn).polygon(list(outline), fill=255)
    mask = masks / f"{image.stem}_mask.png"
    save_picture(mask, np.asarray(drawn))
    return Sample(image, kind, True, mask)


def rectangle(x: float, y: float, width: float, height: float) -> Polygon:
    """The corners of a box whose last row and column belong to it.

    >>> rectangle(2, 3, 10, 5)
    [(2, 3), (11, 3), (11, 7), (2, 7)]
    """
    right, bottom = x + width - 1, y + height - 1
    return [(x, y), (right, y), (right, bottom), (x, bottom)]


def read_json(path: str | Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}; export it again as JSON") from error


def _outlines(annotation: Mapping[str, Any]) -> Iterator[Polygon]:
    """Its polygons, or its box where it has none; run lengths are not read."""
    polygons = annotation.get("segmentation") or []
    if isinstance(polygons, dict):
        raise ValueError("a segmentation of run lengths; export polygons")
    for points in polygons:
        yield list(zip(points[::2], points[1::2], strict=True))
    if not polygons:
        yield rectangle(*annotation["bbox"])
