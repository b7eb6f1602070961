"""Errors a user can act on: one line that names what is wrong and the cure."""

from __future__ import annotations


class UserError(Exception):
    """Something outside the program is wrong (a file, a flag, the data); the message says what to do.

    The command line prints the message alone and exits with `exit_code`; from Python it is raised as it is.
    """

    exit_code = 2


class ImageError(UserError):
    """An image cannot be read or does not fit; the message names the file."""

    exit_code = 3


class ModelFileError(UserError):
    """A model file is missing, truncated, foreign or from a newer version."""

    exit_code = 4


class WeightsError(UserError):
    """Backbone weights cannot be found, read or trusted."""

    exit_code = 5
