"""From bytes that somebody has sent to an image, by the same code that reads files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import UnidentifiedImageError

from mhpatchcore.deploy.serve.refusals import too_large, unreadable
from mhpatchcore.errors import ImageTooLargeError, UserError
from mhpatchcore.inputs.decode import open_image
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.texts import without_paths

LONGEST_PART = 200  # letters of a caller's id


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
def as_source(content: bytes | Array) -> Iterator[Path | Array]:
    """What the readers of images take. Bytes become a file that is in memory alone, with a path while it is needed."""
    if isinstance(content, np.ndarray):
        yield content
        return
    handle = os.memfd_create("image")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


@contextmanager
def readable(sent: Sent, most_pixels: int) -> Iterator[Path | Array]:
    """`as_source`, if it has not too many pixels; what the readers then say of it is said of its name."""
    if not sent.size:
        raise unreadable("the body is empty: send an image")
    with as_source(sent.content) as source:
        try:
            _check_pixels(source, most_pixels)
            yield source
        except ImageTooLargeError as error:
            raise too_large(in_its_name(error, source, sent.name)) from error
        except UserError as error:
            raise unreadable(in_its_name(error, source, sent.name)) from error


def in_its_name(error: UserError, source: Path | Array, name: str) -> str:
    """A message about a source, as one about the image that was sent."""
    return str(
        without_paths(str(error).replace(str(source), name) if isinstance(source, Path) else str(error))
    )


def _check_pixels(source: Path | Array, most: int) -> None:
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
