"""Tables and figures of a grid, written into its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.evaluation.metrics import macro_average
from mhpatchcore.experiments.table import Table
from mhpatchcore.experiments.tables import dataset_table, paper_tables
from mhpatchcore.presets import PRESETS
from mhpatchcore.runtime.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = (
    "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>mhpatchcore</title>"
    "<style>body{font:15px system-ui;margin:2rem auto;max-width:70rem;padding:0 1rem}table{border-collapse:collapse;"
    "margin:2rem 0;display:block;overflow-x:auto}caption{text-align:left;font-weight:600;padding:.5rem 0}"
    "td,th{padding:.3rem .7rem;border-bottom:1px solid #ccc;text-align:left;font-variant-numeric:tabular-nums}</style>"
)


def write_tables(
    rows: Sequence[dict[str, Any]], statistics: Sequence[dict[str, Any]], folder: Path
) -> list[Path]:
    """All tables as Markdown, LaTeX and HTML, and the AUROC/RAM figure."""
    from mhpatchcore.report.figures import save_figure

    tables = {"datasets": dataset_table(statistics), **paper_tables(rows)}
    files = write_formats(tables, folder)
    figure = auroc_and_memory(rows)
    return [*files, *(save_figure(figure, folder / "figures" / "pareto") if figure else [])]


def write_formats(tables: Mapping[str, Table], folder: Path, stem: str = "tables") -> list[Path]:
    markdown, latex, page = (folder / f"{stem}{suffix}" for suffix in (".md", ".tex", ".html"))
    write_text(markdown, "\n".join(table.markdown() for table in tables.values()))
    write_text(latex, "\n".join(table.latex() for table in tables.values()))
    write_text(page, STYLE + "".join(table.html() for table in tables.values()))
    return [markdown, latex, page]


def auroc_and_memory(rows: Sequence[dict[str, Any]]) -> Figure | None:
    """Mean image AUROC against the largest peak memory, one point per configuration that ran on all data sets."""
    from mhpatchcore.report.figures import Cost, pareto_figure

    points = []
    datasets = {row["dataset"] for row in rows}
    for name in dict.fromkeys(row["preset"] for row in rows):
        own = [row for row in rows if row["preset"] == name]
        aurocs = [row["image_auroc"] for row in own if row["image_auroc"] is not None]
        if aurocs and {row["dataset"] for row in own} == datasets:
            title = PRESETS[name].title if name in PRESETS else name
            points.append(Cost(title, max(row["peak_rss"] for row in own) / 1e6, macro_average(aurocs)))
    return pareto_figure(points) if points else None
