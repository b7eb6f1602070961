"""More normal images for a fitted model, without the old ones.

Moments and whitening become exactly those of a fit on all images. The bank is chosen anew from its old rows and the new
patches. Memory and time depend on the new images and K, not on how much the model has learnt before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.extraction import Execution
from mhpatchcore.fitting.passes import fit
from mhpatchcore.fitting.past import Past, check_can_grow
from mhpatchcore.inputs.images import ImageLike, image_names, images_to_learn, source_name
from mhpatchcore.model.history import event


def updated(
    detector: Detector,
    normals: str | Path | Sequence[ImageLike],
    returned: bool = False,
    execution: Execution | None = None,
) -> Detector:
    """The model of the old images and the new; see `Detector.updated`."""
    check_can_grow(detector.config)
    images = images_to_learn(normals, as_given=not detector.config.shuffle)
    if not images:
        raise UserError("there are no images to learn from")
    if returned and not detector.calibration.witnesses:
        raise UserError(
            "the model has nothing to take its threshold from but the new images: leave --returned out, "
            "or give it calibration images first (`calibrate --with`)"
        )
    backbone = replace(detector.backbone, threads=1)
    all_images, past = [*detector.images, *images], [Past.of(detector)]
    execution = within_budget(execution or Execution(), backbone, detector.config, len(all_images))
    fitted = fit(all_images, backbone, detector.config, execution, past, fair=not returned)
    total = fitted.moments.n // backbone.patches_per_image
    happened = event("update", source_name(normals), len(fitted.images), total, detector.config.false_alarm)
    names = told_apart(image_names(images, normals), detector.images, Path(source_name(normals)).name)
    images_now, history = (*detector.images, *names), (*detector.history, happened)
    return Detector.of(detector.config, detector.backbone, fitted, images_now, history, detector.excluded)


def told_apart(names: Sequence[str], known: Sequence[str], label: str) -> tuple[str, ...]:
    """Names that are taken already get the label of where they come from, numbered if that is taken too.

    >>> told_apart(["1.png", "2.png"], ["1.png"], "returned")
    ('returned/1.png', '2.png')
    >>> told_apart(["1.png"], ["1.png", "returned/1.png"], "returned")
    ('returned 2/1.png',)
    """
    taken = set(known)

    def free(name: str) -> str:
        labelled = (f"{label}{f' {i}' * (i > 1)}/{name}" for i in count(1))
        return next(one for one in chain([name], labelled) if one not in taken)

    return tuple(free(name) for name in names)
