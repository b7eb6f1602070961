"""What an exported file costs and changes: `python -m benchmarks.exporting DATA`

DATA is a category: DATA/train/good and DATA/test. Three tables:

resize   CPU milliseconds on one core from pixels to the views of the default settings, by Pillow, by the file's graph
         and by ONNX's own Resize; the graph's memory at its peak; and by how much Resize differs from Pillow
score    milliseconds of the detector and of its exported file in ONNX Runtime, from pixels to the verdict
draft    large JPEG files, which the detector decodes at a fraction of their size while the file sees all pixels: by how
         much their scores differ
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.decoding import enlarged
from benchmarks.timing import interleaved, medians, ratio
from mhpatchcore import Config, Detector
from mhpatchcore.backbone.graph import FLOAT, Graph, Shape
from mhpatchcore.backbone.session import make_session
from mhpatchcore.deploy.bundle import onnx_input
from mhpatchcore.deploy.export import onnx_bytes
from mhpatchcore.deploy.pillow_resize import UINT8, resized
from mhpatchcore.inputs.loading import load_pixels, load_views
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.views import View
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.system import current_rss, own_peak, reset_peak

PICTURES = ((400, 400), (1024, 1024), (3000, 4000))
LEARNT = 80
RESIZE = {
    "image": "{size}",
    "Pillow, CPU ms": "{pillow_ms:.0f}",
    "in the file": "{graph_ms:.0f}",
    "ONNX Resize": "{onnx_ms:.0f}",
    "memory of the file's resize, MB": "{memory:.0f}",
    "ONNX Resize differs by (mean, largest)": "{mean:.2f}, {largest:.1f}",
}
SCORE = {
    "file, MB": "{megabytes:.1f}",
    "detector, ms": "{detector_ms:.1f}",
    "exported file, ms": "{file_ms:.1f}",
    "×": "{ratio:.2f}",
}
DRAFT = {
    "JPEG files, px": "{size:,}",
    "images": "{images}",
    "scores differ by (median, largest)": "{median:.2%}, {largest:.2%}",
    "other verdicts": "{verdicts}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--files", type=integers, default=[1400, 4096], help="sides of the JPEG files, px")
    parser.add_argument("--images", type=int, default=40, help="test images that are enlarged")
    write_json((options := parser.parse_args()).json, run(options))


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    found = {"resize": shown(resize_rows(Config().views, options.rounds), RESIZE)}
    detector = Detector.fit(images_below(options.folder / "train" / "good")[:LEARNT])
    content = onnx_bytes(detector.model)
    images = images_below(options.folder / "test")
    print()
    found["score"] = shown([score_row(detector, content, images, options.rounds)], SCORE)
    print()
    some = images[:: max(1, len(images) // options.images)]
    found["draft"] = shown((draft_row(detector, content, some, size) for size in options.files), DRAFT)
    return found


def resize_rows(views: Sequence[View], rounds: int) -> Iterator[Row]:
    ours, theirs = make_session(pillow_graph(views), 1), make_session(onnx_graph(views), 1)
    for height, width in PICTURES:
        pixels = picture(height, width)
        works = (
            lambda _, pixels=pixels: load_views(pixels, views),
            lambda _, pixels=pixels: ours.run(None, {"image": pixels[None]}),
            lambda _, pixels=pixels: theirs.run(None, {"image": pixels[None]}),
        )
        pillow, graph, resize = medians(interleaved(works, rounds, clock=time.process_time))
        truth = [seen.astype(np.float32) for seen, _ in works[0](0)]
        apart = [
            np.abs(one[0].transpose(1, 2, 0) - view).ravel()
            for one, view in zip(works[2](0), truth, strict=True)
        ]
        yield {
            "size": f"{width} × {height}",
            "pillow_ms": 1e3 * pillow,
            "graph_ms": 1e3 * graph,
            "onnx_ms": 1e3 * resize,
            "memory": peak_memory(views, height, width),
            "mean": float(np.concatenate(apart).mean()),
            "largest": float(np.concatenate(apart).max()),
        }


def picture(height: int, width: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def pillow_graph(views: Sequence[View]) -> bytes:
    graph = Graph("resize")
    seen = resized(graph, graph.input("image", (1, "height", "width", 3), UINT8), views, exact=True)
    return _of_views(graph, {f"view{i}": name for i, name in enumerate(seen)})


def onnx_graph(views: Sequence[View]) -> bytes:
    graph = Graph("resize")
    image = graph.input("image", (1, "height", "width", 3), UINT8)
    x = graph.cast(graph.node("Transpose", [image], perm=[0, 3, 1, 2]), FLOAT)
    linear: dict[str, Any] = {"mode": "linear", "antialias": 1, "axes": [2, 3]}
    sizes = [graph.integers(view.height, view.width) for view in views]
    return _of_views(
        graph, {f"view{i}": graph.node("Resize", [x, "", "", size], **linear) for i, size in enumerate(sizes)}
    )


def _of_views(graph: Graph, names: dict[str, str]) -> bytes:
    outputs: dict[str, tuple[str, Shape]] = {name: (one, (1, "a", "b", "c")) for name, one in names.items()}
    return graph.model(outputs)


def peak_memory(views: Sequence[View], height: int, width: int) -> float:
    """Megabytes that a process of its own grows by when it resizes an image."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_growth, views, height, width).result()


def _growth(views: Sequence[View], height: int, width: int) -> float:
    session, pixels = make_session(pillow_graph(views), 1), picture(height, width)
    reset_peak()
    before = current_rss()
    session.run(None, {"image": pixels[None]})
    return (own_peak() - before) / 1e6


def score_row(detector: Detector, content: bytes, images: Sequence[Path], rounds: int) -> Row:
    session = make_session(content)
    pixels = [load_pixels(path) for path in images[:rounds]]
    works = (
        lambda i: detector.score(pixels[i % len(pixels)]),
        lambda i: session.run(None, {"image": pixels[i % len(pixels)][None]}),
    )
    times = interleaved(works, 3 * rounds, warm_up=5)
    one, other = medians(times)
    return {
        "megabytes": len(content) / 1e6,
        "detector_ms": 1e3 * one,
        "file_ms": 1e3 * other,
        "ratio": ratio(times[:, 1], times[:, 0]),
    }


def draft_row(detector: Detector, content: bytes, images: Sequence[Path], size: int) -> Row:
    session, window = make_session(content), detector.config.views[0].window
    with tempfile.TemporaryDirectory() as scratch:
        paths = enlarged(images, size, Path(scratch))
        results = list(detector.score_many(paths))
        found = [session.run(["score", "verdict"], {"image": onnx_input(path, window)}) for path in paths]
    pairs = [(one, score, verdict) for one, (score, verdict) in zip(results, found, strict=True) if one]
    apart = [abs(float(score[0]) / one.score - 1) for one, score, _ in pairs]
    other = sum(bool(verdict[0]) != one.is_rejected for one, _, verdict in pairs)
    return {
        "size": size,
        "images": len(pairs),
        "median": float(np.median(apart)),
        "largest": max(apart),
        "verdicts": other,
    }


if __name__ == "__main__":
    main()
