"""Paths as they were given: places for results are looked at before the work and not after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mhpatchcore.errors import ModelFileError, UserError, in_one_line
from mhpatchcore.inputs.files import is_video
from mhpatchcore.inputs.pixels import video_frames
from mhpatchcore.inputs.places import SUFFIXES, may_exist, stacked
from mhpatchcore.model.file import document_of
from mhpatchcore.model.history import OtherProductError, differ
from mhpatchcore.runtime.urls import check_writable, shown, url_of

STANDARD_INPUT = STANDARD_OUTPUT = Path("-")


def given_images(arguments: Sequence[Path], stack: bool = False, every: int = 1) -> list[str | Path]:
    """Files, folders and patterns as they were given; `-` stands for a list of them on standard input.

    With `stack` they hold frames of the same parts, and what is given are stacks. Of videos every N-th frame (`every`).
    """
    paths: list[str | Path] = []
    for argument in arguments:
        if argument == STANDARD_INPUT:
            paths += _listed_on_standard_input()
        elif not may_exist(argument):
            raise UserError(f"there is no file or folder {argument}; check the path")
        else:
            paths += video_frames(argument, every) if every > 1 and is_video(argument) else [argument]
    return [*stacked(*paths)] if stack else paths


def _listed_on_standard_input() -> list[Path]:
    """One path per line, as `ls` and `find` write them, or each ended by a zero byte (`find -print0`)."""
    text = os.fsdecode(sys.stdin.buffer.read())
    paths = text.split("\0") if "\0" in text else [line.rstrip("\r") for line in text.split("\n")]
    if not any(paths):
        raise UserError("there are no paths on standard input: write one per line, as `ls parts/*.png` does")
    return [Path(path) for path in paths if path]


def check_output(path: Path | None, example: str, *others: object) -> None:
    """Refuse a place where nothing can be written, or where one of `others` is.

    `example` is a name for it; that of a folder ends in a slash.
    """
    if path is None or path == STANDARD_OUTPUT:
        return
    same = [other for other in others if isinstance(other, Path) and path.resolve() == other.resolve()]
    if same and example != "part.mhpc":  # a model may take the place of the one that it was made from
        raise UserError(f"{shown(path)} is given twice: choose another name, such as {example}")
    if example.endswith("/"):
        if path.is_file():
            raise UserError(f"cannot write into {path}: it is a file, not a folder; choose another place")
        _check_parents(path / "file")
        return
    if path.suffix.lower() in SUFFIXES and not example.endswith(path.suffix.lower()):
        raise UserError(f"{shown(path)} has the name of an image: name a file such as {example}")
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; name a file, for example {path / example}")
    _check_parents(path)


def check_product(path: Path, product: str, told: bool) -> None:
    """Refuse to write a model over one of another product, unless that was told; what is no model is overwritten."""
    there = ""
    with suppress(ModelFileError):
        there = str(document_of(path)["product"])
    if differ(product, there) and not told:
        raise OtherProductError(
            f"{path} is a model of {in_one_line(there)}, and this would be one of {in_one_line(product)}: name another "
            "file, or give --other-product"
        )


def with_name(folder: Path) -> Path:
    """The folder by a path that ends in its name, which `.` and `..` do not.

    >>> with_name(Path("..")).name == Path("..").resolve().name != ""
    True
    """
    return folder.resolve() if folder.name in ("", "..") else folder


def _check_parents(path: Path) -> None:
    url = url_of(path)
    if url is not None:
        check_writable(url)
        return
    nearest = next(parent for parent in path.absolute().parents if parent.exists())
    if not nearest.is_dir():
        raise UserError(f"cannot write {path}: {nearest} is a file, not a folder; choose another place")
    if not os.access(nearest, os.W_OK):
        raise UserError(f"cannot write {path}: no permission to write into {nearest}; choose another place")
