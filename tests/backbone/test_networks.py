"""The graphs against an independent implementation (see make_golden.py), and what holds for all of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from golden_cases import CASES, Case, kept, pixels, random_resnet
from run_networks import genuine_resnet18, relative_error, run_model, run_network

from mhpatchcore.backbone.building import ARCHITECTURES, build_graph, load_weights
from mhpatchcore.backbone.graph import Graph, State
from mhpatchcore.errors import UserError, WeightsError

TOLERANCE = 1e-5  # of the largest value; float32 in another order of operations gives about 1e-6


@pytest.fixture(scope="module")
def lite0() -> State:
    return load_weights("efficientnet_lite0").state


@pytest.fixture(scope="module")
def small_resnet18() -> State:
    """Random weights; layer4 holds placeholders only."""
    return random_resnet("resnet18", seed=1, stages=3)


def weights_of(case: Case) -> State:
    if case.network == "efficientnet_lite0":
        return load_weights("efficientnet_lite0").state
    if case.seed is None:
        return genuine_resnet18()
    return random_resnet(case.network, case.seed, stages=4 if "logits" in case.outputs else 3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_an_independent_implementation(case: Case) -> None:
    state = weights_of(case)
    images = pixels(case.height, case.width)[None]
    with np.load(case.file) as golden:
        for output in case.outputs:
            found = run_network(case.network, state, images, output)
            assert found.shape == tuple(golden[f"{output}.shape"])
            assert relative_error(kept(found), golden[f"{output}.values"]) < TOLERANCE, output
            mean, std = golden[f"{output}.moments"]
            assert found.mean(dtype=np.float64) == pytest.approx(mean, abs=TOLERANCE * std), output
            assert found.std(dtype=np.float64) == pytest.approx(std, rel=TOLERANCE), output


@pytest.mark.parametrize("network", ["efficientnet_lite0", "resnet18"])
def test_neighbours_in_the_batch_and_threads_change_no_bit(
    network: str, lite0: State, small_resnet18: State
) -> None:
    architecture = ARCHITECTURES[network]
    state = lite0 if network == "efficientnet_lite0" else small_resnet18
    model, _ = build_graph(architecture, state, (96, 64), architecture.layers, architecture.published)
    images = np.stack([pixels(96, 64, seed) for seed in range(3)])
    for i, image in enumerate(images):
        alone, together = run_model(model, image[None], threads=1), run_model(model, images, threads=2)
        assert all(np.array_equal(one[0], all_[i]) for one, all_ in zip(alone, together, strict=True))


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (64, 65), (97, 31), (120, 90)])
def test_declared_grids_are_the_real_ones_at_any_size(
    size: tuple[int, int], lite0: State, small_resnet18: State
) -> None:
    images = pixels(*size)[None]
    for network, state, layers in [
        ("efficientnet_lite0", lite0, ("block0", "block2", "block4", "block10", "block15")),
        ("resnet18", small_resnet18, ("layer1", "layer2", "layer3")),
    ]:
        architecture = ARCHITECTURES[network]
        maps = architecture.build(Graph(network), state, "image", size, layers)
        for layer in layers:
            shape = run_network(network, state, images, layer).shape
            assert shape == (1, maps[layer].channels, maps[layer].height, maps[layer].width), layer
        model, local = build_graph(architecture, state, size, architecture.layers, architecture.published)
        assert [found.shape for found in run_model(model, images)] == [(1, *shape) for shape in local]


def test_resnet_is_cut_after_layer3() -> None:
    # layer4's weights would be over 60 % of the file
    model, _ = build_graph(
        ARCHITECTURES["resnet18"],
        random_resnet("resnet18", seed=1),
        (64, 64),
        ("layer2", "layer3"),
        "patchcore",
    )
    graph = onnx.load_from_string(model).graph
    assert sum(node.op_type == "Conv" for node in graph.node) == 1 + 4 + 5 + 5 + 2  # stem, stages, descriptor
    outputs = [tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 4]
    assert outputs.count(512) == 2  # the two descriptor kernels; layer4 would bring five more
    assert len(model) < 12e6


def test_lite0_is_cut_after_block10(lite0: State) -> None:
    model, _ = build_graph(
        ARCHITECTURES["efficientnet_lite0"], lite0, (64, 64), ("block4", "block10"), "concat"
    )
    graph = onnx.load_from_string(model).graph
    assert sum(node.op_type == "Conv" for node in graph.node) == 1 + 2 + 10 * 3
    assert len(model) < 5e6


def test_unknown_layer_is_named_with_the_known_ones(small_resnet18: State) -> None:
    with pytest.raises(UserError, match=r"resnet18 has no layer 'layer5'; it has: layer1, layer2, layer3"):
        build_graph(ARCHITECTURES["resnet18"], small_resnet18, (64, 64), ("layer2", "layer5"), "patchcore")


@pytest.mark.parametrize(
    ("weights", "network", "message"),
    [
        ("resnet18", "resnet50", "no tensor 'layer1.0.bn3.weight'"),
        ("resnet50", "resnet18", "no place for the weights' tensor 'layer1.0.conv3.weight'"),
        ("resnet50", "wide_resnet50_2", "conv2.weight' is of 64 where wide_resnet50_2 has 128"),
        ("wide_resnet50_2", "resnet50", "is of 128 where resnet50 has 64"),
        ("resnet18", "efficientnet_lite0", "no tensor '_blocks.0._project_conv.weight'"),
        ("resnet34", "resnet18", "no place for the weights' tensor 'layer1.2.conv1.weight'"),
    ],
)
def test_weights_of_another_network_are_refused(weights: str, network: str, message: str) -> None:
    if weights == "resnet34":  # more blocks of the same kind
        state = random_resnet("resnet18", seed=1, stages=1)
        state |= {name.replace("layer1.1", "layer1.2"): array for name, array in state.items()}
    else:
        state = random_resnet(weights, seed=1, stages=1)
    architecture = ARCHITECTURES[network]
    with pytest.raises(WeightsError, match=message):
        build_graph(architecture, state, (64, 64), architecture.layers, architecture.published)


def test_weights_without_a_classifier_are_enough(lite0: State, small_resnet18: State) -> None:
    for network, state, head in [
        ("efficientnet_lite0", lite0, ("_conv_head", "_bn1", "_fc")),
        ("resnet18", small_resnet18, ("fc",)),
    ]:
        trunk = {name: array for name, array in state.items() if name.split(".")[0] not in head}
        assert len(trunk) < len(state)
        images = pixels(32, 32)[None]
        expected = run_network(network, state, images, "descriptors")
        assert np.array_equal(run_network(network, trunk, images, "descriptors"), expected)


def test_a_missing_tensor_is_named(small_resnet18: State) -> None:
    state = {name: array for name, array in small_resnet18.items() if name != "layer3.1.bn2.bias"}
    with pytest.raises(WeightsError, match=r"no tensor 'layer3\.1\.bn2\.bias': they are not for resnet18"):
        build_graph(ARCHITECTURES["resnet18"], state, (64, 64), ("layer2", "layer3"), "patchcore")
