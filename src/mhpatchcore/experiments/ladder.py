"""The RAM-matched subset ladder: nested subsets of the normal images, offline PatchCore against bounded memory.

n* = argmin_n |RAM_n − RAM_stream| names the size at which offline PatchCore needs as much memory as the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mhpatchcore.experiments.table import Entry, Table, best_marked
from mhpatchcore.experiments.writing import write_formats
from mhpatchcore.presets import PRESETS

Row = dict[str, Any]
LADDER = ("patchcore", "mh", "geores-k2000", "default")
GB = 1e9


def write_ladder(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The ladder's table and its plot of memory against the number of images."""
    from mhpatchcore.report.figures import Series, lines_figure, save_figure

    series = []
    for name in LADDER:
        own = sorted((row for row in rows if row["preset"] == name), key=lambda row: row["n_train"])
        if own:
            x, y = [row["n_train"] for row in own], [row["peak_rss"] / GB for row in own]
            series.append(Series(PRESETS[name].title, x, y))
    files = write_formats({"ladder": ladder_table(rows)}, folder, "ladder")
    if not series:
        return files
    figure = lines_figure(series, "Memory and data", "normal training images", "peak RAM (GB)")
    return [*files, *save_figure(figure, folder / "figures" / "ram-growth")]


def ladder_table(rows: Sequence[Row]) -> Table:
    """One block per subset size: AUROC, peak RAM, fit time, latency; best of each block in bold."""
    lines = []
    for n in sorted({row["n_train"] for row in rows}):
        block = [row for name in LADDER for row in rows if row["n_train"] == n and row["preset"] == name]
        columns = [
            best_marked([row["image_auroc"] for row in block], 3),
            best_marked([row["peak_rss"] / GB for row in block], 2, higher=False),
            best_marked([row["fit_seconds"] for row in block], 1, higher=False),
            best_marked([row["ms_per_image"] for row in block], 1, higher=False),
        ]
        for i, row in enumerate(block):
            entries = tuple(Entry((column[i],)) for column in columns)
            lines.append((f"{n} · {PRESETS[row['preset']].title}", entries))
    heads = ("AUROC", "Max RAM (GB)", "Fit time (s)", "Inference (ms/image)")
    return Table("Subset ladder", heads, tuple(lines), _note(rows))


def closest_in_ram(rows: Sequence[Row], stream: str = "mh") -> int | None:
    """n*: the subset size whose offline peak is closest to the stream's peak on the most images.

    >>> rows = [{"preset": "patchcore", "n_train": n, "peak_rss": n} for n in (100, 200, 300)]
    >>> closest_in_ram([*rows, {"preset": "mh", "n_train": 300, "peak_rss": 190}])
    200
    """
    streaming = [row for row in rows if row["preset"] == stream]
    offline = [row for row in rows if row["preset"] == "patchcore"]
    if not streaming or not offline:
        return None
    budget = max(streaming, key=lambda row: row["n_train"])["peak_rss"]
    return int(min(offline, key=lambda row: abs(row["peak_rss"] - budget))["n_train"])


def _note(rows: Sequence[Row]) -> str:
    n = closest_in_ram(rows)
    if n is None:
        return ""
    return (
        f"n* = {n}: with so many images offline PatchCore needs about as much memory as the stream with all."
    )
