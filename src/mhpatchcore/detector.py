"""The detector: backbone + whitening + bank + calibration, fitted once, then immutable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone, make_session
from mhpatchcore.calibration.conformal import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.extraction import Execution
from mhpatchcore.fitting.passes import Fitted, fit
from mhpatchcore.inputs.images import ImageLike, image_names, images_to_learn, load_view, source_name
from mhpatchcore.inspection.coverage import Coverage
from mhpatchcore.inspection.suspicion import Scrutiny, Suspect, named_suspects
from mhpatchcore.metric.moments import Moments
from mhpatchcore.metric.whitening import Whitening
from mhpatchcore.model.history import Event, event
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Doubles, Indices
from mhpatchcore.runtime.parallel import available_cores, ordered_map
from mhpatchcore.scoring.rules import Scorer

if TYPE_CHECKING:
    from mhpatchcore.inspection.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Detector:
    """A fitted detector. Make one with `Detector.fit` or `Detector.load`; `calibrated`, `updated` and `merged` make
    new ones of it.

    `images` names the training images; a bank row's origin (image, row, column) points into it. `history` says what
    was done when; `excluded` are images that were left out of a fit because they stood too far from the others.
    """

    config: Config
    backbone: Backbone
    moments: Moments
    variances: Doubles
    whitening: Whitening
    bank_raw: Array
    bank_origin: Indices
    calibration: Calibration
    images: tuple[str, ...]
    history: tuple[Event, ...] = ()
    excluded: tuple[str, ...] = ()

    @staticmethod
    def of(
        config: Config,
        backbone: Backbone,
        fitted: Fitted,
        images: tuple[str, ...],
        history: tuple[Event, ...],
        excluded: tuple[str, ...] = (),
    ) -> Detector:
        """What a fit has found out, with the backbone it was found with."""
        return Detector(
            config=config,
            backbone=replace(backbone, threads=0),
            moments=fitted.moments,
            variances=fitted.variances,
            whitening=fitted.whitening,
            bank_raw=fitted.bank.raw,
            bank_origin=fitted.bank.origin,
            calibration=fitted.calibration,
            images=images,
            history=history,
            excluded=excluded,
        )

    @staticmethod
    def fit(
        normals: str | Path | Sequence[ImageLike],
        config: Config | None = None,
        *,
        weights: str | Path | None = None,
        execution: Execution | None = None,
        exclude_suspicious: int | float = 0,
        **settings: Any,
    ) -> Detector:
        """Learn from normal images: a folder, paths in any order, or arrays. `settings` are fields of `Config`.

        `weights` is a local weights file for the backbone; `execution` says how the work is done. The images that
        stand farthest from the rest can be left out: so many (an int), or a share of them (a float).
        """
        scrutiny = Scrutiny(exclude=exclude_suspicious)
        return Detector.study(
            normals, config, scrutiny, weights=weights, execution=execution, **settings
        ).detector

    @staticmethod
    def study(
        normals: str | Path | Sequence[ImageLike],
        config: Config | None = None,
        scrutiny: Scrutiny | None = None,
        *,
        weights: str | Path | None = None,
        execution: Execution | None = None,
        **settings: Any,
    ) -> Study:
        """`fit`, with what `scrutiny` asks about the images."""
        config = (config or Config()).with_changes(**settings)
        execution = execution or Execution()
        images = images_to_learn(normals, as_given=not config.shuffle)
        if not images:
            raise UserError("there are no images to learn from")
        network = backbones.load(
            config.backbone,
            weights=weights,
            tag=config.tag,
            height=config.size,
            width=config.size,
            layers=config.layers,
            descriptor=config.descriptor,
            place=config.place > 0,
            threads=1,
        )
        info = network.info
        if info.height != info.width:
            raise UserError(
                f"{info.name} takes {info.height} × {info.width} pixels, but views are square: export it for a square"
            )
        config = config.with_changes(layers=info.layers, descriptor=info.descriptor, size=info.height)
        network = _at_precision(network, images, config)
        config = config.with_changes(precision=network.info.precision)
        execution = within_budget(execution, network, config, len(images))
        fitted = fit(images, network, config, execution, scrutiny=scrutiny)
        learnt = len(fitted.images)
        happened = event("fit", source_name(normals), learnt, learnt, config.false_alarm)
        names, left_out = image_names(images, normals), set(fitted.excluded)
        kept = tuple(name for i, name in enumerate(names) if i not in left_out)
        excluded = tuple(names[i] for i in fitted.excluded)
        suspects = () if fitted.ranking is None else named_suspects(fitted.ranking, images, names, left_out)
        return Study(
            Detector.of(config, network, fitted, kept, (happened,), excluded), suspects, fitted.coverage
        )

    def calibrated(
        self,
        false_alarm: float | None = None,
        images: str | Path | Sequence[ImageLike] | None = None,
        *,
        add: bool = False,
        execution: Execution | None = None,
    ) -> Detector:
        """The same model with a threshold at another rate, or from other images; nothing is fitted.

        `images` are normal images that the model has not learnt from. Their scores take the place of the stored ones,
        or with `add` join them.
        """
        from mhpatchcore.model.calibrate import calibrated

        return calibrated(self, false_alarm, images, add, execution)

    def updated(
        self,
        normals: str | Path | Sequence[ImageLike],
        *,
        returned: bool = False,
        execution: Execution | None = None,
    ) -> Detector:
        """A model of the images learnt so far and these further normal ones; the old images are not needed.

        `returned` says that they were picked because they had been rejected: they are learnt, but being no fair
        sample of what comes they have no say in the threshold.
        """
        from mhpatchcore.model.update import updated

        return updated(self, normals, returned, execution)

    def merged(self, *others: Detector) -> Detector:
        """One model of what this one and the others have learnt, whatever their order."""
        from mhpatchcore.model.merge import merged

        return merged([self, *others])

    @overload
    def score(self, images: str | Path | Array) -> Result: ...
    @overload
    def score(self, images: list[ImageLike] | tuple[ImageLike, ...]) -> list[Result]: ...
    def score(self, images: ImageLike | Sequence[ImageLike]) -> Result | list[Result]:
        """Score one image (a path or an array) or many of them."""
        if isinstance(images, str | Path | np.ndarray):
            return self._score_one(images, self.session)
        return [result for result in self.score_many(images) if result is not None]

    def score_many(
        self,
        images: Iterable[ImageLike],
        workers: int | None = None,
        on_error: Callable[[ImageError], None] | None = None,
    ) -> Iterator[Result | None]:
        """Score images one after the other, several at a time; results in order, nothing piles up.

        An image that cannot be read raises, or with `on_error` is reported to it and gives None.
        """
        session = make_session(self.graph, 1)

        def one(image: ImageLike) -> Result | ImageError:
            try:
                return self._score_one(image, session)
            except ImageError as error:
                if on_error is None:
                    raise
                return error

        for outcome in ordered_map(one, images, workers or available_cores()):
            if isinstance(outcome, ImageError):
                assert on_error is not None
                on_error(outcome)
                yield None
            else:
                yield outcome

    def explain(self, image: ImageLike | Result, normals: str | Path | Sequence[str | Path] = ()) -> Evidence:
        """The normal patches that an image's (or a result's) worst places were compared with.

        `normals` says in which folders the training images are now, if they are no longer where they were.
        """
        from mhpatchcore.inspection.evidence import explain

        return explain(self, image, normals)

    def _score_one(self, image: ImageLike, session: Any) -> Result:
        view, geometry = load_view(image, self.config.preprocessing)
        feed = {"image": np.ascontiguousarray(view[None], np.float32)}
        names = ["output", "typical", "peaks", *(["z"] if self.config.score == "reweighted" else [])]
        nearest, typical, peaks, *z = session.run(names, feed)
        pair = float(peaks[0]), float(peaks[1])
        patches = self.scorer.summarise(nearest, typical, pair, z[0].T if z else None)
        return Result(
            path=str(image) if isinstance(image, str | Path) else None,
            score=patches.score,
            threshold=self.calibration.threshold,
            p_value=self.calibration.p_value(patches.score),
            pixel_threshold=self.calibration.pixel_threshold,
            patches=patches,
            geometry=geometry,
            config=self.config,
        )

    @cached_property
    def graph(self) -> bytes:
        """From the view to patch scores, as an ONNX graph."""
        from mhpatchcore.scoring.graph import scoring_graph

        return scoring_graph(self.backbone, self.whitening, self.scorer)

    @cached_property
    def session(self) -> Any:
        """The graph ready to score one image at a time on all cores."""
        return make_session(self.graph)

    @cached_property
    def scorer(self) -> Scorer:
        return Scorer(self.whitening(self.bank_raw), self.backbone.info.grid, self.config)

    @property
    def n_learnt(self) -> int:
        """How many images it has learnt from: all of `images` but the broken and the held-out ones."""
        return self.moments.n // self.backbone.patches_per_image

    @property
    def threshold(self) -> float:
        return self.calibration.threshold

    def save(self, path: str | Path) -> None:
        """Write the model file: one safetensors file, whole or not at all."""
        from mhpatchcore.model.file import save

        save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Detector:
        from mhpatchcore.model.file import load

        return load(Path(path))

    def __repr__(self) -> str:
        return (
            f"Detector({self.backbone.info.name}, {self.n_learnt} images, bank {len(self.bank_raw)} × "
            f"{self.whitening.k}, threshold {self.threshold:.4g} at {self.calibration.supported_rate:.2g} false alarms)"
        )


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted detector and what its fit found out: all images by suspicion, and how well the bank covers them."""

    detector: Detector
    suspects: tuple[Suspect, ...]
    coverage: Coverage | None


def _at_precision(network: Backbone, images: Sequence[ImageLike], config: Config) -> Backbone:
    if config.precision == "fp32":
        return network
    from mhpatchcore.backbone.quantising import at_precision  # the quantiser takes half a second to import

    return at_precision(network, config.precision, images, config.preprocessing)
