"""Bodies of requests, read as far as the limits allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from mhpatchcore.deploy.serve.images import Sent
from mhpatchcore.deploy.serve.limits import Limits
from mhpatchcore.deploy.serve.refusals import Refused, busy, too_large, unreadable

# the last is what `curl --data-binary` says of any file
BINARY = ("application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded")
LONGEST = 200  # letters of a name
Out = TypeVar("Out")


class _InMemory(MultiPartParser):
    """Files stay in memory, which the limit on the body bounds, and never touch the disk."""

    spool_max_size = 2**40


class Receiving:
    """Bodies that are coming, and their bytes: those who send slowly hold memory, so there is a limit to it."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    @contextmanager
    def body(self) -> Iterator[bytearray]:
        """A body to be `extend`ed."""
        content = bytearray()
        try:
            yield content
        finally:
            self._left += len(content)

    def extend(self, content: bytearray, chunk: bytes) -> None:
        if len(chunk) > self._left:
            raise busy(1)
        self._left -= len(chunk)
        content += chunk


async def body_of(request: Request, limits: Limits, most: int | None = None) -> bytes:
    """The body; one that is too large is refused, and so is one that does not come."""
    most = limits.max_bytes if most is None else min(most, limits.max_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:18]) > most:
        raise _too_large(most)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "type", "send the body as it is: compressed ones are not taken")
    receiving: Receiving = request.app.state.service.receiving
    try:
        with receiving.body() as content:
            async with asyncio.timeout(limits.timeout):
                async for chunk in request.stream():
                    receiving.extend(content, chunk)
                    if len(content) > most:
                        raise _too_large(most)
            return bytes(content)
    except TimeoutError:
        raise Refused(408, "timeout", f"the body did not come within {limits.timeout:g} seconds") from None
    except ClientDisconnect:
        raise Refused(400, "gone", "the connection was closed before the body had come") from None


async def images_of(request: Request, limits: Limits, parts: Sequence[str]) -> tuple[list[Sent], bool]:
    """The images in a body, and whether they are several by their form: a file as it is, or multipart/form-data.

    `parts` are the caller's ids for them, in their order; those in the form come before.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _from_form(await body_of(request, limits), request.headers, limits, parts), True
    if kind and not kind.startswith("image/") and kind not in BINARY:
        raise Refused(
            415, "type", "send an image (image/png, …), application/octet-stream or multipart/form-data"
        )
    return [Sent(await body_of(request, limits), name_in(request), parts[0] if parts else None)], False


def name_in(request: Request) -> str:
    """What the address says that a single image is called."""
    return (request.query_params.get("name") or "image")[:LONGEST]


async def _from_form(body: bytes, headers: Headers, limits: Limits, parts: Sequence[str]) -> list[Sent]:
    async def whole() -> AsyncIterator[bytes]:
        yield body

    most = limits.max_images
    try:
        form = await _InMemory(headers, whole(), max_files=most, max_fields=most).parse()  # type: ignore[arg-type]
    except MultiPartException as error:
        if error.message.startswith("Too many"):
            raise too_large(f"a request has at most {most} images") from None
        raise unreadable("the form cannot be read: send multipart/form-data with files") from None
    except Exception as error:  # the parser raises what its callbacks do, such as KeyError without a boundary
        raise unreadable("the form cannot be read: send multipart/form-data with files") from error
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    ids = [
        str(value) for key, value in form.multi_items() if key == "part" and not isinstance(value, UploadFile)
    ]
    ids += list(parts)
    if not files:
        raise unreadable("the form holds no file: give them in the field images")
    named = [((file.filename or "image")[:LONGEST], await file.read()) for file in files]
    return [Sent(content, name, ids[i] if i < len(ids) else None) for i, (name, content) in enumerate(named)]


async def json_of(request: Request, limits: Limits, kind: type[Out]) -> Out:
    """A small JSON document of a kind, parsed and checked beside the event loop."""
    body = await body_of(request, limits, limits.max_json)
    try:
        return await asyncio.to_thread(lambda: TypeAdapter(kind).validate_json(body, strict=True))
    except ValidationError as error:
        raise RequestValidationError(
            [one | {"loc": ("body", *one["loc"])} for one in error.errors()]
        ) from None


def _too_large(most: int) -> Refused:
    return too_large(f"the body has more than {most} bytes, the most that are taken")
