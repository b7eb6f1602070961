"""What the depth of the bank's tree costs: `python -m benchmarks.depth_of_tree [CATEGORY]`

Without CATEGORY: made-up streams of up to --patches rows in --dim dimensions, in chunks of 8,192. The bank of the
streaming trees is compared with that of the greedy choice over everything at once: the covering radius is the distance
of the row that lies farthest from the bank.

With CATEGORY, a folder as `mhpatchcore benchmark` takes it: the same images cut into more and more chunks, the radius
in the whitened space, and the image AUROC on the test images. The network runs once.

The bound: a reduction to k rows moves a patch by at most 2·OPT(k), twice the best radius that k centres can have, and
OPT(k) is at most what the greedy choice reaches. A patch is reduced once in its chunk (to m_c), then at every level (to
K), and at the root: radius ≤ 2·OPT(m_c) + 2·(levels + 1)·OPT(K).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, log, sqrt
from pathlib import Path

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from mhpatchcore import Detector, Execution
from mhpatchcore.bank.constructors import FAN_IN, Patches, Stream, always_full, offline_greedy, tree
from mhpatchcore.evaluation.metrics import auroc
from mhpatchcore.fitting.checks import ImageChecks
from mhpatchcore.inputs.datasets import load_dataset
from mhpatchcore.metric.distances import distances_to_nearest
from mhpatchcore.presets import preset
from mhpatchcore.runtime.parallel import one_blas_thread

ROWS = 8192  # of a made-up chunk
CENTRES = 64
MADE_UP = {
    "rows": "{rows:,}",
    "chunks": "{chunks:,}",
    "levels": "{levels}",
    "greedy over all": "{greedy:.3f}",
    "always-full": "{always_full:.3f}",
    "ratio": "{ratio:.2f}",
    "bound on it": "{bound:.1f}",
    "the paper's tree": "{tree:.3f}",
    "its ratio": "{tree_ratio:.2f}",
    "seconds (greedy, always-full, tree)": "{seconds}",
}
REAL = {
    "images per chunk": "{images}",
    "chunks": "{chunks:,}",
    "levels": "{levels}",
    "radius": "{radius:.3f}",
    "99 % of patches within": "{most:.3f}",
    "AUROC": "{auroc:.4f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("category", nargs="?", type=Path)
    parser.add_argument("--patches", type=integers, default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument(
        "--chunks", type=integers, default=[1, 8, 32, 128], help="images of a chunk, by commas"
    )
    parser.add_argument("--images", type=int, help="learn from so many")
    parser.add_argument("-K", type=int, default=1000)
    parser.add_argument("--local-rows", type=int, default=256)
    options = parser.parse_args()
    K, m_c = options.K, options.local_rows
    if options.category:
        rows = shown(real_rows(options.category, options.images, options.chunks, K, m_c), REAL)
    else:
        rows = shown(made_up_rows(options.patches, options.dim, K, m_c), MADE_UP)
    write_json(options.json, rows)


def made_up_rows(numbers: Sequence[int], dim: int, K: int, m_c: int) -> Iterator[Row]:
    for n in numbers:
        stream = Stream(range(ceil(n / ROWS)), workers=2, read=partial(made_up, dim))
        with one_blas_thread():
            makers = {
                "greedy": partial(offline_greedy, stream, K, None),
                "always_full": partial(always_full, stream, K, m_c),
                "tree": partial(tree, stream, K, m_c),
            }
            found, seconds = dict[str, float](), list[str]()
            for name, make in makers.items():
                started = time.perf_counter()
                bank = make()
                seconds.append(f"{time.perf_counter() - started:.1f}")
                found[name] = radius(stream, bank)
            fewer = radius(stream, offline_greedy(stream, m_c, None))
        levels = levels_of(len(stream.chunks))
        yield found | {
            "rows": len(stream.chunks) * ROWS,
            "chunks": len(stream.chunks),
            "levels": levels,
            "ratio": found["always_full"] / found["greedy"],
            "tree_ratio": found["tree"] / found["greedy"],
            "bound": 2 * fewer / found["greedy"] + 2 * (levels + 1),
            "seconds": ", ".join(seconds),
        }


def made_up(dim: int, chunk: int) -> Patches:
    """Rows around a few centres, as dense in some places and as sparse in others as patches are."""
    centres = np.random.default_rng(0).normal(size=(CENTRES, dim)) * 3
    rng = np.random.default_rng([1, chunk])
    spread = rng.gamma(2.0, 0.3, size=(ROWS, 1))
    z = centres[rng.integers(CENTRES, size=ROWS)] + spread * rng.normal(size=(ROWS, dim))
    origin = np.stack(np.broadcast_arrays(chunk, 0, 0, np.arange(ROWS)), axis=1)
    return Patches(z.astype(np.float32), origin.astype(np.int32))


def radius(stream: Stream, bank: Patches) -> float:
    """The distance of the row that is farthest from the bank."""
    return max(sqrt(float(distances_to_nearest(chunk.z, bank.z).max())) for chunk in stream.patches())


def levels_of(chunks: int) -> int:
    """Closed nodes above a summary, at most."""
    return int(log(chunks, FAN_IN) + 1e-9)


def real_rows(category: Path, images: int | None, sizes: Sequence[int], K: int, m_c: int) -> Iterator[Row]:
    dataset = load_dataset(category)
    dataset = dataset if images is None else dataset.subset(images)
    config = preset("fast").config.with_changes(K=K, m_c=m_c)
    bad = np.array([sample.is_anomalous for sample in dataset.test])
    with tempfile.TemporaryDirectory() as scratch:
        for size in sizes:
            study = Detector.study(
                dataset.train,
                config.with_changes(chunk_images=size),
                ImageChecks(coverage=True),
                execution=Execution(store=scratch),
            )
            assert study.coverage is not None
            scores = [one.score for one in study.detector.score_many([s.path for s in dataset.test]) if one]
            chunks = ceil(study.detector.model.n_learnt / size)
            yield {
                "images": size,
                "chunks": chunks,
                "levels": levels_of(chunks),
                "radius": sqrt(float(study.coverage.quantiles[:, -1].max())),
                "most": sqrt(float(np.median(study.coverage.quantiles[:, 2]))),
                "auroc": auroc(bad, scores),
            }


if __name__ == "__main__":
    main()
