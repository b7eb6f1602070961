"""A whole fit, as a multiple of what it cannot avoid: decoding every image and running the bare backbone once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks import bare_graph, weights_file
from mhpatchcore import Config, Detector
from mhpatchcore.backbone.session import make_session
from mhpatchcore.images import load_view
from mhpatchcore.parallel import available_cores, ordered_map


def fit_ratios(
    images: Sequence[Path], network: str, weights: str | None, budgets: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Wall seconds of decoding alone, of the bare network alone (all cores busy in both), and of fits."""
    weights = weights_file(network, weights)
    config = Config(backbone=network)
    views = np.stack([load_view(path, config.preprocessing)[0] for path in images[:8]]).astype(np.float32)
    session = make_session(bare_graph(network, weights, config.size), 1)

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

    decode(), run()  # warm caches
    results = []
    for K, m_c in budgets:
        decoding, network_alone = _seconds(decode), _seconds(run)
        fitting = _seconds(lambda K=K, m_c=m_c: Detector.fit(images, config, K=K, m_c=m_c, weights=weights))
        again = _seconds(decode), _seconds(run)  # the floor before and after, in case the machine changed
        decoding, network_alone = (decoding + again[0]) / 2, (network_alone + again[1]) / 2
        results.append(
            {
                "what": f"fit {network} K={K} m_c={m_c} ({len(images)} images)",
                "decode_s": decoding,
                "network_s": network_alone,
                "ours_s": fitting,
                "ratio": fitting / (decoding + network_alone),
                "ratio_to_larger": fitting / max(decoding, network_alone),
            }
        )
    return results


def fit_memory(folder: Path, sizes: Sequence[int], network: str, weights: str | None) -> list[dict[str, Any]]:
    """Peak resident memory of fits in processes of their own, over the number of images."""
    weights = weights_file(network, weights)
    results = []
    for n in sizes:
        script = (
            "import json,sys,time; from pathlib import Path; from mhpatchcore import Detector\n"
            "from mhpatchcore.images import images_below; from mhpatchcore.telemetry import peak_rss, current_rss\n"
            "folder, n, network, weights = sys.argv[1:]; start = current_rss()\n"
            "images = images_below(Path(folder))[: int(n)]; t = time.perf_counter()\n"
            "Detector.fit(images, backbone=network, weights=weights or None)\n"
            "print(json.dumps([len(images), start, peak_rss(), time.perf_counter() - t]))"
        )
        command = [sys.executable, "-c", script, str(folder), str(n), network, weights or ""]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        count, start, peak, seconds = json.loads(done.stdout)
        results.append(
            {
                "what": f"memory of fit {network}, {count} images",
                "images": count,
                "baseline_mb": start / 1e6,
                "peak_mb": peak / 1e6,
                "seconds": seconds,
            }
        )
    return results


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
