"""What the detector says about one image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from io import BytesIO
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.inputs.regions import Area, Extent
from mhpatchcore.inputs.sources import GivenImage, ImageLike, single_image
from mhpatchcore.inputs.window import Window
from mhpatchcore.runtime.arrays import Floats, Mask
from mhpatchcore.scoring.known_defects import most_like, name_in
from mhpatchcore.scoring.maps import Region, ViewScores, combined_map, regions_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# of the map's peak: where a rejected image is most anomalous, even below the pixel threshold
PEAK_SHARE = 0.8
BAND = 2**20  # pixels of the map at a time
GREY = 225  # stands for an image that is not at hand

Verdict = Literal["passed", "rejected", "no threshold"]
UNREADABLE = "unreadable"  # what tables say of an image that there is no result of


@dataclass(frozen=True, eq=False)
class Result:
    """What the detector says about one image.

    `map` and `mask` have the size of the original image and are made when first asked for.

    Parameters
    ----------
    path
        The image's path, if it is a file.
    score
        How anomalous the image is.
    threshold
        Scores above it are rejected; infinity for a model without calibration, which scores but does not judge.
    p_value
        The share of good parts that score as high.
    pixel_threshold
        Map values above it are in the mask.
    views
        Patch scores of each view, from which the map is made.
    window
        Which values of the image were shown as black and white.
    area
        The region of interest; the map is zero outside of it.
    names
        Known defects, by which regions are named.
    likeness_limit
        An image that is more like a known defect than this is rejected too.
    measures
        Brightness, sharpness and so on; `camera` has them by name.
    """

    path: str | None
    score: float
    threshold: float
    p_value: float
    pixel_threshold: float
    views: tuple[ViewScores, ...]
    window: Window | None = None
    area: Area | None = None
    names: tuple[str, ...] = ()
    likeness_limit: float = inf
    measures: tuple[float, ...] = (nan,) * len(MEASURES)

    @property
    def camera(self) -> dict[str, float | None]:
        """The measures by their names; None where one is not known."""
        known = zip(MEASURES, self.measures, strict=True)
        return {name: value if isfinite(value) else None for name, value in known}

    @property
    def verdict(self) -> Verdict:
        """What it means: "passed", "rejected", or "no threshold" where the model cannot tell.

        Rejected is what scores above the threshold, and what is more like a known defect than good parts are.
        """
        if not isfinite(self.threshold):
            return "no threshold"
        passes = self.score <= self.threshold  # a score that is not a number does not pass
        return "passed" if passes and not self.is_like_known else "rejected"

    @property
    def is_rejected(self) -> bool:
        """Whether it does not pass; without a threshold everything does (see `verdict`)."""
        return self.verdict == "rejected"

    @property
    def is_like_known(self) -> bool:
        """Whether it is more like a known defect than good parts are."""
        return self._most_like[0] > self.likeness_limit

    @cached_property
    def _most_like(self) -> tuple[float, int]:
        return most_like(self.views) if self.names else (-1.0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the original image."""
        return self.views[0].geometry.height, self.views[0].geometry.width

    @cached_property
    def map(self) -> Floats:
        """Smoothed anomaly map (H, W) over the original image, in squared distances."""
        return self.map_over((0, 0, *self.size), *self.size)

    def map_over(self, box: Extent, height: int, width: int) -> Floats:
        """The map over a box of the original image, at height × width places in it: as cheap as these are few."""
        heat = combined_map(self.views, box, height, width)
        if self.area is not None:
            heat[~self.area.over(box, height, width, self.size)] = 0
        return heat

    @cached_property
    def peak(self) -> float:
        """The map's maximum."""
        return float(max(band.max() for band in self._bands()))

    @cached_property
    def mask_limit(self) -> float:
        """Map values above it are in the mask.

        It is the pixel threshold, or less: a rejected image always shows where it is most so, even if no pixel
        exceeds the threshold by itself.
        """
        return min(self.pixel_threshold, PEAK_SHARE * self.peak) if self.is_rejected else self.pixel_threshold

    @cached_property
    def mask(self) -> Mask:
        """Predicted segmentation (H, W): where the map exceeds `mask_limit`."""
        return np.concatenate([band > self.mask_limit for band in self._bands()])

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Connected regions of the mask, highest peak first; named where the model knows defects."""
        found = regions_in(self._bands(), self.mask_limit) if isfinite(self.mask_limit) else ()
        return tuple(self._named(region) for region in found) if self.names else found

    @property
    def defect(self) -> str | None:
        """What the worst region of a rejected image is called, or "unknown"; None where the model knows no names."""
        if self.is_rejected and self.score <= self.threshold:
            return self.names[self._most_like[1]]
        return self.regions[0].name if self.is_rejected and self.regions else None

    def _named(self, region: Region) -> Region:
        name, sure = name_in(self.views, self.names, region.box)
        return replace(region, name=name, sure=sure)

    def _bands(self) -> Iterator[Floats]:
        """The map from top to bottom, some rows at a time: that of a large image is never in memory as a whole."""
        height, width = self.size
        rows = max(1, BAND // width)
        for top in range(0, height, rows):
            bottom = min(top + rows, height)
            yield self.map_over((top, 0, bottom, width), bottom - top, width)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, as JSON takes it. Without a threshold what depends on it is None."""
        judged = self.verdict != "no threshold"
        return {
            "image": self.path,
            "score": self.score,
            "threshold": self.threshold if judged else None,
            "verdict": self.verdict,
            "is_rejected": self.is_rejected if judged else None,
            "p_value": self.p_value if judged else None,
            "defect": self.defect,
            "is_like_known": self.is_like_known if self.names else None,
            "regions": [asdict(region) for region in self.regions],
            "camera": self.camera,
        }

    def to_json(self) -> str:
        """`to_dict` as a JSON text."""
        return json.dumps(self.to_dict())

    def picture(self, image: GivenImage | None = None) -> Image.Image:
        """The image, its heat and what is outlined, side by side above the verdict.

        Parameters
        ----------
        image
            The image that was scored; needed where it was not a file.
        """
        from mhpatchcore.report.drawing import triptych

        return Image.fromarray(triptych(self.source(image), self))

    def save(self, path: str | Path, image: GivenImage | None = None) -> None:
        """Write `picture` as a file, whose ending says the format.

        Parameters
        ----------
        path
            Where to write: why.png, why.jpg.
        image
            As in `picture`.
        """
        from mhpatchcore.report.drawing import save_picture

        save_picture(path, np.asarray(self.picture(image)))

    def plot(self, image: GivenImage | None = None, axes: Axes | None = None) -> Axes:
        """Show `picture` with Matplotlib.

        Parameters
        ----------
        image
            As in `picture`.
        axes
            Where to draw (default: a new figure).
        """
        picture = self.picture(image)
        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots(figsize=(10, 10 * picture.height / picture.width), layout="tight")
        axes.imshow(picture)
        axes.set_axis_off()
        return axes

    def source(self, image: GivenImage | None = None) -> ImageLike:
        """The image that was scored: the one given, or the file it came from.

        Parameters
        ----------
        image
            Needed where it was not a file.
        """
        source = self.path if image is None else single_image(image)
        if source is None:
            raise UserError("this result is not that of a file, and keeps no pixels: give the image as well")
        return source

    def _repr_png_(self) -> bytes:
        """What a notebook shows: the picture; where the image is not a file that is still there, its heat on grey."""
        from mhpatchcore.report.drawing import triptych

        if self.path is not None and Path(self.path).is_file():
            picture = self.picture()
        else:
            grey = np.full((*self.size, 3), GREY, np.uint8)
            picture = Image.fromarray(triptych(grey, replace(self, window=None)))
        file = BytesIO()
        picture.save(file, "PNG")
        return file.getvalue()

    def __repr__(self) -> str:
        return f"Result({self.verdict}, score={self.score:.4g}, threshold={self.threshold:.4g}, p={self.p_value:.3g})"
