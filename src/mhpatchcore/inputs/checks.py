"""Images that do not belong together, or among good parts, by their names and by the headers of their files: found
before anything is learnt from them. Of a whole data set the normal training images are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os.path import commonpath
from pathlib import Path, PurePath

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.datasets import GOOD, Labels, holds_masks, visa_training, words_of
from mhpatchcore.inputs.decode import Header, decoded, header_of
from mhpatchcore.inputs.regions import Polygons, Roi
from mhpatchcore.inputs.sources import FROM_PYTHON, Gathered, ImageLike, LazyImage, spread
from mhpatchcore.runtime.urls import url_of

TRAIN, TEST = "train", ("test", "ground_truth")
# what a mask has behind the name of its image
MASK_ENDING = re.compile(r"[-_ .](mask|gt|label)$", re.IGNORECASE)
NAMED = 3

Parts = tuple[str, ...]
MOST_HEADERS = 5_000  # that are read
OTHER_SHAPE = 0.1
# a mask is hardly larger than its header: its pictures take 0.01 bytes a pixel, photographs 0.1 and more
MASK_BYTES, MASK_BYTES_PER_PIXEL = 500, 0.05
MOST_MASKS = 16  # that are decoded, to be sure
SAMPLED_SIDE = 256


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
    own_defects = holds_masks(own) or (_label(own) is True and _label("".join(words_of(own)[:1])) is True)

    def defects(parts: Parts) -> str:
        """The folder on the way to `parts` by which it holds defects; none if it does not, or nothing says so."""
        ways = [parts[: i + 1] for i in range(len(parts))]
        for way in reversed(ways):
            if _label(way[-1]) is not None:
                return "/".join(way) if _label(way[-1]) else ""
        beside = next((way for way in ways if way[:-1] in with_good), None)
        if beside is not None:
            return "/".join(beside)
        return own if own_defects else ""

    stems = {name: name.rpartition(".")[0] for name in names}
    images = {stem for stem in stems.values() if not MASK_ENDING.search(stem)}
    masks = [
        name for name, stem in stems.items() if stem not in images and MASK_ENDING.sub("", stem) in images
    ]
    return [*dict.fromkeys(filter(None, map(defects, folders))), *masks]


def _label(folder: str) -> bool | None:
    return True if holds_masks(folder) else Labels().of(folder)


def _folders(names: Sequence[str]) -> list[Parts]:
    """The folders of images, as their parts."""
    places = sorted({name.rpartition("/")[0] for name in names})
    return [tuple(place.split("/")) if place else () for place in places]


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


@dataclass(frozen=True)
class Suggestion:
    """What to do, as options of `fit` where there are any, and why."""

    what: str
    why: str
    options: str = ""

    def __str__(self) -> str:
        return f"{self.why}; {self.what[0].lower()}{self.what[1:]}"


@dataclass(frozen=True, eq=False)
class Seen:
    """An image by its name, and what its header says."""

    name: str
    source: ImageLike
    header: Header


def seen_headers(images: Sequence[ImageLike], names: Sequence[str]) -> list[Seen]:
    """The images whose headers cost next to nothing: those on this machine, spread evenly where there are many."""
    near = [
        (name, one)
        for name, one in zip(names, images, strict=True)
        if not isinstance(one, LazyImage) and (not isinstance(one, str | Path) or url_of(one) is None)
    ]
    some = (near[i] for i in spread(len(near), MOST_HEADERS))
    # a broken file is reported when it is read
    return [Seen(name, one, header) for name, one in some if (header := header_of(one)) is not None]


def odd_images(images: Sequence[Seen], roi: Roi | None, stretched: bool) -> Iterator[Suggestion]:
    """What speaks against learning these together; `stretched` says that they share views of the whole image."""
    yield from _masks_among(images)
    yield from _mixed_colours(images)
    if stretched:
        yield from _mixed_shapes(images)
    yield from _region_beyond(images, roi)


def _masks_among(images: Sequence[Seen]) -> Iterator[Suggestion]:
    """Pictures of two values, of which no photograph is made. Only files that are small enough are decoded."""
    candidates = [one for one in images if _may_be_mask(one)]
    some = [candidates[i] for i in spread(len(candidates), MOST_MASKS)]
    found = [one for one in some if _has_two_values(one.source)]
    if found:
        n = round(len(candidates) * len(found) / len(some))
        yield Suggestion(
            "Learn from photographs alone",
            f"{n} of {len(images)} images {'has' if n == 1 else 'have'} at most two values, as masks do, for example "
            f"{found[0].name}",
        )


def _mixed_colours(images: Sequence[Seen]) -> Iterator[Suggestion]:
    single = [one for one in images if one.header.frames in (None, 1)]
    gray, colour = ([one for one in single if one.header.in_colour is kind] for kind in (False, True))
    if gray and colour:
        few, name = min((gray, "gray"), (colour, "in colour"), key=lambda one: len(one[0]))
        yield Suggestion(
            "Give images that are all gray, or all in colour",
            f"{_are(len(few), images)} {name}, for example {few[0].name}: the model would take both for normal",
        )


def _mixed_shapes(images: Sequence[Seen]) -> Iterator[Suggestion]:
    ratios = np.array([one.header.height / one.header.width for one in images])
    other = np.abs(np.log(ratios / np.median(ratios))) > OTHER_SHAPE if images else np.zeros(0, bool)
    if other.any():
        yield Suggestion(
            "Fit a model for each shape, or cut the images alike",
            f"{_are(int(other.sum()), images)} of another shape than the typical one and would be stretched to its "
            f"view, for example {images[int(other.argmax())].name}",
        )


def _region_beyond(images: Sequence[Seen], roi: Roi | None) -> Iterator[Suggestion]:
    if not isinstance(roi, Polygons) or roi.in_shares:  # a mask is stretched over its image
        return
    x, y = np.array([corner for corners in roi.polygons for corner in corners]).T
    beyond = [
        one
        for one in images
        if min(x.min(), y.min()) < 0 or x.max() > one.header.width or y.max() > one.header.height
    ]
    if beyond:
        size = f"{beyond[0].header.width} × {beyond[0].header.height} pixels"
        yield Suggestion(
            "Check that it was drawn for images like these",
            f"the region of interest reaches beyond {len(beyond)} of {len(images)} images, "
            f"for example {beyond[0].name} ({size})",
        )


def _are(n: int, images: Sequence[Seen]) -> str:
    return f"{n} of {len(images)} images {'is' if n == 1 else 'are'}"


def _may_be_mask(one: Seen) -> bool:
    if not isinstance(one.source, str | Path):
        return True
    try:
        size = Path(one.source).stat().st_size
    except OSError:  # a member of an archive, a frame of a video, a stack
        return False
    return size < MASK_BYTES + MASK_BYTES_PER_PIXEL * one.header.height * one.header.width


def _has_two_values(source: ImageLike) -> bool:
    """Whether a picture has at most two values (of each channel)."""
    try:
        values = np.asarray(decoded(source).values)
    except ImageError:
        return False
    step = max(1, min(values.shape[:2]) // SAMPLED_SIDE)
    return len(np.unique(values[::step, ::step].reshape(-1, *values.shape[2:]), axis=0)) <= 2
