"""Files that are made up: consistent hashes around what cannot be. Each gets one line, never another exception."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from forging import (
    Change,
    Document,
    Tensors,
    at,
    dropped,
    forged,
    setting,
    taken_apart,
    tensor,
    with_text,
    without,
)
from onnx import helper
from small_detector import small_detector, vials

from mhpatchcore import Detector
from mhpatchcore.errors import ModelFileError
from mhpatchcore.model.file import from_bytes, read_document, to_bytes


@pytest.fixture(scope="module")
def content() -> bytes:
    return to_bytes(small_detector(sizes=64, layers=("block1", "block2"), K=60).model)


def refused(content: bytes, folder: Path) -> str:
    """The one line by which a file is refused, wherever it is read."""
    path = folder / "part.mhpc"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        Detector.load(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text and len(text) < 600
    return text


def test_putting_together_what_was_taken_apart_changes_nothing(content: bytes, tmp_path: Path) -> None:
    again = forged(content, lambda document, tensors: None)
    assert to_bytes(from_bytes(again)) == content
    (tmp_path / "part.mhpc").write_bytes(again)
    picture = vials(50, 1)[0]
    assert (
        Detector.load(tmp_path / "part.mhpc").score(picture).score
        == Detector(from_bytes(content)).score(picture).score
    )


SHAPES: dict[str, Change] = {
    "a longer mean": tensor("0.moments.mean", lambda x: np.append(x, 0.0)),
    "a mean in a table": tensor("0.moments.mean", lambda x: x[None]),
    "a mean that is one number": tensor("0.moments.mean", lambda x: np.array(1.0)),
    "a scatter that is not square": tensor("0.moments.M2", lambda x: x[:-1]),
    "a rest of another length": tensor("0.moments.rest", lambda x: x[:-1]),
    "no directions": tensor("0.whitening.A", lambda x: x[:0]),
    "directions of other descriptors": tensor("0.whitening.A", lambda x: x[:, :-1]),
    "a bank of other descriptors": tensor("0.bank.raw", lambda x: x[:, 1:]),
    "an empty bank": tensor("0.bank.raw", lambda x: x[:0]),
    "more origins than rows": tensor("0.bank.origin", lambda x: np.concatenate([x, x[:1]])),
    "origins without a view": tensor("0.bank.origin", lambda x: x[:, [0, 2, 3]]),
    "fewer weights than rows": tensor("0.bank.weights", lambda x: x[:-1]),
    "peaks that are not as many as scores": tensor("calibration.peaks", lambda x: x[1:]),
    "scores that are one number": tensor("calibration.scores", lambda x: np.float32([3]).reshape(())),
    "scores in a table": tensor("calibration.scores", lambda x: x[None]),
    "deciding images without their patches": tensor("deciding.images", lambda x: x[1:]),
    "deciding cells in one row": tensor("0.deciding.cells", lambda x: x.ravel()),
    "deciding rows of other descriptors": tensor("0.deciding.rows", lambda x: x[..., 1:]),
    "a graph in a table": tensor("0.graph", lambda x: x[None]),
    "scores in double": tensor("calibration.scores", lambda x: x.astype(np.float64)),
    "a bank of whole numbers": tensor("0.bank.raw", lambda x: x.astype(np.int32)),
    "origins in floats": tensor("0.bank.origin", lambda x: x.astype(np.float32)),
    "a graph of larger numbers": tensor("0.graph", lambda x: x.astype(np.int32)),
}

NUMBERS: dict[str, Change] = {
    **{
        f"{value} in {name}": tensor(name, at(0, value))
        for value in (np.nan, np.inf)
        for name in (
            "0.moments.mean",
            "0.moments.M2",
            "0.moments.rest",
            "0.variances",
            "0.whitening.A",
            "0.bank.raw",
            "0.bank.weights",
            "calibration.scores",
            "calibration.peaks",
            "0.deciding.rows",
        )
    },
    "a negative weight": tensor("0.bank.weights", at(3, -0.5)),
    "a weight of nothing": tensor("0.bank.weights", at(3, 0.0)),
    "a weight above one": tensor("0.bank.weights", at(3, 1.5)),
    "a negative score": tensor("calibration.scores", at(0, -1.0)),
    "a negative peak": tensor("calibration.peaks", at(0, -1.0)),
    "a negative variance": tensor("0.variances", at(-1, -1.0)),
    "a negative spread": tensor("0.moments.M2", at((2, 2), -1.0)),
    "an image that there is not": tensor("0.bank.origin", at((5, 0), 8)),
    "an image before the first": tensor("0.bank.origin", at((5, 0), -2)),
    "a view that there is not": tensor("0.bank.origin", at((5, 1), 1)),
    "a row beyond the grid": tensor("0.bank.origin", at((5, 2), 1000)),
    "a column before the grid": tensor("0.bank.origin", at((5, 3), -1)),
    "a deciding cell beyond the grid": tensor("0.deciding.cells", at((0, 0), 10**6)),
    "a deciding cell before the grid": tensor("0.deciding.cells", at((0, 0), -1)),
    "deciding patches of an unknown image": tensor("deciding.images", at(0, 99)),
    "more images than are named": setting("scales", 0, "n_patches", to=10**9),
    "a part of an image": setting("scales", 0, "n_patches", to=1025),
}

TABLES: dict[str, Change] = {
    **{f"no tensor {name}": dropped(name) for name in (
        "0.moments.mean", "0.moments.M2", "0.moments.rest", "0.variances", "0.whitening.A", "0.bank.raw",
        "0.bank.origin", "0.bank.weights", "0.graph", "0.deciding.cells", "0.deciding.rows", "deciding.images",
        "calibration.scores", "calibration.peaks",
    )},
    "another tensor": lambda _, tensors: tensors.update({"extra": np.zeros(3, np.float32)}),
    "a tensor with a line break in its name": lambda _, tensors: tensors.update({"a\nb": np.zeros(3, np.float32)}),
    **{f"no {'.'.join(map(str, path))}": without(*path) for path in (
        ("config",), ("scales",), ("calibration",), ("images",), ("hashes",), ("history",), ("excluded",),
        ("product",), ("format",), ("config", "sigma"), ("calibration", "method"), ("calibration", "false_alarm"),
        ("scales", 0, "backbone"), ("scales", 0, "n_patches"), ("scales", 0, "lam"),
        ("scales", 0, "backbone", "maps"), ("scales", 0, "backbone", "height"), ("history", 0, "what"),
    )},
}  # fmt: skip

VALUES: dict[str, Change] = {
    f"{'.'.join(map(str, path))} = {str(value)[:20]!r}": setting(*path, to=value)
    for path, values in {
        ("config",): (None, 3, [], "text", {}),
        ("config", "K"): ("many", None, 1.5, -3, True, 10**30),
        ("config", "sigma"): ("wide", float("nan"), float("inf"), -1, 10**400),
        ("config", "metric"): ("manhattan", 3, "two\nlines", "x" * 10_000),
        ("config", "sizes"): (None, 96, "big", [], [[64]], [[64, 64, 3]], [[10**9, 64]], [[96, 96]]),
        ("config", "layers"): ("block2", [3]),
        ("config", "false_alarm"): (0, 1, 0.2, "often", float("nan")),
        ("config", "colour"): ("red",),
        ("calibration",): (None, [], {}, {"false_alarm": 0.01}),
        ("calibration", "false_alarm"): (0.5, 5, 0, None, "0.01", float("nan"), 10**400),
        ("calibration", "method"): (3, None),
        ("calibration", "scores"): ([1.0],),
        ("images",): (None, "a.png", [1, 2], [], ["a.png"]),
        ("hashes",): (None, ["00"], [0] * 8),
        ("excluded",): (None, "a.png", [1]),
        ("product",): (None, 7, ["bottle"]),
        ("history",): (None, {}, ["fit"], [{}], [[]]),
        ("history", 0, "images"): ("8", 1.5, None),
        ("history", 0, "when"): (0,),
        ("history", 0, "false_alarm"): ("rare", None, 10**400),
        ("history", 0, "colour"): ("red",),
        ("scales",): (None, [], {}, [3], "ab", [None]),
        ("scales", 0, "n_patches"): (0, -5, 1.5, "8", True, 2**60, 10**400),
        ("scales", 0, "lam"): (-0.1, 1.5, "0.9", None, float("nan"), 10**400),
        ("scales", 0, "jitter"): (-1, 2, float("inf")),
        ("scales", 0, "retained"): (-1, 2, []),
        ("scales", 0, "backbone"): (None, [], "lite0"),
        ("scales", 0, "backbone", "name"): (None, 3),
        ("scales", 0, "backbone", "layers"): ("block2", [], ["block1"], [1, 2]),
        ("scales", 0, "backbone", "height"): (0, -64, 65, 10**9, "64", 64.0),
        ("scales", 0, "backbone", "width"): (63,),
        ("scales", 0, "backbone", "maps"): (
            None, [], [[16, 32, 32]], [[16, 0, 32], [24, 16, 16]], [[24, 16, 16], [16, 32, 32]],
            [[16, 10**9, 10**9], [24, 16, 16]], [[16, 32], [24, 16, 16]], "maps", [None, None],
            [[16, 32, 32.5], [24, 16, 16]], [[-16, 32, 32], [24, 16, 16]], [[2, 32, 32], [24, 16, 16]],
        ),
        ("scales", 0, "backbone", "colour"): ("red",),
        ("format",): ("five", None, float("inf"), float("nan"), [], {}),
    }.items()
    for value in values
}  # fmt: skip


def graph_of(change: object) -> Change:
    """Another network, which the document describes as before."""

    def changed(_: Document, tensors: Tensors) -> None:
        model = onnx.load_from_string(tensors["0.graph"].tobytes())
        made = change(model)  # type: ignore[operator]
        content = made if isinstance(made, bytes) else model.SerializeToString()
        tensors["0.graph"] = np.frombuffer(content, np.uint8)

    return changed


def _renamed(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Telephone"


def _disconnected(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nowhere"


def _pooled(model: onnx.ModelProto) -> None:
    """Maps of half the size that it says they have."""
    last = next(node for node in model.graph.node if "local_0" in node.output)
    half = {"kernel_shape": [2, 2], "strides": [2, 2]}
    before = helper.make_node("Cast", [last.input[0]], ["wide"], to=onnx.TensorProto.FLOAT)
    pool = helper.make_node("AveragePool", ["wide"], ["halved"], **half)
    after = helper.make_node("Cast", ["halved"], ["local_0"], to=onnx.TensorProto.FLOAT16)
    model.graph.node.remove(last)
    model.graph.node.extend([before, pool, after])


GRAPHS: dict[str, Change] = {
    "no graph": graph_of(lambda _: b"\0"),
    "nothing": graph_of(lambda _: b""),
    "no ONNX": graph_of(lambda _: b"\xff\xfe this is no network" * 40),
    "half a graph": graph_of(lambda model: model.SerializeToString()[: model.ByteSize() // 2]),
    "a text": graph_of(lambda _: b"{}"),
    "an empty graph": graph_of(lambda _: onnx.ModelProto().SerializeToString()),
    "an unknown operator": graph_of(_renamed),
    "a node without its input": graph_of(_disconnected),
    "no weights": graph_of(lambda model: model.graph.ClearField("initializer")),
    "maps of another size than told": graph_of(_pooled),
    "another output": graph_of(lambda model: model.graph.output.pop()),
    "an operator set of the future": graph_of(lambda model: setattr(model.opset_import[0], "version", 10**6)),
}

ALL = SHAPES | NUMBERS | TABLES | VALUES | GRAPHS


@pytest.mark.parametrize("change", ALL.values(), ids=[name.replace("\n", " ") for name in ALL])
def test_what_cannot_be_is_refused_in_one_line(content: bytes, tmp_path: Path, change: Change) -> None:
    refused(forged(content, change), tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SHAPES["fewer weights than rows"], "0.bank.weights"),
        (NUMBERS["nan in 0.bank.raw"], "0.bank.raw holds numbers that are not finite"),
        (NUMBERS["a row beyond the grid"], "outside of the grid"),
        (NUMBERS["an image that there is not"], "unknown images"),
        (TABLES["no tensor 0.graph"], "0.graph"),
        (TABLES["another tensor"], "extra does not belong to a model"),
        (TABLES["no config.sigma"], "sigma is missing"),
        (setting("config", "colour", to="red"), "colour"),
        (setting("calibration", "false_alarm", to=0.5), "rates differ"),
        (GRAPHS["no ONNX"], "not an ONNX graph"),
        (GRAPHS["maps of another size than told"], "maps of another size than it says"),
        (GRAPHS["an unknown operator"], "Telephone"),
    ],
)
def test_the_line_says_what_is_wrong(content: bytes, tmp_path: Path, change: Change, words: str) -> None:
    assert words in refused(forged(content, change), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "3",
        "null",
        '"text"',
        "{}",
        '{"format": 5}',
        "[" * 100_000,
        '{"format": 5, "a": 1e999}',
    ],
)
def test_a_document_that_is_none(content: bytes, tmp_path: Path, text: str) -> None:
    _, tensors = taken_apart(content)
    refused(with_text(text, tensors), tmp_path)


def test_half_a_character_in_the_document(content: bytes, tmp_path: Path) -> None:
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip().replace(b"cross-image", b"cross\\ud800image")
    header += b" " * (-len(header) % 8)
    refused(len(header).to_bytes(8, "little") + header + content[8 + length :], tmp_path)


def test_two_scales_against_each_other(tmp_path: Path) -> None:
    content = to_bytes(small_detector(sizes="64,96", layers=("block2",), K=60).model)
    changes: list[Change] = [
        lambda document, _: document["scales"].pop(),
        lambda document, _: document["scales"].reverse(),
        lambda document, _: document["scales"].append(document["scales"][0]),
        setting("config", "sizes", to=[[96, 96], [64, 64]]),
        setting("scales", 1, "n_patches", to=64),
        tensor("1.deciding.cells", lambda x: x[:-1]),
        tensor("1.bank.origin", at((0, 2), 24)),
    ]
    for change in changes:
        refused(forged(content, change), tmp_path)


def test_the_document_alone_is_checked_too(content: bytes) -> None:
    assert read_document(content, "part")["images"][0] == "array 0"
    for change in (
        setting("images", to=None),
        setting("scales", to=[]),
        setting("scales", 0, "lam", to=10**400),
    ):
        with pytest.raises(ModelFileError, match="part is damaged"):
            read_document(forged(content, change), "part")
