"""A table in a folder of Parquet files: results/part-00000.parquet and so on, and a record of what has made it.

Every part holds a key of all that it was made of. Tools for tables read the folder as one; names that begin with _ are
ignored by them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import atomic_path, import_parquet, write_text
from mhpatchcore.runtime.texts import encodable
from mhpatchcore.runtime.urls import files_below, open_url, read_url, remove_url, size_and_state, url_of

RECORD = "_mhpatchcore.json"
KEY = b"mhpatchcore"


@dataclass(frozen=True)
class Table:
    """The folder of a table, by its absolute path or its URL."""

    folder: str

    def path(self, part: int) -> str:
        return f"{self.folder}/part-{part:05d}.parquet"

    def begin(self, record: Mapping[str, Any]) -> None:
        """Say what is to be in the folder. Parts of another model go; a folder of other things is left alone."""
        import_parquet()
        earlier = self._record()
        if earlier is None and self._names():
            raise UserError(f"{self.folder} holds other files: name a new folder with --out, such as results")
        if earlier is not None and earlier.get("model") != record["model"]:
            self._remove(0)
        write_text(f"{self.folder}/{RECORD}", json.dumps({**record, "finished": False}))

    def finish(self, record: Mapping[str, Any], parts: int) -> None:
        """Say that all parts are there; those of earlier, longer tables go."""
        self._remove(parts)
        written = set(self._names())
        if any(Path(self.path(part)).name not in written for part in range(parts)):
            raise UserError(
                f"{self.folder} is another folder for some workers: name a place that all of them share"
            )
        write_text(f"{self.folder}/{RECORD}", json.dumps({**record, "finished": True}))

    def write(self, part: int, rows: Sequence[Mapping[str, Any]], key: str) -> None:
        pyarrow, parquet = import_parquet()
        kinds = {
            "image": pyarrow.string(),
            "sha256": pyarrow.string(),
            "score": pyarrow.float64(),
            "threshold": pyarrow.float64(),
            "p_value": pyarrow.float64(),
            "verdict": pyarrow.string(),
            "defect": pyarrow.string(),
            "regions": pyarrow.int32(),
            "boxes": pyarrow.list_(pyarrow.list_(pyarrow.int32())),  # top, left, bottom, right
            "error": pyarrow.string(),
            "seconds": pyarrow.float64(),
        }
        schema = pyarrow.schema(list(kinds.items()), metadata={KEY: key.encode()})
        columns = {name: [encodable(row.get(name)) for row in rows] for name in kinds}
        with atomic_path(self.path(part)) as temporary:
            parquet.write_table(pyarrow.table(columns, schema=schema), temporary)

    def rows(self, part: int, key: str) -> list[dict[str, Any]] | None:
        """The rows of a part that was made of the same; None where it has to be made."""
        _, parquet = import_parquet()
        path = self.path(part)
        url = url_of(path)
        try:
            if (size_and_state(url) is None) if url else not Path(path).is_file():
                return None
            with open_url(url) if url else Path(path).open("rb") as opened:
                file = parquet.ParquetFile(opened)
                if (file.schema_arrow.metadata or {}).get(KEY) != key.encode():
                    return None
                return list(file.read().to_pylist())
        except Exception:  # one that is damaged is made again
            return None

    def _record(self) -> dict[str, Any] | None:
        place = f"{self.folder}/{RECORD}"
        with suppress(OSError, UserError, ValueError, TypeError):
            return dict(json.loads(read_url(place) if url_of(place) else Path(place).read_bytes()))
        return None

    def _names(self) -> list[str]:
        """Of the files in the folder."""
        if url_of(self.folder):
            return [Path(one).name for one in files_below(self.folder)]
        if Path(self.folder).exists() and not Path(self.folder).is_dir():
            raise UserError(f"{self.folder} is a file: --out names a folder, such as results")
        return os.listdir(self.folder) if Path(self.folder).is_dir() else []  # noqa: PTH208 (names)

    def _remove(self, first: int) -> None:
        """The parts from a number on."""
        for name in self._names():
            number = name.removeprefix("part-").removesuffix(".parquet")
            if name == f"part-{number}.parquet" and number.isdecimal() and int(number) >= first:
                place = f"{self.folder}/{name}"
                remove_url(place) if url_of(place) else Path(place).unlink(missing_ok=True)
