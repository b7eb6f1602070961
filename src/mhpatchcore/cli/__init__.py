"""The command line, `mhpatchcore COMMAND`: one module per command, `app` names them all."""

from __future__ import annotations

import io
import sys

from mhpatchcore.errors import UserError

INTERRUPTED = 130


def main() -> None:
    """Entry point. A user's error is one line on stderr and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from mhpatchcore.cli.app import app

        app(prog_name="mhpatchcore")
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
