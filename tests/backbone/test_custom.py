"""A user's own ONNX file: two convolutions, made here, through `backbone.load`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from golden_cases import Floats, pixels
from literal_descriptors import literal_concat, literal_patchcore
from onnx import TensorProto, helper, numpy_helper
from run_networks import relative_error, unrounded_descriptors

from mhpatchcore import backbone
from mhpatchcore.errors import UserError, WeightsError

MEAN, STD = [120.0, 110.0, 100.0], [60.0, 50.0, 40.0]
DESCRIPTION = {"outputs": ["fine", "coarse"], "size": [40, 33], "mean": MEAN, "std": STD}


def user_network(
    opset: int = 18,
    ir_version: int = 8,
    activation: tuple[str, str] = ("", "Relu"),
    weights_as_inputs: bool = False,
    batch: int | str = "batch",
    side: tuple[int | str, int | str] = ("height", "width"),
) -> Any:
    """Image (N, 3, H, W) → fine (N, 8, H/2, W/2), coarse (N, 12, H/4, W/4), pooled (N, 12), in double too."""
    random = np.random.RandomState(5)
    weights = {
        "w1": random.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w2": random.standard_normal((12, 8, 3, 3)).astype(np.float32) / 5,
    }
    how = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    domain, operator = activation
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["conv1"], **how),
        helper.make_node(operator, ["conv1"], ["fine"], domain=domain),
        helper.make_node("Conv", ["fine", "w2"], ["coarse"], **how),
        helper.make_node("ReduceMax", ["coarse"], ["pooled"], axes=[2, 3], keepdims=0)
        if opset < 18
        else helper.make_node("Flatten", ["coarse"], ["pooled"]),
        helper.make_node("Cast", ["coarse"], ["double"], to=TensorProto.DOUBLE),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, *side])]
    if weights_as_inputs:  # as files did before IR version 4; the image need not come first
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in weights.items()
        ] + inputs
    outputs = [
        helper.make_tensor_value_info("fine", TensorProto.FLOAT, list("nchw")),
        helper.make_tensor_value_info("coarse", TensorProto.FLOAT, list("nchw")),
        helper.make_tensor_value_info("pooled", TensorProto.FLOAT, list("nc")),
        helper.make_tensor_value_info("double", TensorProto.DOUBLE, list("nchw")),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "mine", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.insert(0, helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    onnx.checker.check_model(model)
    return model


def save(folder: Path, network: Any, description: dict[str, Any] | None = DESCRIPTION) -> Path:
    path = folder / "net.onnx"
    onnx.save(network, path)
    if description is not None:
        path.with_suffix(".json").write_text(json.dumps(description))
    return path


def feature_maps(path: Path, images: Floats, names: list[str]) -> list[Floats]:
    """The user's network run as it is, one image at a time, on images normalised by hand."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    normalised = ((images - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2).astype(np.float32)
    runs = [session.run(names, {"image": image[None]}) for image in normalised]
    return [np.concatenate(arrays) for arrays in zip(*runs, strict=True)]


IMAGES = np.stack([pixels(40, 33, seed) for seed in range(2)])


@pytest.mark.parametrize(
    "network",
    [
        user_network(opset=13, ir_version=7),
        user_network(opset=17),
        user_network(opset=18),
        user_network(opset=21, ir_version=10, activation=("", "Gelu")),  # newer than our own graphs
        user_network(activation=("com.microsoft", "Gelu")),  # an operator of ONNX Runtime's own
        user_network(opset=11, ir_version=3, weights_as_inputs=True),
        user_network(batch=1, side=(40, 33)),  # exported for one image of one size
    ],
    ids=["opset13", "opset17", "opset18", "opset21", "contrib", "old", "fixed"],
)
def test_descriptors_of_a_users_network(network: Any, tmp_path: Path) -> None:
    path = save(tmp_path, network)
    loaded = backbone.load(str(path))
    maps = feature_maps(path, IMAGES, ["fine", "coarse"])
    assert loaded.info.grid == (20, 17)
    assert relative_error(unrounded_descriptors(loaded.graph, IMAGES), literal_concat(maps)) < 1e-6


def test_the_description_may_be_toml(tmp_path: Path) -> None:
    path = save(tmp_path, user_network(), description=None)
    path.with_suffix(".toml").write_text(
        f'outputs = ["fine"]\nsize = [40, 33]\nmean = {MEAN}\nstd = {STD}\ndescriptor = "patchcore"\n'
    )
    loaded = backbone.load(str(path))
    assert (loaded.info.layers, loaded.info.descriptor, loaded.info.dim) == (("fine",), "patchcore", 1024)
    assert (loaded.info.height, loaded.info.width) == (40, 33)
    assert (loaded.info.name, loaded.info.weights_source) == ("net.onnx", "file net.onnx")
    maps = feature_maps(path, IMAGES, ["fine"])
    assert relative_error(unrounded_descriptors(loaded.graph, IMAGES), literal_patchcore(maps)) < 1e-6


