"""Defects for a model that knows only good parts: their patches become a second bank (`scoring/known_defects.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.datasets import GOOD
from mhpatchcore.inputs.loading import load_image
from mhpatchcore.inputs.regions import Area, Roi, parse_roi
from mhpatchcore.inputs.sources import ImageLike, Images, gather
from mhpatchcore.inputs.views import Geometry
from mhpatchcore.model.history import event
from mhpatchcore.model.runtime import Runtime
from mhpatchcore.model.value import Model
from mhpatchcore.runtime.arrays import Array, Floats, Indices, Mask
from mhpatchcore.scoring.known_defects import MOST_NAME, UNKNOWN, KnownDefects

MOST_ROWS = 16  # of an image at one scale
FEWEST_ROWS = 4  # of an image in which nobody has drawn the defect
FINER = 4  # a defect may lie between the middles of cells


def taught(
    model: Model, runtime: Runtime, images: Images, name: str | None, masks: Any, execution: Execution
) -> Model:
    """The model that knows these defects too; see `Detector.taught`."""
    given = gather(images)
    if not given.images:
        raise UserError("there are no images of defects to learn from")
    regions = parse_roi(masks)
    names = [_name_of(*one, name) for one in zip(given.images, given.names, strict=True)]
    kinds = sorted(set(names))
    found: list[
        tuple[int, list[Array]]
    ] = []  # of each image the place of its name, and its rows at every scale
    repeated = set[str]()
    every = zip(given.images, given.names, names, strict=True)
    for image, file, kind in execution.track("teach", every, len(names)):
        try:
            rows = _defect_rows(model, runtime, image, regions)
        except ImageError as error:
            if not execution.skip_broken:
                raise
            execution.warn(str(error))
            continue
        if _is_known(rows, kind, model.defects):
            execution.warn(f"{file}: the model knows this defect already: left out")
            repeated.add(kind)
        elif not any(map(len, rows)):
            execution.warn(f"{file}: no part of its defect differs from good parts: left out")
        else:
            found.append((kinds.index(kind), rows))
    learnt = np.bincount([kind for kind, _ in found], minlength=len(kinds)).tolist()
    if nothing := [kind for kind, n in zip(kinds, learnt, strict=True) if not n and kind not in repeated]:
        raise UserError(
            f"nothing in the images of '{nothing[0]}' differs from good parts: check the images and their masks"
        )
    if not found:
        raise UserError("the model knows all of these defects already: there is nothing to teach")
    rows_of, kinds_of = [], []
    for scale in range(len(model.scales)):
        rows_of.append(np.concatenate([rows[scale] for _, rows in found]))
        kinds_of.append(np.concatenate([np.full(len(rows[scale]), kind, np.int32) for kind, rows in found]))
    new = KnownDefects(tuple(kinds), tuple(learnt), tuple(rows_of), tuple(kinds_of))
    happened = event("teach", given.source, len(found), model.n_learnt, model.config.false_alarm)
    return replace(model, defects=model.defects.together(new), history=(*model.history, happened))


def _is_known(found: list[Array], kind: str, defects: KnownDefects) -> bool:
    """Whether all of these rows (m, d) of every scale were taught before under this name."""
    if kind not in defects.names or not any(map(len, found)):
        return False
    known = [
        rows[of == defects.names.index(kind)] for rows, of in zip(defects.rows, defects.kinds, strict=True)
    ]
    return all(
        {row.tobytes() for row in new} <= {row.tobytes() for row in old}
        for new, old in zip(found, known, strict=True)
    )


def _name_of(image: ImageLike, file: str, given: str | None) -> str:
    """What a defect is called: as it was given, or by the folder that its image lies in."""
    if not given and not isinstance(image, str | PurePath):
        raise UserError("defects that are arrays have no folder to be called by: give their name")
    name = given or PurePath(str(image)).parent.name or PurePath(file).parent.name
    if name.lower() in GOOD:
        raise UserError(
            f"'{name}' is what good parts are called, not a defect: give the folders of defects alone"
        )
    if not 0 < len(name.strip()) <= MOST_NAME or not name.isprintable() or name == UNKNOWN:
        raise UserError(
            f"a defect's name has 1 to {MOST_NAME} letters and is not '{UNKNOWN}', unlike {name!r:.40}: give another"
        )
    return name.strip()


def _defect_rows(model: Model, runtime: Runtime, image: ImageLike, regions: Roi | None) -> list[Array]:
    """For each scale the raw descriptors (m, d) of patches of a defect that no good part comes near."""
    source = load_image(image, model.config.views, model.config.roi)
    area = None if regions is None else regions.of(image)
    calibration = model.calibration
    normal = float(np.median(calibration.peaks)) if calibration.n else 0.0
    found = []
    for i, (scale, view) in enumerate(zip(model.scales, model.config.views, strict=True)):
        pieces, distances = [], []
        for placed in source.placed(view, scale.backbone.info.grid):
            pixels = source.pixels(view, placed.where)
            a = runtime.score(i, runtime.one_at_a_time[i], pixels, placed.inside).nearest
            drawn = None if area is None else _cells_in(area, placed.where, a.shape, source.size)
            cells = _chosen(a, drawn, normal, calibration.pixel_threshold)
            raw = scale.backbone.descriptors(pixels).reshape(a.size, -1)[cells]
            pieces.append(raw.astype(np.float16))
            distances.append(a.ravel()[cells])
        highest = np.argsort(-np.concatenate(distances), kind="stable")[:MOST_ROWS]
        found.append(np.concatenate(pieces)[highest])
    return found


def _cells_in(area: Area, where: Geometry, grid: tuple[int, ...], size: tuple[int, int]) -> Mask:
    """Which cells (h, w) of a view show something of an area."""
    fine = area.over(where.box, grid[0] * FINER, grid[1] * FINER, size)
    cells: Mask = fine.reshape(grid[0], FINER, grid[1], FINER).max(axis=(1, 3))
    return cells


def _chosen(a: Floats, drawn: Mask | None, normal: float, threshold: float) -> Indices:
    """The cells of distances a (h, w) that are the defect's: those drawn which exceed what normals show at their worst.

    Where nobody has drawn it, those above the pixel threshold, and the highest few.
    """
    falling: Indices = np.argsort(-a, axis=None, kind="stable")
    a = a.ravel()[falling]
    if drawn is not None:
        return falling[drawn.ravel()[falling] & (a > normal)][:MOST_ROWS]
    return falling[: int(np.clip((a > threshold).sum(), FEWEST_ROWS, MOST_ROWS))]
