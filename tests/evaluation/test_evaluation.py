"""Metrics agree with scikit-learn over all images at once, though nothing but numbers is kept of each."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score
from small_detector import PIXELS, small_detector, with_threshold

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.evaluation.evaluate import Evaluation, Judged, evaluate, is_located
from mhpatchcore.evaluation.metrics import image_metrics
from mhpatchcore.inputs.datasets import Dataset, Sample, load_dataset, read_mask
from mhpatchcore.inputs.views import View
from mhpatchcore.result import Result
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.scoring.maps import ViewScores, view_map


@pytest.fixture(scope="module")
def vials(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("evaluation") / "vials"
    return load_dataset(write_demo_dataset(root, train=2, good=6, per_defect=2, pixels=PIXELS))


def test_image_metrics_equal_scikit_learn(vials: Dataset) -> None:
    detector = small_detector()
    evaluation = evaluate(detector, vials)
    labels = [sample.is_anomalous for sample in vials.test]
    scores = [detector.score(sample.path).score for sample in vials.test]
    assert [judged.score for judged in evaluation.images] == pytest.approx(scores, rel=1e-5)
    assert evaluation.image.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert evaluation.image.average_precision == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )
    assert (evaluation.image.n_normal, evaluation.image.n_anomalous) == (6, 8)


def test_pixel_metrics_equal_scikit_learn_over_all_maps(vials: Dataset) -> None:
    detector = small_detector()
    maps, masks = [], []
    for sample in vials.test:
        maps.append(detector.score(sample.path).map)
        empty = np.zeros((PIXELS, PIXELS), bool)
        masks.append(read_mask(sample.mask, PIXELS, PIXELS) if sample.mask else empty)
    pixel = evaluate(detector, vials).pixel
    assert pixel is not None and pixel.n_images == 14
    scores, labels = np.concatenate(maps).ravel(), np.concatenate(masks).ravel()
    assert pixel.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-5)
    assert pixel.average_precision == pytest.approx(average_precision_score(labels, scores), abs=1e-4)


def test_the_answer_does_not_depend_on_workers(vials: Dataset) -> None:
    assert evaluate(small_detector(), vials, workers=1) == evaluate(small_detector(), vials, workers=3)


def test_every_result_is_seen_once_in_order_and_none_is_kept(vials: Dataset) -> None:
    seen: list[Path] = []
    alive: list[weakref.ref[Result]] = []
    most = 0

    def watch(sample: Sample, result: Result, judged: Judged) -> None:
        nonlocal most
        assert judged.path == sample.path and judged.score == result.score
        seen.append(sample.path)
        alive.append(weakref.ref(result))
        most = max(most, sum(reference() is not None for reference in alive))

    reports: list[tuple[str, int, int]] = []
    evaluate(small_detector(), vials, workers=2, watch=watch, progress=lambda *report: reports.append(report))
    assert seen == [sample.path for sample in vials.test]
    assert most <= 2
    assert reports[-1] == ("score", 14, 14)


def test_images_without_masks_have_no_pixel_metrics(vials: Dataset) -> None:
    unmasked = replace(vials, test=tuple(replace(sample, mask=None) for sample in vials.test))
    evaluation = evaluate(small_detector(), unmasked)
    assert evaluation.pixel is None
    assert not any(name.startswith("pixel") for name in evaluation.summary())


def test_misshapen_mask_is_reported_and_its_image_still_judged(vials: Dataset, tmp_path: Path) -> None:
    Image.new("L", (5, 4), 255).save(tmp_path / "misshapen.png")
    first, *others = vials.test
    spoilt = replace(vials, test=(replace(first, mask=tmp_path / "misshapen.png"), *others))
    evaluation, whole = evaluate(small_detector(), spoilt), evaluate(small_detector(), vials)
    (problem,) = evaluation.problems
    assert "misshapen.png" in problem and "5 × 4" in problem
    assert evaluation.image == whole.image
    assert evaluation.pixel is not None and evaluation.pixel.n_images == 13


def test_verdicts_follow_the_threshold(vials: Dataset) -> None:
    scores = sorted(judged.score for judged in evaluate(small_detector(), vials).images)
    threshold = scores[len(scores) // 2]
    evaluation = evaluate(with_threshold(small_detector(), threshold), vials)
    assert all(judged.flagged == (judged.score > threshold) for judged in evaluation.images)
    summary = evaluation.summary()
    assert summary["threshold"] == threshold
    assert summary["false_alarms"] == sum(j.flagged for j in evaluation.images if not j.is_anomalous)
    assert summary["misses"] == sum(not j.flagged for j in evaluation.images if j.is_anomalous)


def test_false_alarms_and_misses_come_worst_first() -> None:
    told = [(False, 9.0), (False, 12.0), (False, 1.0), (True, 3.0), (True, 2.0), (True, 20.0)]
    images = tuple(
        Judged(Path(str(i)), "x", bad, score, score > 5, 0.5) for i, (bad, score) in enumerate(told)
    )
    metrics = image_metrics([bad for bad, _ in told], [score for _, score in told])
    evaluation = Evaluation("made up", images, metrics, None, None, 5.0, ())
    assert [judged.score for judged in evaluation.false_alarms] == [12.0, 9.0]
    assert [judged.score for judged in evaluation.misses] == [2.0, 3.0]


def test_an_image_that_cannot_be_read_is_named(vials: Dataset, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    spoilt = replace(vials, test=(*vials.test, Sample(tmp_path / "broken.png", "good", False)))
    with pytest.raises(ImageError, match=r"broken\.png"):
        evaluate(small_detector(), spoilt)
    evaluation = evaluate(small_detector(), spoilt, skip_broken=True)
    assert evaluation.image == evaluate(small_detector(), vials).image
    assert len(evaluation.problems) == 1 and "broken.png" in evaluation.problems[0]
    with pytest.raises(ImageError, match="no test image"):
        evaluate(small_detector(), replace(vials, test=spoilt.test[-1:]), skip_broken=True)


def test_a_mask_that_marks_nothing_is_a_problem(vials: Dataset, tmp_path: Path) -> None:
    Image.new("L", (PIXELS, PIXELS), 0).save(tmp_path / "empty.png")
    first, *others = vials.test
    assert first.is_anomalous
    spoilt = replace(vials, test=(replace(first, mask=tmp_path / "empty.png"), *others))
    evaluation = evaluate(small_detector(), spoilt)
    assert "empty.png of a defective image marks nothing" in evaluation.problems[0]
    assert evaluation.pixel is not None and evaluation.pixel.n_images == len(vials.test) - 1


def fitted_on(paths: Sequence[Path], **settings: Any) -> Detector:
    config = Config(sizes=96, K=100, augment="none").with_changes(**settings)
    return Detector.fit([*paths], config, all_good=True)


def test_learnt_images_are_left_out_and_named(vials: Dataset) -> None:
    learnt = [sample.path for sample in vials.test if not sample.is_anomalous][:4]
    evaluation = evaluate(fitted_on(learnt), vials)
    assert evaluation.left_out == tuple(sorted(learnt))
    assert not {judged.path for judged in evaluation.images} & set(learnt)
    assert (evaluation.image.n_normal, evaluation.image.n_anomalous) == (2, 8)
    (problem,) = evaluation.problems
    assert problem.startswith("4 test images left out") and str(learnt[0]) in problem
    assert "\n" not in problem and problem.endswith("and 1 others")
    assert evaluation.summary()["left_out"] == [str(path) for path in sorted(learnt)]


def test_a_learnt_image_is_known_under_another_name(vials: Dataset, tmp_path: Path) -> None:
    good = [sample.path for sample in vials.test if not sample.is_anomalous][:3]
    copies = [Path(shutil.copy(path, tmp_path / f"copy of {path.name}")) for path in good]
    assert evaluate(fitted_on(copies), vials).left_out == tuple(sorted(good))


@pytest.mark.parametrize(("anomalous", "name"), [(False, "good"), (True, "defect")])
def test_a_test_without_unseen_images_of_both_kinds_is_refused(
    vials: Dataset, anomalous: bool, name: str
) -> None:
    learnt = [sample.path for sample in vials.test if sample.is_anomalous == anomalous]
    with pytest.raises(UserError, match=rf"learnt from all {len(learnt)} .* `{name}=NAME`$"):
        evaluate(fitted_on(learnt), vials)


def test_held_out_images_have_set_the_threshold_and_are_left_out_too(vials: Dataset) -> None:
    learnt = [sample.path for sample in vials.test if not sample.is_anomalous][:5]
    detector = fitted_on(learnt, calibration="held-out")
    assert detector.model.n_learnt == 4
    assert len(evaluate(detector, vials).left_out) == 5


def test_without_a_threshold_nothing_is_judged(vials: Dataset) -> None:
    evaluation = evaluate(with_threshold(small_detector(), np.inf), vials)
    assert {judged.flagged for judged in evaluation.images} == {None}
    assert not (evaluation.has_threshold or evaluation.misses or evaluation.false_alarms)
    told = evaluation.summary()
    assert told["misses"] is None and told["false_alarms"] is None and told["found_where_it_is"] is None
    assert evaluation.image == evaluate(small_detector(), vials).image


def test_pixel_metrics_under_a_crop_are_those_of_the_preprocessed_pair(vials: Dataset) -> None:
    """As the paper takes them: image and mask resized, the mask to the nearest pixel, and cropped."""
    detector = small_detector(resize=128)
    maps, masks = [], []
    for sample in vials.test:
        (view,) = detector.score(sample.path).views
        maps.append(view_map(view.distances, 96, 96, 4.0))
        mask = Image.new("L", (PIXELS, PIXELS))
        if sample.mask:
            with Image.open(sample.mask) as file:
                mask = file.copy()
        resized = mask.resize((128, 128), Image.Resampling.NEAREST).crop((16, 16, 112, 112))
        masks.append(np.asarray(resized) > 0)
    evaluation = evaluate(detector, vials)
    pixel, whole = evaluation.pixel, evaluation.whole_pixel
    assert evaluation.cropped and pixel is not None and whole is not None
    scores, labels = np.concatenate(maps).ravel(), np.concatenate(masks).ravel()
    assert pixel.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-5)
    assert pixel.average_precision == pytest.approx(average_precision_score(labels, scores), abs=1e-4)
    maps = [detector.score(sample.path).map for sample in vials.test]
    empty = np.zeros((PIXELS, PIXELS), bool)
    masks = [read_mask(s.mask, PIXELS, PIXELS) if s.mask else empty for s in vials.test]
    expected = roc_auc_score(np.concatenate(masks).ravel(), np.concatenate(maps).ravel())
    assert whole.auroc == pytest.approx(expected, abs=1e-5) and whole.auroc != pixel.auroc
    told = evaluation.summary()
    assert (told["pixel_auroc"], told["whole_pixel_auroc"]) == (pixel.auroc, whole.auroc)


def test_without_a_crop_there_is_one_kind_of_pixel_metrics(vials: Dataset) -> None:
    evaluation = evaluate(small_detector(), vials)
    assert not evaluation.cropped and evaluation.pixel == evaluation.whole_pixel
    assert not any(name.startswith("whole") for name in evaluation.summary())


def made_up_result(peak: tuple[int, int], score: float, pixel_threshold: float) -> Result:
    """A result of 64 × 64 pixels whose map peaks in one cell of 8 × 8."""
    a = np.ones((8, 8), np.float32)
    a[peak] = 20
    view = ViewScores(a, View(64, 64).geometry(64, 64), (64, 64), 2.0)
    return Result(None, score, 5.0, 0.5, pixel_threshold, (view,))


@pytest.mark.parametrize(
    ("peak", "score", "pixel_threshold", "found"),
    [
        ((2, 5), 9.0, 8.0, True),  # outlined on the defect
        ((6, 1), 9.0, 8.0, False),  # rejected for something elsewhere
        ((2, 5), 9.0, 99.0, True),  # outlined below the pixel threshold
        ((2, 5), 1.0, 99.0, True),  # passed, but the map's peak is on it
        ((6, 1), 1.0, 99.0, False),
        ((6, 1), 1.0, 0.5, True),  # passed, and all is outlined
    ],
)
def test_found_where_it_is(peak: tuple[int, int], score: float, pixel_threshold: float, found: bool) -> None:
    truth = np.zeros((64, 64), bool)
    truth[16:24, 40:48] = True
    assert is_located(made_up_result(peak, score, pixel_threshold), truth) == found


def test_found_is_told_apart_from_rejected(vials: Dataset) -> None:
    evaluation = evaluate(with_threshold(small_detector(), 0.0), vials)
    assert len(evaluation.rejected) == 8 and evaluation.found == 8  # everything exceeds a threshold of zero
    elsewhere = [replace(judged, located=False) for judged in evaluation.images if judged.is_anomalous]
    assert replace(evaluation, images=tuple(elsewhere)).found == 0
    unmasked = replace(vials, test=tuple(replace(sample, mask=None) for sample in vials.test))
    assert evaluate(small_detector(), unmasked).found is None


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_images(vials: Dataset) -> None:
    def peak(n: int) -> int:
        telemetry = Costs()
        many = replace(vials, test=tuple(islice(cycle(vials.test), n)))
        assert len(evaluate(small_detector(), many, workers=2).images) == n
        return telemetry.peak_rss

    peak(100)  # libraries are loaded, buffers have grown
    few, many = peak(250), peak(5000)
    # what is kept is a line of numbers for each image; one map alone has 16 kB, one photograph of a line has megabytes
    assert many - few < 20e6
