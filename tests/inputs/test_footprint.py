"""What decoding takes in memory: told by the header, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, saved
from PIL import Image, features

from mhpatchcore.inputs.loading import decoding_bytes, largest_decoding
from mhpatchcore.inputs.views import View

HEIGHT, WIDTH = 1500, 2000
VIEW = View(64, 64)
MEASURED = """
import sys, warnings
from mhpatchcore.inputs.loading import decoding_bytes, load_views
from mhpatchcore.inputs.views import View
from mhpatchcore.inputs.window import Window
from mhpatchcore.runtime.system import share_one_heap
from mhpatchcore.runtime.system import current_rss, own_peak, reset_peak
warnings.simplefilter("ignore")
share_one_heap()
for name in sys.argv[1:]:
    views = [View(64, 64, window=Window(0, 200)) if "window" in name else View(64, 64)]
    load_views(name, views)  # what is loaded once does not count
    reset_peak()
    before = current_rss()
    load_views(name, views)
    print(own_peak() - before, decoding_bytes(name, views))
"""


def large(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(picture(HEIGHT, WIDTH)).convert(mode)


def written(folder: Path) -> dict[str, Path]:
    """A large image of every kind that takes its own amount."""
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.asarray(large("L")).astype(np.uint16))
    floats = Image.fromarray(np.asarray(large("L")).astype(np.float32))
    kinds: dict[str, tuple[Image.Image, str, dict[str, object]]] = {
        "RGB": (large(), "rgb.png", {"compress_level": 1}),
        "gray": (large("L"), "gray.png", {"compress_level": 1}),
        "palette": (large().quantize(64), "palette.png", {"compress_level": 1}),
        "transparent": (large("RGBA"), "alpha.png", {"compress_level": 1}),
        "turned": (large(), "turned.png", {"compress_level": 1, "exif": turned}),
        "deep": (deep, "deep window.png", {"compress_level": 1}),
        "floats": (floats, "floats window.tif", {}),
        "8 bits through a window": (large(), "window.png", {"compress_level": 1}),
        "TIFF": (large(), "rgb.tif", {}),
        "JPEG": (large(), "rgb.jpg", {}),
        "progressive JPEG": (large(), "progressive.jpg", {"progressive": True, "subsampling": 0}),
        "turned JPEG": (large(), "turned.jpg", {"exif": turned}),
    }
    if features.check("webp"):
        kinds["WebP"] = (large(), "rgb.webp", {})
    if features.check("jpg_2000"):
        kinds["JPEG 2000"] = (large(), "rgb.jp2", {})
    return {kind: saved(folder, image, name, **options) for kind, (image, name, options) in kinds.items()}


def test_no_kind_of_file_takes_more_than_is_told_and_none_much_less(tmp_path: Path) -> None:
    files = written(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, files.values())],
        capture_output=True,
        text=True,
        check=True,
    )
    some = 10**6  # what else comes and goes
    for kind, line in zip(files, done.stdout.splitlines(), strict=True):
        taken, told = map(int, line.split())
        assert taken <= told + some, kind
        assert told <= 3 * taken + some, kind


def test_a_jpeg_that_is_decoded_smaller_takes_less(tmp_path: Path) -> None:
    path = saved(tmp_path, large(), "rgb.jpg")
    whole = decoding_bytes(path, [View(1024, 1024)])
    assert decoding_bytes(path, [VIEW]) < whole / 10 and whole >= 4 * HEIGHT * WIDTH
    assert decoding_bytes(path, [VIEW, View(1024, 1024)]) == whole


def test_the_largest_is_named_and_what_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    small = saved(tmp_path, Image.fromarray(picture()), "small.png")
    large_one = saved(tmp_path, large(), "large.png")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    images = [small, large_one, tmp_path / "broken.png", tmp_path / "gone.png"]
    assert largest_decoding(images, [VIEW]) == (decoding_bytes(large_one, [VIEW]), str(large_one))
    assert largest_decoding([], [VIEW]) == (0, "")


@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 3)])
def test_arrays_count_by_their_size(shape: tuple[int, ...]) -> None:
    assert decoding_bytes(np.zeros(shape, np.uint8), [VIEW]) >= 30 * 40 * 8
