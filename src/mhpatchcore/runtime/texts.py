"""Values as others read and write them: JSON without NaN, messages without paths, sizes in words."""

from __future__ import annotations

import re
from math import isfinite, isnan
from typing import Any

from mhpatchcore.errors import UserError

UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,'\"()]+/)+([^\s/:;,'\"()]*)")


def representable(value: Any) -> Any:
    """JSON has no NaN and no infinity: null says that there is no such number.

    >>> representable({"threshold": float("inf"), "box": (1, 2)})
    {'threshold': None, 'box': [1, 2]}
    """
    if isinstance(value, dict):
        return {name: representable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [representable(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def encodable(value: Any) -> Any:
    r"""A value as a table can hold it: names of files may have bytes that are not text.

    >>> encodable("caf\udce9.png")
    'caf\\udce9.png'
    """
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def without_paths(value: Any) -> Any:
    """The same texts, in which absolute paths are their last names: where files lie is nobody else's business.

    >>> without_paths({"source": "/home/ada/parts/good", "told": "cannot read /srv/a/b.mhpc: it is damaged"})
    {'source': 'good', 'told': 'cannot read b.mhpc: it is damaged'}
    """
    if isinstance(value, dict):
        return {name: without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inner) for inner in value]
    return PATH.sub(r"\1", value) if isinstance(value, str) else value


def parse_size(text: str) -> int:
    """Bytes of a size in words.

    >>> parse_size("600MB"), parse_size("1.5 GB"), parse_size("512MiB")
    (600000000, 1500000000, 536870912)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text, re.IGNORECASE)
    if match is None or match[2].upper() not in UNITS:
        raise UserError(f"'{text}' is not a size; write it like 600MB, 1.5GB or 512MiB")
    return int(float(match[1]) * UNITS[match[2].upper()])


def format_bytes(size: int) -> str:
    """
    >>> format_bytes(612_345_678), format_bytes(4096), format_bytes(25 * 10**9)
    ('612 MB', '4 kB', '25 GB')
    """
    unit, scale = ("GB", 1e9) if size >= 1e10 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / scale:.0f} {unit}"


def number(value: object) -> str:
    """A value as a reader wants it: four digits, no exponent where it can be helped, a dash for nothing.

    >>> number(1234.5678), number(0.000123456), number(12), number(float("nan")), number(True), number(("a", "b"))
    ('1235', '0.0001235', '12', '–', 'yes', 'a, b')
    """
    if value is None or value == "" or (isinstance(value, float) and isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(number(one) for one in value)
    return str(value)
