"""All commands of `mhpatchcore` in the groups of its help page. Each is defined in a module of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mhpatchcore import __version__
from mhpatchcore.cli import (
    evaluate,
    export,
    fit,
    inbox,
    look,
    models,
    monitor,
    ranks,
    research,
    score,
    serve,
    store,
)
from mhpatchcore.cli.command import SHOW_ALL
from mhpatchcore.cli.options import flag
from mhpatchcore.cli.watch import watch

EPILOG = (
    "Exit codes: 0 done · 1 `score --fail` found an anomaly or `monitor --fail` a drift · 2 wrong usage or settings · "
    "3 an image cannot be read · 4 a model file cannot be read · 5 backbone weights cannot be loaded · "
    "6 a cell of `benchmark` or a product of `fit-many` failed · 7 `score` with a model that has no threshold · "
    "8 `verify` found a damaged bundle or a machine that computes something else · 130 interrupted · "
    "141 nobody reads the output."
)
LINE = "At the line"
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (evaluate.demo, look.look, fit.fit, score.score, evaluate.evaluate),
    LINE: (serve.serve, serve.verdicts, watch, monitor.monitor, export.export, export.bundle, export.verify),
    "Models": (models.info, models.calibrate, models.teach, models.update, models.merge),
    "Many products and images": (fit.fit_many, ranks.ranks, store.store),
    "Research": (research.benchmark, research.ladder, research.presets),
}
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
    """One command."""


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


app = typer.Typer(
    name="mhpatchcore",
    help="Finds defects from images of good parts alone. Start with `mhpatchcore demo`, then `fit` and `score`.",
    epilog=EPILOG,
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
text = "Labelled parts: keep them, learn from them, and go back."
inbox_app = typer.Typer(name="inbox", help=text, cls=Group, no_args_is_help=True)
app.add_typer(inbox_app, rich_help_panel=LINE)
panels = [(app, panel, commands) for panel, commands in COMMANDS.items()]
for group, panel, commands in [*panels, (inbox_app, "Commands", inbox.COMMANDS)]:
    for command in commands:
        name, text = command.__name__.strip("_").replace("_", "-"), unwrapped(getdoc(command) or "")
        group.command(name, cls=Command, rich_help_panel=panel, help=text)(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mhpatchcore {__version__}")
        raise typer.Exit


@app.callback()
def _root(version: bool = flag("--version", "Show the version.", callback=_version, is_eager=True)) -> None:
    pass
