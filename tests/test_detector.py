"""The detector from Python: what it takes, and the options of a fit."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_detector import small_detector, vials, with_threshold

import mhpatchcore
from mhpatchcore import PRESETS, Config, Detector, Execution, ImageWarning, UserError
from mhpatchcore.config import parse_sizes

SMALL: dict[str, Any] = {"sizes": 96, "K": 100}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four images in a folder."""
    place = tmp_path_factory.mktemp("parts")
    for i, pixels in enumerate(vials(0, 4)):
        Image.fromarray(pixels).save(place / f"{i}.png")
    return place


def test_a_fit_takes_whatever_holds_images(folder: Path) -> None:
    arrays = vials(0, 4)
    expected = Detector.fit(folder, **SMALL)
    paths = [folder / f"{i}.png" for i in range(4)]
    everything = (
        str(folder),
        f"{folder}/*.png",
        paths,
        iter(map(str, paths)),
        arrays,
        np.stack(arrays),
        [Image.open(path) for path in paths],
    )
    for given in everything:
        detector = Detector.fit(given, **SMALL)  # type: ignore[arg-type]
        assert np.array_equal(detector.scales[0].raw, expected.scales[0].raw)
        assert detector.threshold == expected.threshold


def test_a_score_takes_whatever_holds_images(folder: Path) -> None:
    detector = small_detector()
    expected = [detector.score(pixels).score for pixels in vials(0, 4)]
    first = folder / "0.png"
    for one in (first, str(first), vials(0, 1)[0], Image.open(first)):
        assert detector.score(one).score == pytest.approx(expected[0], rel=1e-5)
    paths = sorted(folder.iterdir())
    many = (folder, f"{folder}/?.png", paths, iter(paths), np.stack(vials(0, 4)), map(Image.open, paths))
    for given in many:
        results = detector.score(given)  # type: ignore[arg-type]
        assert [result.score for result in results] == pytest.approx(expected, rel=1e-5)  # type: ignore[attr-defined]
    assert len(list(detector.score_many(folder))) == 4


def test_what_is_no_image_is_told_in_a_sentence(tmp_path: Path) -> None:
    detector = small_detector()
    for wrong in (None, 3, [None]):
        for take in (Detector.fit, detector.score, detector.updated):
            with pytest.raises(UserError, match="images are a folder, a file, a pattern"):
                take(wrong)  # type: ignore[operator]
    with pytest.raises(UserError, match="give a list"):
        Detector.fit(vials(0, 1)[0])
    with pytest.raises(UserError, match="no images to learn from"):
        Detector.fit([])
    with pytest.raises(UserError, match=r"there is no image .*gone\.png"):
        detector.score(tmp_path / "gone.png")
    with pytest.raises(UserError, match="explain takes one image"):
        detector.explain(detector.score(vials(0, 1)[0]))


def test_an_image_of_pillow_is_explained() -> None:
    (pixels,) = vials(0, 1)
    evidence = small_detector().explain(Image.fromarray(pixels))
    assert evidence.places == small_detector().explain(pixels).places


def test_options_are_settings(folder: Path) -> None:
    detector = Detector.fit(folder, Config(sigma=2.0), **SMALL, false_alarm=0.2, seed=3)
    config = detector.config
    assert (config.sigma, config.K, config.false_alarm, config.seed) == (2.0, 100, 0.2, 3)
    assert config.sizes == parse_sizes(96) and detector.model.rows == 100


def test_a_preset_by_name(folder: Path) -> None:
    config = Detector.fit(folder, preset="mh", **SMALL).config
    expected = PRESETS["mh"].config
    assert (
        (config.shrinkage, config.constructor) == (expected.shrinkage, expected.constructor) == (0.07, "tree")
    )
    assert (config.K, config.sizes) == (100, parse_sizes(96))  # options win
    with pytest.raises(UserError, match="unknown preset 'best'"):
        Detector.fit(folder, preset="best")
    with pytest.raises(UserError, match="a preset or a config"):
        Detector.fit(folder, Config(), preset="fast")


def test_no_option_is_untyped() -> None:
    for method in (Detector.fit, Detector.study, Detector.calibrated, Detector.updated):
        parameters = inspect.signature(method).parameters.values()
        assert not [one.name for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD]
        assert not [one.name for one in parameters if one.annotation in (Any, "Any", inspect.Parameter.empty)
                    and one.name != "self"]  # fmt: skip


def test_the_public_names_are_shown_and_documented() -> None:
    names = dir(mhpatchcore)
    assert set(names) == set(mhpatchcore.__all__)
    for name in names:
        value = getattr(mhpatchcore, name)
        if not inspect.isclass(value):
            continue
        assert inspect.getdoc(value), name
        for member, what in vars(value).items():
            if not member.startswith("_") and (
                inspect.isfunction(what) or isinstance(what, property | staticmethod)
            ):
                assert getattr(what, "__doc__", None), f"{name}.{member} has no docstring"


