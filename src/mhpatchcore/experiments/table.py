"""A table of numbers that knows its best values, as Markdown or LaTeX, and files and a page of such tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.runtime.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
SHOWN = ("histogram", "clear", "hard")  # of a cell's figures


@dataclass(frozen=True)
class Entry:
    """One cell: lines of text (the second in parentheses in the paper's tables), each bold or not."""

    lines: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Table:
    """A title, column heads, and rows that start with a name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    note: str = ""

    def markdown(self) -> str:
        head = ["| | " + " | ".join(map(_md, self.columns)) + " |", "|---" * (len(self.columns) + 1) + "|"]
        body = [
            "| "
            + " | ".join([_md(name), *(" ".join(_md(*line) for line in entry.lines) for entry in entries)])
            + " |"
            for name, entries in self.rows
        ]
        return "\n".join(
            [_md(self.title, True), "", *head, *body, *(["", _md(self.note)] if self.note else []), ""]
        )

    def latex(self) -> str:
        def stacked(entry: Entry) -> str:
            lines = [rf"\textbf{{{_tex(text)}}}" if bold else _tex(text) for text, bold in entry.lines]
            return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"

        body = [" & ".join([_tex(name), *map(stacked, entries)]) + r" \\" for name, entries in self.rows]
        return "\n".join(
            [
                r"\begin{table}[htbp]",
                r"  \centering",
                r"  \begin{tabular}{@{}l" + "c" * len(self.columns) + "@{}}",
                r"    \toprule",
                "    " + " & ".join(["", *map(_tex, self.columns)]) + r" \\",
                r"    \midrule",
                *("    " + line for line in body),
                r"    \bottomrule",
                r"  \end{tabular}",
                rf"  \caption{{{' '.join([_tex(self.title) + '.', _tex(self.note)]).strip()}}}",
                r"\end{table}",
                "",
            ]
        )


def plain_entries(texts: Iterable[object]) -> tuple[Entry, ...]:
    """Entries of one line each, none of them bold."""
    return tuple(Entry(((str(text), False),)) for text in texts)


def best_marked(values: Sequence[float | None], digits: int, higher: bool = True) -> list[tuple[str, bool]]:
    """Values as text with `digits` decimals, the best after rounding marked, ties together.

    >>> best_marked([0.9871, 0.9869, None], 3)
    [('0.987', True), ('0.987', True), ('–', False)]
    """
    rounded = [None if v is None or isnan(v) else round(v, digits) for v in values]
    present = [v for v in rounded if v is not None]
    best = (max if higher else min)(present) if present else None
    return [("–", False) if v is None else (f"{v:.{digits}f}", v == best) for v in rounded]


def signed(value: float, digits: int = 3) -> str:
    """
    >>> signed(0.0123), signed(-0.002), signed(-0.0002)
    ('+0.012', '−0.002', '0.000')
    """
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if float(f"{value:.{digits}f}") else text[1:]


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
    write_text(page, _page(tables, figures or {}, cells))
    return [markdown, latex, page]


def _page(tables: Mapping[str, Table], figures: Mapping[str, Figure], cells: Sequence[Row]) -> str:
    """The page as text. The figures of cells lie beside it, and are loaded when somebody looks at them."""
    from mhpatchcore.report.figures import figure_bytes
    from mhpatchcore.report.page import render_page

    beside = [
        (
            f"{row['dataset']}, {row['preset']}",
            [file for name in SHOWN for file in row["files"] if file.endswith(f"/{name}.png")],
        )
        for row in cells
    ]
    return render_page(
        "tables.html.j2",
        eyebrow="Experiments",
        name="mhpatchcore",
        headline="Tables and figures",
        promise="",
        tables=tables,
        figures=[
            (figure.axes[0].get_title("left") or name, figure_bytes(figure, "svg"))
            for name, figure in figures.items()
        ],
        cells=[(title, files) for title, files in beside if files],
    )


def _md(text: str, bold: bool = False) -> str:
    escaped = re.sub(r"([\\`*_|<\[])", r"\\\1", text)
    return f"**{escaped}**" if bold else escaped


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "α": r"$\alpha$",
        "–": "--",
        **{character: "\\" + character for character in "_%&#${}"},
    }
)


def _tex(text: str) -> str:
    return text.translate(_TEX)
