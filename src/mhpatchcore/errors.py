"""Errors a user can act on: one line that names what is wrong and the cure."""

from __future__ import annotations

LONGEST = 200  # letters of what others say
BEGINNING, END = 600, 300  # letters of a message that are kept


class UserError(Exception):
    """Something outside the program is wrong (a file, a flag, the data); the message says what to do.

    The command line prints the message alone and exits with `exit_code`; from Python it is raised as it is. It is one
    line, whatever the names and values in it hold, and one that somebody reads.

    >>> UserError("there is no setting 'a\\nb'")
    UserError("there is no setting 'a\\\\nb'")
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        letters = (one if one.isprintable() else one.encode("unicode_escape").decode() for one in message)
        line = "".join(letters)
        super().__init__(line if len(line) <= BEGINNING + END else f"{line[:BEGINNING]} … {line[-END:]}")


class ImageError(UserError):
    """An image cannot be read or does not fit; the message names the file."""

    exit_code = 3


class ImageTooLargeError(ImageError):
    """An image has more pixels than are read."""


class ModelFileError(UserError):
    """A model file is missing, truncated, foreign or from a newer version."""

    exit_code = 4


class WeightsError(UserError):
    """Backbone weights cannot be found, read or trusted."""

    exit_code = 5


class ImageWarning(UserWarning):
    """Something about images, or what is learnt from them, that a user should know, though the work goes on."""


def in_one_line(text: object) -> str:
    """What others say, for a message: without line breaks, and no longer than anybody reads.

    >>> in_one_line("no such\\n   node"), in_one_line(ValueError())
    ('no such node', 'ValueError')
    """
    words = " ".join(str(text).split()) or type(text).__name__
    return words if len(words) <= LONGEST else words[:LONGEST] + "…"
