"""All commands of `mhpatchcore` in the groups of its help page.

Each is defined in a module of its own. A run imports that of its own command: the others would take it half a second.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import getdoc
from typing import Any

import typer
from typer.core import DEFAULT_MARKUP_MODE, TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from mhpatchcore import __version__
from mhpatchcore.cli.console import SHOW_ALL

EPILOG = (
    "Exit codes: 0 done · 1 `score --fail` found an anomaly or `monitor --fail` a drift · 2 wrong usage or settings · "
    "3 an image cannot be read · 4 a model file cannot be read · 5 backbone weights cannot be loaded · "
    "6 a cell of `benchmark` or a product of `fit-many` failed · 7 `score` with a model that has no threshold · "
    "8 `verify` found a damaged bundle or a machine that computes something else · 130 interrupted · "
    "141 nobody reads the output."
)
# panels of the help page, their commands, and the modules that define them
COMMANDS: dict[str, dict[str, str]] = {
    "Start": {"demo": "evaluate", "look": "look", "fit": "fit", "score": "score", "evaluate": "evaluate"},
    "At the line": {
        "serve": "serve",
        "verdicts": "serve",
        "watch": "watch",
        "monitor": "monitor",
        "export": "export",
        "bundle": "export",
        "verify": "export",
        "inbox": "inbox",
    },
    "Models": dict.fromkeys(("info", "calibrate", "teach", "update", "merge"), "models"),
    "Many products and images": {"fit-many": "fit", "ranks": "ranks", "store": "store"},
    "Research": dict.fromkeys(("benchmark", "ladder", "presets"), "research"),
}
INBOX_COMMANDS = (
    *("list", "add", "label", "remove", "preview", "learn", "teach", "recalibrate"),
    *("versions", "undo", "journal", "export"),
)
FUNCTIONS = {"list": "list_", "versions": "versions_"}  # that would hide others by their names
# what other tools call it
ALSO_CALLED = {"train": "fit", "predict": "score", "infer": "score", "test": "evaluate", "eval": "evaluate"}


class Concise:
    """A help page without types of flags, which take no value, and without rare options unless all are asked for."""

    callback: Any

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if getattr(one, "is_flag", False):
                one.metavar = ""
            one.hidden = one.name in getattr(self.callback, "rare", ()) and not ctx.meta.get(SHOW_ALL)
        return params


class Command(Concise, TyperCommand):
    """A command whose module is imported when more is asked of it than its line on the help page."""

    def __init__(self, name: str, module: str, panel: str | None = None) -> None:
        self._module = f"mhpatchcore.cli.{module}"
        self._function = FUNCTIONS.get(name, name.replace("-", "_"))
        self.name, self.rich_help_panel = name, panel
        self.short_help, self.hidden, self.deprecated = None, False, False

    def __getattr__(self, name: str) -> Any:
        """What `__init__` of typer's class would have set."""
        if name == "help" and self._function in docstrings(self._module):
            self.help = unwrapped(docstrings(self._module)[self._function])
        elif "callback" not in vars(self):
            vars(self).update(vars(self._made()) | vars(self))
        return object.__getattribute__(self, name)

    def _made(self) -> Any:
        function = getattr(import_module(self._module), self._function)
        info = CommandInfo(callback=function, help=unwrapped(getdoc(function) or ""))
        return get_command_from_info(
            info, pretty_exceptions_short=False, rich_markup_mode=DEFAULT_MARKUP_MODE
        )


class Group(Concise, TyperGroup):
    """Commands in groups; for the name that another tool uses, ours is suggested."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ours = ALSO_CALLED.get(args[0], "")
        if ours in self.commands:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{ours}'?")
        return super().resolve_command(ctx, args)


def unwrapped(text: str) -> str:
    r"""A docstring whose paragraphs fill the width of the terminal; examples keep their own lines.

    >>> unwrapped("Score\nimages.\n\nExamples:\nmhpatchcore score a\nmhpatchcore score b")
    'Score images.\n\nExamples:\nmhpatchcore score a\nmhpatchcore score b'
    """
    return re.sub(r"(?<!\n)\n(?!\n|mhpatchcore )", " ", text)


@cache
def docstrings(module: str) -> dict[str, str]:
    """Those of the functions of a module, which is not imported; none where its source is not installed."""
    loader: Any = getattr(find_spec(module), "loader", None)
    body = ast.parse(loader.get_source(module) or "").body
    return {one.name: ast.get_docstring(one) or "" for one in body if isinstance(one, ast.FunctionDef)}


class Root(Group):
    """The group of all commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for panel, commands in COMMANDS.items():
            self.commands.update({name: Command(name, module, panel) for name, module in commands.items()})
        self.commands["inbox"] = Group(
            name="inbox",
            help="Labelled parts: keep them, learn from them, and go back.",
            commands={name: Command(name, "inbox") for name in INBOX_COMMANDS},
            no_args_is_help=True,
            rich_help_panel="At the line",
        )


app = typer.Typer(
    name="mhpatchcore",
    help="Finds defects from images of good parts alone. Start with `mhpatchcore demo`, then `fit` and `score`.",
    epilog=EPILOG,
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mhpatchcore {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_version, is_eager=True
    ),
) -> None:
    pass
