"""One bank for all tiles, or one for each position of a tile? `python -m benchmarks.aligned DATA/pcb`

The same number of rows in all, chosen farthest-first from one clean board: of all its tiles together, or as many of
each tile, and a tile is then compared with the rows of its own position alone. Boards are tested as they are (on `pcb`
they are the clean board's own photograph, with defects painted in), and a little moved, as boards in a fixture would
be: by up to 6 pixels and 0.15 degrees, with up to 5 % more or less light, and noise.

Maps show plain distances to the nearest row. Counted are the defects that stand out more than all but one place of a
board, in the mean; moving leaves black edges, so places at the edge do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.tiles import UNLISTED, grown, read_boxes, standing_out
from mhpatchcore import Config, Detector
from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.inputs.views import Box, Geometry
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Floats
from mhpatchcore.runtime.parallel import one_blas_thread
from mhpatchcore.runtime.system import available_cores
from mhpatchcore.scoring.maps import ViewScores

EDGE = 80  # pixels
COLUMNS = {
    "boards": "{boards}",
    "rows in all": "{K:,}",
    "bank": "{bank}",
    "found at one false place per board": "{found} of {defects}",
}
Banks = Mapping[
    tuple[int, str], Sequence[Floats]
]  # by rows and kind: for each tile the rows to compare it with


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder with train/good, test/ and boxes.csv")
    parser.add_argument("--size", default="tile:512")
    parser.add_argument("--rows", type=integers, default=[5_000, 20_000], help="of the bank, by commas")
    options = parser.parse_args()
    write_json(options.json, shown(rows(options.data, options.size, options.rows), COLUMNS))


def rows(data: Path, size: str, bank_sizes: Sequence[int]) -> Iterator[Row]:
    config = Config(calibration="none").with_changes(sizes=size)
    detector = Detector.fit(data / "train" / "good", config)
    with one_blas_thread():
        (clean,) = (data / "train" / "good").iterdir()
        known, _ = described(detector, np.asarray(Image.open(clean).convert("RGB")))
        banks = {
            (K, kind): bank_of(known, K, kind)
            for K in bank_sizes
            for kind in ("for all tiles", "for each position")
        }
        for moves in (True, False):
            for (K, kind), found in compared(detector, data, banks, moves).items():
                yield {"boards": "moved" if moves else "as they are", "K": K, "bank": kind, **found}


def described(detector: Detector, pixels: Array) -> tuple[Floats, list[Geometry]]:
    """The whitened patches (tiles, h·w, k) of a board, and where its tiles lie."""
    (scale,), (view,) = detector.scales, detector.config.views
    source = detector.opened(pixels)
    places = [one.where for one in source.placed(view, scale.backbone.info.grid)]
    layers = (scale.backbone(source.pixels(view, where)[None]) for where in places)
    return np.stack([scale.whitening.of_maps([one[0] for one in maps]) for maps in layers]), places


def bank_of(known: Floats, K: int, kind: str) -> list[Floats]:
    """For each tile (h·w, k) of the clean board the rows that it is compared with."""
    cores = available_cores()
    if kind == "for each position":
        return [tile[farthest_first(tile, K // len(known), workers=cores)] for tile in known]
    every = known.reshape(-1, known.shape[-1])
    return [every[farthest_first(every, K, workers=cores)]] * len(known)


def compared(detector: Detector, data: Path, banks: Banks, moves: bool) -> dict[tuple[int, str], Row]:
    """How many defects stand out with each bank, over all test boards."""
    (scale,), random, boxes = detector.scales, np.random.default_rng(1), read_boxes(data)
    inside: dict[tuple[int, str], list[float]] = {which: [] for which in banks}
    outside: dict[tuple[int, str], list[float]] = {which: [] for which in banks}
    for image, around in boxes.items():
        board = Image.open(image).convert("RGB")
        z, places = described(detector, moved(board, random) if moves else np.asarray(board))
        for which, bank in banks.items():
            views = []
            for tile, where, against in zip(z, places, bank, strict=True):
                near = distances_to_nearest(tile, against, available_cores())
                grid = near.reshape(scale.backbone.info.grid)
                views.append(ViewScores(grid, where, scale.size, detector.config.sigma))
            result = Result(None, 0.0, inf, 1.0, inf, tuple(views))
            defects = [grown(box) for box in around]
            at_defects, elsewhere = standing_out(result, defects, left_out(*result.size))
            inside[which] += at_defects
            outside[which] += elsewhere
    limits = {which: np.sort(places)[-len(boxes)] for which, places in outside.items()}
    return {
        which: {"found": int((np.array(values) > limits[which]).sum()), "defects": len(values)}
        for which, values in inside.items()
    }


def left_out(height: int, width: int) -> list[Box]:
    """Where nothing counts: along the edges, and what is painted but in no list."""
    sides = (0, 0, EDGE, width), (height - EDGE, 0, height, width)
    ends = (0, 0, height, EDGE), (0, width - EDGE, height, width)
    return [*sides, *ends, *map(grown, UNLISTED)]


def moved(board: Image.Image, random: np.random.Generator) -> Array:
    """The board as another camera picture would show it."""
    angle = np.deg2rad(random.uniform(-0.15, 0.15))
    right, down = random.uniform(-6, 6, 2)
    cosine, sine, x, y = np.cos(angle), np.sin(angle), board.width / 2, board.height / 2
    places = (
        *(cosine, sine, x - cosine * x - sine * y + right),
        *(-sine, cosine, y + sine * x - cosine * y + down),
    )
    turned = board.transform(board.size, Image.Transform.AFFINE, places, Image.Resampling.BICUBIC)
    light, noise = random.uniform(0.95, 1.05), random.normal(0, 2, (board.height, board.width, 3))
    return np.clip(np.asarray(turned) * light + noise, 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
