"""Images that do not belong together: what the headers of their files say, before anything is learnt from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mhpatchcore.errors import ImageError
from mhpatchcore.inputs.areas import Polygons
from mhpatchcore.inputs.decode import Header, decoded, header_of
from mhpatchcore.inputs.regions import Roi
from mhpatchcore.inputs.replay import LazyImage
from mhpatchcore.inputs.sources import ImageLike, spread
from mhpatchcore.runtime.urls import url_of

MOST_HEADERS = 5_000  # that are read
OTHER_SHAPE = 0.1
# a mask is hardly larger than its header: its pictures take 0.01 bytes a pixel, photographs 0.1 and more
MASK_BYTES, MASK_BYTES_PER_PIXEL = 500, 0.05
MOST_MASKS = 16  # that are decoded, to be sure
SAMPLED_SIDE = 256


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
    near = [i for i, one in enumerate(images) if not isinstance(one, LazyImage) and _is_near(one)]
    found = []
    for i in (near[at] for at in spread(len(near), MOST_HEADERS)):
        header = header_of(images[i])
        if header is not None:  # a broken file is reported when it is read
            found.append(Seen(names[i], images[i], header))
    return found


def odd_images(images: Sequence[Seen], roi: Roi | None, stretched: bool) -> Iterator[Suggestion]:
    """What speaks against learning these together; `stretched` says that they share views of the whole image."""
    yield from masks_among(images)
    yield from mixed_colours(images)
    if stretched:
        yield from mixed_shapes(images)
    yield from region_beyond(images, roi)


def masks_among(images: Sequence[Seen]) -> Iterator[Suggestion]:
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


def mixed_colours(images: Sequence[Seen]) -> Iterator[Suggestion]:
    single = [one for one in images if one.header.frames in (None, 1)]
    gray, colour = ([one for one in single if one.header.in_colour is kind] for kind in (False, True))
    if gray and colour:
        few, name = min((gray, "gray"), (colour, "in colour"), key=lambda one: len(one[0]))
        yield Suggestion(
            "Give images that are all gray, or all in colour",
            f"{_are(len(few), images)} {name}, for example {few[0].name}: the model would take both for normal",
        )


def mixed_shapes(images: Sequence[Seen]) -> Iterator[Suggestion]:
    ratios = np.array([one.header.height / one.header.width for one in images])
    other = np.abs(np.log(ratios / np.median(ratios))) > OTHER_SHAPE if images else np.zeros(0, bool)
    if other.any():
        yield Suggestion(
            "Fit a model for each shape, or cut the images alike",
            f"{_are(int(other.sum()), images)} of another shape than the typical one and would be stretched to its "
            f"view, for example {images[int(other.argmax())].name}",
        )


def region_beyond(images: Sequence[Seen], roi: Roi | None) -> Iterator[Suggestion]:
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


def _is_near(source: ImageLike) -> bool:
    """Whether it is on this machine: each one elsewhere would cost a request."""
    return not isinstance(source, str | Path) or url_of(source) is None


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
