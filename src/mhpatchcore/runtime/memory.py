"""Memory as the system sees it: free memory is given back, sizes are read and written."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress

from mhpatchcore.errors import UserError

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of malloc.h
LARGE = 2**20
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def give_back() -> None:
    """Return free heap memory to the system. The C library keeps it otherwise, and it counts as ours.

    Worth its few milliseconds after work that leaves much behind, such as loading a network.
    """
    with suppress(OSError, AttributeError):  # a C library other than glibc: nothing to call, nothing lost
        ctypes.CDLL(None).malloc_trim(0)


def share_one_heap() -> None:
    """Let all threads from now on share one heap. Each would get its own, with free memory no other can use.

    Large arrays get memory of their own, which goes back when they do; in the heap they would leave holes, more of them
    the longer the work takes.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, LARGE)


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
