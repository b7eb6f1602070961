"""A model that scores images, loaded from its file or just fitted; `Detector` adds what makes and changes models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, overload

from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.sources import GivenImage, ImageLike, Images, each_image, is_unnamed, single_image
from mhpatchcore.model.file import damaged, from_bytes, load, save, to_bytes
from mhpatchcore.model.history import Event
from mhpatchcore.model.runtime import Runtime
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.result import Result
from mhpatchcore.results import Results
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.system import available_cores


@dataclass(frozen=True, eq=False, repr=False)
class Scorer:
    """A model and its sessions. It is immutable: threads can share it, and it pickles as its file."""

    model: Model
    runtime: Runtime = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runtime", Runtime(self.model))

    @overload
    def score(self, images: GivenImage) -> Result: ...  # type: ignore[overload-overlap]  # a text is iterable too
    @overload
    def score(self, images: Iterable[GivenImage]) -> Results: ...
    def score(self, images: Images) -> Result | Results:
        """Score one image, or many.

        A folder, a pattern and an array (N, H, W, 3) are collections too. Type checkers cannot know that: use
        `score_many` or `score_arrays` for them.

        Parameters
        ----------
        images
            A path, an array or a Pillow image, which gives one result; or a collection of them, which gives a list.
        """
        image = single_image(images)
        if image is not None:
            return self._score_one(image, self.runtime.one_at_a_time)
        return Results(self.score_many(images))

    __call__ = score

    def score_arrays(self, images: Array, workers: int | None = None) -> Results:
        """Score N images that are one array.

        Parameters
        ----------
        images
            (N, H, W, 3), or (N, H, W) for grey images.
        workers
            As in `score_many`.
        """
        if images.ndim not in (3, 4):
            raise UserError(f"images in one array are (N, H, W, 3) or (N, H, W), not {images.shape}")
        return Results(self.score_many(list(images), workers))

    @overload
    def score_many(
        self, images: Images, workers: int | None = None, on_error: None = None
    ) -> Iterator[Result]: ...
    @overload
    def score_many(
        self, images: Images, workers: int | None = None, on_error: Callable[[ImageError], None] | None = None
    ) -> Iterator[Result | None]: ...
    def score_many(
        self,
        images: Images,
        workers: int | None = None,
        on_error: Callable[[ImageError], None] | None = None,
    ) -> Iterator[Result | None]:
        """Score many images, several at a time. Results come in order, one by one, and nothing piles up.

        Parameters
        ----------
        images
            Whatever `fit` takes.
        workers
            How many images to score at a time (default: one per core).
        on_error
            Called with the error of an image that cannot be read, whose result is then None. Without it the error is
            raised.
        """
        sessions = self.runtime.side_by_side

        def one(image: ImageLike) -> Result | ImageError:
            try:
                return self._score_one(image, sessions)
            except ImageError as error:
                if on_error is None:
                    raise
                return error

        for outcome in ordered_map(one, each_image(images), workers or available_cores()):
            if on_error is not None and isinstance(outcome, ImageError):
                on_error(outcome)
            yield None if isinstance(outcome, ImageError) else outcome

    def _score_one(self, image: ImageLike, sessions: Sequence[Any]) -> Result:
        return self.runtime.result(self.opened(image), sessions, None if is_unnamed(image) else str(image))

    def opened(self, image: ImageLike) -> LoadedImage:
        """The image, decoded as this model sees it: the first half of `score`, for anyone who times each."""
        return load_image(image, self.config.views, self.config.roi)

    def score_opened(self, source: LoadedImage) -> Result:
        """The other half, on one core, as `score_many` does it for each image."""
        return self.runtime.result(source, self.runtime.side_by_side)

    def with_roi(self, roi: Any) -> Self:
        """The same detector with another region of interest, for example for a single image.

        Parameters
        ----------
        roi
            What `Config(roi=...)` takes: a rectangle, corners, a mask (an array or a file), or a folder or CSV file
            with a region for each image.
        """
        other = replace(self, model=replace(self.model, config=self.config.with_changes(roi=roi)))
        object.__setattr__(other, "runtime", self.runtime)  # which does not depend on it
        return other

    @property
    def config(self) -> Config:
        """The recipe, with what the network and the images have decided of it."""
        return self.model.config

    @property
    def scales(self) -> tuple[Scale, ...]:
        """What was learnt at each size: network, metric and bank."""
        return self.model.scales

    @property
    def calibration(self) -> Calibration:
        """The scores of normal images that the threshold comes from."""
        return self.model.calibration

    @property
    def threshold(self) -> float:
        """Scores above it are rejected; infinity without calibration images."""
        return self.model.calibration.threshold

    @property
    def likeness_limit(self) -> float:
        """Images that are more like a known defect are rejected too; infinity for a model that knows none.

        Only images that score as low as most good parts pass all the same.
        """
        return self.runtime.likeness_limits[0]

    @property
    def history(self) -> tuple[Event, ...]:
        """What was done to the model, when, and with which images."""
        return self.model.history

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all.

        Parameters
        ----------
        path
            A file such as "part.mhpc", or a URL.
        """
        save(self.model, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file, check it, and make it ready to score.

        Parameters
        ----------
        path
            A model file, or its URL.
        """
        loaded = cls(load(Path(path)))
        try:
            loaded.runtime.warm_up(loaded.runtime.one_at_a_time)
            _ = loaded.likeness_limit
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise damaged(path, f"its network does not run: {in_one_line(error)}") from error
        return loaded

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        return cls(from_bytes(content))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._from_bytes, (to_bytes(self.model),)
