"""What experiments leave for people to look at: tables of numbers that know their best values, as Markdown and LaTeX, a
page of such tables, and of every cell the verdict on each image, curves, and telling examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mhpatchcore.errors import ImageError
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import write_csv, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mhpatchcore.detector import Detector
    from mhpatchcore.evaluation.evaluate import Evaluation, Judged
    from mhpatchcore.inputs.datasets import Dataset

Row = dict[str, Any]
SHOWN = ("histogram", "clear", "hard")  # of a cell's figures
VERDICT = ("image", "kind", "is_anomalous", "score", "threshold", "flagged", "located", "p_value", "verdict")
HARD, CLEAR = 3, 5
SHEET = 1024  # pixels, the width of a sheet of examples


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


def write_verdicts(evaluation: Evaluation, root: Path, path: Path) -> Path:
    """One line for each test image, named by its place below the data set's folder."""
    from mhpatchcore.report.evaluation import verdict_of

    lines = [
        {
            "image": _name(judged.path, root),
            "kind": judged.kind,
            "is_anomalous": int(judged.is_anomalous),
            "score": judged.score,
            "threshold": evaluation.threshold,
            "flagged": _digit(judged.flagged),
            "located": _digit(judged.located),
            "p_value": judged.p_value,
            "verdict": verdict_of(judged),
        }
        for judged in evaluation.images
    ]
    write_csv(path, VERDICT, lines)
    return path


def write_figures(detector: Detector, dataset: Dataset, evaluation: Evaluation, folder: Path) -> list[Path]:
    """ROC, precision and recall, scores with the threshold, and sheets of clear and of hard cases."""
    from mhpatchcore.report import figures
    from mhpatchcore.report.drawing import contact_sheet, save_picture

    labels = [judged.is_anomalous for judged in evaluation.images]
    scores = [judged.score for judged in evaluation.images]
    drawn = {
        "roc": figures.roc_figure(labels, scores, evaluation.threshold),
        "precision-recall": figures.precision_recall_figure(labels, scores, evaluation.threshold),
        "histogram": figures.histogram_figure(labels, scores, evaluation.threshold),
    }
    written = [path for name, one in drawn.items() if one for path in figures.save_figure(one, folder / name)]
    for name, chosen in (("clear", clear_cases(evaluation.images)), ("hard", hard_cases(evaluation.images))):
        if chosen:
            examples = [_example(detector, dataset, judged) for judged in chosen]
            save_picture(folder / f"{name}.png", contact_sheet(examples, SHEET))
            written.append(folder / f"{name}.png")
    return written


def _example(detector: Detector, dataset: Dataset, judged: Judged) -> tuple[str, Array]:
    """A label, and pictures side by side: the image, the truth (in a data set with masks), heat and segmentation."""
    from mhpatchcore.inputs.datasets import read_mask
    from mhpatchcore.report.drawing import panels
    from mhpatchcore.report.evaluation import verdict_of

    result = detector.score(judged.path)
    mask = next(sample.mask for sample in dataset.test if sample.path == judged.path)
    truth = np.zeros(result.size, bool) if dataset.has_masks else None
    with suppress(ImageError):  # the evaluation reports it
        truth = truth if mask is None else read_mask(mask, *result.size)
    return f"{judged.kind}: {verdict_of(judged)}", panels(judged.path, result, truth=truth)


def hard_cases(images: Sequence[Judged]) -> list[Judged]:
    """The defects of the lowest scores and the good parts of the highest: the worst misses and false alarms."""
    defects = sorted((judged for judged in images if judged.is_anomalous), key=lambda judged: judged.score)
    good = sorted((judged for judged in images if not judged.is_anomalous), key=lambda judged: -judged.score)
    return [*defects[:HARD], *good[:HARD]]


def clear_cases(images: Sequence[Judged]) -> list[Judged]:
    """The strongest defect of every kind, strongest kinds first, and the calmest good part."""
    by_score = sorted(images, key=lambda judged: -judged.score)
    strongest = {judged.kind: judged for judged in reversed(by_score) if judged.is_anomalous}
    defects = sorted(strongest.values(), key=lambda judged: -judged.score)
    return [*defects[:CLEAR], *[judged for judged in by_score if not judged.is_anomalous][-1:]]


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root if path.is_relative_to(root) else root.parent).as_posix()


def _digit(value: bool | None) -> int | None:
    """1, 0, or nothing where it is not known."""
    return None if value is None else int(value)


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
