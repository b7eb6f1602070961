"""Whether files are still what they were, without reading them: by size and time of change, as `make` and `rsync` do.

Of a file elsewhere its server is asked (object stores tell a checksum). An archive's member changes with its archive,
a frame with its video, a stack with any of its frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.archives import MemberName, archive_of, within
from mhpatchcore.inputs.files import frames_of
from mhpatchcore.inputs.video import is_frame
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import size_and_state, url_of

ASKED_AT_ONCE = 8
GONE = "gone"


def states_of(names: Sequence[str | Path]) -> list[str]:
    """For each image a text that changes when its file does."""
    files = [[_file_of(frame) for frame in frames_of(name) or (name,)] for name in names]
    every = list(dict.fromkeys(file for some in files for file in some))
    known = dict(zip(every, ordered_map(_state, every, ASKED_AT_ONCE), strict=True))
    return [" ".join(known[file] for file in some) for some in files]


def _file_of(name: str | Path) -> str:
    """What holds an image's bytes."""
    if isinstance(name, MemberName):
        return str(name.archive)
    if url_of(name) is not None:
        return archive_of(name) or str(url_of(name))
    if is_frame(name):
        return str(Path(name).parent)
    found = None if Path(name).exists() else within(name)
    return str(name if found is None else found[0])


def _state(file: str) -> str:
    try:
        if url_of(file) is not None:
            found = size_and_state(file)
            return GONE if found is None else found[1]
        status = Path(file).stat()
    except (OSError, UserError):  # who reads it will say what is wrong
        return GONE
    return f"{status.st_size} {status.st_mtime_ns}"
