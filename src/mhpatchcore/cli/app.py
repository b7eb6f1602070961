"""The commands, each in its own module; this one names them and holds what the help page says of them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mhpatchcore import __version__
from mhpatchcore.cli import (
    benchmark,
    bundle,
    calibrate,
    demo,
    evaluate,
    export,
    fit,
    fit_many,
    inbox,
    info,
    look,
    merge,
    monitor,
    ranks,
    score,
    serve,
    store,
    teach,
    update,
    verdicts,
    watch,
)
from mhpatchcore.cli.command import SHOW_ALL

EPILOG = (
    "Exit codes: 0 done · 1 `score --fail` found an anomaly or `monitor --fail` a drift · 2 wrong usage or settings · "
    "3 an image cannot be read · 4 a model file cannot be read · 5 backbone weights cannot be had · "
    "6 a cell of `benchmark` or a product of `fit-many` failed · 7 `score` with a model that has no threshold · "
    "8 `verify` found a bundle damaged, or that this machine computes something else · 130 interrupted · "
    "141 who reads the output has gone."
)
LINE = "At the line"
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {
        "demo": demo.demo,
        "look": look.look,
        "fit": fit.fit,
        "score": score.score,
        "evaluate": evaluate.evaluate,
    },
    LINE: {
        "serve": serve.serve,
        "verdicts": verdicts.verdicts,
        "watch": watch.watch,
        "monitor": monitor.monitor,
        "export": export.export,
        "bundle": bundle.bundle,
        "verify": bundle.verify,
    },
    "Models": {
        "info": info.info,
        "calibrate": calibrate.calibrate,
        "teach": teach.teach,
        "update": update.update,
        "merge": merge.merge,
    },
    "Many products and images": {
        "fit-many": fit_many.fit_many,
        "ranks": ranks.ranks,
        "store": store.store,
    },
    "Research": {
        "benchmark": benchmark.benchmark,
        "ladder": benchmark.ladder,
        "presets": benchmark.presets,
    },
}
# what other tools call it
ALSO_CALLED = {"train": "fit", "predict": "score", "infer": "score", "test": "evaluate", "eval": "evaluate"}


class Command(TyperCommand):
    """A command whose help leaves out rare options, unless it is asked for all of them."""

    def get_params(self, ctx: Any) -> list[Any]:
        options = without_types_of_flags(super().get_params(ctx))
        rare = getattr(self.callback, "rare", ())
        for option in options:
            option.hidden = option.name in rare and not ctx.meta.get(SHOW_ALL)
        return options


class Group(TyperGroup):
    """Commands in groups; one that other tools call otherwise is suggested."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types_of_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ours = ALSO_CALLED.get(args[0], "")
        if ours in self.commands:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{ours}'?")
        return super().resolve_command(ctx, args)


def without_types_of_flags(options: list[Any]) -> list[Any]:
    """The options, of which flags have no type on the help page: they take no value."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


app = typer.Typer(
    name="mhpatchcore",
    help="Finds defects from images of good parts alone. Start with `mhpatchcore demo`, then `fit` and `score`.",
    epilog=EPILOG,
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, rich_help_panel=panel)(command)
labelled = typer.Typer(
    name="inbox",
    help="Labelled parts: keep them, learn from them, and go back.",
    cls=Group,
    no_args_is_help=True,
)
for name, command in inbox.COMMANDS.items():
    labelled.command(name, cls=Command)(command)
app.add_typer(labelled, rich_help_panel=LINE)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mhpatchcore {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass
