"""The command line, `mhpatchcore COMMAND`. The module `app` lists the commands."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mhpatchcore.cli.console import warn, with_flags
from mhpatchcore.errors import UserError

INTERRUPTED = 130
NOBODY_READS = 141  # what a shell reports after SIGPIPE


def main() -> None:
    """Entry point. A user's error is one line on stderr and an exit code, never a traceback."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # terminals cannot show every file name
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    try:
        from mhpatchcore.cli.app import app

        try:
            with _ending_in_order():
                app(prog_name="mhpatchcore")
        finally:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # Python would try to write the rest again at the end, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has enough
            sys.exit(NOBODY_READS)
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        print(f"error: {what}; check the path, permissions and free space", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except UserError as error:
        print(f"error: {with_flags(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("mhpatchcore"):
            raise
        print(
            f"error: this takes {error.name}, which is not installed: pip install mhpatchcore",
            file=sys.stderr,
        )
        sys.exit(UserError.exit_code)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns Ctrl-C and a closed pipe into exit codes, silently
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(NOBODY_READS)
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        # threads may still be at work: a second Ctrl-C ends the process at once
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        print("interrupted", file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """On SIGTERM and SIGHUP, unwind as Ctrl-C does, which deletes temporary folders, and then end by the signal."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        raise SystemExit

    before = {}
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores one of them
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)
        if came:
            with suppress(OSError):
                sys.stdout.flush()
            signal.raise_signal(came[0])


def _open_closed_streams() -> None:
    """Open streams that the caller has closed; otherwise the next opened file would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 (open until the end)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Show a library's warning on one line, without its place in the code."""
    warn(str(message))
