"""Images that come one after the other: from a function that can be called again, or as frames of a video or camera.

Images of a function are asked for by number, mostly in rising order. Each thread has a run of its own and goes forward
in it; going back begins a new run. So no image is kept but the last.

Videos and cameras take OpenCV, which comes with `pip install 'mhpatchcore[video]'`. A frame of a file has a name,
line.mp4/000120, and is read when it is needed. A camera gives its frames once: score them as they come, or record them
and learn from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from itertools import count, takewhile
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.runtime.arrays import Array

VIDEOS = (".mp4", ".m4v", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")


class Replay:
    """What `run()` gives, by number."""

    def __init__(self, run: Callable[[], Iterable[Any]]) -> None:
        self._run = run
        self._here = local()

    @cached_property
    def length(self) -> int:
        """How many there are, which takes a run."""
        return sum(1 for _ in self._run())

    def __getitem__(self, number: int) -> Any:
        here = self._here
        if getattr(here, "number", number) > number or not hasattr(here, "rest"):
            here.rest, here.number = iter(self._run()), -1
        while here.number < number:
            here.last = _next(here.rest, number)
            here.number += 1
        return here.last

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay, (self._run,)


class LazyImage:
    """One of the images of a replay, which is made when it is asked for."""

    def __init__(self, replay: Replay, number: int) -> None:
        self._replay, self._number = replay, number

    def made(self) -> Any:
        return self._replay[self._number]

    def __str__(self) -> str:
        return f"number {self._number}"


def _next(rest: Iterator[Any], number: int) -> Any:
    try:
        return next(rest)
    except StopIteration:
        raise ImageError(
            f"image {number} is missing: what gives the images has given fewer than before; give a list of them"
        ) from None


def is_video(path: str | Path) -> bool:
    return Path(path).suffix.lower() in VIDEOS and Path(path).is_file()


def frames(source: str | Path | int, every: int = 1) -> Iterator[Array]:
    """Every N-th frame (`every`) (H, W, 3) of a video file, or of the camera of a number, as long as there are any."""
    with _captured(source) as capture:
        for number in count():
            if not capture.grab():
                return
            if number % every == 0:
                there, pixels = capture.retrieve()
                if not there:
                    return
                yield np.ascontiguousarray(pixels[:, :, ::-1])  # OpenCV's order is blue, green, red


def video_frames(path: str | Path, every: int = 1) -> list[str]:
    """The names of every N-th frame of a video file."""
    with _captured(path) as capture:
        length = sum(1 for _ in takewhile(bool, (capture.grab() for _ in count())))
    if not length:
        raise UserError(
            f"video {path} has no frames that can be read: record it again, or convert it to .mp4"
        )
    return [f"{path}/{number:06d}" for number in range(0, length, every)]


def is_frame(name: str | Path) -> bool:
    """Whether a name is that of a video's frame, such as line.mp4/000120."""
    path = Path(name)
    return path.name.isdecimal() and is_video(path.parent)


def frame(name: str | Path) -> Array:
    """The frame (H, W, 3) of a name."""
    path = Path(name)
    try:
        pixels: Array = _replay(path.parent)[int(path.name)]
    except ImageError:
        raise ImageError(f"there is no frame {path.name} in {path.parent}") from None
    return pixels


def frame_size(name: str | Path) -> tuple[int, int]:
    """Height and width of a video's frames, by its first."""
    path = Path(name).parent
    return _first_size(path, path.stat().st_mtime_ns)


def _replay(path: str | Path) -> Replay:
    return _known_replay(Path(path), Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _known_replay(path: Path, changed: int) -> Replay:
    return Replay(partial(frames, path))


@lru_cache(maxsize=8)
def _first_size(path: Path, changed: int) -> tuple[int, int]:
    first = next(frames(path), None)
    if first is None:
        raise ImageError(f"video {path} has no frames that can be read")
    return first.shape[0], first.shape[1]


@contextmanager
def _captured(source: str | Path | int) -> Iterator[Any]:
    """The video or camera, opened by OpenCV for as long as the block lasts."""
    try:
        import cv2
    except ImportError:
        raise UserError(f"reading {source} takes OpenCV: pip install 'mhpatchcore[video]'") from None
    capture = cv2.VideoCapture(source if isinstance(source, int) else str(source))
    try:
        if not capture.isOpened():
            what = f"camera {source}" if isinstance(source, int) else f"video {source}"
            raise UserError(f"cannot open {what}: check that it is there and of a usual kind")
        yield capture
    finally:
        capture.release()
