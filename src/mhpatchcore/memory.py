"""Memory as the system sees it: what is free in this process can be given back, sizes are read and written."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Return free heap memory to the system. The C library keeps it otherwise, and it counts as ours.

    Worth its few milliseconds after work that leaves much behind, such as loading a network.
    """
    with suppress(OSError, AttributeError):  # a C library other than glibc: nothing to call, nothing lost
        ctypes.CDLL(None).malloc_trim(0)
