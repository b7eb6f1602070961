"""Small defects on large boards, seen whole or in tiles: `python -m benchmarks.tiles DATA/pcb`

The folder has train/good, test/<defect> and boxes.csv (image,top,left,bottom,right): where the defects are. Each way of
seeing is fitted and tested in a process of its own, for its time and its peak of memory.

One clean board gives no threshold. The boards of HRIPCB are one photograph into which defects were painted. So boards
are repaired: where a defect is, they get the pixels of the clean one. Two repaired boards of one half calibrate the
threshold for the other half, and the other way round. A defect is found where an outlined region touches its box; a
false alarm is a region that touches none. The last two columns ask without any threshold: how many defects stand out
more than all but one place of a board, in the mean; and how many are among the three highest places of their board.

Two places of paint are in no list: a dab at the upper edge of six boards, another on a joint of one. They are repaired
too, and are neither defects nor false alarms.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.ndimage import maximum_filter

from benchmarks.commands import Row, answer_of, listed, parser_of, shown, write_json
from mhpatchcore import Config, Detector
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.views import Box
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Mask
from mhpatchcore.runtime.system import own_peak

ROWS = 5000
WAYS = {
    "resized (the default)": ("224,448/2", ROWS),
    "tiles at half the resolution": ("tile:512@0.5", ROWS),
    "tiles": ("tile:512", ROWS),
    "resized and tiles": ("448/2,tile:512", ROWS),
    "half the resolution and a larger bank": ("tile:512@0.5", 4 * ROWS),
    "averaged patches and a larger bank": ("tile:512/2", 4 * ROWS),
    "tiles and a larger bank": ("tile:512", 4 * ROWS),
}
MARGIN = 40  # pixels around a box that belong to its defect
APART = 80  # pixels between two places that stand out
HIGHEST = 3  # places of a board that somebody looks at
REPAIRED = 2  # boards that make a threshold: all of them are one photograph
UNLISTED: tuple[Box, ...] = ((0, 1660, 10, 1695), (1165, 2080, 1205, 2115))
COLUMNS = {
    "seen": "{way}",
    "`--size`": "{size}",
    "`-K`": "{K:,}",
    "views": "{views}",
    "found": "{found} of {defects}",
    "false alarms per board": "{false:.2f}",
    "fit, s": "{fit_seconds:.1f}",
    "score, s": "{score_seconds:.2f}",
    "peak, MB": "{peak_mb:.0f}",
    "found at one false place per board": "{ranked} of {defects}",
    "among a board's three highest places": "{highest} of {defects}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder with train/good, test/ and boxes.csv")
    parser.add_argument("--only", type=listed, default=list(WAYS), help="some of the ways, by commas")
    options = parser.parse_args()
    write_json(options.json, shown(rows(options.data, options.only), COLUMNS))


def rows(data: Path, only: Sequence[str]) -> Iterator[Row]:
    for way in only:
        size, K = WAYS[way]
        yield {"way": way, "size": size, "K": K, **answer_of("benchmarks.tiles", str(data), size, str(K))}


def answer() -> None:
    """In the process itself: fit, calibrate by halves, test."""
    data, size, K = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    boxes = read_boxes(data)
    started = time.perf_counter()
    detector = Detector.fit(data / "train" / "good", Config(sizes=size, K=K))
    fit_seconds = time.perf_counter() - started
    halves = [list(boxes)[0::2], list(boxes)[1::2]]
    found, false, highest, seconds = 0, 0, 0, 0.0
    inside, outside = list[float](), list[float]()
    (clean,) = images_below(data / "train" / "good")
    for half, others in (halves, halves[::-1]):
        judging = detector.calibrated(images=[repaired(one, boxes[one], clean) for one in others[:REPAIRED]])
        for image in half:
            started = time.perf_counter()
            result = judging.score(image)
            regions = [region.box for region in result.regions]
            seconds += time.perf_counter() - started
            wide, unlisted = ([grown(box) for box in some] for some in (boxes[image], UNLISTED))
            found += sum(any(touch(box, region) for region in regions) for box in wide)
            false += sum(not any(touch(box, region) for box in (*wide, *unlisted)) for region in regions)
            at_defects, elsewhere = standing_out(result, wide, unlisted)
            least = sorted(at_defects + elsewhere)[-HIGHEST]
            highest += sum(value >= least for value in at_defects)
            inside += at_defects
            outside += elsewhere
    limit = np.sort(outside)[-len(boxes)]  # as many places lie at or above it as there are boards
    print(
        json.dumps(
            {
                "views": len(result.views),
                "defects": len(inside),
                "found": found,
                "false": false / len(boxes),
                "ranked": int((np.array(inside) > limit).sum()),
                "highest": highest,
                "fit_seconds": fit_seconds,
                "score_seconds": seconds / len(boxes),
                "peak_mb": own_peak() / 1e6,
            }
        )
    )


def read_boxes(data: Path) -> dict[str, list[Box]]:
    """The boxes of each test image, by its path."""
    found: defaultdict[str, list[Box]] = defaultdict(list)
    with (data / "boxes.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            top, left, bottom, right = (int(line[edge]) for edge in ("top", "left", "bottom", "right"))
            found[str(data / line["image"])].append((top, left, bottom, right))
    for image in images_below(data / "test"):
        found.setdefault(str(image), [])
    return dict(sorted(found.items()))


def repaired(image: str, around: Sequence[Box], clean: str | Path) -> Array:
    """The board with the clean one's pixels where its defects are, and what is unlisted."""
    pixels, whole = load_pixels(image).copy(), load_pixels(clean)
    for box in map(grown, (*around, *UNLISTED)):
        pixels[within(box)] = whole[within(box)]
    return pixels


def grown(box: Box) -> Box:
    return box[0] - MARGIN, box[1] - MARGIN, box[2] + MARGIN, box[3] + MARGIN


def touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def standing_out(
    result: Result, defects: Sequence[Box], unlisted: Sequence[Box]
) -> tuple[list[float], list[float]]:
    """The map's highest value at each defect, and its peaks elsewhere."""
    heat = result.map
    elsewhere: Mask = np.ones(heat.shape, bool)
    for box in (*defects, *unlisted):
        elsewhere[within(box)] = False
    calm = np.where(elsewhere, heat, 0)
    peaks = (calm == maximum_filter(calm, APART)) & (calm > 0)
    return [float(heat[within(box)].max()) for box in defects], heat[peaks].tolist()


def within(box: Box) -> tuple[slice, slice]:
    """The pixels of a box, which may begin beyond the image."""
    top, left, bottom, right = box
    return np.s_[max(0, top) : bottom, max(0, left) : right]


if __name__ == "__main__":
    main()
