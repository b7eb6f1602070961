"""Tables and figures of a grid, written into its folder."""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.evaluation.metrics import macro_average
from mhpatchcore.experiments.published import reproduction_tables
from mhpatchcore.experiments.table import Table
from mhpatchcore.experiments.tables import dataset_table, paper_tables, title_of
from mhpatchcore.runtime.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>mhpatchcore</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 2rem 0 0.5rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: 0.5rem 0; }
td, th { padding: 0.3rem 0.7rem; border-bottom: 1px solid #d8dee4; text-align: left; }
td { font-variant-numeric: tabular-nums; }
p { color: #59636e; font-size: 0.9rem; max-width: 52rem; }
img { max-width: 100%; height: auto; }
figure { margin: 2rem 0; }
summary { cursor: pointer; padding: 0.3rem 0; }
</style>
"""
SHOWN = ("histogram", "clear", "hard")  # of a cell's figures


def write_tables(rows: Sequence[Row], statistics: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """All tables as Markdown, LaTeX and HTML, the published values beside the measured, and the AUROC/RAM figure."""
    from mhpatchcore.report.figures import save_figure

    tables = {"datasets": dataset_table(statistics), **reproduction_tables(rows), **paper_tables(rows)}
    figure = auroc_and_memory(rows)
    files = write_formats(tables, folder, figures={"pareto": figure} if figure else {}, cells=rows)
    return [*files, *(save_figure(figure, folder / "figures" / "pareto") if figure else [])]


def write_formats(
    tables: Mapping[str, Table],
    folder: Path,
    stem: str = "tables",
    figures: Mapping[str, Figure] | None = None,
    cells: Sequence[Row] = (),
) -> list[Path]:
    """Tables as Markdown, LaTeX and an HTML page, which shows the figures and those of the cells as well."""
    markdown, latex, page = (folder / f"{stem}{suffix}" for suffix in (".md", ".tex", ".html"))
    write_text(markdown, "\n".join(table.markdown() for table in tables.values()))
    write_text(latex, "\n".join(table.latex() for table in tables.values()))
    shown = [_figure(name, figure) for name, figure in (figures or {}).items()]
    parts = [*(table.html() for table in tables.values()), *shown, *(_cell(row) for row in cells)]
    write_text(page, HEAD + "".join(parts) + "</html>\n")
    return [markdown, latex, page]


def auroc_and_memory(rows: Sequence[Row]) -> Figure | None:
    """Mean image AUROC against the largest peak memory, one point per configuration that ran on all data sets."""
    from mhpatchcore.report.figures import Cost, pareto_figure

    points = []
    datasets = {row["dataset"] for row in rows}
    for name in dict.fromkeys(row["preset"] for row in rows):
        own = [row for row in rows if row["preset"] == name]
        aurocs = [row["image_auroc"] for row in own if row["image_auroc"] is not None]
        if aurocs and {row["dataset"] for row in own} == datasets:
            points.append(
                Cost(title_of(name), max(row["peak_rss"] for row in own) / 1e6, macro_average(aurocs))
            )
    return pareto_figure(points) if points else None


def _figure(name: str, figure: Figure) -> str:
    """A figure within the page."""
    from mhpatchcore.report.figures import figure_bytes

    content = b64encode(figure_bytes(figure, "svg")).decode("ascii")
    title = html.escape(figure.axes[0].get_title("left") or name)
    return f'<figure><img src="data:image/svg+xml;base64,{content}" alt="{title}"></figure>\n'


def _cell(row: Row) -> str:
    """A cell's figures, which lie beside the page; they are loaded when somebody looks at them."""
    files = [file for name in SHOWN for file in row["files"] if file.endswith(f"/{name}.png")]
    if not files:
        return ""
    title = html.escape(f"{row['dataset']}, {row['preset']}")
    images = "".join(f'<img loading="lazy" src="{html.escape(file)}" alt="{title}">' for file in files)
    return f"<details><summary>{title}</summary>{images}</details>\n"
