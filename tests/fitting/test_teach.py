"""Known defects: what looks like one is named, in every way of scoring, and the names go where the model goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runs import SMALL, Run, graphs, run  # noqa: F401 (fixtures)
from forging import Change, at, dropped, forged, setting, tensor
from PIL import Image
from small_detector import vials

from mhpatchcore import Config, Detector, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.errors import ModelFileError
from mhpatchcore.fitting.changing import merged
from mhpatchcore.model.file import from_bytes, to_bytes
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects

KINDS = ("scratch", "low_fill")
PIXELS = 96


def defects(kind: str, first: int, n: int) -> list[np.ndarray]:
    return [vial_image(seed, kind, pixels=PIXELS)[0] for seed in range(first, first + n)]


@pytest.fixture(scope="module")
def plain() -> Detector:
    """A detector that rejects every image: what is looked at here are names."""
    return Detector.fit(vials(0, 10, PIXELS), Config(sizes="64,96", K=300)).calibrated(threshold=0.1)


@pytest.fixture(scope="module")
def taught(plain: Detector) -> Detector:
    for kind in KINDS:
        plain = plain.taught(defects(kind, 200, 4), name=kind)
    return plain


def test_a_rejected_image_is_named_by_what_it_looks_like(taught: Detector) -> None:
    for kind in KINDS:
        results = [taught.score(picture) for picture in defects(kind, 300, 5)]
        assert sum(one.defect == kind for one in results) >= 4, [one.defect for one in results]
        assert all(0 < (one.regions[0].sure or 0) <= 1 for one in results)


def test_teaching_changes_no_score(plain: Detector, taught: Detector) -> None:
    for picture in [*vials(50, 2, PIXELS), *defects("scratch", 300, 2)]:
        one, other = plain.score(picture), taught.score(picture)
        assert (one.score, one.p_value) == (other.score, other.p_value)
        assert one.defect is None and one.to_dict()["defect"] is None
        assert all(region.name is None for region in one.regions)


def test_what_looks_like_a_known_defect_is_rejected_below_the_threshold(taught: Detector) -> None:
    """Good parts, which look like no defect, still pass."""
    lenient = taught.calibrated("30%")
    seen = lenient.score(defects("low_fill", 201, 1)[0])
    assert seen.score < seen.threshold
    assert (seen.verdict, seen.defect, seen.is_like_known) == ("rejected", "low_fill", True)
    assert [one.verdict for one in lenient.score(vials(50, 5, PIXELS))] == ["passed"] * 5
    forgetful = Detector(replace(lenient.model, defects=NO_DEFECTS))
    assert np.isinf(forgetful.likeness_limit)
    assert forgetful.score(defects("low_fill", 201, 1)[0]).verdict == "passed"


@pytest.mark.parametrize(("least_score", "another"), [(1000.0, "passed"), (0.0, "rejected")])
def test_a_part_that_scores_lower_than_all_kept_patches_is_rejected_only_as_a_copy(
    taught: Detector, least_score: float, another: str
) -> None:
    """Nothing is known of how like a defect good parts are that score so low."""
    lenient = taught.calibrated(threshold=500)
    vars(lenient.runtime)["likeness_limits"] = (0.9, least_score)
    results = lenient.score([*defects("low_fill", 201, 1), *defects("low_fill", 304, 1)])
    assert [one.verdict for one in results] == ["rejected", another]


def test_a_defect_unlike_the_known_ones_is_unknown(plain: Detector) -> None:
    """Rows that depart from normal the other way name nothing."""
    far = plain.taught(defects("scratch", 200, 1), name="scratch")
    known = far.model.defects
    elsewhere = tuple(
        (2 * scale.moments.mean - rows).astype(np.float16)
        for scale, rows in zip(far.scales, known.rows, strict=True)
    )
    far = Detector(replace(far.model, defects=replace(known, rows=elsewhere)))
    results = [far.score(picture) for picture in defects("low_fill", 300, 4)]
    assert {one.defect for one in results} == {"unknown"}


def test_every_way_of_scoring_says_the_same(taught: Detector, tmp_path: Path) -> None:
    taught.save(tmp_path / "part.mhpc")
    loaded = Detector.load(tmp_path / "part.mhpc")
    assert loaded.model.defects.names == KINDS and loaded.model.defects.images == (4, 4)
    pictures = defects("low_fill", 300, 3)
    expected = [taught.score(picture).regions for picture in pictures]
    assert [result.regions for result in loaded.score_many(pictures) if result] == expected
    assert [loaded.score_opened(loaded.opened(picture)).regions for picture in pictures] == expected


def test_masks_say_which_patches_are_the_defects(plain: Detector, tmp_path: Path) -> None:
    """With the region of one scratch drawn, nothing is learnt from elsewhere."""
    picture, mask = vial_image(200, "scratch", pixels=PIXELS)
    (tmp_path / "masks").mkdir()
    Image.fromarray(picture).save(tmp_path / "a.png")
    Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "masks" / "a_mask.png")
    drawn = plain.taught([tmp_path / "a.png"], name="scratch", masks=str(tmp_path / "masks"))
    assert len(drawn.model.defects.rows[-1]) > 0
    nowhere = np.zeros((PIXELS, PIXELS), np.uint8)
    nowhere[0, 0] = 255
    Image.fromarray(nowhere).save(tmp_path / "masks" / "a_mask.png")
    with pytest.raises(UserError, match="nothing in the images of 'scratch' differs from good parts"):
        plain.taught([tmp_path / "a.png"], name="scratch", masks=str(tmp_path / "masks"))


def test_update_and_merge_keep_the_names(plain: Detector, taught: Detector) -> None:
    other = Detector.fit(vials(100, 6, PIXELS), plain.config).taught(
        defects("scratch", 220, 2), name="scratch"
    )
    both = merged([taught.model, other.model]).defects
    assert dict(zip(both.names, both.images, strict=True)) == {"scratch": 6, "low_fill": 4}
    for scale, rows in enumerate(both.rows):
        kinds = [both.names[kind] for kind in both.kinds[scale]]
        assert len(rows) == len(kinds)
        assert kinds.count("low_fill") == int((taught.model.defects.kinds[scale] == 1).sum())
    grown = taught.updated(vials(150, 3, PIXELS))
    assert grown.model.defects is taught.model.defects
    assert grown.calibrated("5%").model.defects is taught.model.defects


def test_nothing_together_with_something() -> None:
    some = KnownDefects(("a",), (1,), (np.ones((2, 3), np.float16),), (np.zeros(2, np.int32),))
    assert NO_DEFECTS.together(some) is some.together(NO_DEFECTS) is some


@pytest.mark.parametrize("name", ["", " ", "unknown", "good", "a\nb", "x" * 101])
def test_a_name_is_a_name(plain: Detector, name: str) -> None:
    with pytest.raises(UserError, match=r"name|called"):
        plain.taught(defects("scratch", 200, 1), name=name or "\t")


def test_arrays_need_a_name(plain: Detector) -> None:
    with pytest.raises(UserError, match="give their name"):
        plain.taught(defects("scratch", 200, 1))


FORGED: dict[str, Change] = {
    "no list": setting("defects", to={}),
    "a name twice": setting("defects", 1, "name", to="scratch"),
    "no name": setting("defects", 0, "name", to=""),
    "no images": setting("defects", 0, "images", to=0),
    "an unknown kind": tensor("0.defects.kinds", at(0, 2)),
    "a negative kind": tensor("0.defects.kinds", at(0, -1)),
    "kinds without rows": tensor("1.defects.kinds", lambda x: x[:-1]),
    "rows that are too long": tensor("1.defects.rows", lambda x: np.repeat(x, 2, axis=1)),
    "rows that are not finite": tensor("0.defects.rows", at((0, 0), np.inf)),
    "rows that are missing": dropped("1.defects.rows"),
    "rows without names": setting("defects", to=[]),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_made_up_defects_are_refused(taught: Detector, change: Change) -> None:
    with pytest.raises(ModelFileError, match="damaged"):
        from_bytes(forged(to_bytes(taught.model), change))


def test_the_commands_teach_and_name(run: Run, tmp_path: Path) -> None:  # noqa: F811
    for kind in ("good", *KINDS):
        folder = tmp_path / ("parts" if kind == "good" else "bad") / kind
        folder.mkdir(parents=True)
        for seed in range(8):
            picture, _ = vial_image(seed, None if kind == "good" else kind, pixels=PIXELS)
            Image.fromarray(picture).save(folder / f"{seed}.png")
    model, good, bad = tmp_path / "part.mhpc", tmp_path / "parts" / "good", tmp_path / "bad"
    fitted = run("fit", good, "-o", model, *SMALL, "--defects", bad)
    assert fitted.code == 0, fitted.err
    assert "low_fill (8 images), scratch (8 images)" in fitted.out
    assert " of 16" in fitted.out
    again = run("teach", model, bad / "scratch", "--name", "groove", "-o", model)
    assert again.code == 0, again.err
    assert "groove (8 images)" in run("info", model).out
    assert run("calibrate", model, "--threshold", "0.1", "-o", model).code == 0  # all are rejected
    lines = [line.split(",") for line in run("score", model, bad / "low_fill", "--csv", "-").out.splitlines()]
    column = lines[0].index("defect")
    assert "low_fill" in {line[column] for line in lines[1:]}
    assert (
        "known defects are not in the exported file" in run("export", model, "-o", tmp_path / "part.onnx").err
    )
    refused = run("teach", model, good, "-o", model)
    assert refused.code == 2 and "good parts" in refused.err


def test_the_stated_rate_counts_both_ways_of_being_rejected(plain: Detector, taught: Detector) -> None:
    """A tenth of it is left for good parts that look like a known defect, and comes back when none is known."""
    plain, taught = plain.calibrated("10%"), taught.calibrated("10%")
    assert taught.threshold == plain.calibration.at_rate(0.9 * plain.calibration.false_alarm).threshold
    assert taught.calibration.expected_rate == pytest.approx(plain.calibration.expected_rate)
    forgetful = Detector(replace(taught.model, defects=NO_DEFECTS))
    assert forgetful.threshold == plain.threshold
