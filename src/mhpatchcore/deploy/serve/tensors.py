"""Requests and answers of the Open Inference Protocol (v2), with the binary tensor extension of Triton.

A request is JSON; with the header Inference-Header-Content-Length it is so many bytes of JSON, followed by the data of
those tensors that say `binary_data_size`, one after the other. Answers are alike. A tensor of the type BYTES holds
elements of four bytes of length (little-endian) and so many bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from mhpatchcore.deploy.serve.refusals import Refused, described, too_large
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.texts import representable

HEADER = "inference-header-content-length"
DTYPES: dict[str, str] = {"BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "FP32": "<f4", "FP64": "<f8"}
CHANNELS = (1, 2, 3, 4)


Side = Annotated[int, Field(gt=0, lt=2**31)]
Parameters = dict[str, Any] | None


@dataclass(frozen=True)
class Tensor:
    """An image, or several of one size, as an array or as files (BYTES); binary data has no `data`."""

    shape: Annotated[list[Side], Field(min_length=1, max_length=4)]
    datatype: Literal["UINT8", "UINT16", "FP32", "FP64", "BYTES"]
    name: str = ""
    parameters: Parameters = None
    data: Any = None


@dataclass(frozen=True)
class WantedOutput:
    name: str
    parameters: Parameters = None


@dataclass(frozen=True)
class Document:
    """A request in JSON: one tensor, and the outputs that are wanted; without any, all usual ones."""

    inputs: Annotated[list[Tensor], Field(min_length=1, max_length=1)]
    outputs: list[WantedOutput] | None = None
    id: str | None = None
    parameters: Parameters = None


@dataclass(frozen=True, eq=False)
class Asked:
    """A request: images, the outputs that are wanted (name → whether in binary; empty: all usual ones), its id."""

    images: tuple[bytes | Array, ...]
    outputs: Mapping[str, bool]
    binary: bool
    id: str
    part: str | None


@dataclass(frozen=True, eq=False)
class Output:
    """A named tensor of an answer; texts are BYTES."""

    name: str
    datatype: str
    values: Array | Sequence[str]

    @property
    def shape(self) -> list[int]:
        return list(self.values.shape) if isinstance(self.values, np.ndarray) else [len(self.values)]


def asked(body: bytes, json_length: str | None, most_json: int, most: int) -> Asked:
    """Read a request of at most `most` images, and `most_json` bytes of JSON."""
    document, data = _document(body, json_length, most_json)
    parameters = document.parameters or {}
    binary, part = parameters.get("binary_data_output") is True, parameters.get("part")
    outputs = {
        one.name: (one.parameters or {}).get("binary_data", binary) is True for one in document.outputs or ()
    }
    id_, part = document.id or "", part if isinstance(part, str) else None
    return Asked(_images(document.inputs[0], data, most), outputs, binary, id_, part)


def answer(
    model: str, id_: str, outputs: Sequence[Output], binary: Mapping[str, bool]
) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON where binary data follows it."""
    told, data = [], []
    for one in outputs:
        tensor: dict[str, Any] = {"name": one.name, "datatype": one.datatype, "shape": one.shape}
        if binary.get(one.name, False):
            data.append(_packed(one))
            tensor["parameters"] = {"binary_data_size": len(data[-1])}
        else:
            flat = one.values.ravel().tolist() if isinstance(one.values, np.ndarray) else list(one.values)
            tensor["data"] = representable(flat)
        told.append(tensor)
    document = {"model_name": model, "model_version": "1", "outputs": told} | ({"id": id_} if id_ else {})
    text = json.dumps(document).encode()
    return b"".join([text, *data]), len(text) if data else None


def _document(body: bytes, json_length: str | None, most: int) -> tuple[Document, bytes]:
    length = len(body)
    if json_length is not None:
        if not (json_length.isascii() and json_length.isdigit() and int(json_length[:12]) <= len(body)):
            raise _wrong("Inference-Header-Content-Length is longer than the body")
        length = int(json_length)
    if length > most:
        raise too_large(
            f"the JSON has more than {most} bytes, the most that are taken: send tensors as binary data"
        )
    try:
        return TypeAdapter(Document).validate_json(body[:length], strict=True), body[length:]
    except ValidationError as error:
        raise _wrong(described(error.errors())) from None


def _images(tensor: Tensor, data: bytes, most: int) -> tuple[bytes | Array, ...]:
    shape, size = tensor.shape, (tensor.parameters or {}).get("binary_data_size")
    if size is not None and size != len(data):
        raise _wrong(f"{len(data)} bytes of data follow, and binary_data_size says otherwise")
    if tensor.datatype == "BYTES":
        files = _unpacked(data) if size is not None else _decoded(tensor.data)
        if len(files) != prod(shape):
            raise _wrong("the shape does not fit the data")
        return tuple(_not_too_many(files, most))
    values = _array(tensor.datatype, shape, data if size is not None else None, tensor.data)
    if values.ndim < 2:
        raise _wrong("an image has the shape (H, W), (H, W, 3) or, with others, (N, H, W, 3)")
    several = values.ndim == 4 or (
        values.ndim == 3 and values.shape[2] not in CHANNELS and values.shape[0] == 1
    )
    return tuple(_not_too_many(list(values) if several else [values], most))


def _array(datatype: str, shape: list[int], data: bytes | None, given: Any) -> Array:
    kind = np.dtype(DTYPES[datatype])
    if data is not None:
        if len(data) != prod(shape) * kind.itemsize:
            raise _wrong("the shape does not fit the data")
        return np.frombuffer(data, kind).reshape(shape)
    try:
        values = np.array(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _wrong("the data is not a list of numbers") from None
    if values.size != prod(shape):
        raise _wrong("the shape does not fit the data")
    if kind.kind == "u" and not ((values >= 0) & (values <= np.iinfo(kind).max)).all():
        raise _wrong(f"the data does not fit into {datatype}")
    return values.astype(kind).reshape(shape)


def _unpacked(data: bytes) -> list[bytes]:
    """Elements of a BYTES tensor.

    >>> _unpacked(b"\\x02\\x00\\x00\\x00ab\\x00\\x00\\x00\\x00")
    [b'ab', b'']
    """
    found, at = [], 0
    while at < len(data):
        if at + 4 > len(data):
            raise _wrong("the BYTES tensor ends within an element")
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + length > len(data):
            raise _wrong("the BYTES tensor ends within an element")
        found.append(data[at : at + length])
        at += length
    return found


def _decoded(given: Any) -> list[bytes]:
    if not (isinstance(given, list) and all(isinstance(one, str) for one in given)):
        raise _wrong("in JSON a file is a text in base64; send it as binary data instead")
    try:
        return [base64.b64decode(one, validate=True) for one in given]
    except (binascii.Error, ValueError):
        raise _wrong("in JSON a file is a text in base64; this is not") from None


def _packed(output: Output) -> bytes:
    if isinstance(output.values, np.ndarray):
        return np.ascontiguousarray(output.values, DTYPES[output.datatype]).tobytes()
    texts = [text.encode() for text in output.values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def _not_too_many(images: list[Any], most: int) -> list[Any]:
    if len(images) > most:
        raise too_large(f"a request has at most {most} images, not {len(images)}")
    return images


def _wrong(message: str) -> Refused:
    return Refused(400, "input", message)
