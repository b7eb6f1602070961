"""More normal images for a fitted model, without the old ones.

Moments and whitening become exactly those of a fit on all images. The bank is chosen anew from its old rows and the new
patches. Memory and time depend on the new images and K, not on how much the model has learnt before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.given import gather_normals
from mhpatchcore.fitting.passes import fit
from mhpatchcore.fitting.previous import check_can_grow
from mhpatchcore.inputs.sources import Images
from mhpatchcore.model.history import event
from mhpatchcore.model.value import Model


def updated(
    model: Model,
    normals: Images,
    returned: bool = False,
    all_good: bool = False,
    execution: Execution | None = None,
) -> Model:
    """The model of the old images and the new; see `Detector.updated`."""
    check_can_grow(model.config)
    if returned and not model.calibration.deciding:
        raise UserError(
            "the model has nothing to take its threshold from but the new images: leave `returned=True` out, "
            "or give it calibration images first"
        )
    execution = execution or Execution()
    # that returned parts are good has been said already, and their folder may well be called rejected
    given = gather_normals(normals, model.config, execution, all_good or returned)
    images = given.images
    networks = [replace(scale.backbone, threads=1) for scale in model.scales]
    execution = within_budget(execution, networks, model.config, images)
    previous = [model.previous]
    fitted = fit(images, networks, model.config, execution, previous, representative=not returned)
    total = model.n_learnt + len(fitted.images)
    happened = event("update", given.source, len(fitted.images), total, model.config.false_alarm)
    names = distinct_names(given.names, model.images, Path(given.source).name)
    images_now, history = (*model.images, *names), (*model.history, happened)
    return Model.of(
        model.config, fitted, images_now, previous, history, model.excluded, model.product, model.defects
    )


def distinct_names(names: Sequence[str], known: Sequence[str], label: str) -> tuple[str, ...]:
    """Names that are taken already get the label of where they come from, numbered if that is taken too.

    >>> distinct_names(["1.png", "2.png"], ["1.png"], "returned")
    ('returned/1.png', '2.png')
    >>> distinct_names(["1.png"], ["1.png", "returned/1.png"], "returned")
    ('returned 2/1.png',)
    """
    taken = set(known)

    def free(name: str) -> str:
        labelled = (f"{label}{f' {i}' * (i > 1)}/{name}" for i in count(1))
        return next(one for one in chain([name], labelled) if one not in taken)

    return tuple(free(name) for name in names)
