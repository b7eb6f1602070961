"""What was sent: bodies of requests, read as far as the limits allow, and the images in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
from fastapi import Depends, Request
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from mhpatchcore.deploy.serve.pool import Limits, Pool
from mhpatchcore.deploy.serve.refusals import Refused, busy, described
from mhpatchcore.errors import ImageTooLargeError
from mhpatchcore.inputs.decode import open_image
from mhpatchcore.inputs.files import FetchedFile
from mhpatchcore.runtime.arrays import Array

SENT = "<the image that was sent>"
# the last is what `curl --data-binary` says of any file
BINARY = ("application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded")
LONGEST = 200  # letters of a name, and of a caller's id
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Sent:
    """An image as it came: the bytes of a file or an array, its name, and the caller's own id for the part."""

    content: bytes | Array
    name: str = "image"
    part: str | None = None

    def __post_init__(self) -> None:
        part = self.part or ""
        if len(part) > LONGEST or part != part.encode(errors="replace").decode():
            raise Refused(422, f"a part's id is a text of at most {LONGEST} letters")

    @cached_property
    def sha256(self) -> str:
        """Of the bytes, or of the values of an array."""
        content = self.content
        return sha256(
            content if isinstance(content, bytes) else np.ascontiguousarray(content).data
        ).hexdigest()

    @property
    def source(self) -> FetchedFile | Array:
        """What the readers of images take: bytes are a file that is in memory alone."""
        return FetchedFile(SENT, self.content) if isinstance(self.content, bytes) else self.content

    @property
    def size(self) -> int:
        """In bytes."""
        return self.content.nbytes if isinstance(self.content, np.ndarray) else len(self.content)


def check_pixels(sent: Sent, most: int) -> None:
    """Refuse an image of too many pixels before they are decoded; of what is no image decoding says what is wrong."""
    source, height, width = sent.source, 0, 0
    if isinstance(source, np.ndarray):
        height, width = source.shape[:2]
    else:
        with suppress(Exception), open_image(source) as image:  # Pillow raises nearly anything
            height, width = image.height, image.width
    if height * width > most:
        told = f"the image has {width} × {height} pixels, and at most {most} are taken: send it smaller"
        raise ImageTooLargeError(told)


async def body_of(request: Request, most: int | None = None) -> bytes:
    """The body; one that is too large is refused, and so is one that does not come.

    Those who send slowly hold memory, so there is a limit to all bodies that are coming.
    """
    limits: Limits = request.app.state.service.limits
    pool: Pool = request.app.state.service.pool
    most = min(most or limits.max_bytes, limits.max_bytes)
    too_long = Refused(413, f"the body has more than {most} bytes, the most that are taken")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "send the body as it is: compressed ones are not taken")
    content = bytearray()
    try:
        async with asyncio.timeout(limits.timeout):
            async for chunk in request.stream():
                if len(chunk) > pool.bytes_left:
                    raise busy(1)
                pool.bytes_left -= len(chunk)
                content += chunk
                if len(content) > most:
                    raise too_long
        return bytes(content)
    except TimeoutError:
        raise Refused(408, f"the body did not come within {limits.timeout:g} seconds") from None
    except ClientDisconnect:
        raise Refused(400, "the connection was closed before the body had come", "gone") from None
    finally:
        pool.bytes_left += len(content)


def kind_of(request: Request) -> str:
    """The media type of the body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def images_of(request: Request, parts: Sequence[str]) -> tuple[list[Sent], bool]:
    """The images in a body, and whether they are several by their form: a file as it is, or multipart/form-data.

    `parts` are the caller's ids for them, in their order; those in the form come before.
    """
    kind = kind_of(request)
    if kind == "multipart/form-data":
        return await _in_form(request, parts), True
    if kind and not kind.startswith("image/") and kind not in BINARY:
        message = "send an image (image/png, …), application/octet-stream or multipart/form-data"
        raise Refused(415, message)
    return [Sent(await body_of(request), name_in(request), parts[0] if parts else None)], False


def name_in(request: Request) -> str:
    """What the address says that a single image is called."""
    return (request.query_params.get("name") or "image")[:LONGEST]


async def _in_form(request: Request, parts: Sequence[str]) -> list[Sent]:
    body, most = await body_of(request), request.app.state.service.limits.max_images

    async def whole() -> AsyncIterator[bytes]:
        yield body

    try:
        parser = MultiPartParser(request.headers, whole(), max_files=most, max_fields=most)  # type: ignore[arg-type]
        parser.spool_max_size = 2**40  # files stay in memory, which the limit on the body bounds
        items = (await parser.parse()).multi_items()
    except Exception as error:  # the parser raises what its callbacks do, such as KeyError without a boundary
        if isinstance(error, MultiPartException) and error.message.startswith("Too many"):
            raise Refused(413, f"a request has at most {most} images") from None
        raise Refused(422, "the form cannot be read: send multipart/form-data with files") from error
    files = [value for _, value in items if isinstance(value, UploadFile)]
    if not files:
        raise Refused(422, "the form holds no file: give them in the field images")
    ids = [value for key, value in items if key == "part" and isinstance(value, str)] + list(parts)
    named = [((file.filename or "image")[:LONGEST], await file.read()) for file in files]
    return [Sent(content, name, ids[i] if i < len(ids) else None) for i, (name, content) in enumerate(named)]


async def json_of(request: Request, kind: type[Out]) -> Out:
    """A small JSON document of a kind, parsed and checked beside the event loop."""
    body = await body_of(request, request.app.state.service.limits.max_json)
    try:
        return await asyncio.to_thread(lambda: TypeAdapter(kind).validate_json(body, strict=True))
    except ValidationError as error:
        raise Refused(422, described(error.errors())) from None


def json_body(kind: type[Out]) -> Any:
    """`json_of` for a route that says what it takes in its signature."""

    async def read(request: Request) -> Out:
        return await json_of(request, kind)

    return Depends(read)
