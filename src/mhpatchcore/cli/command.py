"""`@command`: what all commands have in common. A command returns what it has found, and this prints it.

It adds --json, and for parameters of these names: `run`, the options about how the work is done; `config`, an option
for each setting of a model.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import settings
from mhpatchcore.cli.console import print_json, progress_display, warn_and_keep
from mhpatchcore.cli.options import RUN
from mhpatchcore.config import SETTINGS
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.execution import Execution, Executor, Threads
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.result import Result
from mhpatchcore.runtime.system import available_cores
from mhpatchcore.runtime.texts import parse_size


@dataclass(frozen=True)
class Answer:
    """What a command has found: facts for --json, or lines for people, which are made only if they are printed."""

    facts: Any
    lines: Iterable[str]
    exit_code: int = 0


@dataclass(frozen=True)
class Run:
    """How a command does its work, as its options say; warnings are shown and kept."""

    execution: Execution
    as_json: bool
    quiet: bool
    workers: int | None
    warnings: list[str]
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since the command began."""
        return round(time.perf_counter() - self.started, 2)

    @contextmanager
    def on(self, cluster: str | None) -> Iterator[Executor]:
        """Where tasks run for as long as the block lasts: the cores of this machine, or a cluster."""
        if cluster is None:
            yield Threads(self.execution.workers)
            return
        from mhpatchcore.fitting.dask_executor import executor_of

        with executor_of(cluster) as executor:
            yield executor

    def scores(
        self,
        detector: Detector,
        images: Sequence[ImageLike],
        on_error: Callable[[ImageError], None] | None = None,
    ) -> Iterator[Result | None]:
        """Every image's result, in order; None for one that cannot be read, after `on_error` was called with it."""
        progress = self.execution.progress if len(images) > 1 else lambda phase, done, total: None
        progress("score", 0, len(images))
        for done, result in enumerate(detector.score_many(images, self.workers, on_error), start=1):
            yield result
            progress("score", done, len(images))


def _run_option(name: str, kind: Any, default: Any, help: str, **more: Any) -> inspect.Parameter:
    return settings.parameter(name, kind, typer.Option(default, help=help, rich_help_panel=RUN, **more))


RUN_OPTIONS = {
    one.name: one
    for one in (
        settings.parameter("quiet", bool, typer.Option(False, "--quiet", "-q", help="Show no progress.")),
        _run_option("workers", int, None, "Threads (default: one per core).", min=1, metavar="N"),
        _run_option("batch", int, 1, "Images per call of the network.", min=1, metavar="N"),
        _run_option(
            "store", Path, None, "Keep intermediate results in this folder, where the next run finds them, also after "
            "a crash (default: a temporary one).", metavar="DIR",
        ),
        _run_option(
            "store_limit", int, None, "Keep the folder of --store below this size, e.g. 20GB: what has not been used "
            "for longest is deleted.", metavar="SIZE", parser=parse_size,
        ),
        _run_option(
            "memory", int, None, "Stay within this much memory, e.g. 600MB or 1.5GB: --workers and --batch are then "
            "upper bounds.", metavar="SIZE", parser=parse_size,
        ),
        settings.parameter("skip_broken", bool, typer.Option(
            False, "--skip-broken", help="Leave out images that cannot be read, with a warning.", rich_help_panel=RUN,
        )),
    )
}  # fmt: skip
AS_JSON = settings.parameter("as_json", bool, typer.Option(False, "--json", help="Print the result as JSON."))
SHOW_ALL = "mhpatchcore.show_all"  # in the meta of a context: rare options are on the help page


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[SHOW_ALL] = True
        typer.echo(ctx.get_help())
        ctx.exit()


HELP_ALL = settings.parameter(
    "help_all",
    bool,
    typer.Option(False, "--help-all", is_eager=True, callback=_show_all, help="Show all options and exit."),
)


@contextmanager
def running(as_json: bool, quiet: bool, workers: int | None = None, **others: Any) -> Iterator[Run]:
    """The `run` of a command, made of the options that it has of `RUN_OPTIONS`."""
    warnings: list[str] = []
    with progress_display(quiet) as progress:
        threads, warn = workers or available_cores(), warn_and_keep(warnings)
        execution = Execution(workers=threads, progress=progress, warn=warn, **others)
        yield Run(execution, as_json, quiet, workers, warnings)


def command(
    *run_options: str, panels: Sequence[str] | None = None, rare: Sequence[str] = ()
) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """A command for typer, made of a function that returns an `Answer`.

    Its parameter `run` stands for --quiet and these of RUN_OPTIONS; its parameter `config` for the settings in
    these panels (all of them if not given). Options that are `rare` are only on the page of --help-all.
    """
    run_names = ("quiet", *run_options)
    setting_names = [name for name, one in SETTINGS.items() if panels is None or one.panel in panels]

    def decorate(function: Callable[..., Answer]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)

        @wraps(function)
        def called(as_json: bool, **given: Any) -> None:
            given.pop("help_all", None)
            if "config" in signature.parameters:
                names = ("settings", "preset", *setting_names)
                given["config"] = settings.config_of(**{name: given.pop(name) for name in names})
            if "run" in signature.parameters:
                with running(as_json, **{name: given.pop(name) for name in run_names}) as run:
                    answer = function(**given, run=run)
            else:
                answer = function(**given)
            if as_json:
                print_json(answer.facts)
            else:
                for line in answer.lines:
                    print(line)
            if answer.exit_code:
                raise typer.Exit(answer.exit_code)

        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            if one.name == "config":
                parameters += settings.parameters(setting_names)
            elif one.name == "run":
                parameters += [AS_JSON, *(RUN_OPTIONS[name] for name in run_names)]
            else:
                parameters.append(one)
        parameters += [AS_JSON] * (AS_JSON not in parameters) + [HELP_ALL] * bool(rare)
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        uncommon = [name for name in setting_names if not SETTINGS[name].common]
        called.rare = {*rare, *uncommon} if rare else set()  # type: ignore[attr-defined]
        return called

    return decorate
