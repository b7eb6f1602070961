"""The RAM-matched subset ladder: nested subsets of the normal images, offline PatchCore against bounded memory.

n* = argmin_n |RAM_n − RAM_stream| names the size at which offline PatchCore needs as much memory as the stream, which
learns from the full set, whatever the sizes of the ladder are.

Beyond the paper, which only discusses it, a model may also grow from step to step, learning each time the further
images alone; beside it stands the model that is fitted anew to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from mhpatchcore.experiments.published import Value, peak_ram, title_of
from mhpatchcore.experiments.showing import Row, Table, plain_entries, signed, write_formats
from mhpatchcore.experiments.tables import COSTS, Measure, marked_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mhpatchcore.report.figures import Series

LADDER = ("patchcore", "mh", "geores-k2000")
PLOTTED = ("patchcore", "geores-k2000")  # the paper's plot leaves the stream out
OFFLINE, STREAM = "patchcore", "mh"
MEASURES = (
    Measure("AUROC", itemgetter("image_auroc"), higher=True),
    Measure("Max RAM (GB)", peak_ram, digits=2),
    Measure("Fit time (s)", itemgetter("fit_seconds"), digits=1),
    Measure("Inference latency (ms/image)", itemgetter("ms_per_image"), digits=1),
)


def ladder_cells(sizes: Sequence[int], there_are: int, further: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Numbers of images with the presets that run on them: all on every size, and the stream on the full set.

    >>> ladder_cells([300], 2875)
    [(300, 'patchcore'), (300, 'mh'), (300, 'geores-k2000'), (2875, 'mh')]
    """
    cells = [(n, name) for n in sizes for name in dict.fromkeys((*LADDER, *further))]
    return cells if there_are in sizes else [*cells, (there_are, STREAM)]


def write_ladder(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The ladder's tables and its plots of memory and of AUROC over the number of images."""
    return write_formats(ladder_tables(rows), folder, "ladder", ladder_figures(rows))


def ladder_tables(rows: Sequence[Row]) -> dict[str, Table]:
    growing = growing_table(rows)
    return {"ladder": ladder_table(rows)} | ({"growing": growing} if growing else {})


def ladder_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Peak memory and image AUROC over the number of normal images, by file name."""
    from mhpatchcore.report.figures import lines_figure

    x_label = "normal training images"
    memory, quality = _series(rows, peak_ram), _series(rows, itemgetter("image_auroc"))
    figures = {}
    if memory:
        figures["ram-growth"] = lines_figure(memory, "Memory and data", x_label, "peak RAM (GB)", bottom=0)
    if quality:
        figures["auroc-growth"] = lines_figure(quality, "Quality and data", x_label, "image AUROC", top=1.002)
    return figures


def _series(rows: Sequence[Row], value: Value) -> list[Series]:
    """A line for each configuration of the paper's plot, and for each that was asked for, over the sizes."""
    from mhpatchcore.report.figures import Series

    lines = []
    for name in (*PLOTTED, *(name for name in _presets(rows) if name not in LADDER)):
        own = sorted((row for row in _fitted(rows) if row["preset"] == name), key=itemgetter("n_train"))
        points = [(row["n_train"], value(row)) for row in own if value(row) is not None]
        if points:
            lines.append(Series(title_of(name), *zip(*points, strict=True)))
    return lines


def ladder_table(rows: Sequence[Row]) -> Table:
    """One block per subset size: AUROC, peak RAM, fit time, latency; best of each block in bold."""
    lines = []
    for size in sorted({row["n_train"] for row in _fitted(rows)}):
        block = [row for row in _fitted(rows) if row["n_train"] == size]
        names = [name for name in _presets(rows) if any(row["preset"] == name for row in block)]
        columns = [entries for _, entries in marked_lines(block, names, MEASURES)]
        lines += [
            (f"{size} · {title_of(name)}", entries)
            for name, entries in zip(names, zip(*columns, strict=True), strict=True)
        ]
    n = closest_in_ram(rows)
    match = f"n* = {n}: with so many images offline PatchCore comes nearest to the stream's memory with all. "
    note = COSTS if n is None else match + COSTS
    return Table("Subset ladder", tuple(measure.label for measure in MEASURES), tuple(lines), note)


def growing_table(rows: Sequence[Row]) -> Table | None:
    """At every step a model that has learnt the further images alone, and one fitted anew to all of them."""
    refits = {row["n_train"]: row for row in _fitted(rows) if row["preset"] == STREAM}
    steps = [row for row in rows if (row.get("grown_in") or 0) > 1 and row["n_train"] in refits]
    lines = []
    for row in sorted(steps, key=itemgetter("n_train")):
        both = (refits[row["n_train"]], row)
        texts = [
            *(f"{one['image_auroc']:.3f}" for one in both),
            signed(both[1]["image_auroc"] - both[0]["image_auroc"]),
            *(f"{peak_ram(one):.2f}" for one in both),
            *(f"{one['fit_seconds']:.1f}" for one in both),
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
    return int(min(offline, key=lambda row: abs(row["peak_rss"] - full[0]["peak_rss"]))["n_train"])


def _fitted(rows: Sequence[Row]) -> list[Row]:
    """Without the models that have grown."""
    return [row for row in rows if not row.get("grown_in")]


def _presets(rows: Sequence[Row]) -> list[str]:
    """The paper's three first, then what was asked for."""
    return list(dict.fromkeys((*LADDER, *(row["preset"] for row in rows))))
