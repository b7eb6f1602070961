"""One image from decoded pixels to score and map, as a multiple of the bare backbone in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks import bare_graph, settings, weights_file
from mhpatchcore import Config, Detector
from mhpatchcore.backbone.session import make_session
from mhpatchcore.inputs.images import load_pixels
from mhpatchcore.runtime.arrays import Array


def scoring_ratios(
    images: Sequence[Path], network: str, weights: str | None, rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Milliseconds of the bare network and of the whole way, taken in turns, for banks of several sizes."""
    chosen, weights = settings(network, weights), weights_file(network, weights)
    size = Config().size
    session = make_session(bare_graph(network, weights, size))
    pixels = [load_pixels(path) for path in images[:8]]
    views = [resized(picture, size) for picture in pixels]
    results = []
    for K in rows:
        detector = Detector.fit(images, Config(**chosen, K=K), weights=weights)
        bare, whole = interleaved(
            lambda i: session.run(None, {"image": views[i % 8]}),
            lambda i, detector=detector: detector.score(views[i % 8][0].astype(np.uint8)).map,
        )
        results.append(
            {
                "what": f"score {network} K={len(detector.bank_raw)}",
                "floor_ms": bare * 1e3,
                "ours_ms": whole * 1e3,
                "ratio": whole / bare,
                "dimensions": detector.whitening.k,
            }
        )
    return results


def resized(picture: Array, size: int) -> Array:
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size, size)), np.float32)[None]


def interleaved(
    first: Callable[[int], Any], second: Callable[[int], Any], rounds: int = 40
) -> tuple[float, float]:
    """Median seconds of two functions called in turns, so that a noisy machine disturbs both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 5):
        for function, kept in zip((first, second), times, strict=True):
            started = time.perf_counter()
            function(i)
            if i >= 5:  # the first rounds warm up
                kept.append(time.perf_counter() - started)
    return float(np.median(times[0])), float(np.median(times[1]))
