"""A model ready to score: its sessions, made once and shared by all threads, and what one asks of it.

`Detector` is a scorer that can be fitted and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Any, Self, overload

import numpy as np

from mhpatchcore.backbone.session import letting_go, make_session
from mhpatchcore.calibration.threshold import Calibration
from mhpatchcore.config import Config
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.inputs.loading import LoadedImage, load_image
from mhpatchcore.inputs.sources import GivenImage, ImageLike, Images, each_image, is_unnamed, single_image
from mhpatchcore.inputs.views import whole_view
from mhpatchcore.model.file import damaged, from_bytes, load, save, to_bytes
from mhpatchcore.model.history import Event
from mhpatchcore.model.value import Model, Scale
from mhpatchcore.result import Result
from mhpatchcore.results import Results
from mhpatchcore.runtime.arrays import Array, Mask
from mhpatchcore.runtime.parallel import Memoised, one_blas_thread, ordered_map
from mhpatchcore.runtime.system import available_cores
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.known_defects import likenesses
from mhpatchcore.scoring.maps import ViewScores
from mhpatchcore.scoring.score import Rule, Scored, combined_score, scored_by

# how like a known defect a part is that is one, whatever its score: of 2,000 good parts of four sets none came to 0.98
COPY = 0.99


def _make_sessions(heads: Callable[[], Sequence[Head]], name: object, threads: int) -> tuple[Any, ...]:
    with _running(name):
        with one_blas_thread():
            graphs = [head.whole_graph for head in heads()]
        return tuple(make_session(graph, threads) for graph in graphs)


@contextmanager
def _running(name: object) -> Iterator[None]:
    """What `load` cannot see in a network is noticed when it runs: the model of this name is then refused too."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise damaged(name, f"its network does not run: {in_one_line(error)}") from error


class Runtime:
    """Heads and sessions of a model's scales. Each is made when first asked for, by one thread while others wait.

    One image at a time is scored on all cores; many side by side take one core each, which is faster for them all.
    Nothing here refers back to the runtime: one that is no longer used goes at once, with its sessions.
    """

    def __init__(self, model: Model, name: object = "the model") -> None:
        self._model, self._name, scales = model, name, model.scales
        self._has_run: set[int] = set()  # scales
        self._heads = Memoised(lambda: tuple(scale.head(model.config) for scale in scales))
        self._sessions = Memoised(partial(_make_sessions, self._heads, name))
        self._known = Memoised(
            lambda: tuple(model.defects.directions(i, scale.whitening) for i, scale in enumerate(scales))
        )

    @property
    def heads(self) -> tuple[Head, ...]:
        return self._heads()

    @property
    def one_at_a_time(self) -> tuple[Any, ...]:
        """A session for each scale that uses all cores."""
        return self._sessions(0)

    @property
    def side_by_side(self) -> tuple[Any, ...]:
        """A session for each scale that uses one core per call."""
        return self._sessions(1)

    def warm_up(self) -> None:
        """Run all sessions once, so that no part on the line waits for them and a damaged network is noticed."""
        for sessions in (self.one_at_a_time, self.side_by_side):
            for i, (scale, session) in enumerate(zip(self._model.scales, sessions, strict=True)):
                tiled = bool(self._model.config.sizes[i].zoom)
                # runs over tiles take much memory
                self.score(i, session, np.zeros((*scale.size, 3), np.uint8), let_go=tiled)

    def result(self, source: LoadedImage, sessions: Sequence[Any], path: str | None = None) -> Result:
        """What the model says of an image, on these sessions."""
        model, config = self._model, self._model.config
        whole = whole_view(config.views)
        shown = source.pixels(whole, whole.geometry(*source.size))
        rule, scores, judged, nearest = Rule.of(self.heads), list[float](), list[ViewScores](), []
        for scale, (view, head) in enumerate(zip(config.views, self.heads, strict=True)):
            every = source.placed(view, head.grid)
            for placed in every:
                pixels = shown if view == whole else source.pixels(view, placed.where)
                # what tiles have taken is room to decode the next image in, which is often a large one
                is_last = bool(view.zoom) and placed is every[-1]
                one = self.score(scale, sessions[scale], pixels, placed.inside, let_go=is_last)
                scores.append(one.score)
                judged.append(rule.view(scale, placed.where, placed.inside, one.judged))
                known = None
                if one.z is not None:
                    known = likenesses(one.z, self._known()[scale]).reshape(-1, *head.grid)
                nearest.append(replace(judged[-1], distances=one.nearest, known=known))
        score = combined_score(rule.score, scores, judged)
        likeness_limit, least_score = self.likeness_limits
        return Result(
            path=path,
            score=score,
            threshold=model.calibration.threshold,
            p_value=model.calibration.p_value(score),
            pixel_threshold=model.calibration.pixel_threshold,
            views=tuple(nearest),
            window=config.views[0].window,
            area=source.area,
            names=model.defects.names,
            likeness_limit=likeness_limit if score >= least_score else max(likeness_limit, COPY),
            measures=tuple(source.measures(whole, shown).tolist()),
        )

    def score(
        self, scale: int, session: Any, view: Array, inside: Mask | None = None, let_go: bool = False
    ) -> Scored:
        """One view (H, W, 3) at one scale, of which only the patches inside (h, w) count; None: all.

        A session keeps the memory of a run for the next, unless it is told to `let_go` of it.
        """
        head = self.heads[scale]
        feed = {"image": np.ascontiguousarray(view[None], np.float32), "penalty": head.no_penalty}
        options = letting_go() if let_go else None
        with_z = bool(self._model.defects.names)
        with nullcontext() if scale in self._has_run else _running(self._name):
            found = scored_by(session, feed, head.grid, inside, options, with_z)
        self._has_run.add(scale)
        return found

    @cached_property
    def likeness_limits(self) -> tuple[float, float]:
        """How like a known defect an image rejected for that is, and its least score; infinity where none is known."""
        scales, deciding = self._model.scales, self._model.calibration.deciding
        if not (self._model.defects.names and deciding):
            return inf, inf
        like = [
            max(
                float(likenesses(scale.whitening(rows).T, known).max())
                for scale, rows, known in zip(scales, one.rows, self._known(), strict=True)
            )
            for one in deciding
        ]
        return self._model.calibration.likeness_limit(np.array(like))


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

        Where more images calibrate than keep their patches, those that score as low as most good parts do have to be
        copies of one.
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
        """Read a model file and check it. Its network is made ready to run by the first score.

        Parameters
        ----------
        path
            A model file, or its URL.
        """
        loaded = cls(load(Path(path)))
        object.__setattr__(loaded, "runtime", Runtime(loaded.model, path))
        with _running(path):
            _ = loaded.likeness_limit
        return loaded

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        return cls(from_bytes(content))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._from_bytes, (to_bytes(self.model),)
