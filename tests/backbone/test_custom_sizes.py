"""A user's own ONNX file at other sizes than it was made for, and networks that tell nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import pixels
from literal_descriptors import literal_concat
from onnx import numpy_helper
from run_networks import relative_error, unrounded_descriptors
from test_custom import DESCRIPTION, feature_maps, save, user_network

from mhpatchcore import Config, Detector, backbone
from mhpatchcore.errors import UserError, WeightsError

WIDE = [pixels(40, 66, seed) for seed in range(4)]


def fitted(path: Path, **settings: Any) -> Detector:
    return Detector.fit(WIDE, Config(backbone=str(path), K=50).with_changes(**settings))


@pytest.mark.parametrize("size", [(64, 64), (48, 80), (33, 97)])
def test_the_size_that_is_asked_for_wins(size: tuple[int, int], tmp_path: Path) -> None:
    path = save(tmp_path, user_network())
    loaded = backbone.load(str(path), height=size[0], width=size[1])
    images = np.stack([pixels(*size, seed) for seed in range(2)])
    maps = feature_maps(path, images, ["fine", "coarse"])
    assert (loaded.info.height, loaded.info.width) == size
    assert relative_error(unrounded_descriptors(loaded.graph, images), literal_concat(maps)) < 1e-6


def test_every_scale_of_a_fit_has_its_own_size(tmp_path: Path) -> None:
    detector = fitted(save(tmp_path, user_network()), sizes="40x48, 80x96")
    assert [scale.size for scale in detector.scales] == [(40, 48), (80, 96)]
    assert [size[:2] for size in detector.config.sizes] == [(40, 48), (80, 96)]
    assert [view.distances.shape for view in detector.score(WIDE[0]).views] == [(20, 24), (40, 48)]


def test_a_square_size_takes_the_aspect_of_the_images(tmp_path: Path) -> None:
    detector = fitted(save(tmp_path, user_network()), sizes=96)
    assert detector.scales[0].size == (64, 128)


@pytest.mark.parametrize(("sizes", "refused"), [("64", "64, 96"), ("40x33, 80x66", "80, 66")])
def test_a_network_of_one_size_is_told_with_the_cure(sizes: str, refused: str, tmp_path: Path) -> None:
    path = save(tmp_path, user_network(side=(40, 33)))
    cure = r"use the size in its description, 40x33, and `aspect=stretch`"
    with pytest.raises(
        UserError, match=rf"does not run on an image \(1, 3, {refused}\) .*: {cure}"
    ) as caught:
        fitted(path, sizes=sizes)
    assert "\n" not in str(caught.value)
    assert fitted(path, sizes="40x33", aspect="stretch").scales[0].size == (40, 33)


def changed(kind: str) -> Any:
    """The network with dead or broken weights in its second layer."""
    network = user_network()
    for tensor in network.graph.initializer:
        if tensor.name == "w2":
            weights = np.array(numpy_helper.to_array(tensor))
            weights[...] = 0 if kind == "dead" else np.nan
            tensor.CopyFrom(numpy_helper.from_array(weights, "w2"))
    return network


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dead", r"net\.onnx gives the same numbers for every image in its layer coarse: check its weights"),
        ("broken", r"net\.onnx gives numbers that are not finite"),
    ],
)
def test_a_network_that_tells_nothing_is_named_before_the_work(
    kind: str, message: str, tmp_path: Path
) -> None:
    path = save(tmp_path, changed(kind))
    with pytest.raises(WeightsError, match=message) as caught:
        Detector.fit([*WIDE, Path("is not read")], Config(backbone=str(path), sizes=64))
    assert "\n" not in str(caught.value)
    assert backbone.load(str(path), layers=["fine"]).info.dim == 8  # the layers that are used decide


def test_a_mean_and_std_that_leave_nothing_of_the_image_are_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, user_network(), DESCRIPTION | {"std": [1e12, 1e12, 1e12]})
    with pytest.raises(WeightsError, match=r"the same numbers .* mean and std of its description"):
        backbone.load(str(path))
