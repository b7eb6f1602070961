"""What experiments leave for people to look at: tables of numbers that know their best values, as Markdown and LaTeX, a
page of such tables, and of every cell the verdict on each image, curves, and the page about its evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.runtime.files import write_csv, write_text
from mhpatchcore.runtime.texts import encodable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mhpatchcore.evaluation.evaluate import Evaluation

Row = dict[str, Any]
Line = tuple[str, bool]  # a text, and whether it is bold
Entry = tuple[Line, ...]  # of a table; the second line stands in parentheses in the paper's tables
HISTOGRAM, REPORT = "histogram.png", "report.html"  # of what a cell leaves


@dataclass(frozen=True)
class Table:
    """A title, column heads, and rows that start with a name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    note: str = ""

    def markdown(self) -> str:
        rows = [
            [_md(name), *(" ".join(_md(*line) for line in entry) for entry in entries)]
            for name, entries in self.rows
        ]
        lines = ["| | " + " | ".join(map(_md, self.columns)) + " |", "|---" * (len(self.columns) + 1) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        note = ["", _md(self.note)] if self.note else []
        return "\n".join([_md(self.title, True), "", *lines, *note, ""])

    def latex(self) -> str:
        def stacked(entry: Entry) -> str:
            lines = [rf"\textbf{{{_tex(text)}}}" if bold else _tex(text) for text, bold in entry]
            return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"

        return "\n".join(
            [
                r"\begin{table}[htbp]",
                r"  \centering",
                r"  \begin{tabular}{@{}l" + "c" * len(self.columns) + "@{}}",
                r"    \toprule",
                "    " + " & ".join(["", *map(_tex, self.columns)]) + r" \\",
                r"    \midrule",
                *(
                    "    " + " & ".join([_tex(name), *map(stacked, entries)]) + r" \\"
                    for name, entries in self.rows
                ),
                r"    \bottomrule",
                r"  \end{tabular}",
                rf"  \caption{{{' '.join([_tex(self.title) + '.', _tex(self.note)]).strip()}}}",
                r"\end{table}",
                "",
            ]
        )


def plain_entries(texts: Iterable[object]) -> tuple[Entry, ...]:
    """Entries of one line each, none of them bold."""
    return tuple(((str(text), False),) for text in texts)


def best_marked(values: Sequence[float | None], digits: int, higher: bool = True) -> list[Line]:
    """Values as text with `digits` decimals, the best after rounding marked, ties together.

    >>> best_marked([0.9871, 0.9869, None], 3)
    [('0.987', True), ('0.987', True), ('–', False)]
    """
    rounded = [None if v is None or isnan(v) else round(v, digits) for v in values]
    present = [v for v in rounded if v is not None]
    best = (max if higher else min)(present) if present else None
    return [("–", False) if v is None else (f"{v:.{digits}f}", v == best) for v in rounded]


def signed(value: float) -> str:
    """
    >>> signed(0.0123), signed(-0.002), signed(-0.0002)
    ('+0.012', '−0.002', '0.000')
    """
    text = f"{value:+.3f}".replace("-", "−")
    return text if float(f"{value:.3f}") else text[1:]


def write_formats(
    tables: Mapping[str, Table],
    folder: Path,
    stem: str = "tables",
    figures: Mapping[str, Figure] | None = None,
    cells: Sequence[Row] = (),
) -> list[Path]:
    """Tables as Markdown, LaTeX and an HTML page, which shows the figures and those of the cells as well.

    Figures are written as files too.
    """
    from mhpatchcore.report.figures import save_figure
    from mhpatchcore.report.page import render_page

    figures = figures or {}
    # what cells have left lies beside the page, and is loaded when somebody looks at it
    beside = [
        (f"{row['dataset']}, {row['preset']}", file.removesuffix(REPORT))
        for row in cells
        for file in row["files"]
        if file.endswith(REPORT)
    ]
    page = render_page(
        "tables.html.j2",
        eyebrow="Experiments",
        name="mhpatchcore",
        headline="Tables and figures",
        promise="",
        tables=tables,
        figures=[(one.axes[0].get_title("left"), one) for one in figures.values()],
        cells=[(title, folder + HISTOGRAM, folder + REPORT) for title, folder in beside],
    )
    texts = {
        ".md": "\n".join(table.markdown() for table in tables.values()),
        ".tex": "\n".join(table.latex() for table in tables.values()),
        ".html": page,
    }
    written = [folder / f"{stem}{suffix}" for suffix in texts]
    for path, text in zip(written, texts.values(), strict=True):
        write_text(path, text)
    for name, figure in figures.items():
        written += save_figure(figure, folder / "figures" / name)
    return written


def write_verdicts(evaluation: Evaluation, root: Path, path: Path) -> Path:
    """One line for each test image, named by its place below the data set's folder."""
    from mhpatchcore.report.evaluation import verdict_of

    def digit(value: bool | None) -> int | None:
        return None if value is None else int(value)

    lines = [
        {
            "image": _below(root, judged.path),
            "kind": judged.kind,
            "is_anomalous": int(judged.is_anomalous),
            "score": judged.score,
            "threshold": evaluation.threshold,
            "flagged": digit(judged.flagged),
            "located": digit(judged.located),
            "p_value": judged.p_value,
            "verdict": verdict_of(judged),
        }
        for judged in evaluation.images
    ]
    write_csv(path, list(lines[0]), lines)
    return path


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root if path.is_relative_to(root) else root.parent).as_posix()


def write_figures(evaluation: Evaluation, page: str, folder: Path) -> list[Path]:
    """Scores with the threshold, ROC, precision and recall, and the page about the evaluation."""
    from mhpatchcore.report.evaluation import figures_of
    from mhpatchcore.report.figures import save_figure

    drawn = figures_of(evaluation).items()
    written = [path for name, (_, figure) in drawn for path in save_figure(figure, folder / name)]
    write_text(folder / REPORT, encodable(page))
    return [*written, folder / REPORT]


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
