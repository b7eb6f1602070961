"""A fit with a look at its images: which stand apart, how well the bank covers them, and the model without suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config
from mhpatchcore.fitting.augmenting import decided
from mhpatchcore.fitting.calibrating import banked
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.extraction import extracted, without
from mhpatchcore.fitting.passes import Fitted, learn
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inspection.coverage import Coverage, measure_coverage
from mhpatchcore.inspection.suspicion import ImageChecks, Ranking, rank_images


@dataclass(frozen=True, eq=False)
class Studied:
    """What a fit has found out, and what was asked about its images.

    `config` has what the images have decided of it. `excluded` are the indices of images that were left out as
    suspicious; the indices in `fitted` count without them, those of the `ranking` with them.
    """

    fitted: Fitted
    config: Config
    excluded: tuple[int, ...] = ()
    ranking: Ranking | None = None
    coverage: Coverage | None = None


def studied(
    images: Sequence[ImageLike],
    backbones: Sequence[Backbone],
    config: Config,
    execution: Execution,
    checks: ImageChecks,
) -> Studied:
    """Fit, find out what `checks` asks for, and learn anew if some images are to be left out."""
    checks.to_exclude(len(images))  # too many are refused before the work
    with extracted(images, backbones, config, execution) as extraction:
        extraction, config = decided(extraction, config, execution)
        fitted = learn(extraction, backbones, config, execution)
        if not (checks.ranks or checks.coverage):
            return Studied(fitted, config)
        banks = [banked(scale, config) for scale in fitted.scales]
        ranking = rank_images(extraction.store, extraction.learnt, banks, execution) if checks.ranks else None
        excluded: tuple[int, ...] = ()
        if ranking is not None:
            excluded = ranking.images[: checks.to_exclude(len(extraction.learnt))]
        if excluded:
            extraction = without(extraction, set(excluded), config, execution)
            fitted = learn(extraction, backbones, config, execution)
            banks = [banked(scale, config) for scale in fitted.scales]
        coverage = None
        if checks.coverage:
            coverage = measure_coverage(extraction.store, extraction.learnt, banks[0], config, execution)
        return Studied(fitted, config, tuple(sorted(excluded)), ranking, coverage)
