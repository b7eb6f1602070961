"""Parquet, which is an extra."""

from __future__ import annotations

from typing import Any

from mhpatchcore.errors import UserError


def import_parquet() -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("a Parquet table takes pyarrow: pip install 'mhpatchcore[parquet]'") from None
    return pyarrow, parquet
