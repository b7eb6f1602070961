"""What known defects are worth, each defect left out in turn: `python -m benchmarks.teaching DATA --only pill,carpet`

Every defect is taught as a kind of its own, so that all images are scored once. A defect is then judged by all the
others: is it named rightly, and is it rejected, without known defects and with them?
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, parser_of, shown, write_json
from mhpatchcore import Detector, Execution, UserError
from mhpatchcore.fitting.teach import taught
from mhpatchcore.inputs.datasets import Dataset, Sample, load_dataset
from mhpatchcore.result import Result
from mhpatchcore.scoring.known_defects import UNKNOWN, KnownDefects

COLUMNS = {
    "category": "{category}",
    "defects": "{defects}",
    "kinds": "{kinds}",
    "found": "{found}",
    "found, taught": "{found_taught}",
    "good parts": "{good}",
    "rejected": "{rejected}",
    "rejected, taught": "{rejected_taught}",
    "of the found: named rightly": "{right:.0%}",
    "wrongly": "{wrong:.0%}",
    "unknown": "{unknown:.0%}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder of categories with masks")
    parser.add_argument(
        "--only", default="pill,transistor,carpet,magnetic_tile", help="categories, by commas"
    )
    parser.add_argument("--normals", type=int, default=100, help="at most so many to learn from")
    parser.add_argument(
        "--most", type=int, default=150, help="at most so many defects, and as many good parts"
    )
    options = parser.parse_args()
    rows = (
        _row(load_dataset(options.data / name), options.normals, options.most)
        for name in options.only.split(",")
    )
    write_json(options.json, shown(rows, COLUMNS))


def _row(dataset: Dataset, normals: int, most: int) -> Row:
    detector = Detector.fit(list(dataset.subset(min(normals, len(dataset.train))).train))
    rng = np.random.default_rng(0)
    bad, good = (
        [every[i] for i in sorted(rng.permutation(len(every))[:most])]
        for every in ([one for one in dataset.test if one.is_anomalous is wanted] for wanted in (True, False))
    )
    knowing = _taught_each(detector, bad)
    kinds = tuple(sorted({one.kind for one in bad}))
    found, rejected = [], []
    for i, sample in enumerate(bad):
        result = knowing.score(str(sample.path))
        found.append((result.score > result.threshold, sample.kind, _by_kind(result, bad, kinds, i)))
    for sample in good:
        result = knowing.score(str(sample.path))
        rejected.append((result.score > result.threshold, result.is_rejected))
    names = [(kind, one.defect) for _, kind, one in found if one.is_rejected]
    return {
        "category": dataset.name,
        "defects": len(bad),
        "kinds": len(kinds),
        "found": sum(before for before, _, _ in found),
        "found_taught": sum(one.is_rejected for _, _, one in found),
        "good": len(good),
        "rejected": sum(before for before, _ in rejected),
        "rejected_taught": sum(after for _, after in rejected),
        "right": np.mean([kind == name for kind, name in names]),
        "wrong": np.mean([name not in (kind, UNKNOWN) for kind, name in names]),
        "unknown": np.mean([name == UNKNOWN for _, name in names]),
    }


def _taught_each(detector: Detector, bad: list[Sample]) -> Detector:
    """The detector that knows every defect by a name of its own: its number."""
    known: list[KnownDefects] = []
    dims = [scale.backbone.info.dim for scale in detector.scales]
    nothing = (
        tuple(np.empty((0, dim), np.float16) for dim in dims),
        tuple(np.empty(0, np.int32) for _ in dims),
    )
    for i, one in enumerate(bad):
        masks = None if one.mask is None else str(one.mask)
        try:
            model = taught(detector.model, detector.runtime, [str(one.path)], f"{i}", masks, Execution())
            known.append(model.defects)
        except UserError:  # nothing of it differs from good parts
            known.append(KnownDefects((f"{i}",), (1,), *nothing))
    return Detector(replace(detector.model, defects=reduce(KnownDefects.together, known)))


def _by_kind(result: Result, bad: list[Sample], kinds: tuple[str, ...], own: int) -> Result:
    """The result as the other defects make it, by their kinds."""
    rows = [[i for i, one in enumerate(bad) if one.kind == kind and i != own] for kind in kinds]
    views = []
    for view in result.views:
        assert view.known is not None
        known = [view.known[of].max(axis=0) if of else np.full(view.distances.shape, -1.0) for of in rows]
        views.append(replace(view, known=np.array(known, np.float32)))
    return replace(result, views=tuple(views), names=kinds)


if __name__ == "__main__":
    main()
