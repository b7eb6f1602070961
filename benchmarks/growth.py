"""Memory and time of a fit as it grows: `python -m benchmarks.growth FOLDER --out docs/growth`

FOLDER holds normal images. One thing grows at a time: the number of images, bank rows K, rows per chunk m_c, the size
of the views (the coarser one's is given, the finer one's is twice that). The floor is what cannot be avoided: decoding
every image and running the bare network on its views once, in CPU seconds. Prints a table; with --out it writes a CSV
and draws it, and without FOLDER it draws again from the CSV that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.commands import Row, integers, parser_of, shown, write_json
from benchmarks.networks import Subject, floor_of
from benchmarks.one_fit import measured_fit
from mhpatchcore import Config
from mhpatchcore.experiments.cells import read_rows
from mhpatchcore.inputs.places import images_below
from mhpatchcore.runtime.costs import cpu_seconds
from mhpatchcore.runtime.files import atomic_path, write_csv

COLUMNS = {
    **{name: f"{{{name}}}" for name in ("over", "images", "K", "m_c", "size")},
    **{name: f"{{{name}:.1f}}" for name in ("peak_mb", "estimate_mb", "cpu_seconds", "floor_seconds")},
}
STEPS = {
    "images": ([100, 300, 1000, 2875], "normal images"),
    "K": ([250, 1000, 2500, 5000, 10000], "bank rows K"),
    "m_c": ([128, 512, 1024, 2048, 4096], "rows per chunk m_c"),
    "size": ([128, 160, 224, 320], "coarser view, px"),
}
OTHERWISE = 200  # images where something else grows
TIMED = 40


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    for over, (values, label) in STEPS.items():
        parser.add_argument(f"--{over}", type=integers, default=values, help=label)
    parser.add_argument("--out", type=Path, help="a CSV and an SVG file, without their endings")
    options = parser.parse_args()
    if options.folder:
        steps = {over: getattr(options, over) for over in STEPS}
        rows = shown(growth_rows(options.folder, steps), COLUMNS)
        write_json(options.json, rows)
        if options.out:
            write_csv(options.out.with_suffix(".csv"), list(COLUMNS), rows)
    if options.out:
        draw(read_rows(options.out.with_suffix(".csv")), options.out.with_suffix(".svg"))


def growth_rows(folder: Path, steps: dict[str, list[int]]) -> Iterator[Row]:
    for over, values in steps.items():
        for value in values:
            config = Config().with_changes(**changes(over, value))
            found = measured_fit(folder, value if over == "images" else OTHERWISE, config)
            seconds = found["images"] * floor_of_one(folder, config)
            named = {"over": over, "K": config.K, "m_c": config.m_c, "size": config.sizes[0].height}
            numbers = {name: round(found[name], 1) for name in ("peak_mb", "estimate_mb", "cpu_seconds")}
            yield {**named, "images": found["images"], **numbers, "floor_seconds": round(seconds, 1)}


def changes(over: str, value: int) -> dict[str, Any]:
    if over == "images":
        return {}
    return {"sizes": f"{value},{2 * value}/2"} if over == "size" else {over: value}


def floor_of_one(folder: Path, config: Config) -> float:
    """CPU seconds to decode an image and to run the bare network on its views."""
    images = images_below(folder)[:TIMED]
    floor = floor_of(Subject(config.backbone, config, None, folder, images), threads=1)
    floor.run(floor.decode(images[0]))
    started = cpu_seconds()
    for image in images:
        floor.run(floor.decode(image))
    return (cpu_seconds() - started) / len(images)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"  # the same figure from the same numbers
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(11, 4.5), sharey="row", constrained_layout=True)
    for column, (over, (_, label)) in enumerate(STEPS.items()):
        chosen = [row for row in rows if row["over"] == over]
        x = [row[over] for row in chosen]
        memory, time = axes[:, column]
        memory.plot(x, [row["peak_mb"] for row in chosen], "o-", label="measured")
        memory.plot(x, [row["estimate_mb"] for row in chosen], "--", label="estimate")
        time.plot(x, [row["cpu_seconds"] for row in chosen], "o-", label="fit")
        time.plot(x, [row["floor_seconds"] for row in chosen], ":", label="decoding + bare network")
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
