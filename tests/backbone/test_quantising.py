"""Backbones in int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mhpatchcore import Config, Detector
from mhpatchcore.backbone import quantising
from mhpatchcore.demo.dataset import vial_image

SIZE = {"augment": "none", "sizes": 64, "K": 100, "m_c": 32, "layers": ("block4",)}


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    return [vial_image(seed, pixels=64)[0] for seed in range(6)]


@pytest.fixture(scope="module")
def quantised(pictures: list[np.ndarray]) -> Detector:
    return Detector.fit(pictures, Config(**SIZE, precision="int8"))


def test_int8_is_near_fp32_and_recorded(
    quantised: Detector, pictures: list[np.ndarray], tmp_path: Path
) -> None:
    plain = Detector.fit(pictures, Config(**SIZE))
    ours, theirs = (detector.scales[0].backbone for detector in (quantised, plain))
    found, expected = (network.descriptors(pictures[0]) for network in (ours, theirs))
    assert 0 < np.abs(found - expected).mean() < 0.3 * expected.std()
    assert len(ours.graph) < 0.7 * len(theirs.graph)
    quantised.save(tmp_path / "part.mhpc")
    again = Detector.load(tmp_path / "part.mhpc")
    assert (again.config.precision, again.scales[0].backbone.info.precision) == ("int8", "int8")
    assert again.score(pictures[0]).score == quantised.score(pictures[0]).score


def test_scoring_continues_the_quantised_graph(quantised: Detector) -> None:
    normal, scratched = vial_image(9, pixels=64)[0], vial_image(9, "scratch", pixels=64)[0]
    assert quantised.score(scratched).score > quantised.score(normal).score
    many = next(quantised.score_many([scratched]))
    assert many is not None and many.score == pytest.approx(quantised.score(scratched).score, rel=1e-4)


def test_the_same_images_give_the_same_int8_model(quantised: Detector, pictures: list[np.ndarray]) -> None:
    again = Detector.fit(pictures, Config(**SIZE, precision="int8"))
    assert again.scales[0].backbone.graph == quantised.scales[0].backbone.graph
    assert np.array_equal(again.scales[0].raw, quantised.scales[0].raw)


def test_auto_leaves_depthwise_networks_alone(pictures: list[np.ndarray]) -> None:
    assert Detector.fit(pictures, Config(**SIZE, precision="auto")).config.precision == "fp32"


def test_auto_wants_instructions_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import helper

    dense = helper.make_node("Conv", ["x", "w"], ["y"], group=1)
    graph = helper.make_model(helper.make_graph([dense], "dense", [], [])).SerializeToString()
    for flags, expected in (({"avx2"}, True), (set(), False)):
        monkeypatch.setattr(quantising, "cpu_flags", lambda flags=flags: flags)
        assert quantising.gains(graph) is expected


def test_unreadable_images_do_not_stop_it(pictures: list[np.ndarray], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    readable = list(quantising._readable([tmp_path / "bad.png", pictures[0]], Config(**SIZE).views[0], None))
    assert len(readable) == 1


def test_ranges_come_from_images_all_over_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(quantising, "middle_view", lambda image, *_: seen.append(image))
    monkeypatch.setattr(quantising, "quantised", lambda backbone, views: [*views])
    quantising.at_precision(None, "int8", range(63), None)  # type: ignore[arg-type]
    assert len(seen) == quantising.RANGE_IMAGES and seen[0] < 2 and seen[-1] > 60  # type: ignore[operator]
