"""The RAM-matched subset ladder: nested subsets of the normal images, offline PatchCore against bounded memory.

n* = argmin_n |RAM_n − RAM_stream| names the size at which offline PatchCore needs as much memory as the stream, which
learns from the full set, whatever the sizes of the ladder are.

Beyond the paper, which only discusses it, a model may also grow from step to step, learning each time the further
images alone; beside it stands the model that is fitted anew to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mhpatchcore.experiments.published import title_of
from mhpatchcore.experiments.showing import (
    Entry,
    Row,
    Table,
    best_marked,
    plain_entries,
    signed,
    write_formats,
)
from mhpatchcore.experiments.tables import COSTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mhpatchcore.report.figures import Series

LADDER = ("patchcore", "mh", "geores-k2000")
PLOTTED = ("patchcore", "geores-k2000")  # the paper's plot leaves the stream out
OFFLINE, STREAM = "patchcore", "mh"
GB = 1e9


def ladder_cells(sizes: Sequence[int], there_are: int, further: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Numbers of images with the presets that run on them: all on every size, and the stream on the full set.

    >>> ladder_cells([300], 2875)
    [(300, 'patchcore'), (300, 'mh'), (300, 'geores-k2000'), (2875, 'mh')]
    """
    names = dict.fromkeys((*LADDER, *further))
    cells = [(n, name) for n in sizes for name in names]
    return cells if there_are in sizes else [*cells, (there_are, STREAM)]


def write_ladder(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The ladder's tables and its plots of memory and of AUROC over the number of images."""
    from mhpatchcore.report.figures import save_figure

    figures = ladder_figures(rows)
    files = write_formats(ladder_tables(rows), folder, "ladder", figures)
    for name, figure in figures.items():
        files += save_figure(figure, folder / "figures" / name)
    return files


def ladder_tables(rows: Sequence[Row]) -> dict[str, Table]:
    growing = growing_table(rows)
    return {"ladder": ladder_table(rows)} | ({"growing": growing} if growing else {})


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
    """A line for each configuration of the paper's plot, and for each that was asked for, over the sizes."""
    from mhpatchcore.report.figures import Series

    lines = []
    for name in (*PLOTTED, *(name for name in _presets(rows) if name not in LADDER)):
        own = sorted((row for row in _fitted(rows) if row["preset"] == name), key=lambda row: row["n_train"])
        points = [(row["n_train"], value(row)) for row in own if value(row) is not None]
        if points:
            lines.append(Series(title_of(name), *zip(*points, strict=True)))
    return lines


def ladder_table(rows: Sequence[Row]) -> Table:
    """One block per subset size: AUROC, peak RAM, fit time, latency; best of each block in bold."""
    lines = []
    for n in sorted({row["n_train"] for row in _fitted(rows)}):
        block = [
            row
            for name in _presets(rows)
            for row in _fitted(rows)
            if row["n_train"] == n and row["preset"] == name
        ]
        columns = [
            best_marked([row["image_auroc"] for row in block], 3),
            best_marked([row["peak_rss"] / GB for row in block], 2, higher=False),
            best_marked([row["fit_seconds"] for row in block], 1, higher=False),
            best_marked([row["ms_per_image"] for row in block], 1, higher=False),
        ]
        for i, row in enumerate(block):
            entries = tuple(Entry((column[i],)) for column in columns)
            lines.append((f"{n} · {title_of(row['preset'])}", entries))
    heads = ("AUROC", "Max RAM (GB)", "Fit time (s)", "Inference latency (ms/image)")
    return Table("Subset ladder", heads, tuple(lines), _note(rows))


def growing_table(rows: Sequence[Row]) -> Table | None:
    """At every step a model that has learnt the further images alone, and one fitted anew to all of them."""
    refits = {row["n_train"]: row for row in _fitted(rows) if row["preset"] == STREAM}
    grown = sorted((row for row in rows if _is_grown(row)), key=lambda row: row["n_train"])
    lines = []
    for row in grown:
        refit = refits.get(row["n_train"])
        if refit is None or row["grown_in"] < 2:
            continue
        texts = [
            *(f"{one['image_auroc']:.3f}" for one in (refit, row)),
            signed(row["image_auroc"] - refit["image_auroc"]),
            *(f"{one['peak_rss'] / GB:.2f}" for one in (refit, row)),
            *(f"{one['fit_seconds']:.1f}" for one in (refit, row)),
        ]
        lines.append((str(row["n_train"]), plain_entries(texts)))
    heads = (
        *("AUROC, refit", "AUROC, grown", "difference", "RAM, refit (GB)", "RAM, grown (GB)"),
        *("Time, refit (s)", "Time, grown (s)"),
    )
    note = f"{title_of(STREAM)}; the model that grows starts at the smallest size. Times are of one step."
    return Table("A model that grows, and one fitted anew", heads, tuple(lines), note) if lines else None


def closest_in_ram(rows: Sequence[Row], stream: str = STREAM) -> int | None:
    """n*: the subset size whose offline peak is closest to the stream's peak on the full set; None without either.

    >>> rows = [{"preset": "patchcore", "n_train": n, "n_available": 500, "peak_rss": n} for n in (100, 200, 300)]
    >>> closest_in_ram([*rows, {"preset": "mh", "n_train": 500, "n_available": 500, "peak_rss": 190}])
    200
    """
    fitted = _fitted(rows)
    full = [row for row in fitted if row["preset"] == stream and row["n_train"] == row["n_available"]]
    offline = [row for row in fitted if row["preset"] == OFFLINE]
    if not full or not offline:
        return None
    budget = full[0]["peak_rss"]
    return int(min(offline, key=lambda row: abs(row["peak_rss"] - budget))["n_train"])


def _is_grown(row: Row) -> bool:
    return bool(row.get("grown_in"))


def _fitted(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not _is_grown(row)]


def _presets(rows: Sequence[Row]) -> list[str]:
    """The paper's three first, then what was asked for."""
    return list(dict.fromkeys((*LADDER, *(row["preset"] for row in rows))))


def _note(rows: Sequence[Row]) -> str:
    n = closest_in_ram(rows)
    if n is None:
        return COSTS
    return f"n* = {n}: with so many images offline PatchCore comes nearest to the stream's memory with all. {COSTS}"
