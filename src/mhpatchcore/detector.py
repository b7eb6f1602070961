"""The detector: backbone, metric and bank of every scale, and the calibration; fitted once, then immutable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config, Size
from mhpatchcore.errors import ImageError, ModelFileError, UserError, in_one_line
from mhpatchcore.fitting.augmenting import to_be_tried
from mhpatchcore.fitting.budget import within_budget
from mhpatchcore.fitting.dask_executor import DaskExecutor
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.given import gather_normals
from mhpatchcore.fitting.networks import load_networks
from mhpatchcore.fitting.scale import Scale
from mhpatchcore.inputs.sources import GivenImage, ImageLike, Images, each_image, single_image
from mhpatchcore.inputs.views import Opened, opened
from mhpatchcore.inspection.coverage import Coverage
from mhpatchcore.inspection.evidence import Evidence, explain
from mhpatchcore.inspection.study import studied
from mhpatchcore.inspection.suspicion import ImageChecks, Suspect, named_suspects
from mhpatchcore.model.calibrate import calibrated
from mhpatchcore.model.file import from_bytes, load, save, to_bytes
from mhpatchcore.model.history import Event, event
from mhpatchcore.model.listing import check_can_be_listed
from mhpatchcore.model.merge import merged
from mhpatchcore.model.product import checked_product, product_of
from mhpatchcore.model.runtime import Runtime
from mhpatchcore.model.teach import taught
from mhpatchcore.model.update import updated
from mhpatchcore.model.value import Model
from mhpatchcore.presets import preset as named_preset
from mhpatchcore.result import Result
from mhpatchcore.runtime.parallel import available_cores, ordered_map
from mhpatchcore.runtime.progress import progress_bars

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Detector:
    """A fitted detector. Make one with `Detector.fit` or `Detector.load`; `calibrated`, `updated`, `merged` and
    `taught` make new ones of it. It is a value: shared by threads, and it pickles as its file.

    `model` holds all that was learnt.
    """

    model: Model

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_runtime", Runtime(self.model.scales, self.model.config, self.model.defects)
        )

    @staticmethod
    def fit(
        normals: Images,
        config: Config | None = None,
        *,
        preset: str | None = None,
        backbone: str | None = None,
        weights: str | Path | None = None,
        sizes: int | str | Sequence[int | str | Size] | None = None,
        K: int | None = None,
        false_alarm: float | str | None = None,
        seed: int | None = None,
        exclude_suspicious: int | float = 0,
        name: str | None = None,
        all_good: bool = False,
        progress: bool = False,
        execution: Execution | None = None,
        client: Client | None = None,
    ) -> Detector:
        """Learn from normal images: a folder, a pattern such as "parts/*.png", an archive, a list, a video, or any
        collection of paths, arrays (H, W, 3) and images of Pillow; an array (N, H, W, 3) is N images. A function
        that gives images whenever it is called is run as often as they are needed, so none has to stay in memory.
        Of a whole data set (train/good, test, ...) the normal training images are taken; other folders that sound like
        defects or masks are refused. What else may be a mistake is warned of (ImageWarning).

        preset: a named recipe to start from (`mhpatchcore presets` lists them); or `config`, a recipe of your own,
            which has further settings: `Config().with_changes(shrinkage="oas")`.
        backbone, weights: the network by name, or an .onnx file; and a local file of weights for it.
        sizes: what the network sees, in pixels: 224, "224x640" (height x width), or several scales: "224,448".
        K: rows of the bank.
        false_alarm: the share of normal images that may be rejected, 0.01 or "1%".
        seed: of everything random.
        exclude_suspicious: leave out the images that differ most from the rest: so many (an int), or a share of
            them (a float).
        name: of the product (default: that of the images' folder, without good, train and the like).
        all_good: all images are of good parts, whatever their folders are called.
        progress: show how far the work is.
        execution: how the work is done: workers, memory, a store.
        client: of a Dask cluster (`dask.distributed.Client`), whose workers do the work; they must reach the images and
            the folder of `Execution(store=...)`.
        """
        if preset is not None and config is not None:
            raise UserError(
                "give a preset or a config: a config of a preset is `presets.preset(name).config`"
            )
        if not isinstance(config, Config | None):
            raise UserError(f"config is a Config, not {config!r:.40}: a preset is named by preset=...")
        recipe = named_preset(preset).config if preset is not None else config or Config()
        given = {"backbone": backbone, "sizes": sizes, "K": K, "false_alarm": false_alarm, "seed": seed}
        recipe = recipe.with_changes(**{name: value for name, value in given.items() if value is not None})
        checks = ImageChecks(exclude=exclude_suspicious)
        if client is not None:
            execution = replace(execution or Execution(), executor=DaskExecutor(client))
        execution = execution or Execution()
        with progress_bars() if progress else nullcontext(execution.progress) as shown:
            execution = replace(execution, progress=shown)
            found = Detector.study(
                normals, recipe, checks, weights=weights, name=name, all_good=all_good, execution=execution
            )
        detector = found.detector
        if detector.model.no_threshold and recipe.calibration != "none":
            execution.warn(
                f"the model has no threshold, because {detector.model.no_threshold}: give it good parts that it does "
                "not know, detector.calibrated(images=...), or a number, detector.calibrated(threshold=20)"
            )
        return detector

    @staticmethod
    def study(
        normals: Images,
        config: Config | None = None,
        checks: ImageChecks | None = None,
        *,
        weights: str | Path | None = None,
        name: str | None = None,
        all_good: bool = False,
        execution: Execution | None = None,
    ) -> Study:
        """`fit`, with what `checks` asks about the images."""
        config = config or Config()
        execution = execution or Execution()
        product = None if name is None else checked_product(name)
        given = gather_normals(normals, config, execution, all_good)
        images, names = given.images, given.names
        check_can_be_listed(names)
        networks, config = load_networks(config, images, weights)
        config = config.with_changes(augment=to_be_tried(config, len(images)))
        execution = within_budget(execution, networks, config, images)
        study = studied(images, networks, config, execution, checks or ImageChecks())
        left_out = set(study.excluded)
        learnt = len(study.fitted.images)
        happened = event("fit", given.source, learnt, learnt, config.false_alarm)
        kept = tuple(name for i, name in enumerate(names) if i not in left_out)
        excluded = tuple(names[i] for i in study.excluded)
        model = Model.of(
            study.config, study.fitted, kept, [], (happened,), excluded, product or product_of(given.source)
        )
        suspects = () if study.ranking is None else named_suspects(study.ranking, images, names, left_out)
        return Study(Detector(model), suspects, study.coverage, given.passed_over)

    def calibrated(
        self,
        false_alarm: float | str | None = None,
        images: Images | None = None,
        *,
        add: bool = False,
        threshold: float | None = None,
        all_good: bool = False,
        execution: Execution | None = None,
    ) -> Detector:
        """The same model with a threshold at another rate, at a number of your own, or from other images.

        `images` are normal images that the model has not learnt from. Their scores take the place of the stored ones,
        or with `add` join them. Nothing is fitted. `all_good` is that of `fit`.
        """
        return Detector(calibrated(self.model, false_alarm, images, add, threshold, all_good, execution))

    def updated(
        self,
        normals: Images,
        *,
        returned: bool = False,
        all_good: bool = False,
        execution: Execution | None = None,
    ) -> Detector:
        """A model of the images learnt so far and these further normal ones; the old images are not needed.

        `returned` says that they were picked because they had been rejected: they are learnt, but not being
        representative of what comes they do not count in the threshold. `all_good` is that of `fit`.
        """
        return Detector(updated(self.model, normals, returned, all_good, execution))

    def merged(self, *others: Detector) -> Detector:
        """One model of what this one and the others have learnt, whatever their order."""
        for other in others:
            if not isinstance(other, Detector):
                raise UserError(f"only detectors can be merged, not {other!r:.40}: load the file first")
        return Detector(merged([self.model, *(other.model for other in others)]))

    def taught(
        self,
        images: Images,
        *,
        name: str | None = None,
        masks: Any = None,
        execution: Execution | None = None,
    ) -> Detector:
        """The same model, which knows these defects by name: what looks like them is rejected, and named.

        name: what they are called; without it, each by the folder that it lies in.
        masks: where the defects are: whatever `Config(roi=...)` takes, for example a folder of masks or a CSV file of
            boxes. Without it they are where the model sees them.
        """
        return Detector(taught(self.model, self.runtime, images, name, masks, execution or Execution()))

    @overload
    def score(self, images: GivenImage) -> Result: ...  # type: ignore[overload-overlap]  # a text is iterable too
    @overload
    def score(self, images: Iterable[GivenImage]) -> list[Result]: ...
    def score(self, images: Images) -> Result | list[Result]:
        """Score one image (a path, an array or an image of Pillow), or many: a list for any collection of them.

        A folder, a pattern and an array (N, H, W, 3) are collections too. A type checker cannot know that: there
        `score_many` is the one to use.
        """
        image = single_image(images)
        if image is not None:
            return self._score_one(image, self.runtime.one_at_a_time)
        return [result for result in self.score_many(images) if result is not None]

    def score_many(
        self,
        images: Images,
        workers: int | None = None,
        on_error: Callable[[ImageError], None] | None = None,
    ) -> Iterator[Result | None]:
        """Score images (whatever `fit` takes) one after the other, several at a time; results come in order, and
        nothing piles up.

        An image that cannot be read raises, or with `on_error` is reported to it and gives None.
        """
        sessions = self.runtime.side_by_side

        def one(image: ImageLike) -> Result | ImageError:
            try:
                return self._score_one(image, sessions)
            except ImageError as error:
                if on_error is None:
                    raise
                return error

        for outcome in ordered_map(one, each_image(images), workers or available_cores()):
            if isinstance(outcome, ImageError):
                assert on_error is not None
                on_error(outcome)
                yield None
            else:
                yield outcome

    def explain(
        self, image: GivenImage | Result, normals: str | Path | Sequence[str | Path] = ()
    ) -> Evidence:
        """The normal patches that an image's (or a result's) worst places were compared with.

        `normals` says in which folders the training images are now, if they are no longer where they were.
        """
        source = image.path if isinstance(image, Result) else single_image(image)
        if source is None:
            raise UserError(
                "explain takes one image, or the result of a file: give the array itself where it was one"
            )
        result = image if isinstance(image, Result) else self.score(source)
        return explain(self.model, self.runtime.heads, source, result, normals)

    def opened(self, image: ImageLike) -> Opened:
        """The image, decoded as this model sees it: the first half of `score`, for who takes the time of each."""
        return opened(image, self.config.views, self.config.roi)

    def score_opened(self, source: Opened) -> Result:
        """The other half, on one core, as `score_many` does it for each image."""
        return self._scored(source, None, self.runtime.side_by_side)

    def _score_one(self, image: ImageLike, sessions: Sequence[Any]) -> Result:
        path = str(image) if isinstance(image, str | Path) else None
        return self._scored(self.opened(image), path, sessions)

    def _scored(self, source: Opened, path: str | None, sessions: Sequence[Any]) -> Result:
        score, views, measures = self.runtime.score_image(source, sessions)
        return Result(
            path=path,
            score=score,
            threshold=self.calibration.threshold,
            p_value=self.calibration.p_value(score),
            pixel_threshold=self.calibration.pixel_threshold,
            views=views,
            window=self.config.views[0].window,
            area=source.area,
            measures=tuple(measures.tolist()),
            names=self.model.defects.names,
            likeness_limit=self.likeness_limit,
        )

    def with_roi(self, roi: Any) -> Detector:
        """The same detector, with another region of interest: for images that lie differently, or one of each.

        It takes what `Config(roi=...)` takes: a rectangle, corners, a mask (an array or a file), or a folder or CSV
        file with a region for each image.
        """
        other = Detector(replace(self.model, config=self.config.with_changes(roi=roi)))
        object.__setattr__(other, "_runtime", self.runtime)  # which does not depend on it
        return other

    @property
    def runtime(self) -> Runtime:
        """What scoring needs, made once."""
        runtime: Runtime = self._runtime  # type: ignore[attr-defined]
        return runtime

    @property
    def config(self) -> Config:
        """The recipe, with what the network and the images have decided of it."""
        return self.model.config

    @property
    def scales(self) -> tuple[Scale, ...]:
        """What was learnt at each size: network, metric and bank."""
        return self.model.scales

    @property
    def calibration(self) -> Calibration:
        """The scores of normal images that the threshold comes from."""
        return self.model.calibration

    @property
    def threshold(self) -> float:
        """Scores above it are rejected; infinity without calibration images."""
        return self.model.calibration.threshold

    @cached_property
    def likeness_limit(self) -> float:
        """Images that are more like a known defect are rejected too; infinity for a model that knows none."""
        return self.runtime.likeness_limit(self.calibration)

    @property
    def history(self) -> tuple[Event, ...]:
        """What was done to the model, when, and with which images."""
        return self.model.history

    def save(self, path: str | Path) -> None:
        """Write the model file: one safetensors file, whole or not at all."""
        save(self.model, Path(path))

    @staticmethod
    def load(path: str | Path) -> Detector:
        """Read a model file, check it, and make it ready to score."""
        detector = Detector(load(Path(path)))
        try:
            detector.runtime.warm_up()
            _ = detector.likeness_limit
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise ModelFileError(
                f"{path} is damaged (its network does not run: {in_one_line(error)}); "
                "copy it again or fit the model again"
            ) from error
        return detector

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (to_bytes(self.model),)

    def __repr__(self) -> str:
        n, calibration = self.model.n_learnt, self.calibration
        rate = f" for {calibration.expected_rate:.2%} false alarms" if calibration.n else ""
        threshold = f"threshold {self.threshold:.4g}{rate}" if calibration.judges else "no threshold"
        learnt = f"{n} image{'s' * (n != 1)}, {self.model.rows} bank rows"
        return f"Detector({self.scales[0].backbone.info.name}, {learnt}, {threshold})"


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted detector and what its fit found out: all images by suspicion, and how well the bank covers them.

    `passed_over` are files among the images that are none.
    """

    detector: Detector
    suspects: tuple[Suspect, ...]
    coverage: Coverage | None
    passed_over: tuple[str, ...] = ()


def _from_bytes(content: bytes) -> Detector:
    return Detector(from_bytes(content))
