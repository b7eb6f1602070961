"""The RAM-matched subset ladder: nested subsets of the normal images, offline PatchCore against bounded memory.

n* = argmin_n |RAM_n − RAM_stream| names the size at which offline PatchCore needs as much memory as the stream, which
learns from the full set, whatever the sizes of the ladder are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.experiments.table import Entry, Table, best_marked
from mhpatchcore.experiments.tables import COSTS
from mhpatchcore.experiments.writing import write_formats
from mhpatchcore.presets import PRESETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mhpatchcore.report.figures import Series

Row = dict[str, Any]
LADDER = ("patchcore", "streaming-euclidean", "mh", "geores-k2000", "default")
OFFLINE, STREAM = "patchcore", "mh"
GB = 1e9


def ladder_cells(sizes: Sequence[int], there_are: int) -> list[tuple[int, str]]:
    """Numbers of images with the presets that run on them: all on every size, and the stream on the full set.

    >>> ladder_cells([300], 2875)[-2:]
    [(300, 'default'), (2875, 'mh')]
    """
    cells = [(n, name) for n in sizes for name in LADDER]
    return cells if there_are in sizes else [*cells, (there_are, STREAM)]


def write_ladder(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The ladder's table and its plots of memory and of AUROC over the number of images."""
    from mhpatchcore.report.figures import save_figure

    figures = ladder_figures(rows)
    files = write_formats({"ladder": ladder_table(rows)}, folder, "ladder", figures)
    for name, figure in figures.items():
        files += save_figure(figure, folder / "figures" / name)
    return files


def ladder_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Peak memory and image AUROC over the number of normal images, by file name."""
    from mhpatchcore.report.figures import lines_figure

    x_label = "normal training images"
    memory = _series(rows, lambda row: row["peak_rss"] / GB)
    quality = _series(rows, lambda row: row["image_auroc"])
    figures = {}
    if memory:
        figures["ram-growth"] = lines_figure(memory, "Memory and data", x_label, "peak RAM (GB)", bottom=0)
    if quality:
        figures["auroc-growth"] = lines_figure(quality, "Quality and data", x_label, "image AUROC", top=1.002)
    return figures


def _series(rows: Sequence[Row], value: Callable[[Row], float | None]) -> list[Series]:
    """A line for each configuration through the sizes at which it has a value."""
    from mhpatchcore.report.figures import Series

    lines = []
    for name in LADDER:
        own = sorted((row for row in rows if row["preset"] == name), key=lambda row: row["n_train"])
        points = [(row["n_train"], value(row)) for row in own if value(row) is not None]
        if points:
            lines.append(Series(PRESETS[name].title, *zip(*points, strict=True)))
    return lines


def ladder_table(rows: Sequence[Row]) -> Table:
    """One block per subset size: AUROC, peak RAM, fit time, latency; best of each block in bold."""
    lines = []
    for n in sorted({row["n_train"] for row in rows}):
        block = [row for name in LADDER for row in rows if row["n_train"] == n and row["preset"] == name]
        columns = [
            best_marked([row["image_auroc"] for row in block], 3),
            best_marked([row["peak_rss"] / GB for row in block], 2, higher=False),
            best_marked([row["fit_seconds"] for row in block], 1, higher=False),
            best_marked([row["calibration_seconds"] for row in block], 1, higher=False),
            best_marked([row["ms_per_image"] for row in block], 1, higher=False),
            best_marked([row["ms_per_image_with_map"] for row in block], 1, higher=False),
        ]
        for i, row in enumerate(block):
            entries = tuple(Entry((column[i],)) for column in columns)
            lines.append((f"{n} · {PRESETS[row['preset']].title}", entries))
    times = ("Fit time (s)", "Calibration (s)", "Inference (ms/image)", "With the map (ms/image)")
    return Table("Subset ladder", ("AUROC", "Max RAM (GB)", *times), tuple(lines), _note(rows))


def closest_in_ram(rows: Sequence[Row], stream: str = STREAM) -> int | None:
    """n*: the subset size whose offline peak is closest to the stream's peak on the full set; None without either.

    >>> rows = [{"preset": "patchcore", "n_train": n, "n_available": 500, "peak_rss": n} for n in (100, 200, 300)]
    >>> closest_in_ram([*rows, {"preset": "mh", "n_train": 500, "n_available": 500, "peak_rss": 190}])
    200
    """
    full = [row for row in rows if row["preset"] == stream and row["n_train"] == row["n_available"]]
    offline = [row for row in rows if row["preset"] == OFFLINE]
    if not full or not offline:
        return None
    budget = full[0]["peak_rss"]
    return int(min(offline, key=lambda row: abs(row["peak_rss"] - budget))["n_train"])


def _note(rows: Sequence[Row]) -> str:
    n = closest_in_ram(rows)
    if n is None:
        return COSTS
    return f"n* = {n}: with so many images offline PatchCore comes nearest to the stream's memory with all. {COSTS}"
