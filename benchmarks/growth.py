"""Memory and time of a fit over the number of images and of bank rows: `python -m benchmarks.growth DATA`

DATA is a folder of normal images. Writes docs/growth.csv and .svg; `--draw` draws again from a CSV that is there.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

from benchmarks.one_fit import measured_fit
from mhpatchcore.files import atomic_path

COLUMNS = ("over", "images", "K", "m_c", "peak_mb", "estimate_mb", "cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--images", default="100,300,1000,2875", help="numbers of images, at the default K")
    parser.add_argument(
        "--rows", default="250,1000,2500,5000,10000", help="numbers of bank rows, at 200 images"
    )
    parser.add_argument("--draw", action="store_true", help="only draw")
    parser.add_argument("--out", type=Path, default=Path("docs/growth"))
    options = parser.parse_args()
    table = options.out.with_suffix(".csv")
    if not options.draw:
        write_csv(table, measured(options.data, _numbers(options.images), _numbers(options.rows)))
    with table.open(encoding="utf-8") as file:
        draw(list(csv.DictReader(file)), options.out.with_suffix(".svg"))


def measured(folder: Path, images: list[int], rows: list[int]) -> list[dict[str, Any]]:
    runs = [("images", n, {}) for n in images] + [("K", 200, {"K": K}) for K in rows]
    results = []
    for over, n, settings in runs:
        found = measured_fit(folder, n, **settings)
        results.append({"over": over, "K": 5000, "m_c": 1024, **settings, **found})
        print("  ".join(f"{name} {results[-1][name]}" for name in COLUMNS), flush=True)
    return results


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

    figure, axes = plt.subplots(2, 2, figsize=(8, 4.5), sharey="row", constrained_layout=True)
    for column, (over, label) in enumerate((("images", "normal images"), ("K", "bank rows K (200 images)"))):
        chosen = [row for row in rows if row["over"] == over]
        x = [int(row[over]) for row in chosen]
        memory, time = axes[:, column]
        memory.plot(x, [float(row["peak_mb"]) for row in chosen], "o-", label="measured")
        memory.plot(x, [float(row["estimate_mb"]) for row in chosen], "--", label="estimate")
        time.plot(x, [float(row["cpu_seconds"]) for row in chosen], "o-")
        time.set_xlabel(label)
    for axis, label in zip(axes[:, 0], ("peak memory, MB", "CPU seconds"), strict=True):
        axis.set_ylabel(label)
        axis.set_ylim(0)
    axes[0, 0].legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, metadata={"Date": None})
    plt.close(figure)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
