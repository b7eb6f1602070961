"""The command line, `mhpatchcore COMMAND`: one module per command, `app` names them all."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from mhpatchcore.errors import UserError

INTERRUPTED = 130


def main() -> None:
    """Entry point. A user's error is one line on stderr and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # closed: warnings would go to stdout
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (open until the end)
    try:
        from mhpatchcore.cli.app import app

        try:
            app(prog_name="mhpatchcore")
        finally:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # what is left unwritten would be tried again at the end, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads has enough
            sys.exit(1)
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        print(f"error: {what}; check the path, permissions and free space", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except UserError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns Ctrl-C into this exit code and says nothing
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _one_line(error: UserError) -> str:
    return " ".join(str(error).splitlines())
