"""Lists, functions that give images, memory maps and videos."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pictures import picture
from PIL import Image

from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.decode import header_of
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.pixels import frames, video_frames
from mhpatchcore.inputs.places import is_there
from mhpatchcore.inputs.sources import content_hash, each_image, fetched, gather, list_images, single_image
from mhpatchcore.runtime.parallel import Replay


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(picture()).save(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.txt", "b/3.png\n\n  a/1.png  \n"),
        ("list.txt", "\ufeffb/3.png\r\na/1.png"),
        ("list.csv", "image,score\nb/3.png,1\na/1.png,2\n"),
        ("list.csv", 'score,path\n1,b/3.png\n2,"a/1.png"\n'),
    ],
)
def test_a_list_of_paths_from_its_own_folder(parts: Path, name: str, content: str) -> None:
    (parts / name).write_text(content, encoding="utf-8")
    assert list_images(parts / name) == [parts / "b/3.png", parts / "a/1.png"]
    assert gather(parts / name).names == ("a/1.png", "b/3.png")
    assert single_image(parts / name) is None


def test_a_list_may_name_folders_and_patterns(parts: Path) -> None:
    (parts / "list.txt").write_text(f"{parts}/b\na/*.png\n")
    assert list_images(parts / "list.txt") == [parts / "b/3.png", parts / "a/1.png", parts / "a/2.png"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("list.txt", "\n\n", "names no images; write one path per line"),
        ("list.txt", "a/1.png\na/7.png\n", r"list\.txt: there is no image .*a/7\.png; correct the line"),
        ("list.txt", "list.txt\n", r"there is no image .*list\.txt"),
        ("list.csv", "part,score\na/1.png,1\n", "has no column of paths; .* image, path, file, filename"),
        ("list.csv", "", "has no column of paths; .* image, path, file, filename"),
    ],
)
def test_a_wrong_list_is_told(parts: Path, name: str, content: str, told: str) -> None:
    (parts / name).write_text(content)
    with pytest.raises(UserError, match=told):
        list_images(parts / name)


def test_a_list_that_is_no_text_is_told(parts: Path) -> None:
    (parts / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot read list .*list\.txt"):
        list_images(parts / "list.txt")


class Runs:
    """A function that gives pictures, and counts its runs and what it has given."""

    def __init__(self, n: int) -> None:
        self.n, self.runs, self.given = n, 0, 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.runs += 1
        for i in range(self.n):
            self.given += 1
            yield np.full((4, 5, 3), i, np.uint8)


def test_a_function_is_run_again_and_nothing_is_kept() -> None:
    runs = Runs(10)
    found = gather(runs)
    assert (len(found.images), runs.runs, runs.given) == (10, 1, 10)
    assert found.names[3] == "array 3"
    for i in (0, 3, 3, 4, 9):  # forward
        assert np.asarray(fetched(found.images[i])).max() == i
    assert runs.runs == 2
    assert np.asarray(fetched(found.images[2])).max() == 2 and runs.runs == 3  # back
    hashes = [content_hash(image) for image in found.images]
    assert len(set(hashes)) == 10 and hashes[1] == content_hash(np.full((4, 5, 3), 1, np.uint8))


def test_a_function_is_not_run_ahead_for_scoring() -> None:
    runs = Runs(10**9)
    assert [int(np.max(image)) for image in islice(each_image(runs), 3)] == [0, 1, 2]
    assert runs.given == 3


def test_what_a_function_gives_may_be_anything_that_is_an_image(parts: Path) -> None:
    found = gather(lambda: [parts / "a/1.png", Image.fromarray(picture()), picture()])
    for image in found.images:
        assert np.array_equal(load_pixels(image), picture()) and header_of(image) is not None


def test_a_function_that_gives_fewer_the_second_time_is_told() -> None:
    once = iter([picture(), picture()])
    found = gather(lambda: once)
    with pytest.raises(ImageError, match=r"image 0 is missing: .* fewer than before"):
        fetched(found.images[0])


def test_a_replay_travels_to_other_processes() -> None:
    replay = Replay(Runs(3))
    assert replay[2].max() == 2
    assert pickle.loads(pickle.dumps(replay))[1].max() == 1


def test_a_memory_map_is_read_image_by_image(tmp_path: Path) -> None:
    np.save(tmp_path / "all.npy", np.stack([picture(), picture()[::-1]]))
    images = np.load(tmp_path / "all.npy", mmap_mode="r")
    found = gather(images)
    assert [type(image) for image in found.images] == [np.memmap] * 2
    assert np.array_equal(load_pixels(found.images[1]), picture()[::-1])
    assert content_hash(found.images[0]) == content_hash(picture())


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """Twelve frames, brighter one after the other."""
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "line.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for i in range(12):
        writer.write(np.full((48, 64, 3), (0, 0, 20 * i), np.uint8))  # red, in OpenCV's order
    writer.release()
    return path


def reds(images: list[object]) -> list[int]:
    return [round(load_pixels(image)[:, :, 0].mean() / 20) for image in images]  # type: ignore[arg-type]


def test_frames_of_a_video_have_names(video: Path) -> None:
    names = list_images(video)
    assert names == [f"{video}/{i:06d}" for i in range(12)] and reds(names) == list(range(12))
    assert reds(video_frames(video, every=5)) == [0, 5, 10]  # type: ignore[arg-type]
    assert load_pixels(names[11])[:, :, 2].max() < 30  # it is red, not blue
    assert gather(video).names[:2] == ("000000", "000001") and gather(video).source == str(video)
    assert header_of(names[3]) == (48, 64, "8-bit", 1, "video", True)
    assert is_there(names[3]) and single_image(video) is None and single_image(names[3]) == names[3]
    assert content_hash(names[3]) == content_hash(load_pixels(names[3])) != content_hash(names[4])


def test_frames_may_be_taken_as_they_come(video: Path) -> None:
    assert reds(list(frames(video, every=4))) == [0, 4, 8]


def test_a_frame_that_is_not_there_and_a_broken_video(video: Path) -> None:
    with pytest.raises(ImageError, match=r"there is no frame 000099 in .*line\.avi"):
        load_pixels(f"{video}/000099")
    video.write_bytes(b"no video")
    with pytest.raises(UserError, match=r"cannot open video .*line\.avi"):
        list_images(video)


def test_without_opencv_the_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    (tmp_path / "line.mp4").touch()
    with pytest.raises(UserError, match=r"line\.mp4 takes OpenCV: pip install 'mhpatchcore\[video\]'"):
        list_images(tmp_path / "line.mp4")


def test_a_camera_that_is_not_there_is_told() -> None:
    pytest.importorskip("cv2")
    with pytest.raises(UserError, match="cannot open camera 77"):
        next(frames(77))
