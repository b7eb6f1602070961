"""What was sent: bodies of requests, read as far as the limits allow, and the images in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TypeVar

import numpy as np
from fastapi import Request
from PIL import UnidentifiedImageError
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from mhpatchcore.deploy.serve.pool import Limits
from mhpatchcore.deploy.serve.refusals import Refused, busy, described, too_large, unreadable
from mhpatchcore.errors import ImageTooLargeError, UserError
from mhpatchcore.inputs.decode import open_image
from mhpatchcore.inputs.files import FetchedFile
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.texts import without_paths

SENT = "<the image that was sent>"
LONGEST_PART = 200  # letters of a caller's id
# the last is what `curl --data-binary` says of any file
BINARY = ("application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded")
LONGEST = 200  # letters of a name
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Sent:
    """An image as it came: the bytes of a file or an array, its name, and the caller's own id for the part."""

    content: bytes | Array
    name: str = "image"
    part: str | None = None

    def __post_init__(self) -> None:
        part = self.part or ""
        if len(part) > LONGEST_PART or part != part.encode(errors="replace").decode():
            raise unreadable(f"a part's id is a text of at most {LONGEST_PART} letters")

    @cached_property
    def sha256(self) -> str:
        """Of the bytes, or of the values of an array."""
        content = self.content
        return sha256(
            content if isinstance(content, bytes) else np.ascontiguousarray(content).data
        ).hexdigest()

    @property
    def size(self) -> int:
        """In bytes."""
        return self.content.nbytes if isinstance(self.content, np.ndarray) else len(self.content)


@contextmanager
def as_source(content: bytes | Array) -> Iterator[FetchedFile | Array]:
    """What the readers of images take; bytes become a file that is in memory alone."""
    yield content if isinstance(content, np.ndarray) else FetchedFile(SENT, content)


@contextmanager
def readable(sent: Sent, most_pixels: int) -> Iterator[FetchedFile | Array]:
    """`as_source`, if it has not too many pixels; what the readers then say of it is said of its name."""
    if not sent.size:
        raise unreadable("the body is empty: send an image")
    with as_source(sent.content) as source:
        try:
            _check_pixels(source, most_pixels)
            yield source
        except ImageTooLargeError as error:
            raise too_large(message_about(error, source, sent.name)) from error
        except UserError as error:
            raise unreadable(message_about(error, source, sent.name)) from error


def message_about(error: UserError, source: FetchedFile | Array, name: str) -> str:
    """A message about a source, as one about the image that was sent."""
    return str(
        without_paths(
            str(error).replace(str(source), name) if isinstance(source, FetchedFile) else str(error)
        )
    )


def _check_pixels(source: FetchedFile | Array, most: int) -> None:
    height, width = 0, 0
    if isinstance(source, np.ndarray):
        height, width = source.shape[:2]
    else:
        with suppress(UnidentifiedImageError):  # a rare TIFF, or no image: decoding will tell
            try:
                with open_image(source) as image:
                    width, height = image.size
            except (UserError, UnidentifiedImageError):
                raise
            except Exception:  # Pillow raises nearly anything on damaged files; decoding says it in its words
                return
    if height * width > most:
        raise too_large(
            f"the image has {width} × {height} pixels, and at most {most} are taken: send it smaller"
        )


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
        raise unreadable(described(error.errors())) from None


def _too_large(most: int) -> Refused:
    return too_large(f"the body has more than {most} bytes, the most that are taken")
