"""The study's tables, and a page that holds them between markers: `<!-- accuracy:NAME -->` … `<!-- /accuracy:NAME -->`.

Text around the markers stays as it is, so the page can be written by hand and its numbers by the study.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.accuracy import tables
from benchmarks.accuracy.cells import Cell, Variant
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import write_text


def study_tables(cells: Sequence[Cell], lines: Mapping[str, Variant]) -> dict[str, str]:
    """All tables by their names on the page."""
    first = {name: line for name, line in lines.items() if line.headline}
    others = {name: line for name, line in lines.items() if not line.headline}
    known = tables.variants_of(cells)
    return {
        "summary": tables.main_lines(cells, first),
        "ingredients": tables.ingredients(cells, others),
        **{figure: tables.by_category(cells, figure, [*first]) for figure in tables.FIGURES},
        "left-out": tables.left_out(cells, [tables.DEFAULT, *others]),
        "spread": tables.spread(cells, known),
        "all-image": tables.by_category(cells, "image", known),
    }


def paste(page: Path, found: Mapping[str, str]) -> list[str]:
    """Replace what stands between the markers of a page by the tables of these names; which ones it has."""
    text = page.read_text(encoding="utf-8")
    pasted = with_tables(text, found)
    write_text(page, pasted)
    return [name for name in found if f"<!-- accuracy:{name} -->" in text]


def with_tables(text: str, found: Mapping[str, str]) -> str:
    """
    >>> with_tables("Means:\\n<!-- accuracy:all -->\\nold\\n<!-- /accuracy:all -->\\n", {"all": "| new |"})
    'Means:\\n<!-- accuracy:all -->\\n| new |\\n<!-- /accuracy:all -->\\n'
    """
    pattern = re.compile(r"(<!-- accuracy:([\w-]+) -->\n).*?(<!-- /accuracy:\2 -->)", re.DOTALL)

    def new(match: re.Match[str]) -> str:
        if match[2] not in found:
            raise UserError(f"there is no table '{match[2]}'; there are: {', '.join(found)}")
        return f"{match[1]}{found[match[2]]}\n{match[3]}"

    return pattern.sub(new, text)
