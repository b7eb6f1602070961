"""The good parts among the images that are given to learn from, by their names: of a whole data set the normal training
images are taken, and what sounds like defects or masks is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os.path import commonpath
from pathlib import Path, PurePath

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.datasets import GOOD, Labels, holds_masks, visa_training, words_of
from mhpatchcore.inputs.sources import FROM_PYTHON, Gathered
from mhpatchcore.runtime.urls import url_of

TRAIN, TEST = "train", ("test", "ground_truth")
# what a mask has behind the name of its image
MASK_ENDING = re.compile(r"[-_ .](mask|gt|label)$", re.IGNORECASE)
NAMED = 3

Parts = tuple[str, ...]


def normals_among(given: Gathered, warn: Callable[[str], None]) -> Gathered:
    """The normal training images, if all of a data set was given (in a layout of `datasets.py`); else all images."""
    if not given.is_whole:
        return given
    chosen = visa_training(Path(given.source)) or _training_names(given)
    kept = [i for i, name in enumerate(given.names) if name in chosen]
    if not kept:
        return given
    folder = commonpath([PurePath(given.names[i]).parent for i in kept])
    warn(
        f"{given.source} is a whole data set: only its normal training images are taken, {len(kept)} of "
        f"{len(given.names)} images, from {folder}"
    )
    return replace(
        given,
        images=tuple(given.images[i] for i in kept),
        names=tuple(PurePath(given.names[i]).relative_to(folder).as_posix() for i in kept),
        source=f"{given.source}/{folder}",
    )


def refuse_defects(given: Gathered) -> None:
    """Refuse images whose names say that they do not show good parts."""
    wrong = unlike_good_parts(given.names, given.source) if given.source != FROM_PYTHON else []
    if not wrong:
        return
    good = [parts for parts in _folders(given.names) if parts and _label(parts[-1]) is False]
    is_folder = url_of(given.source) is not None or Path(given.source).is_dir()
    example = f" ({given.source}/{'/'.join(good[0])})" if good and is_folder else ""
    which = given.source if wrong == [PurePath(given.source).name] else f"{_listed(wrong)} in {given.source}"
    raise UserError(
        f"every image is learnt as a good part, and {which} {'does' if len(wrong) == 1 else 'do'} not sound like one: "
        f"give the good ones alone{example}, or pass `all_good=True` if all of them are good"
    )


def unlike_good_parts(names: Sequence[str], source: str) -> list[str]:
    """Folders, and files, whose names say that they hold defects or masks, or that stand beside a folder of good parts.

    The innermost folder that says anything decides. What was given is itself a folder, of which the first word counts:
    pcb_defects may well hold good boards.

    >>> unlike_good_parts(["good/1.png", "bad/1.png", "new/1.png", "crack_tests/good/1.png"], "/parts")
    ['bad', 'new']
    >>> unlike_good_parts(["1.png", "1_mask.png"], "/parts"), unlike_good_parts(["1.png"], "/scratches")
    (['1_mask.png'], ['scratches'])
    """
    folders = _folders(names)
    with_good = {parts[:i] for parts in folders for i, part in enumerate(parts) if part.lower() in GOOD}
    own = PurePath(source).name
    first = words_of(own)[:1]
    is_own = holds_masks(own) or (_label(own) is True and _label("".join(first)) is True)
    found = dict.fromkeys(
        one for parts in folders if (one := _defects_of(parts, with_good, own if is_own else ""))
    )
    return [*found, *_masks_beside_images(names)]


def _defects_of(parts: Parts, with_good: set[Parts], own: str) -> str:
    """The folder on the way to `parts` by which it holds defects; none if it does not, or nothing says so."""
    for i in reversed(range(len(parts))):
        label = _label(parts[i])
        if label is not None:
            return "/".join(parts[: i + 1]) if label else ""
    beside = (parts[: i + 1] for i in range(len(parts)) if parts[:i] in with_good)
    return "/".join(next(beside, (own,)))


def _label(folder: str) -> bool | None:
    return True if holds_masks(folder) else Labels().of(folder)


def _folders(names: Sequence[str]) -> list[Parts]:
    """The folders of images, as their parts."""
    places = sorted({name.rpartition("/")[0] for name in names})
    return [tuple(place.split("/")) if place else () for place in places]


def _masks_beside_images(names: Sequence[str]) -> Iterator[str]:
    """Files that are named after another: 1_mask.png beside 1.png."""
    stems = {name.rpartition(".")[0] for name in names}
    for name in names:
        stem = name.rpartition(".")[0]
        if MASK_ENDING.search(stem) and MASK_ENDING.sub("", stem) in stems:
            yield name


def _training_names(given: Gathered) -> set[str]:
    """The names in train/good, or as it is called, of a folder that has a test/ or a ground_truth/ too; or none."""
    folders = _folders(given.names)

    def below(*place: str) -> list[Parts]:
        return [parts for parts in folders if parts[: len(place)] == place]

    roots = {parts[: parts.index(TRAIN)] for parts in folders if TRAIN in parts}
    sets = sorted(root for root in roots if any(below(*root, name) for name in TEST))
    if len(sets) > 1:
        some = ["/".join(root) for root in sets]
        raise UserError(
            f"{given.source} holds {len(sets)} data sets ({_listed(some)}): give one of them, {given.source}/{some[0]}"
        )
    if not sets or below(*sets[0]) != folders:
        return set()
    train = below(*sets[0], TRAIN)
    good = [parts for parts in train if any(_label(part) is False for part in parts[len(sets[0]) + 1 :])]
    places = {"/".join(parts) for parts in good or train}
    return {name for name in given.names if name.rpartition("/")[0] in places}


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
