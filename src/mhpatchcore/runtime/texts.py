"""Values and messages as others may see them: JSON without what it has no word for, sentences without paths."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

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
