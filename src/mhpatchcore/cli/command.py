"""`@command`: what commands have in common. A command returns what it has found, and this prints it.

It adds --json, and where a command has these parameters: the options about how the work is done (`run`), and an option
for each setting of a model (`config`).
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
from mhpatchcore.runtime.parallel import available_cores
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
        """Since the command has begun."""
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
        """Every image's result in their order, or None where `on_error` was told that it cannot be read."""
        progress = self.execution.progress if len(images) > 1 else lambda phase, done, total: None
        progress("score", 0, len(images))
        for done, result in enumerate(detector.score_many(images, self.workers, on_error), start=1):
            yield result
            progress("score", done, len(images))


# the options of `run`: their kinds and defaults, and what is said of them
RUN_OPTIONS: dict[str, tuple[Any, Any]] = {
    "quiet": (bool, typer.Option(False, "--quiet", "-q", help="No progress.")),
    "workers": (
        int,
        typer.Option(None, min=1, metavar="N", help="Threads (default: one per core).", rich_help_panel=RUN),
    ),
    "batch": (
        int,
        typer.Option(1, min=1, metavar="N", help="Images per call of the network.", rich_help_panel=RUN),
    ),
    "store": (
        Path,
        typer.Option(
            None,
            metavar="DIR",
            help="Keep what is worked out in this folder, where later runs find it, also after a crash (default: a "
            "temporary one).",
            rich_help_panel=RUN,
        ),
    ),
    "store_limit": (
        str,
        typer.Option(
            None,
            metavar="SIZE",
            help="Keep the folder of --store below this, e.g. 20GB: what has not been used for longest goes.",
            rich_help_panel=RUN,
        ),
    ),
    "memory": (
        str,
        typer.Option(
            None,
            metavar="SIZE",
            help="Stay within this much memory, e.g. 600MB or 1.5GB: workers and batch are then upper bounds.",
            rich_help_panel=RUN,
        ),
    ),
    "skip_broken": (
        bool,
        typer.Option(
            False,
            "--skip-broken",
            help="Leave out images that cannot be read, and say so.",
            rich_help_panel=RUN,
        ),
    ),
}
SHOW_ALL = "mhpatchcore.show_all"  # in the meta of a context: rare options are on the help page


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[SHOW_ALL] = True
        typer.echo(ctx.get_help())
        ctx.exit()


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=typer.Option(
        False, "--help-all", is_eager=True, callback=_show_all, help="Show all options and exit."
    ),
    annotation=bool,
)
AS_JSON = inspect.Parameter(
    "as_json",
    inspect.Parameter.KEYWORD_ONLY,
    default=typer.Option(False, "--json", help="Print the result as JSON."),
    annotation=bool,
)


def command(
    *run_options: str, panels: Sequence[str] | None = None, rare: Sequence[str] = ()
) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """A command of typer, made of a function that returns an `Answer`.

    Its parameter `run` takes --quiet and these options of RUN_OPTIONS; its parameter `config` the settings in these
    panels (all of them if not given). Options that are `rare` are only on the page of --help-all.
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
                with _running(as_json, **{name: given.pop(name) for name in run_names}) as run:
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
        for parameter in signature.parameters.values():
            if parameter.name == "config":
                parameters += settings.parameters(setting_names)
            elif parameter.name == "run":
                parameters += [AS_JSON, *map(_run_parameter, run_names)]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        if AS_JSON not in parameters:
            parameters.append(AS_JSON)
        if rare:
            parameters.append(HELP_ALL)
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        uncommon = [name for name in setting_names if not SETTINGS[name].common]
        called.rare = {*rare, *uncommon} if rare else set()  # type: ignore[attr-defined]
        return called

    return decorate


def _run_parameter(name: str) -> inspect.Parameter:
    kind, option = RUN_OPTIONS[name]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


@contextmanager
def _running(
    as_json: bool,
    quiet: bool,
    workers: int | None = None,
    store_limit: str | None = None,
    memory: str | None = None,
    **others: Any,
) -> Iterator[Run]:
    warnings: list[str] = []
    with progress_display(quiet) as progress:
        execution = Execution(
            workers=workers or available_cores(),
            store_limit=parse_size(store_limit) if store_limit else None,
            memory=parse_size(memory) if memory else None,
            progress=progress,
            warn=warn_and_keep(warnings),
            **others,
        )
        yield Run(execution, as_json, quiet, workers, warnings)
