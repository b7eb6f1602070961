"""Memory and time of a fit as it grows: `python -m benchmarks.growth DATA`

DATA is a folder of normal images. One thing grows at a time: the number of images, bank rows K, rows per chunk m_c, the
view's size. The floor is what cannot be avoided, decoding every image and running the bare network on it once, in CPU
seconds. Writes docs/growth.csv and .svg; `--draw` draws again from a CSV that is there.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.networks import bare_graph
from benchmarks.one_fit import measured_fit
from mhpatchcore import Config
from mhpatchcore.backbone.session import make_session
from mhpatchcore.inputs.images import Preprocessing, images_below, load_view
from mhpatchcore.runtime.files import atomic_path
from mhpatchcore.runtime.telemetry import cpu_seconds

COLUMNS = ("over", "images", "K", "m_c", "size", "peak_mb", "estimate_mb", "cpu_seconds", "floor_seconds")
LABELS = {"images": "normal images", "K": "bank rows K", "m_c": "rows per chunk m_c", "size": "view, px"}
OTHERWISE = 200  # images where something else grows
TIMED = 40


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--images", default="100,300,1000,2875")
    parser.add_argument("--K", default="250,1000,2500,5000,10000")
    parser.add_argument("--m_c", default="128,512,1024,2048,4096")
    parser.add_argument("--size", default="128,224,320,448")
    parser.add_argument("--draw", action="store_true", help="only draw")
    parser.add_argument("--out", type=Path, default=Path("docs/growth"))
    options = parser.parse_args()
    table = options.out.with_suffix(".csv")
    if not options.draw:
        steps = {over: [int(n) for n in getattr(options, over).split(",")] for over in LABELS}
        write_csv(table, measured(options.data, steps))
    with table.open(encoding="utf-8") as file:
        draw(list(csv.DictReader(file)), options.out.with_suffix(".svg"))


def measured(folder: Path, steps: dict[str, list[int]]) -> list[dict[str, Any]]:
    results = []
    for over, values in steps.items():
        for value in values:
            images = value if over == "images" else OTHERWISE
            settings: dict[str, Any] = {} if over == "images" else {over: value}
            config = Config(**settings)
            found = measured_fit(folder, images, **settings)
            floor = found["images"] * floor_of_one(images_below(folder)[:TIMED], config.size)
            named = {"over": over, "K": config.K, "m_c": config.m_c, "size": config.size}
            results.append({**named, **found, "floor_seconds": floor})
            print("  ".join(f"{name} {results[-1][name]}" for name in COLUMNS), flush=True)
    return results


def floor_of_one(images: Sequence[Path], size: int) -> float:
    """CPU seconds to decode an image and to run the bare network on it."""
    session = make_session(bare_graph("efficientnet_lite0", None, size), 1)
    view = Preprocessing(size, size)
    session.run(None, {"image": load_view(images[0], view)[0][None].astype("f4")})
    started = cpu_seconds()
    for image in images:
        session.run(None, {"image": load_view(image, view)[0][None].astype("f4")})
    return (cpu_seconds() - started) / len(images)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(
            {k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()} for row in rows
        )


def draw(rows: list[dict[str, str]], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"  # the same figure from the same numbers
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(11, 4.5), sharey="row", constrained_layout=True)
    for column, (over, label) in enumerate(LABELS.items()):
        chosen = [row for row in rows if row["over"] == over]
        x = [int(row[over]) for row in chosen]
        memory, time = axes[:, column]
        memory.plot(x, [float(row["peak_mb"]) for row in chosen], "o-", label="measured")
        memory.plot(x, [float(row["estimate_mb"]) for row in chosen], "--", label="estimate")
        time.plot(x, [float(row["cpu_seconds"]) for row in chosen], "o-", label="fit")
        time.plot(x, [float(row["floor_seconds"]) for row in chosen], ":", label="decoding + bare network")
        time.set_xlabel(label if over == "images" else f"{label} ({OTHERWISE} images)")
        time.set_yscale("log")
    for axis, label in zip(axes[:, 0], ("peak memory, MB", "CPU seconds"), strict=True):
        axis.set_ylabel(label)
    axes[0, 0].set_ylim(0)
    axes[0, 0].legend(frameon=False, loc="lower right")
    axes[1, 1].legend(frameon=False, loc="upper left")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
