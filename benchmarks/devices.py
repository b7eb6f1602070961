"""Another device beside the CPU: are the verdicts equal, and how much faster is it?

    pip install onnxruntime-openvino     # in an environment of its own: it takes the place of onnxruntime
    python -m benchmarks.devices /folder/of/categories bottle pill --device openvino

A model is fitted on the CPU and loaded on both. Every test image is scored by each in turn, so that both see the same
machine; times are medians, and only their ratio means something.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from mhpatchcore import Detector, use_device
from mhpatchcore.inputs.datasets import load_dataset


def compared(root: Path, device: str) -> dict[str, object]:
    """Verdicts, scores and times of all test images on the CPU and on a device."""
    use_device("cpu")
    images = [sample.path for sample in load_dataset(root).test]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "part.mhpc")
        Detector.fit(root).save(model)
        detectors = []
        for name in ("cpu", device):
            use_device(name)
            detectors.append(Detector.load(model))
    times: tuple[list[float], list[float]] = ([], [])
    equal, apart = 0, 0.0
    for image in images:
        results = []
        for detector, seconds in zip(detectors, times, strict=True):
            opened = detector.opened(image)
            began = perf_counter()
            results.append(detector.score_opened(opened))
            seconds.append(perf_counter() - began)
        one, other = results
        equal += one.verdict == other.verdict
        apart = max(apart, abs(one.score / other.score - 1))
    ratio = median(times[1]) / median(times[0])
    return {
        "category": root.name,
        "device": device,
        "images": len(images),
        "equal_verdicts": equal,
        "largest_relative_difference": apart,
        "time_of_device_over_cpu": round(ratio, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("categories", nargs="+")
    parser.add_argument("--device", default="openvino")
    given = parser.parse_args()
    for category in given.categories:
        print(json.dumps(compared(given.data / category, given.device)), flush=True)


if __name__ == "__main__":
    main()
