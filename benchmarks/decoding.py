"""What decoding large JPEG files at a fraction of their size saves and changes: `python -m benchmarks.decoding FOLDER`

FOLDER holds images; a few of them are enlarged and written as JPEG of quality 90. For every size: CPU milliseconds to a
view of 224 px with a full decode and as adopted, and by how much the pixels of the view differ (of 255).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mhpatchcore.inputs.images import Preprocessing, images_below, load_view
from mhpatchcore.runtime.arrays import Array

VIEW = Preprocessing()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="1400,2048,4096")
    parser.add_argument("--images", type=int, default=8)
    options = parser.parse_args()
    sources = images_below(options.folder)[: options.images]
    print("| file | full decode, CPU ms | as adopted | pixels differ by (mean, largest, of 255) |")
    print("|---|---|---|---|")
    for size in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            print(line(enlarged(sources, size, Path(scratch)), size), flush=True)


def enlarged(sources: Sequence[Path], size: int, folder: Path) -> list[Path]:
    paths = []
    for i, source in enumerate(sources):
        paths.append(folder / f"{i}.jpg")
        with Image.open(source) as image:
            image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


def line(paths: Sequence[Path], size: int) -> str:
    whole, whole_ms = _timed(lambda path: load_view(np.asarray(Image.open(path)), VIEW)[0], paths)
    adopted, adopted_ms = _timed(lambda path: load_view(path, VIEW)[0], paths)
    apart = np.abs(whole.astype(float) - adopted)
    return f"| {size:,} px | {whole_ms:.0f} | {adopted_ms:.0f} | {apart.mean():.2f}, {apart.max():.0f} |"


def _timed(load: Callable[[Path], Array], paths: Sequence[Path]) -> tuple[Array, float]:
    """The views, and CPU milliseconds for each."""
    started = time.process_time()
    views = np.stack([load(path) for path in paths])
    return views, 1000 * (time.process_time() - started) / len(paths)


if __name__ == "__main__":
    main()
