"""The descriptor tails against their definitions (see literal_descriptors.py)."""

from __future__ import annotations

import numpy as np
import pytest
from golden_cases import Floats
from literal_descriptors import literal_concat, literal_patchcore, pooled
from onnx import TensorProto, helper
from run_networks import relative_error

from mhpatchcore.backbone.architecture import FeatureMap
from mhpatchcore.backbone.descriptors import adaptive_pooling, append_descriptors, patchcore_kernel
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.session import make_session
from mhpatchcore.errors import UserError

GRIDS = ((9, 10), (5, 5), (3, 3), (2, 2))

CHANNELS = [
    (512, 1024),  # resnet50 and wide_resnet50_2: layer2, layer3
    (128, 256),  # resnet18: layer2, layer3
    (256, 512),  # resnet50: layer1, layer2
    (40, 112),  # efficientnet_lite0
    (64, 128, 256, 512),  # four layers
    (24, 40, 112, 320),
    (1024,),
    (512,),
    (24,),
    (7,),
    (5, 3),
    (1, 2048),
    (2000, 1025),
]


def random_maps(channels: tuple[int, ...]) -> list[Floats]:
    random = np.random.default_rng(sum(channels))
    return [
        random.standard_normal((2, c, *grid)).astype(np.float32)
        for c, grid in zip(channels, GRIDS, strict=False)
    ]


def graph_of(maps: list[Floats]) -> tuple[Graph, list[FeatureMap]]:
    """A graph whose inputs are the feature maps themselves."""
    graph = Graph("tail", 0, 0)
    layers = [FeatureMap(f"map{i}", *array.shape[1:]) for i, array in enumerate(maps)]
    graph.inputs = [
        helper.make_tensor_value_info(
            layer.name, TensorProto.FLOAT, ["N", layer.channels, layer.height, layer.width]
        )
        for layer in layers
    ]
    return graph, layers


def run_tail(maps: list[Floats], kind: str, place: bool = False) -> Floats:
    graph, layers = graph_of(maps)
    tail = append_descriptors(graph, layers, kind, place)
    session = make_session(
        graph.model(tail.name, ["N", tail.height, tail.width, tail.channels]).SerializeToString(), 1
    )
    feed = {layer.name: array for layer, array in zip(layers, maps, strict=True)}
    result: Floats = session.run(None, feed)[0]
    assert result.shape == (len(maps[0]), tail.height, tail.width, tail.channels)
    return result


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_patchcore_equals_the_literal_unfolding(channels: tuple[int, ...]) -> None:
    maps = random_maps(channels)
    assert relative_error(run_tail(maps, "patchcore"), literal_patchcore(maps)) < 1e-6


@pytest.mark.parametrize("channels", [*CHANNELS, (3, 4, 5)], ids=str)
def test_concat_equals_its_definition(channels: tuple[int, ...]) -> None:
    maps = random_maps(channels)
    assert relative_error(run_tail(maps, "concat"), literal_concat(maps)) < 1e-6


@pytest.mark.parametrize("kind", ["concat", "patchcore"])
def test_the_place_follows_the_descriptor(kind: str) -> None:
    maps = random_maps((40, 112))
    placed = run_tail(maps, kind, place=True)
    assert np.array_equal(placed[..., :-2], run_tail(maps, kind))
    rows, columns = np.indices((9, 10))
    for image in placed:
        assert np.array_equal(image[..., -2], rows) and np.array_equal(image[..., -1], columns)


def test_the_papers_backbone_has_a_closed_form() -> None:
    fine, groups = patchcore_kernel(512, 2)
    assert (fine.shape, groups) == ((512, 1, 3, 3), 512)
    assert np.allclose(fine, np.array([[1, 1, 1], [1, 2, 1], [1, 1, 1]]) / 10)
    coarse, groups = patchcore_kernel(1024, 2)
    assert (coarse.shape, groups) == ((512, 2, 3, 3), 512)
    assert np.allclose(coarse, 1 / 18)


@pytest.mark.parametrize("channels", [1, 7, 24, 112, 128, 512, 1000, 2048])
@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_patchcore_keeps_constants(channels: int, n_layers: int) -> None:
    kernel, groups = patchcore_kernel(channels, n_layers)
    assert kernel.shape == (1024 // n_layers, channels // groups, 3, 3)
    assert kernel.sum(axis=(1, 2, 3)) == pytest.approx(1)


@pytest.mark.parametrize("n_in", [1, 2, 3, 9, 27, 100, 360])
@pytest.mark.parametrize("n_out", [1, 2, 3, 8, 27, 64])
def test_adaptive_pooling_equals_its_definition(n_in: int, n_out: int) -> None:
    rows = np.random.default_rng(n_in).standard_normal((4, n_in))
    assert np.allclose(rows @ adaptive_pooling(n_in, n_out).T, pooled(rows, n_out))


@pytest.mark.parametrize(
    ("channels", "kind", "message"),
    [
        ((8, 8, 8), "patchcore", "takes 1, 2 or 4 layers, not 3"),
        ((8, 8), "mean", "unknown descriptor 'mean'; choose one of: concat, patchcore"),
    ],
)
def test_impossible_descriptors_are_refused(channels: tuple[int, ...], kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        append_descriptors(*graph_of(random_maps(channels)), kind)


def test_the_finest_layer_comes_first() -> None:
    with pytest.raises(UserError, match="finest grid first"):
        append_descriptors(*graph_of(random_maps((8, 8))[::-1]), "concat")
