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

EPILOG = (
    "Exit codes: 0 done · 1 `score --fail` found an anomaly or `monitor --fail` a drift · 2 wrong usage or settings · "
    "3 an image cannot be read · 4 a model file cannot be read · 5 backbone weights cannot be had · "
    "6 a cell of `benchmark` or a product of `fit-many` failed · 7 `score` with a model that has no threshold · "
    "8 `verify` found a bundle damaged, or that this machine computes something else · 130 interrupted · "
    "141 who reads the output has gone."
)
COMMANDS: dict[str, Callable[..., None]] = {
    "look": look.look,
    "fit": fit.fit,
    "fit-many": fit_many.fit_many,
    "score": score.score,
    "evaluate": evaluate.evaluate,
    "monitor": monitor.monitor,
    "info": info.info,
    "calibrate": calibrate.calibrate,
    "teach": teach.teach,
    "update": update.update,
    "merge": merge.merge,
    "export": export.export,
    "bundle": bundle.bundle,
    "verify": bundle.verify,
    "serve": serve.serve,
    "verdicts": verdicts.verdicts,
    "watch": watch.watch,
    "ranks": ranks.ranks,
    "store": store.store,
    "demo": demo.demo,
    "benchmark": benchmark.benchmark,
    "ladder": benchmark.ladder,
    "presets": benchmark.presets,
}


class Command(TyperCommand):
    """A command whose help says nothing about the type of flags, which take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_types_of_flags(super().get_params(ctx))


def without_types_of_flags(options: list[Any]) -> list[Any]:
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
for name, command in COMMANDS.items():
    app.command(name, cls=Command)(command)
labelled = typer.Typer(
    name="inbox",
    help="Labelled parts: keep them, learn from them, and go back.",
    cls=Group,
    no_args_is_help=True,
)
for name, command in inbox.COMMANDS.items():
    labelled.command(name, cls=Command)(command)
app.add_typer(labelled)


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
