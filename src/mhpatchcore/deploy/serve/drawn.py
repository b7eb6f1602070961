"""Pictures of parts from their lane, for those who wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import Request

from mhpatchcore.deploy.serve import pictures
from mhpatchcore.deploy.serve.lane import Key
from mhpatchcore.deploy.serve.parts import Part
from mhpatchcore.deploy.serve.refusals import Refused, unknown
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.report.drawing import SCREEN

IMAGE, HEAT, EVIDENCE, FIGURE = range(4)  # ranks: what costs little comes first


async def image(request: Request, service: Service, part: Part, longest: int) -> bytes:
    """A JPEG, its longer side at most so many pixels; a small one is made of a large one that is there."""
    _check_image(part)

    def made() -> bytes:
        larger = service.lane.known((part.id, "image", SCREEN)) if longest < SCREEN else None
        return pictures.picture(part, longest, larger)

    return await _from_lane(request, service, (part.id, "image", longest), IMAGE, made)


async def reference(request: Request, service: Service, served: Served) -> bytes:
    """A JPEG of what the model has learnt from."""
    make = partial(pictures.reference, served)
    return await _from_lane(request, service, (served.sha256, "reference"), IMAGE, make)


async def heat(request: Request, service: Service, part: Part, style: pictures.Style) -> bytes:
    result = part.result
    if result is None:
        raise unknown("heat of this part: it was not judged, or before the service was started")
    make = partial(pictures.heatmap, part, result, style)
    return await _from_lane(request, service, (part.id, style), HEAT, make)


async def evidence(request: Request, service: Service, part: Part) -> bytes:
    """JSON."""
    _check_image(part)
    served = service.models[part.model]
    make = partial(pictures.evidence_facts, part, served)
    return await _from_lane(request, service, (part.id, "evidence", served.sha256), EVIDENCE, make)


async def evidence_figure(request: Request, service: Service, part: Part) -> bytes:
    _check_image(part)
    served = service.models[part.model]
    make = partial(pictures.evidence_picture, part, served)
    return await _from_lane(request, service, (part.id, "figure", served.sha256), FIGURE, make)


def _check_image(part: Part) -> None:
    if not part.sent.size or part.answer["reason"]:
        raise unknown("picture of this part: its image was not kept, or could not be read")


async def _from_lane(
    request: Request, service: Service, key: Key, rank: int, make: Callable[[], bytes]
) -> bytes:
    """A picture, as long as somebody waits for it."""
    getting = asyncio.ensure_future(service.lane.get(key, rank, make))
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((getting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            raise Refused(499, "gone", "nobody waits for the picture any more")
        return getting.result()
    finally:
        getting.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
