"""What Linux, macOS and Windows do differently: locks, owners, flushing, cores, and how much memory a process takes.

Everything here has a fallback, so that a model is fitted and scores anywhere. Where files cannot be locked nothing is
taken for abandoned, and where memory cannot be read it counts as 0.
"""

from __future__ import annotations

import ctypes
import getpass
import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
    import resource
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

KIB = 1024
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h
LARGE = 2**20  # bytes of an array that gets memory of its own


def lock(handle: int, wait: bool = True) -> None:
    """Lock an open file until it is closed; without `wait`, BlockingIOError if another process holds it."""
    if HAS_LOCKS:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names where there is such a thing, is on the disk."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_to_owner_of(model: Path, path: Path) -> None:
    """As root, give a file or a folder to whom another one belongs."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        with suppress(OSError):  # not every file system has owners
            facts = model.stat()
            os.chown(path, facts.st_uid, facts.st_gid, follow_symlinks=False)


def account_name() -> str:
    """Who runs this process: a container may run under a number without a name."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def cpu_flags() -> set[str]:
    """What the processor can do, in the words of Linux; none where it does not say."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return set(next((line for line in lines if line.startswith("flags")), "").split())
    return set()


def available_cores() -> int:
    """Cores this process may use (a container may allow fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def current_rss() -> int:
    """Resident memory of this process now, in bytes."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return own_peak()


def own_peak() -> int:
    """The most memory that this process has had, in bytes."""
    with suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text().splitlines()
        return KIB * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return _peak("RUSAGE_SELF")


def children_peak() -> int:
    """The largest peak of any finished child, in bytes."""
    return _peak("RUSAGE_CHILDREN")


def _peak(whose: str) -> int:
    if not HAS_LOCKS:
        return 0
    unit = 1 if sys.platform == "darwin" else KIB
    return unit * resource.getrusage(getattr(resource, whose)).ru_maxrss


def reset_peak() -> None:
    """Start a new high-water mark at the present size, if the kernel lets us."""
    with suppress(OSError):  # a sandbox may forbid it: peaks are then those since the start
        Path("/proc/self/clear_refs").write_text("5")


def releasable_memory(size: int) -> mmap.mmap | None:
    """Memory of so many bytes that goes back to the system in parts, by `release`; None where it cannot."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def release(memory: mmap.mmap, start: int, stop: int) -> int:
    """Return the whole pages between; where the next part begins."""
    stop = stop // mmap.PAGESIZE * mmap.PAGESIZE
    memory.madvise(mmap.MADV_DONTNEED, start, stop - start)
    return stop


def give_back() -> None:
    """Return free heap memory to the system. The C library keeps it otherwise, and it counts as ours.

    Worth its few milliseconds after work that leaves much behind, such as loading a network.
    """
    _call_libc("malloc_trim", 0)


def share_one_heap() -> None:
    """Let all threads from now on share one heap. Each would get its own, with free memory no other can use.

    Large arrays get memory of their own, which goes back when they do; in the heap they would leave holes, more of them
    the longer the work takes.
    """
    _call_libc("mallopt", M_ARENA_MAX, 1)
    _call_libc("mallopt", M_MMAP_THRESHOLD, LARGE)


def _call_libc(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError, TypeError):  # not glibc: nothing to call, nothing lost
        getattr(ctypes.CDLL(None), name)(*arguments)
