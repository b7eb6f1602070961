"""The command line, `mhpatchcore COMMAND`: one module per command, `app` names them all."""

from __future__ import annotations

import sys

from mhpatchcore.errors import UserError


def main() -> None:
    """Entry point. A user's error is one line on stderr and an exit code, never a traceback."""
    from mhpatchcore.cli.app import app

    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output (head, less) has gone: that is its right
        sys.stderr.close()
        sys.exit(141)
