"""`@command`: what all commands have in common. A command returns what it has found, and this prints it.

It adds --json. A parameter of a command that is a dataclass stands for several options: a `Run` for those about how the
work is done, a `Config` for the settings of a model, any other for its fields.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property, partial, wraps
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.console import SHOW_ALL, print_json, progress_display, warn_and_keep
from mhpatchcore.cli.paths import check_output
from mhpatchcore.config import SETTINGS, Config
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError
from mhpatchcore.fitting.execution import Execution, Executor, Threads
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.result import Result
from mhpatchcore.runtime.system import available_cores


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
    cluster: str | None
    ending: ExitStack
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self.started, 2)

    @cached_property
    def executor(self) -> Executor:
        """Where tasks run: on the cores of this machine, or on a cluster until the command ends."""
        if self.cluster is None:
            return Threads(self.execution.workers)
        from mhpatchcore.fitting.dask_executor import executor_of

        return self.ending.enter_context(executor_of(self.cluster))

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


def running(
    ending: ExitStack,
    as_json: bool,
    quiet: bool,
    workers: int | None = None,
    cluster: str | None = None,
    **others: Any,
) -> Run:
    """The `Run` of a command, made of the options that it has of `RUN_OPTIONS`; it lasts until `ending`."""
    warnings: list[str] = []
    progress = ending.enter_context(progress_display(quiet))
    threads, warn = workers or available_cores(), warn_and_keep(warnings)
    execution = Execution(workers=threads, progress=progress, warn=warn, **others)
    return Run(execution, as_json, quiet, workers, warnings, cluster, ending)


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[SHOW_ALL] = True
        typer.echo(ctx.get_help())
        ctx.exit()


HELP_ALL = options.flag("--help-all", "Show all options and exit.", is_eager=True, callback=_show_all)


def command(
    *run_options: str, panels: Sequence[str] | None = None, rare: Sequence[str] = ()
) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """A command for typer, made of a function that returns an `Answer`.

    A `Run` stands for --quiet and these of RUN_OPTIONS, a `Config` for the settings in these panels (all of them if not
    given). Options that are `rare` are only on the page of --help-all.
    """
    settings = [name for name, one in SETTINGS.items() if panels is None or one.panel in panels]

    def options_of(one: inspect.Parameter) -> list[inspect.Parameter]:
        if one.annotation is Config:
            return options.setting_options(settings)
        if one.annotation is Run:
            return [options.RUN_OPTIONS[name] for name in ("quiet", *run_options)]
        if is_dataclass(one.annotation):
            return [*inspect.signature(one.annotation, eval_str=True).parameters.values()]  # type: ignore[arg-type]
        return [one]

    def decorate(function: Callable[..., Answer]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        groups = {one: options_of(one) for one in signature.parameters.values()}

        @wraps(function)
        def called(as_json: bool, help_all: bool = False, **given: Any) -> None:
            for name, example in outputs.items():
                others = outputs if example.endswith("/") else given
                check_output(given[name], example, *(given[other] for other in others if other != name))
            with ExitStack() as ending:
                makers: dict[Any, Callable[..., Any]] = {
                    Run: partial(running, ending, as_json),
                    Config: options.config_of,
                }
                for one, group in groups.items():
                    if group != [one]:
                        values = {inner.name: given.pop(inner.name) for inner in group}
                        given[one.name] = makers.get(one.annotation, one.annotation)(**values)
                answer = function(**given)
            if as_json:
                print_json(answer.facts)
            else:
                for line in answer.lines:
                    print(line)
            if answer.exit_code:
                raise typer.Exit(answer.exit_code)

        parameters = [*(inner for group in groups.values() for inner in group), options.AS_JSON]
        if rare:
            parameters.append(options.parameter("help_all", bool, HELP_ALL))
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        examples = {one.name: options.example_of(one) for one in parameters}
        outputs = {name: example for name, example in examples.items() if example}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        uncommon = [name for name in settings if not SETTINGS[name].common]
        called.rare = {*rare, *uncommon} if rare else set()  # type: ignore[attr-defined]
        return called

    return decorate
