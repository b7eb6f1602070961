"""A whole fit, as a multiple of what it cannot avoid: decoding every image and running the bare backbone once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import InferenceSession

from benchmarks.networks import bare_graph, settings, weights_file
from benchmarks.one_fit import measured_fit
from mhpatchcore import Config, Detector
from mhpatchcore.backbone.session import make_session
from mhpatchcore.inputs.images import load_view
from mhpatchcore.runtime.parallel import available_cores, ordered_map


def fit_ratios(
    images: Sequence[Path], network: str, weights: str | None, budgets: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Wall seconds of decoding alone, of the bare network alone (all cores busy in both), and of fits.

    `plain_s` is what a script needs that decodes one image after the other, then runs the network on one after the
    other, on ONNX Runtime's own threads.
    """
    chosen, weights = settings(network, weights), weights_file(network, weights)
    config = Config(**chosen)
    views = np.stack([load_view(path, config.preprocessing)[0] for path in images[:8]]).astype(np.float32)
    graph = bare_graph(network, weights, config.size)
    session, on_all_cores = (
        make_session(graph, 1),
        InferenceSession(graph, providers=["CPUExecutionProvider"]),
    )

    def decode() -> None:
        for _ in ordered_map(
            lambda path: load_view(path, config.preprocessing), images, available_cores(), ahead=4
        ):
            pass

    def run() -> None:
        work = ordered_map(
            lambda i: session.run(None, {"image": views[i % 8][None]}),
            range(len(images)),
            available_cores(),
            ahead=4,
        )
        for _ in work:
            pass

    def plain() -> None:
        for path in images:
            load_view(path, config.preprocessing)
        for i in range(len(images)):
            on_all_cores.run(None, {"image": views[i % 8][None]})

    decode(), run()  # warm caches
    results = []
    for K, m_c in budgets:
        decoding, network_alone = _seconds(decode), _seconds(run)
        fitting = _seconds(lambda K=K, m_c=m_c: Detector.fit(images, config, K=K, m_c=m_c, weights=weights))
        again = _seconds(decode), _seconds(run)  # the floor before and after, in case the machine changed
        plainly = _seconds(plain)
        decoding, network_alone = (decoding + again[0]) / 2, (network_alone + again[1]) / 2
        results.append(
            {
                "what": f"fit {network} K={K} m_c={m_c} ({len(images)} images)",
                "decode_s": decoding,
                "network_s": network_alone,
                "ours_s": fitting,
                "ratio": fitting / (decoding + network_alone),
                "ratio_to_larger": fitting / max(decoding, network_alone),
                "plain_s": plainly,
                "ratio_to_plain": fitting / plainly,
            }
        )
    return results


def fit_memory(folder: Path, sizes: Sequence[int], network: str, weights: str | None) -> list[dict[str, Any]]:
    """Peak resident memory of fits in processes of their own, over the number of images."""
    chosen, weights = settings(network, weights), weights_file(network, weights)
    return [
        {"what": f"memory of fit {network}, {n} images", **measured_fit(folder, n, weights, **chosen)}
        for n in sizes
    ]


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
