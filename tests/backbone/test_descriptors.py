"""The descriptor tails against their definitions (see literal_descriptors.py)."""

from __future__ import annotations

import numpy as np
import pytest
from golden_cases import Floats
from literal_descriptors import literal_concat, literal_patchcore, pooled
from plain_alignment import aligned
from run_networks import relative_error, without_rounding

from mhpatchcore.backbone.descriptors import adaptive_pooling, descriptor_model, patchcore_kernel
from mhpatchcore.backbone.graph import FeatureMap, Graph
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
    graph = Graph("tail")
    layers = [FeatureMap(f"map{i}", *array.shape[1:]) for i, array in enumerate(maps)]
    for layer in layers:
        graph.input(layer.name, ("N", layer.channels, layer.height, layer.width))
    return graph, layers


def run_tail(maps: list[Floats], kind: str) -> Floats:
    """Descriptors (N, h, w, d), as they are before they are rounded to halves, aligned by definition."""
    graph, layers = graph_of(maps)
    model, shapes = descriptor_model(graph, layers, kind)
    assert [shape[1:] for shape in shapes] == [layer.shape[2:] for layer in maps]
    found = run_layers(model, maps)
    each = [aligned(layer.astype(np.float64), *maps[0].shape[2:]) for layer in found]
    return np.moveaxis(np.concatenate(each, axis=1), 1, -1)


def run_layers(model: bytes, maps: list[Floats]) -> list[Floats]:
    """The layers (N, C, h, w) of a tail, as they are before they are rounded to halves."""
    feed = {f"map{i}": array for i, array in enumerate(maps)}
    found: list[Floats] = make_session(without_rounding(model), 1).run(None, feed)
    rounded = make_session(model, 1).run(["local_0"], feed)[0]
    assert rounded.dtype == np.float16 and np.array_equal(rounded, found[0].astype(np.float16))
    return found


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_patchcore_equals_the_literal_unfolding(channels: tuple[int, ...]) -> None:
    maps = random_maps(channels)
    assert relative_error(run_tail(maps, "patchcore"), literal_patchcore(maps)) < 1e-6


@pytest.mark.parametrize("channels", [*CHANNELS, (3, 4, 5)], ids=str)
def test_concat_equals_its_definition(channels: tuple[int, ...]) -> None:
    maps = random_maps(channels)
    assert relative_error(run_tail(maps, "concat"), literal_concat(maps)) < 1e-6


def block_means(layer: Floats, times: int) -> Floats:
    """(N, C, h, w) averaged over blocks of times × times; the last ones may be smaller."""
    rows, columns = (range(0, side, times) for side in layer.shape[2:])
    return np.stack(
        [
            np.stack([layer[:, :, r : r + times, c : c + times].mean(axis=(2, 3)) for c in columns], -1)
            for r in rows
        ],
        axis=2,
    )


@pytest.mark.parametrize("grids", [((8, 12), (4, 6)), ((13, 9), (7, 5)), ((9, 5), (5, 3), (3, 2))], ids=str)
@pytest.mark.parametrize("pool", [2, 4])
@pytest.mark.parametrize("kind", ["concat", "patchcore"])
def test_patches_are_averages_of_patches(grids: tuple[tuple[int, int], ...], pool: int, kind: str) -> None:
    random = np.random.default_rng(pool)
    maps = [
        random.standard_normal((2, 8, *grid)).astype(np.float32)
        for grid in grids[: 2 if kind == "patchcore" else 3]
    ]
    (plain, _), (pooled_, shapes) = (descriptor_model(*graph_of(maps), kind, times) for times in (1, pool))
    fine, coarse = run_layers(plain, maps), run_layers(pooled_, maps)
    finest = coarse[0].shape[2:]
    assert finest == tuple(-(-side // pool) for side in grids[0])
    for before, after, (_, *grid) in zip(fine, coarse, shapes, strict=True):
        assert [*after.shape[2:]] == grid
        assert grid[0] <= finest[0] and grid[1] <= finest[1]
        times = max(1, pool * before.shape[2] // grids[0][0])
        assert np.allclose(after, block_means(before, times), atol=1e-5)


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
        descriptor_model(*graph_of(random_maps(channels)), kind)


def test_the_finest_layer_comes_first() -> None:
    with pytest.raises(UserError, match="finest grid first"):
        descriptor_model(*graph_of(random_maps((8, 8))[::-1]), "concat")
