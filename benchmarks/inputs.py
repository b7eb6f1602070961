"""The pictures of docs/inputs.md: `python -m benchmarks.inputs`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.inputs.ranks import rank_images
from mhpatchcore.inputs.window import Window, learnt_window, load_pixels
from mhpatchcore.runtime.arrays import Array

DOCS = Path(__file__).parents[1] / "docs"
SIDE, CAPTION, GAP = 220, 26, 10
BLACK, STEPS = 180, 5  # of a camera with 12 bits, for each of 256 grey levels
FRAMES = 5


def main() -> None:
    write_row(DOCS / "depth.jpg", depth_panels())
    write_row(DOCS / "ranks.jpg", rank_panels())


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


def write_row(path: Path, panels: Sequence[tuple[str, Array]]) -> None:
    """Pictures side by side, each under its caption."""
    width = len(panels) * (SIDE + GAP) - GAP
    sheet = Image.new("RGB", (width, SIDE + CAPTION), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for i, (caption, pixels) in enumerate(panels):
        left = i * (SIDE + GAP)
        draw.text((left + 2, 4), caption, fill=(30, 30, 30), font=font)
        sheet.paste(Image.fromarray(pixels).convert("RGB"), (left, CAPTION))
    sheet.save(path, quality=85)
    print(path)


if __name__ == "__main__":
    main()
