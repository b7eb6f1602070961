"""Frames of the same parts in several folders, matched by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.files import stack_name
from mhpatchcore.inputs.sources import is_pattern, list_images, single_image

SPECIAL = ("{", "}", ",")  # in the name of a stack


def stacked(*places: str | Path) -> list[str]:
    """The stacks of two or three places, each a folder, an archive or a pattern: a stack for each name in them.

    `Detector.fit(stacked("cam0/*.png", "cam1/*.png"))` learns from cam0/1.png with cam1/1.png, and so on.
    """
    if not 2 <= len(places) <= 3:
        raise UserError(
            f"a stack takes two or three folders, or patterns in quotes such as 'cam0/*.png', not {len(places)}"
        )
    folders = [_folder(place) for place in places]
    return [stack_name(folders, name) for name in matched(places)]


def matched(places: Sequence[str | Path]) -> list[str]:
    """The names, relative to their folders, that all places have; a missing one is told."""
    names = [_names(place) for place in places]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            missing = [name for name in one if name not in set(other)]
            if missing:
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                raise UserError(
                    f"{places[j]} has no frame {missing[0]}{more}, which {places[i]} has: add it, or remove the others"
                )
    return names[0]


def _names(place: str | Path) -> list[str]:
    folder = _folder(place)
    names = [os.path.relpath(str(image), folder) for image in list_images(place)]
    for name in (str(folder), *names):
        if any(letter in name for letter in SPECIAL):
            raise UserError(f"{name} cannot be part of a stack: rename it without commas and braces")
    return names


def _folder(place: str | Path) -> Path:
    """The folder that names are relative to: the place itself, or what stands before the magic of a pattern."""
    if is_pattern(place):
        return Path(*takewhile(lambda part: not has_magic(part), Path(place).parts))
    if single_image(place) is not None:
        raise UserError(f"{place} is one image: give folders, or patterns in quotes such as 'cam0/*.png'")
    return Path(place)
