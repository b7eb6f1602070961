"""The study's tables, and a page that holds them between markers: `<!-- lite0:summary -->` … `<!-- /lite0:summary -->`.

A marker names the study, which is the folder of its results, and the table. Text around the markers stays as it is, so
the page can be written by hand and its numbers by the studies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.accuracy import tables
from benchmarks.accuracy.cells import FEW, Cell, Variant
from benchmarks.accuracy.costs import Cost, cost_table
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import write_text


def study_tables(
    cells: Sequence[Cell], lines: Mapping[str, Variant], costs: Sequence[Cost] = ()
) -> dict[str, str]:
    """All tables by their names on the page."""
    first = {name: line for name, line in lines.items() if line.headline}
    others = {name: line for name, line in lines.items() if not line.headline}
    few = [cell for cell in cells if FEW in cell.variant]
    cells = [cell for cell in cells if FEW not in cell.variant]
    known = tables.variants_of(cells)
    return {
        "summary": tables.main_lines(cells, first),
        "ingredients": tables.ingredients(cells, others),
        **{figure: tables.by_category(cells, figure, [*first]) for figure in tables.FIGURES},
        "left-out": tables.left_out(cells, [tables.DEFAULT, *others]),
        "spread": tables.spread(cells, known),
        "all-image": tables.by_category(cells, "image", known),
        "few": tables.few_normals(few),
        "costs": cost_table(costs, cells),
    }


def paste(page: Path, study: str, found: Mapping[str, str]) -> list[str]:
    """Replace what stands between a study's markers on a page by its tables; which of them the page has."""
    text = page.read_text(encoding="utf-8")
    write_text(page, with_tables(text, study, found))
    return [name for name in found if f"<!-- {study}:{name} -->" in text]


def with_tables(text: str, study: str, found: Mapping[str, str]) -> str:
    """
    >>> with_tables("Means:\\n<!-- a:all -->\\nold\\n<!-- /a:all -->\\n", "a", {"all": "| new |"})
    'Means:\\n<!-- a:all -->\\n| new |\\n<!-- /a:all -->\\n'
    """
    study = re.escape(study)
    pattern = re.compile(rf"(<!-- {study}:([\w-]+) -->\n).*?(<!-- /{study}:\2 -->)", re.DOTALL)

    def new(match: re.Match[str]) -> str:
        if match[2] not in found:
            raise UserError(f"there is no table '{match[2]}'; there are: {', '.join(found)}")
        return f"{match[1]}{found[match[2]]}\n{match[3]}"

    return pattern.sub(new, text)
