"""The detector: backbone, metric and bank of every scale, and the calibration; fitted once, then immutable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.config import Config, Size
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.changing import calibrated, merged, updated
from mhpatchcore.fitting.checks import Coverage, ImageChecks, Suspect
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.fit import fit
from mhpatchcore.fitting.teach import taught
from mhpatchcore.inputs.datasets import Dataset, load_dataset
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.sources import GivenImage, Images, single_image
from mhpatchcore.inspection.evidence import Evidence, explain
from mhpatchcore.model.runtime import Scorer
from mhpatchcore.presets import preset as named_preset
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.costs import progress_bars

if TYPE_CHECKING:
    from distributed import Client

    from mhpatchcore.evaluation.evaluate import Evaluation


class Detector(Scorer):
    """A fitted detector, made by `Detector.fit` or `Detector.load`.

    It is immutable: threads can share it, it pickles as its file, and `calibrated`, `updated`, `merged` and `taught`
    return new ones.

    Parameters
    ----------
    model
        Everything that was learnt.
    """

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
        roi: Roi | str | Path | Array | Sequence[Sequence[float]] | None = None,
        false_alarm: float | str | None = None,
        seed: int | None = None,
        exclude_suspicious: int | float = 0,
        name: str | None = None,
        all_good: bool = False,
        workers: int | None = None,
        store: str | Path | None = None,
        progress: bool = False,
        execution: Execution | None = None,
        client: Client | None = None,
    ) -> Detector:
        """Learn from images of good parts.

        Of a whole data set (train/good, test, ...) the normal training images are taken; other folders that sound like
        defects or masks are refused. Other likely mistakes are warned of (`ImageWarning`).

        Parameters
        ----------
        normals
            A folder, a pattern such as "parts/*.png", an archive, a list, a video, or any collection of paths, arrays
            (H, W, 3) and Pillow images; an array (N, H, W, 3) is N images. A function that returns images is called
            as often as they are needed, so none has to stay in memory.
        config
            All settings; start from `Config().with_changes(shrinkage="oas")`.
        preset
            A named configuration to start from instead (`mhpatchcore presets` lists them).
        backbone
            The network by name, or an .onnx file.
        weights
            A local file of weights for the network.
        sizes
            What the network sees, in pixels: 224, "224x640" (height x width), or several scales: "224,448".
        K
            Rows of the bank.
        roi
            Where to look: a polygon, a box, a mask, or a folder of masks, as `Config(roi=...)` takes it.
        false_alarm
            The share of good parts that may be rejected, 0.01 or "1%".
        seed
            Seed of everything random.
        exclude_suspicious
            Leave out the images that differ most from the rest: a number of them (int) or a share (float).
        name
            The product (default: the name of the images' folder, without good, train and the like).
        all_good
            All images show good parts, whatever their folders are called.
        workers
            How many images to work on at a time (default: one per core).
        store
            A folder where descriptors stay: a fit that was interrupted goes on from there.
        progress
            Show progress bars.
        execution
            How the work is done in all detail; `workers` and `store` change it.
        client
            A `dask.distributed.Client` whose workers do the work; they must reach the images and the folder of
            `Execution(store=...)`.
        """
        if preset is not None and config is not None:
            raise UserError(
                "give a preset or a config: a config of a preset is `presets.preset(name).config`"
            )
        if not isinstance(config, Config | None):
            raise UserError(f"config is a Config, not {config!r:.40}: a preset is named by preset=...")
        recipe = named_preset(preset).config if preset is not None else config or Config()
        settings = _given(backbone=backbone, sizes=sizes, K=K, roi=roi, false_alarm=false_alarm, seed=seed)
        recipe = recipe.with_changes(**settings)
        execution = replace(execution or Execution(), **_given(workers=workers, store=store))
        if client is not None:
            execution = execution.on_cluster(client)
        checks = ImageChecks(exclude=exclude_suspicious)
        with progress_bars() if progress else nullcontext(execution.progress) as shown:
            how = replace(execution, progress=shown)
            found = fit(normals, recipe, checks, how, weights, name, all_good)
        if found.model.no_threshold and recipe.calibration != "none":
            execution.warn(
                f"the model has no threshold, because {found.model.no_threshold}: give it good parts that it does "
                "not know, detector.calibrated(images=...), or a number, detector.calibrated(threshold=20)"
            )
        return Detector(found.model)

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
        """Fit a detector and examine its images.

        Parameters
        ----------
        normals, weights, name, all_good, execution
            As in `fit`.
        config
            All settings (default: `Config()`).
        checks
            What to find out about the images.
        """
        checks, execution = checks or ImageChecks(), execution or Execution()
        found = fit(normals, config or Config(), checks, execution, weights, name, all_good)
        return Study(Detector(found.model), found.suspects, found.coverage, found.passed_over)

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

        Nothing is fitted.

        Parameters
        ----------
        false_alarm
            The share of good parts that may be rejected, 0.01 or "1%".
        images
            Images of good parts that the model has not learnt from. Their scores replace the stored ones.
        add
            Add the scores of `images` to the stored ones instead.
        threshold
            A threshold of your own.
        all_good, execution
            As in `fit`.
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
        """A model that has also learnt these images; the old ones are not needed.

        Parameters
        ----------
        normals
            Further images of good parts, as in `fit`.
        returned
            The images were picked because they had been rejected. They are learnt, but do not count in the threshold,
            because they do not represent the parts to come.
        all_good, execution
            As in `fit`.
        """
        return Detector(updated(self.model, normals, returned, all_good, execution))

    def merged(self, *others: Detector | Iterable[Detector]) -> Detector:
        """One model of what this one and the others have learnt. Their order does not matter.

        Parameters
        ----------
        *others
            Detectors of the same product, with the same settings and network, one by one or as a list.
        """
        models = [self.model]
        for one in others:
            for other in one if isinstance(one, list | tuple) else [one]:
                if not isinstance(other, Detector):
                    raise UserError(f"only detectors can be merged, not {other!r:.40}: load the file first")
                models.append(other.model)
        return Detector(merged(models))

    def taught(
        self,
        images: Images,
        *,
        name: str | None = None,
        masks: Any = None,
        execution: Execution | None = None,
    ) -> Detector:
        """The same model, which knows these defects by name: what looks like them is rejected, and named.

        Parameters
        ----------
        images
            Images of defects.
        name
            What the defects are called (default: each by the name of its folder).
        masks
            Where the defects are: whatever `Config(roi=...)` takes, such as a folder of masks or a CSV file of boxes.
            Without it they are where the model sees them.
        execution
            As in `fit`.
        """
        return Detector(taught(self.model, self.runtime, images, name, masks, execution or Execution()))

    def evaluate(self, folder: str | Path | Dataset, workers: int | None = None) -> Evaluation:
        """Score the test images of a data set, and compare with what they are.

        Parameters
        ----------
        folder
            test/good and test/DEFECT in it, with ground_truth where there are masks; or good and bad. Also labels that
            `integrations.coco` or `integrations.label_studio` has read.
        workers
            How many images to score at a time (default: one per core).
        """
        from mhpatchcore.evaluation.evaluate import evaluate

        dataset = folder if isinstance(folder, Dataset) else load_dataset(folder, split=False)
        return evaluate(self, dataset, workers)

    def export(self, path: str | Path) -> None:
        """Write the whole detector as one ONNX file, which needs no more than an ONNX runtime.

        Parameters
        ----------
        path
            Where to write: part.onnx.
        """
        from mhpatchcore.deploy.export import export_onnx

        export_onnx(self.model, path)

    def explain(
        self, image: GivenImage | Result, normals: str | Path | Sequence[str | Path] = ()
    ) -> Evidence:
        """The normal patches that the worst places of an image were compared with.

        Parameters
        ----------
        image
            An image, or the result of a file.
        normals
            Folders of the training images, if they are no longer where they were.
        """
        source = image.path if isinstance(image, Result) else single_image(image)
        if source is None:
            raise UserError("explain takes one image, or the result of a file: give the array itself")
        result = image if isinstance(image, Result) else self.score(source)
        return explain(self.model, self.runtime.heads, source, result, normals)

    def __repr__(self) -> str:
        n, calibration = self.model.n_learnt, self.calibration
        rate = f" for {calibration.expected_rate:.2%} false alarms" if calibration.n else ""
        threshold = f"threshold {self.threshold:.4g}{rate}" if calibration.judges else "no threshold"
        learnt = f"{n} image{'s' * (n != 1)}, {self.model.rows} bank rows"
        return f"Detector({self.scales[0].backbone.info.name}, {learnt}, {threshold})"

    def _repr_html_(self) -> str:
        """What a notebook shows: what was learnt, and what the threshold holds."""
        from mhpatchcore.report.fit import detector_html

        return detector_html(self)


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A fitted detector and what its fit found out.

    Parameters
    ----------
    detector
        The fitted detector.
    suspects
        All images, the most suspicious first, if the checks asked for it.
    coverage
        How well the bank covers the patches, if the checks asked for it.
    passed_over
        Files among the images that are not images.
    """

    detector: Detector
    suspects: tuple[Suspect, ...]
    coverage: Coverage | None
    passed_over: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Study({self.detector!r}, {len(self.suspects)} suspects)"


def _given(**settings: Any) -> dict[str, Any]:
    """Those that were given a value."""
    return {name: value for name, value in settings.items() if value is not None}
