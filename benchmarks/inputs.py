"""The pictures of docs/how-to/images.md: `python -m benchmarks.inputs`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mhpatchcore.cli.ranks import rank_images
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.inputs.loading import load_image, load_pixels, load_views
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.views import View, shape_like
from mhpatchcore.inputs.window import Window, learnt_window
from mhpatchcore.runtime.arrays import Array

DOCS = Path(__file__).parents[1] / "docs"
SIDE, CAPTION, GAP = 220, 26, 10
BLACK, STEPS = 180, 5  # of a camera with 12 bits, for each of 256 grey levels
FRAMES = 5
ROI = [[0.42, 0.16], [0.6, 0.16], [0.72, 0.32], [0.72, 0.9], [0.28, 0.9], [0.28, 0.32]]
LINE = (230, 150, 0)


def main() -> None:
    write_row(DOCS / "depth.jpg", depth_panels())
    write_row(DOCS / "ranks.jpg", rank_panels())
    write_row(DOCS / "shape.jpg", shape_panels())
    write_row(DOCS / "region.jpg", region_panels())
    write_row(DOCS / "tiles.jpg", tile_panels())


def depth_panels() -> list[tuple[str, Array]]:
    """A camera with 12 bits that uses a third of them, in files of 16."""
    normals = [exposed(vial_image(seed, pixels=SIDE)[0]) for seed in range(10)]
    window = learnt_window(normals)
    return [
        ("read as 16 bits", load_pixels(normals[0], Window(0, 65535))),
        ("read as 12 bits", load_pixels(normals[0], Window(0, 4095))),
        (f"learnt window, {window}", load_pixels(normals[0], window)),
    ]


def exposed(pixels: Array) -> Array:
    """(H, W, 3) of 8 bits as a dim picture of 12."""
    return (BLACK + STEPS * pixels.astype(float)).astype(np.uint16)


def rank_panels() -> list[tuple[str, Array]]:
    """A particle that sinks through the liquid, in a few frames of one vial."""
    still, rng = (
        np.asarray(Image.fromarray(vial_image(0, pixels=SIDE)[0]).convert("L")),
        np.random.default_rng(0),
    )
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    frames = []
    for number in range(FRAMES):
        particle = 150 * np.exp(-((y - 95 - 17 * number) ** 2 + (x - 100 - 4 * number) ** 2) / 12)
        frames.append(np.clip(still + particle + rng.normal(0, 4, still.shape), 0, 255).astype(np.uint8))
    low, middle, high = rank_images(frames)
    named = [("one of 5 frames", frames[2]), ("minimum", low), ("median", middle), ("maximum", high)]
    return [*named, ("the stack", np.stack([low, middle, high], axis=2))]


def shape_panels() -> list[tuple[str, Array]]:
    """Three vials side by side: a long image."""
    image = np.concatenate([vial_image(seed, pixels=SIDE)[0] for seed in range(3)], axis=1)
    height, width = shape_like([image], 224, 224)
    return [
        (f"the image, {image.shape[1]} x {image.shape[0]}", image),
        ("stretched, 224 x 224", seen(image, View(224, 224))),
        (f"kept, {width} x {height}", seen(image, View(height, width))),
    ]


def region_panels() -> list[tuple[str, Array]]:
    """A polygon around the vial without its cap."""
    image = vial_image(4, pixels=SIDE)[0]
    drawn = Image.fromarray(image)
    corners = [(x * SIDE, y * SIDE) for x, y in ROI]
    ImageDraw.Draw(drawn).line([*corners, corners[0]], fill=LINE, width=2)
    roi = parse_roi(ROI)
    view = load_image(image, [View(SIDE, SIDE)], roi)
    inside = view.placed(View(SIDE, SIDE), (SIDE // 8, SIDE // 8))[0].inside
    patches = np.kron(np.asarray(inside), np.ones((8, 8)))[:SIDE, :SIDE]
    counting = np.full((SIDE, SIDE), 90, np.uint8)
    counting[: len(patches), : patches.shape[1]] = np.where(patches, 230, 90)
    counting[::8], counting[:, ::8] = 128, 128
    pixels = view.pixels(View(SIDE, SIDE), View(SIDE, SIDE).geometry(SIDE, SIDE))
    return [
        ("the polygon", np.asarray(drawn)),
        ("what is seen", pixels),
        ("bright: patches that count", counting),
    ]


def tile_panels() -> list[tuple[str, Array]]:
    """A tray of vials with a small speck in one of them."""
    rows = [
        np.concatenate([vial_image(5 * row + i, pixels=320)[0] for i in range(5)], axis=1) for row in range(4)
    ]
    tray = np.concatenate(rows)
    y, x = 640 + 215, 960 + 170  # in the fourth vial of the third row
    tray[y : y + 7, x : x + 7] = (40, 20, 20)
    view = View(512, 512, zoom=1)
    drawn = Image.fromarray(tray)
    pen = ImageDraw.Draw(drawn)
    for where in view.geometries(*tray.shape[:2]):
        pen.rectangle((where.left, where.top, where.right - 1, where.bottom - 1), outline=LINE, width=5)
    whole = seen(tray, View(*shape_like([tray], 224, 224)))
    half = 80
    top, left, bottom, right = (
        round(edge * side / full)
        for edge, side, full in zip(
            (y - half, x - half, y + half, x + half), whole.shape[:2] * 2, tray.shape[:2] * 2, strict=True
        )
    )
    small = whole[top:bottom, left:right]
    large = tray[y - half : y + half, x - half : x + half]
    return [
        (f"{tray.shape[1]} x {tray.shape[0]} pixels in tiles of 512", np.asarray(drawn)),
        ("a speck, image resized", np.asarray(Image.fromarray(small).resize((SIDE, SIDE), 0))),
        ("the speck in its tile", np.asarray(Image.fromarray(large).resize((SIDE, SIDE), 0))),
    ]


def seen(image: Array, view: View) -> Array:
    """What the network sees of an image."""
    return load_views(image, [view])[0][0]


def write_row(path: Path, panels: Sequence[tuple[str, Array]]) -> None:
    """Pictures side by side, of one height, each under its caption."""
    pictures = [_of_one_height(pixels) for _, pixels in panels]
    width = sum(picture.width + GAP for picture in pictures) - GAP
    sheet = Image.new("RGB", (width, SIDE + CAPTION), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    left = 0
    for (caption, _), picture in zip(panels, pictures, strict=True):
        draw.text((left + 2, 4), caption, fill=(30, 30, 30), font=font)
        sheet.paste(picture, (left, CAPTION))
        left += picture.width + GAP
    sheet.save(path, quality=85)
    print(path)


def _of_one_height(pixels: Array) -> Image.Image:
    picture = Image.fromarray(pixels).convert("RGB")
    width = round(SIDE * picture.width / picture.height)
    return picture if picture.height == SIDE else picture.resize((width, SIDE), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main()
