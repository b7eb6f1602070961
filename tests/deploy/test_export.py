"""The exported file says what the detector says: scores, p-values, verdicts, maps and masks."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run, write_vials
from consumers import CONSUMERS
from small_detector import small_detector, vials, with_threshold

from mhpatchcore import Config, Detector, Result
from mhpatchcore.backbone.building import sha256_of
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.session import make_session
from mhpatchcore.deploy.export import NO_THRESHOLD, PASSED, REJECTED, export_onnx, onnx_bytes
from mhpatchcore.errors import UserError

__all__ = ["graphs", "run"]  # fixtures

CLOSE = 1e-4
SETTINGS: dict[str, dict[str, Any]] = {
    "one scale": {},
    "two scales": {"sizes": "96,160/2"},
    "two scales by their maxima": {"sizes": "96,64", "score": "max"},
    "not square": {"sizes": "64x160,96x224/2"},
    "the paper's rule": {"score": "reweighted", "local": 1},
    "in the middle of the image": {"sizes": "96,64", "resize": 128},
    "8-bit integers": {"precision": "int8"},
}
DEEP: dict[str, dict[str, Any]] = {
    "16 bits": {"kind": np.uint16, "times": 200},
    "16 bits in colour": {"kind": np.uint16, "times": 200, "channels": 3},
    "floats": {"kind": np.float32, "times": 0.01},
    "a window for bytes": {"kind": np.uint8, "times": 1, "window": (20, 220)},
    "stacks of two": {"kind": np.uint8, "times": 1, "channels": 2},
    "deep stacks of two": {"kind": np.uint16, "times": 100, "channels": 2},
    "stacks of three": {"kind": np.uint8, "times": 1, "channels": 3, "window": (0, 255, "8-bit", 3)},
}


def some_images() -> list[np.ndarray]:
    """Good parts, and others: in other sizes, gray, and of noise."""
    noise = np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    large = vials(30, 1, pixels=300)[0]
    return [*vials(20, 2), noise, large, large[:, :, 1], large[10:290, 100:180], noise[:, :20, 0]]


@cache
def exported(detector: Detector) -> Any:
    return make_session(onnx_bytes(detector.model), 1)


def said(detector: Detector, image: np.ndarray) -> dict[str, np.ndarray]:
    session = exported(detector)
    found = session.run(None, {"image": image[None] if image.ndim == 3 else image[None, :, :, None]})
    return dict(zip((output.name for output in session.get_outputs()), found, strict=True))


def assert_says_the_same(detector: Detector, image: np.ndarray) -> Result:
    result, found = detector.score(image), said(detector, image)
    assert found["score"][0] == pytest.approx(result.score, rel=CLOSE)
    assert found["p_value"][0] == pytest.approx(result.p_value, rel=1e-6)
    assert found["verdict"][0] == {"passed": PASSED, "rejected": REJECTED}[result.verdict]
    finest = max(result.views, key=lambda view: view.size)
    heat = result.map_over(finest.geometry.box, *finest.size)
    np.testing.assert_allclose(found["map"], heat, rtol=CLOSE, atol=CLOSE * heat.max())
    limit = min(detector.calibration.pixel_threshold, 0.8 * heat.max())
    limit = limit if result.is_rejected else detector.calibration.pixel_threshold
    sure = np.abs(heat / limit - 1) > CLOSE
    assert (found["mask"] == (heat > limit))[sure].all() and sure.mean() > 0.9
    return result


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_it_says_what_the_detector_says(settings: dict[str, Any]) -> None:
    detector = small_detector(**settings)
    results = [assert_says_the_same(detector, image) for image in some_images()]
    assert {result.verdict for result in results} == {"passed", "rejected"}


@pytest.mark.parametrize("given", DEEP.values(), ids=DEEP)
def test_deep_images_and_stacks(given: dict[str, Any]) -> None:
    images = [deep(pixels, **given) for pixels in (*vials(0, 6), *vials(20, 2), vials(30, 1, pixels=150)[0])]
    config = Config(sizes="96,64", K=200, augment="none").with_changes(window=given.get("window", "auto"))
    detector = Detector.fit(images[:6], config)
    for image in images[6:]:
        assert_says_the_same(detector, image)
    odd = images[-1].copy()
    odd[20:60, 30:80] = odd.max()
    assert assert_says_the_same(detector, odd).is_rejected


def deep(
    pixels: np.ndarray, kind: type, times: float, channels: int = 1, window: object = None
) -> np.ndarray:
    values = (pixels[:, :, :channels] if channels > 1 else pixels[:, :, 1]) * times
    return values.astype(kind)


def test_a_score_at_the_threshold_passes_whatever_the_last_bits() -> None:
    """Calibrated on images and asked about them again, the file finds their own scores."""
    images = vials(20, 6)
    detector = small_detector(sizes="96,160/2").calibrated(images=images, false_alarm=0.2)
    for image in images:
        assert_says_the_same(detector, image)


def test_a_score_that_is_no_number_does_not_pass() -> None:
    detector = small_detector(score="max")
    model = onnx.load_from_string(onnx_bytes(detector.model))
    graph = model.graph
    score = next(node.input[0] for node in graph.node if list(node.output) == ["score"])
    for node in graph.node:
        if score in node.output:
            node.output[list(node.output).index(score)] = "was"
    nothing = onnx.helper.make_node("Mul", ["was", "nan"], [score])
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([np.nan], np.float32), "nan"))
    place = max(i for i, node in enumerate(graph.node) if "was" in node.output)
    graph.node.insert(place + 1, nothing)
    session = make_session(model.SerializeToString(), 1)
    score, p_value, verdict, *_ = session.run(None, {"image": vials(20, 1)[0][None]})
    assert np.isnan(score[0]) and verdict[0] == REJECTED and p_value[0] <= 1


def test_without_a_threshold_nothing_is_judged() -> None:
    detector = with_threshold(small_detector(), np.inf)
    found = said(detector, vials(20, 1)[0])
    assert found["verdict"][0] == NO_THRESHOLD and found["p_value"][0] == 1 and not found["mask"].any()


def test_the_network_is_in_the_file_once(tmp_path: Path) -> None:
    detector = small_detector(sizes="96,160/2")
    networks = [len(scale.backbone.graph) for scale in detector.scales]
    banks = sum(3 * scale.raw.shape[0] * scale.whitening.k * 4 for scale in detector.scales)
    whitenings = sum(scale.whitening.A.nbytes for scale in detector.scales)
    size = export_onnx(detector.model, tmp_path / "part.onnx").bytes
    assert max(networks) < size < max(networks) + banks + whitenings + 300_000 < sum(networks) + banks


def test_the_same_model_gives_the_same_file() -> None:
    detector = small_detector(sizes="96,160/2")
    again = Detector.fit(vials(0, 8), Config(sizes="96,160/2", K=200, augment="none"))
    assert onnx_bytes(detector.model, "") == onnx_bytes(replace(again.model, history=detector.history), "")


def test_tiles_regions_and_odd_crops_are_refused() -> None:
    model = small_detector().model
    for changes, word in (
        ({"sizes": "tile:96"}, "tiles"),
        ({"roi": "0,0,0.5,1"}, "region"),
        ({"resize": 300}, "300"),
    ):
        with pytest.raises(UserError, match=word):
            onnx_bytes(replace(model, config=model.config.with_changes(**changes)))


def test_constants_are_shared_and_graphs_keep_apart() -> None:
    """Graph.insert: two copies of a graph with a constant hold it once."""
    inner = Graph("inner")
    x = inner.input("x", (2,))
    content = inner.model({"y": (inner.add(x, inner.constant(np.array([1, 2], np.float32))), (2,))})
    outer = Graph("outer")
    first = outer.insert(content, "a/", {"x": outer.input("x", (2,))})
    second = outer.insert(content, "b/", {"x": first["y"]})
    model = outer.model({"z": (second["y"], (2,))}, who="me")
    assert len(onnx.load_from_string(model).graph.initializer) == 1
    session = make_session(model, 1)
    assert session.run(None, {"x": np.array([5, 5], np.float32)})[0].tolist() == [7, 9]
    assert session.get_modelmeta().custom_metadata_map == {"who": "me"}


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=CONSUMERS)
def test_consumers_without_the_package_say_the_same(consumer: Any, tmp_path: Path) -> None:
    detector = small_detector(sizes="96,160/2")
    export_onnx(detector.model, tmp_path / "part.onnx")
    images = [*sorted(write_vials(tmp_path / "good", 4, first=20).iterdir()), *odd_ones(tmp_path)]
    results = [detector.score(path) for path in images]
    found = consumer(tmp_path / "part.onnx", images)
    for one, result in zip(found, results, strict=True):
        assert one.score == pytest.approx(result.score, rel=CLOSE)
        assert one.p_value == pytest.approx(result.p_value, rel=1e-6)
        assert one.verdict == (REJECTED if result.is_rejected else PASSED)
    assert {one.verdict for one in found} == {PASSED, REJECTED}


def odd_ones(folder: Path) -> list[Path]:
    from PIL import Image

    paths = []
    for i, pixels in enumerate(some_images()[2:]):
        paths.append(folder / f"odd{i}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def test_what_other_runtimes_get_wrong_is_told(run: Run, tmp_path: Path) -> None:
    small_detector(precision="int8").save(tmp_path / "part.mhpc")
    ran = run("export", tmp_path / "part.mhpc", "-o", tmp_path / "part.onnx")
    assert ran.code == 0 and ran.err.startswith("warning: the model is in int8")


def test_export_as_a_command(run: Run, tmp_path: Path) -> None:
    detector = small_detector(sizes="96,160/2")
    detector.save(tmp_path / "part.mhpc")
    ran = run("export", tmp_path / "part.mhpc", "-o", tmp_path / "part.onnx")
    assert ran.code == 0 and "uint8 (1, height, width, 1 or 3)" in ran.out and "160 × 160" in ran.out
    metadata = make_session((tmp_path / "part.onnx").read_bytes(), 1).get_modelmeta().custom_metadata_map
    assert float(metadata["threshold"]) == detector.threshold
    assert metadata["model_sha256"] == sha256_of(tmp_path / "part.mhpc")
    assert json.loads(metadata["history"])[0]["what"] == "fit"
    assert json.loads(metadata["config"])["K"] == 200
    ran = run("export", tmp_path / "part.mhpc", "-o", tmp_path / "again.onnx", "--json")
    facts = json.loads(ran.out)
    assert facts["sha256"] == sha256_of(tmp_path / "again.onnx") == sha256_of(tmp_path / "part.onnx")
    assert_one_line_error(run("export", tmp_path / "no.mhpc", "-o", tmp_path / "x.onnx"), 4, "no.mhpc")
    assert_one_line_error(run("export", tmp_path / "part.mhpc", "-o", tmp_path / "part.mhpc"), 2, "part.onnx")
