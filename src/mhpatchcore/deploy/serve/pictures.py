"""Pictures of a part that was scored: the image, the heat over it, outlines, and the normal patches beside it.

`get_…` fetch them from their lane, for those who wait for them.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from fastapi import Request
from PIL import Image

from mhpatchcore.deploy.serve.pool import Key, Lane
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Part
from mhpatchcore.detector import Detector
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inspection.drift import typical_file
from mhpatchcore.inspection.evidence import Evidence, explain
from mhpatchcore.model.value import Model
from mhpatchcore.report.drawing import (
    SCREEN,
    heat_layer,
    heat_unit,
    outline_layer,
    overlay,
    screen_map,
    screen_pixels,
    screen_size,
)
from mhpatchcore.report.evidence import crop_of_normal, crop_of_place, evidence_png
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.texts import representable, without_paths

Style = Literal["overlay", "layer", "outline"]
LOOK = 0.1  # seconds between looks whether somebody waits
CROP = 160  # pixels, the side of a crop
JPEG_QUALITY = 88
LAYER = {
    "layer": 480,
    "outline": 800,
}  # pixels of the longest side: heat is smooth, and a browser stretches it
_drawing = Lock()  # matplotlib's settings hold for the process
_modest: WeakKeyDictionary[Detector, Model] = WeakKeyDictionary()
IMAGE, HEAT, EVIDENCE, FIGURE = range(4)  # ranks: what costs little comes first


async def get_image(request: Request, part: Part, longest: int) -> bytes:
    """The image as JPEG, its longer side at most so many pixels; a small one is made of a large one that is there."""
    _check_image(part)
    lane: Lane = request.app.state.service.lane

    def made() -> bytes:
        larger = lane.known((part.id, "image", SCREEN)) if longest < SCREEN else None
        if larger is not None:
            with Image.open(io.BytesIO(larger)) as image:
                image.thumbnail((longest, longest))
                return encoded(np.asarray(image), "JPEG")
        window = None if part.result is None else part.result.window
        return encoded(screen_pixels(part.sent.source, window, longest), "JPEG")

    return await _from_lane(request, (part.id, "image", longest), IMAGE, made)


async def get_reference(request: Request, served: Served) -> bytes:
    """A typical image of those that the model has learnt from, if its file is where it was: JPEG."""
    model = served.detector.model

    def made() -> bytes:
        file = typical_file(model)
        if file is None:
            raise Refused(
                404, "there is no picture of what was learnt: the training images are not where they were"
            )
        return encoded(screen_pixels(file, model.config.views[0].window), "JPEG")

    return await _from_lane(request, (served.sha256, "reference"), IMAGE, made)


async def get_heat(request: Request, part: Part, style: Style) -> bytes:
    """The heat over the image, or as a transparent layer to be laid over it; or the outlines as such a layer: PNG."""
    result = part.result
    if result is None:
        raise Refused(
            404, "there is no heat of this part: it was not judged, or before the service was started"
        )
    return await _from_lane(request, (part.id, style), HEAT, lambda: _heat(part, result, style))


async def get_evidence(request: Request, part: Part, as_picture: bool = False) -> bytes:
    """The worst places and the normal patches that they are compared with: JSON, or as one picture: PNG."""
    _check_image(part)
    served: Served = request.app.state.service.models[part.model]
    make = _evidence_png if as_picture else _evidence_json
    key, rank = (part.id, as_picture, served.sha256), FIGURE if as_picture else EVIDENCE
    return await _from_lane(request, key, rank, lambda: make(part, served))


def _check_image(part: Part) -> None:
    if not part.sent.size or part.answer["reason"]:
        raise Refused(404, "there is no picture of this part: its image was not kept, or could not be read")


async def _from_lane(request: Request, key: Key, rank: int, make: Callable[[], bytes]) -> bytes:
    """A picture, as long as somebody waits for it."""
    lane: Lane = request.app.state.service.lane
    getting = asyncio.ensure_future(lane.get(key, rank, make))
    try:
        while not (await asyncio.wait([getting], timeout=LOOK))[0]:
            if await request.is_disconnected():
                raise Refused(499, "nobody waits for the picture any more", "gone")
        return getting.result()
    finally:
        getting.cancel()


def _heat(part: Part, result: Result, style: Style) -> bytes:
    if style == "overlay":
        pixels = screen_pixels(part.sent.source, result.window)
        heat = screen_map(result, *pixels.shape[:2])
        return encoded(overlay(pixels, heat, heat_unit(result)), "PNG")
    heat = screen_map(result, *screen_size(*result.size, LAYER[style]))
    if style == "layer":
        return encoded(heat_layer(heat, heat_unit(result)), "PNG")
    return encoded(outline_layer(heat > result.mask_limit), "PNG")


def _evidence_png(part: Part, served: Served) -> bytes:
    _, evidence = _explained(part, served)
    with _drawing:
        return evidence_png(part.sent.source, evidence)


def _evidence_json(part: Part, served: Served) -> bytes:
    """With every patch as a small picture where its image was found."""
    result, evidence = _explained(part, served)
    pixels = load_pixels(part.sent.source, result.window)
    facts: dict[str, Any] = without_paths(representable(evidence.to_dict()))  # before pictures are in it
    del facts["image"]
    for told, place in zip(facts["places"], evidence.places, strict=True):
        view = result.views[place.view]
        told["picture"] = _cut(pixels, crop_of_place(place, view))
        for patch_told, patch in zip(told["nearest"], place.nearest, strict=True):
            del patch_told["file"]
            crop = crop_of_normal(patch, view)
            patch_told["picture"] = None
            if crop is not None and patch.file is not None:
                patch_told["picture"] = _cut(load_pixels(patch.file, result.window), crop)
    return json.dumps(facts).encode()


def _explained(part: Part, served: Served) -> tuple[Result, Evidence]:
    """The image as the model that is served now sees it, which may be a later one than it was judged by."""
    detector, result, source = served.detector, part.result, part.sent.source
    if result is None or part.answer["sha256"] != served.sha256:
        result = detector.score_opened(detector.opened(source))
    if detector not in _modest:  # its networks take one core, and leave the others to the line
        scales = [
            replace(scale, backbone=replace(scale.backbone, threads=1)) for scale in detector.model.scales
        ]
        _modest[detector] = replace(detector.model, scales=tuple(scales))
    return result, explain(_modest[detector], detector.runtime.heads, source, result)


def _cut(pixels: Array, crop: tuple[float, float, float, float]) -> str:
    """A crop (top, left, bottom, right) that may reach beyond the image, gray there, at CROP × CROP pixels."""
    top, left, bottom, right = (round(edge) for edge in crop)
    canvas = Image.new("RGB", (max(1, right - left), max(1, bottom - top)), (128, 128, 128))
    y, x = max(0, top), max(0, left)
    piece = pixels[y : max(y, bottom), x : max(x, right)]
    if piece.size:
        canvas.paste(Image.fromarray(np.ascontiguousarray(piece)), (x - left, y - top))
    canvas = canvas.resize((CROP, CROP), Image.Resampling.BILINEAR)
    return data_url(encoded(np.asarray(canvas), "JPEG"), "JPEG")


def data_url(content: bytes, kind: Literal["PNG", "JPEG"]) -> str:
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"


def encoded(pixels: Array, kind: Literal["PNG", "JPEG"]) -> bytes:
    file = io.BytesIO()
    settings: dict[str, Any] = {"compress_level": 3} if kind == "PNG" else {"quality": JPEG_QUALITY}
    Image.fromarray(pixels).save(file, kind, **settings)
    return file.getvalue()
