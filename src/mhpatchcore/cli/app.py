"""The commands, each in its own module; this one names them and holds what the help page says of them all."""

from __future__ import annotations

import typer

from mhpatchcore import __version__
from mhpatchcore.cli import benchmark, calibrate, demo, evaluate, fit, info, merge, monitor, score, update

EPILOG = (
    "Exit codes: 0 done · 1 `score --fail` found an anomaly or `monitor --fail` a drift · 2 wrong usage or settings · "
    "3 an image cannot be read · 4 a model file cannot be read · 5 backbone weights cannot be had · "
    "6 a cell of a benchmark failed · 130 interrupted."
)

app = typer.Typer(
    name="mhpatchcore",
    help="Finds defects from images of good parts alone. Start with `mhpatchcore demo`, then `fit` and `score`.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("fit")(fit.fit)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("monitor")(monitor.monitor)
app.command("info")(info.info)
app.command("calibrate")(calibrate.calibrate)
app.command("update")(update.update)
app.command("merge")(merge.merge)
app.command("demo")(demo.demo)
app.command("benchmark")(benchmark.benchmark)
app.command("ladder")(benchmark.ladder)
app.command("presets")(benchmark.presets)


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