def test_a_verdict_has_three_values() -> None:
    (pixels,) = vials(20, 1)
    found = {}
    for threshold in (1e9, 1e-3, float("inf")):
        result = with_threshold(small_detector(), threshold).score(pixels)
        told = result.to_dict()
        assert result.verdict == told["verdict"] and result.verdict in repr(result)
        found[result.verdict] = (result.is_rejected, told["is_rejected"], told["threshold"] is None)
    assert found == {
        "passed": (False, False, False),
        "rejected": (True, True, False),
        "no threshold": (False, None, True),
    }


def test_what_it_says_of_itself() -> None:
    assert repr(small_detector()).endswith(
        f"8 images, 200 bank rows, threshold {small_detector().threshold:.4g} for 3.00% false alarms)"
    )
    assert repr(Detector.fit(vials(0, 1), Config(sizes=96, K=50))).endswith(
        "1 image, 50 bank rows, no threshold)"
    )


def test_a_share_may_be_in_percent() -> None:
    assert Config(false_alarm="5%").false_alarm == 0.05  # type: ignore[arg-type]
    assert small_detector().calibrated("20%").calibration.false_alarm == 0.2
    with pytest.raises(UserError, match=r"false_alarm must be a share such as 5% or 0\.05, not 'few'"):
        Config(false_alarm="few")  # type: ignore[arg-type]


def test_what_is_no_config_and_no_detector_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="preset=") as refused:
        Detector.fit(vials(0, 1), "fast")  # type: ignore[arg-type]
    assert "'fast'" in str(refused.value)
    with pytest.raises(UserError, match="only detectors can be merged, not None"):
        small_detector().merged(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not 'foo'"):
        Config(sizes="foo")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", [""]])
def test_an_empty_path_is_not_the_folder_one_is_in(given: str | list[str]) -> None:
    """A variable that was not set would make a model of whatever lies around."""
    for ask in (Detector.fit, small_detector().score):
        with pytest.raises(UserError, match="path of the images is empty"):
            ask(given)


def test_a_fit_from_one_image_says_that_there_is_no_threshold(folder: Path) -> None:
    with pytest.warns(
        ImageWarning, match=r"no threshold.*a single image.*detector\.calibrated\(images"
    ) as told:
        Detector.fit(folder / "0.png", **SMALL)
    assert told[0].filename == __file__  # the line that a user can change
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Detector.fit(folder, **SMALL)
        Detector.fit(folder / "0.png", Config(calibration="none"), **SMALL)


def test_what_the_command_line_warns_of_are_warnings(tmp_path: Path) -> None:
    for i, pixels in enumerate(vials(0, 4)):
        (tmp_path / "train/good").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / f"train/good/{i}.png")
    (tmp_path / "train/good/broken.png").write_bytes(b"no picture")
    (tmp_path / "test/bad").mkdir(parents=True)
    Image.fromarray(vials(9, 1)[0]).save(tmp_path / "test/bad/9.png")
    with pytest.warns(ImageWarning) as told:
        detector = Detector.fit(tmp_path, **SMALL, execution=Execution(skip_broken=True))
    assert detector.model.n_learnt == 4
    messages = [str(one.message) for one in told]
    assert len(messages) == 2 and "is a whole data set" in messages[0] and "broken.png" in messages[1]
    assert {one.filename for one in told} == {__file__}
    with pytest.raises(UserError, match="all_good=True"):
        Detector.fit(tmp_path / "test", **SMALL)
    with pytest.raises(UserError, match=r"broken\.png.*skip_broken=True"):
        Detector.fit(tmp_path / "train", **SMALL)


def test_further_images_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "scratches").mkdir()
    Image.fromarray(vials(30, 1)[0]).save(tmp_path / "scratches" / "0.png")
    detector = small_detector()
    for change in (detector.updated, lambda images, **more: detector.calibrated(images=images, **more)):
        with pytest.raises(UserError, match="scratches does not sound"):
            change(tmp_path / "scratches")
        assert change(tmp_path / "scratches", all_good=True).history[-1].images == 1
    returned = detector.updated(tmp_path / "scratches", returned=True)  # who says so says that they are good
    assert returned.model.n_learnt == detector.model.n_learnt + 1


def test_progress_is_one_argument(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Detector.fit(folder, **SMALL)
    assert capsys.readouterr() == ("", "")
    Detector.fit(folder, **SMALL, progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and "reading images" in shown.err and "4/4" in shown.err


def test_no_message_in_python_advises_an_option_of_the_command_line() -> None:
    """Arguments stand in backticks, `all_good=True`, and the command line makes flags of them."""
    source = Path(mhpatchcore.__file__).parent
    rooms = (
        "inputs",
        "backbone",
        "metric",
        "bank",
        "scoring",
        "calibration",
        "fitting",
        "model",
        "inspection",
        "evaluation",
    )
    files = [*source.glob("*.py"), *(path for room in rooms for path in (source / room).glob("*.py"))]
    raised = [
        (path.name, text.value)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise | ast.Call)
        and re.search(r"raise|Error|warn", ast.unparse(node).partition("(")[0])
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert len(raised) > 100
    assert not [one for one in raised if re.search(r"(?<!ADDRESS )--[a-z]", one[1])]
