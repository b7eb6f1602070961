"""What decoding large JPEG files at a fraction of their size saves and changes: `python -m benchmarks.decoding FOLDER`

FOLDER holds images; a few of them are enlarged and written as JPEG of quality 90. For every size: CPU milliseconds to
the views of the default settings with a full decode and as adopted, and by how much pixels of the views differ.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.timing import interleaved, medians
from mhpatchcore import Config
from mhpatchcore.inputs.loading import load_pixels, load_views
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.views import View

COLUMNS = {
    "file, px": "{size:,}",
    "full decode, CPU ms": "{full_ms:.0f}",
    "as adopted": "{adopted_ms:.0f}",
    "pixels differ by (mean, largest, of 255)": "{mean:.2f}, {largest:.0f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=integers, default=[1400, 2048, 4096], help="sides of the files, px")
    parser.add_argument("--sizes", help="other views, such as 224")
    parser.add_argument("--images", type=int, default=8)
    options = parser.parse_args()
    config = Config() if options.sizes is None else Config().with_changes(sizes=options.sizes)
    sources = images_below(options.folder)[: options.images]
    rows = (decoding_row(sources, size, config.views) for size in options.files)
    write_json(options.json, shown(rows, COLUMNS))


def decoding_row(sources: Sequence[Path], size: int, views: Sequence[View]) -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        paths = enlarged(sources, size, Path(scratch))
        works = (
            lambda i: load_views(load_pixels(paths[i % len(paths)]), views),
            lambda i: load_views(paths[i % len(paths)], views),
        )
        full, adopted = medians(interleaved(works, len(paths), clock=time.process_time))
        apart = [
            np.abs(one.astype(float) - other).ravel()
            for path in paths
            for (one, _), (other, _) in zip(
                load_views(load_pixels(path), views), load_views(path, views), strict=True
            )
        ]
    differences = np.concatenate(apart)
    return {
        "size": size,
        "full_ms": 1e3 * full,
        "adopted_ms": 1e3 * adopted,
        "mean": float(differences.mean()),
        "largest": float(differences.max()),
    }


def enlarged(sources: Sequence[Path], size: int, folder: Path) -> list[Path]:
    paths = []
    for i, source in enumerate(sources):
        paths.append(folder / f"{i}.jpg")
        with Image.open(source) as image:
            image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


if __name__ == "__main__":
    main()
