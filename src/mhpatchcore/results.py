"""Results of many images, as tables and COCO annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.loading import MEASURES
from mhpatchcore.result import Result
from mhpatchcore.runtime.files import atomic_path, import_parquet, write_csv, write_text
from mhpatchcore.runtime.texts import encodable
from mhpatchcore.scoring.maps import ANOMALY

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("image", "score", "threshold", "verdict", "is_rejected", "p_value", "defect", "regions"),
    *MEASURES,
)
SHOWN = ("image", "score", "verdict", "p_value", "defect", "regions")
MOST_SHOWN = 30  # rows in a notebook
SHEET = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OF_SHEETS = "application/vnd.openxmlformats-officedocument.spreadsheetml"
SPREADSHEET = {  # the parts of an .xlsx file beside its sheet
    "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{OF_SHEETS}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{OF_SHEETS}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{RELATED}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook {SHEET} xmlns:r="{RELATED}">'
    '<sheets><sheet name="results" sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{RELATED}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}


class Results(list[Result]):
    """A list of results that can be written as a table: `Results(detector.score_many(...))`.

    What many images have in maps is too much to keep for large collections: take rows from `score_many` there.
    """

    def rows(self) -> list[dict[str, Any]]:
        """A flat row for each image; `regions` is how many there are."""
        return [flat(result.to_dict()) for result in self]

    def to_frame(self) -> pd.DataFrame:
        """A table of pandas with a row for each image."""
        try:
            import pandas as pd
        except ImportError:
            raise UserError("a data frame takes pandas: pip install pandas") from None
        return pd.DataFrame(self.rows(), columns=list(COLUMNS))

    def to_csv(self, path: str | Path) -> None:
        """Write a row for each image.

        Parameters
        ----------
        path
            Where to write: results.csv.
        """
        write_csv(path, COLUMNS, self.rows())

    def to_parquet(self, path: str | Path) -> None:
        """Write a row for each image; takes `mhpatchcore[parquet]`.

        Parameters
        ----------
        path
            Where to write: results.parquet.
        """
        write_parquet(path, COLUMNS, self.rows())

    def to_json(self) -> str:
        """A JSON list of what `Result.to_dict` says of each image."""
        return json.dumps([result.to_dict() for result in self])

    def to_coco(self, path: str | Path | None = None) -> dict[str, Any]:
        """All images and their regions in the format of COCO annotations.

        Parameters
        ----------
        path
            Where to write them as well: regions.json.
        """
        document = coco(result.to_dict() | {"size": result.size} for result in self)
        if path is not None:
            write_text(path, json.dumps(document, indent=1) + "\n")
        return document

    def __repr__(self) -> str:
        counts = Counter(result.verdict for result in self)
        return f"Results({', '.join(f'{n} {verdict}' for verdict, n in counts.items()) or 'none'})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of the first images."""
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in SHOWN)
        rows = [flat(result.to_dict()) for result in self[:MOST_SHOWN]]
        body = "".join(f"<tr>{''.join(_cell(row[name]) for name in SHOWN)}</tr>" for row in rows)
        return f"<p>{escape(repr(self))}</p><table><tr>{head}</tr>{body}</table>"


def flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What `Result.to_dict` says, as a row of a table: regions are counted, measures of the camera are columns."""
    return {**facts, "regions": len(facts["regions"]), **facts["camera"]}


def write_parquet(path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write flat rows as a Parquet file, with these columns; one that a row does not have is null."""
    pyarrow, parquet = import_parquet()
    kinds = dict.fromkeys(("image", "verdict", "defect", "error"), pyarrow.string())
    kinds |= {"is_rejected": pyarrow.bool_(), "regions": pyarrow.int32()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in columns])
    cells = [{name: encodable(row.get(name)) for name in columns} for row in rows]
    with atomic_path(path) as temporary:
        parquet.write_table(pyarrow.Table.from_pylist(cells, schema=schema), temporary)


def write_xlsx(path: str | Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write flat rows as a spreadsheet with one sheet; texts are texts there, never formulas."""
    table = [dict(zip(columns, columns, strict=True)), *rows]
    lines = (f"<row>{''.join(_spreadsheet_cell(row.get(name)) for name in columns)}</row>" for row in table)
    with atomic_path(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as book:
        for name, text in SPREADSHEET.items():
            book.writestr(name, text)
        book.writestr(
            "xl/worksheets/sheet1.xml",
            f"<worksheet {SHEET}><sheetData>{''.join(lines)}</sheetData></worksheet>",
        )


def _spreadsheet_cell(value: Any) -> str:
    if isinstance(value, float) and not isfinite(value):
        value = None
    if value is None:
        return "<c/>"
    if isinstance(value, int | float):  # True is 1
        return f"<c><v>{value:.17g}</v></c>"
    text = str(value) if str(value).isprintable() else ascii(value)
    return f'<c t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def coco(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What `Result.to_dict` says and the image's `size`, as COCO annotations; boxes are x, y, width, height.

    A region's category is its name, its score the map's peak in it.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories = {ANOMALY: 1}
    for number, row in enumerate(rows, start=1):
        height, width = row["size"]
        images.append({"id": number, "file_name": row["image"], "height": height, "width": width})
        for region in row["regions"]:
            top, left, bottom, right = region["box"]
            category = categories.setdefault(region["name"] or ANOMALY, len(categories) + 1)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": category,
                    "bbox": [left, top, right - left, bottom - top],
                    "area": region["area"],
                    "iscrowd": 0,
                    "score": region["peak"],
                }
            )
    named = [{"id": id, "name": name} for name, id in categories.items()]
    return {"images": images, "annotations": annotations, "categories": named}


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else escape(str(value))
    return f"<td>{text}</td>"