def test_the_published_descriptor_is_patchcore_s_whatever_suits_the_network(tmp_path: Path) -> None:
    path = save(tmp_path, user_network())
    assert backbone.load(str(path)).info.descriptor == "concat"
    assert backbone.load(str(path), descriptor="published").info.descriptor == "patchcore"


def test_the_caller_may_choose_among_the_outputs(tmp_path: Path) -> None:
    path = save(tmp_path, user_network())
    loaded = backbone.load(str(path), layers=["coarse"], descriptor="patchcore")
    assert (loaded.info.layers, loaded.info.grid, loaded.info.dim) == (("coarse",), (10, 9), 1024)
    graph = onnx.load_from_string(loaded.graph).graph
    # only what the descriptor needs: the one Cast is that to halves
    assert [node.op_type for node in graph.node if node.op_type in ("Cast", "Flatten")] == ["Cast"]


def test_branches_may_read_tensors_from_outside(tmp_path: Path) -> None:
    network = user_network()
    branches = {
        side: helper.make_graph(
            [helper.make_node(operator, ["fine", "image_mean"], [f"{side}_out"])],
            side,
            [],
            [helper.make_tensor_value_info(f"{side}_out", TensorProto.FLOAT, None)],
        )
        for side, operator in (("then", "Add"), ("else", "Sub"))
    }
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["image_mean"], keepdims=0),
        helper.make_node("Greater", ["image_mean", "zero"], ["is_bright"]),
        helper.make_node(
            "If", ["is_bright"], ["mixed"], then_branch=branches["then"], else_branch=branches["else"]
        ),
    ]
    network.graph.node.extend(nodes)
    network.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
    network.graph.output.append(helper.make_tensor_value_info("mixed", TensorProto.FLOAT, list("nchw")))
    path = save(tmp_path, network, DESCRIPTION | {"outputs": ["mixed"]})
    maps = feature_maps(path, IMAGES[:1], ["mixed"])
    found = unrounded_descriptors(backbone.load(str(path)).graph, IMAGES[:1])
    assert relative_error(found, literal_concat(maps)) < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": ["fine", "finer"]}, "has no output 'finer'; it has: fine, coarse, pooled, double"),
        ({"outputs": ["fine", "pooled"]}, "output 'pooled' of .* is no float32 feature map"),
        ({"outputs": ["fine", "double"]}, "output 'double' of .* is no float32 feature map"),
        ({"outputs": ["coarse", "fine"]}, "finest grid first"),
        ({"descriptor": "mean"}, "unknown descriptor 'mean'"),
        ({"outputs": []}, 'must say outputs, for example outputs = \\["layer2", "layer3"\\]'),
        ({"outputs": "fine"}, "must say outputs"),
        ({"size": 224}, r"must say size, for example size = \[224, 224\]"),
        ({"size": [224]}, "must say size"),
        ({"size": ["224", "224"]}, "must say size"),
        ({"size": [0, 33]}, r"does not run on an image \(1, 3, 0, 33\)"),
        ({"mean": [0.5, 0.5]}, "must say mean"),
        ({"std": None}, "must say std"),
    ],
    ids=str,
)
def test_a_wrong_description_is_answered_with_the_cure(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = save(tmp_path, user_network(), DESCRIPTION | change)
    with pytest.raises(UserError, match=message):
        backbone.load(str(path))


@pytest.mark.parametrize("text", ["", "[1, 2", '["a list"]', "null", "\udcff"], ids=repr)
def test_a_description_that_is_none(text: str, tmp_path: Path) -> None:
    path = save(tmp_path, user_network(), description=None)
    path.with_suffix(".json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=r"net\.json"):
        backbone.load(str(path))


def test_a_size_that_the_network_does_not_take(tmp_path: Path) -> None:
    path = save(tmp_path, user_network(side=(40, 40)))
    with pytest.raises(UserError, match=r"does not run on an image \(1, 3, 40, 33\)"):
        backbone.load(str(path))


def test_a_missing_description_is_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path, user_network(), description=None)
    with pytest.raises(UserError, match=r"needs a description beside it: net\.toml with outputs, size, mean"):
        backbone.load(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"there is no ONNX file .*net\.onnx"):
        backbone.load(str(tmp_path / "net.onnx"))


@pytest.mark.parametrize("content", [b"", b"not a network", user_network().SerializeToString()[:300]])
def test_a_file_that_is_no_network(content: bytes, tmp_path: Path) -> None:
    path = save(tmp_path, user_network())
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="cannot read the ONNX file"):
        backbone.load(str(path))


def test_numbers_that_halves_cannot_hold_are_named(tmp_path: Path) -> None:
    path = save(tmp_path, user_network(), DESCRIPTION | {"std": [1e-6, 1e-6, 1e-6]})
    with pytest.raises(WeightsError, match=r"net\.onnx gives numbers that are not finite"):
        backbone.load(str(path))(IMAGES)
