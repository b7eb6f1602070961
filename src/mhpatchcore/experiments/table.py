"""A table of numbers that knows its best values, as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan


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

    def html(self) -> str:
        def cell(entry: Entry) -> str:
            lines = [
                f"<b>{html.escape(text)}</b>" if bold else html.escape(text) for text, bold in entry.lines
            ]
            return f"<td>{'<br>'.join(lines)}</td>"

        head = "".join(f"<th>{html.escape(column)}</th>" for column in ("", *self.columns))
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(map(cell, entries))}</tr>"
            for name, entries in self.rows
        )
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}\n"


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
