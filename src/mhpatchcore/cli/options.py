"""Arguments and options that several commands share, and an option for each setting of a model.

What a setting is called, which values it can have and what its help says is declared in `Config`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from mhpatchcore.config import SETTINGS, Config, coerce_setting, parse_share
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.presets import preset as preset_named
from mhpatchcore.runtime.texts import parse_size

RUN = "How the work is done"  # it changes nothing in a model
IMAGES = (
    "folders (subfolders are read too), files, archives (.zip, .tar), lists (.txt, .csv), videos, or - for a list on "
    "standard input."
)


def option(help: str, *flags: str, default: Any = None, **more: Any) -> Any:
    """An option; `...` as default makes it required."""
    return typer.Option(default, *flags, help=help, **more)


def flag(name: str, help: str, *short: str, default: Any = False, **more: Any) -> Any:
    return option(help, name, *short, default=default, **more)


shared = partial(option, default=...)  # for Annotated types, where the default stands at the parameter
file, folder = partial(option, metavar="FILE"), partial(option, metavar="DIR")
number = partial(option, metavar="N", min=1)


def output(help: str, example: str, *flags: str, **more: Any) -> Any:
    """An option that names a file or a folder to write, which `@command` checks; `example/` is a folder."""
    made = (folder if example.endswith("/") else file)(help, *flags, **more)
    made.example = example
    return made


def out(help: str, example: str, default: Any = ...) -> Any:
    """The option --out."""
    return output(help, example, "--out", "-o", default=default)


def example_of(one: inspect.Parameter) -> str:
    """The `example` of an option that names something to write, "" for any other."""
    annotated = getattr(one.annotation, "__metadata__", [one.default])
    return getattr(annotated[0], "example", "")


def argument(help: str, default: Any = ..., **more: Any) -> Any:
    return typer.Argument(default, help=help, **more)


def share_parser(flag: str) -> Callable[[str], float]:
    """Reads the value of a flag that asks for a share or a rate, such as 5% or 0.05."""

    def parse(text: str) -> float:
        try:
            return parse_share(text)
        except ValueError:
            raise UserError(f"{flag} takes a share such as 5% or 0.05, not '{text}'") from None

    return parse


def share(help: str, flag: str, **more: Any) -> Any:
    return option(help, flag, parser=share_parser(flag), metavar="SHARE", **more)


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> listed("mh, patchcore,")
    ('mh', 'patchcore')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _use_device(name: str | None) -> str | None:
    if name is None:
        return None
    from mhpatchcore.backbone.session import use_device

    return use_device(name)


Model = Annotated[Path, argument("A model file written by `fit`.")]
ModelOut = Annotated[Path, out("The model file to write; it can be the same one.", "part.mhpc")]
Stack = Annotated[bool, shared(
    "The images are two or three folders, or patterns in quotes, with frames of the same parts, matched by name.",
    "--stack",
)]  # fmt: skip
Every = Annotated[int, number("Take every N-th frame of a video.", default=..., show_default=False)]
AllGood = Annotated[bool, shared("All images are good, whatever their folders are called.", "--all-good")]
OtherProduct = Annotated[bool, shared("Let the model replace one of another product.", "--other-product")]
FalseAlarm = Annotated[float | None, share(
    "Share of good parts that may be rejected, e.g. 1% or 0.01 (default: unchanged).", "--false-alarm", default=...,
)]  # fmt: skip
Masks = Annotated[str | None, shared(
    "Where the defects are: a folder of masks named like the images, or a .csv file of boxes "
    "(image,top,left,bottom,right). Default: where the model sees them.", metavar="MASKS",
)]  # fmt: skip
Weights = Annotated[Path | None, shared("Local weights of the backbone: .safetensors, .pth.", metavar="FILE")]
Device = Annotated[str | None, shared(
    "What the network runs on (default: cpu).", envvar="MHPATCHCORE_DEVICE", callback=_use_device,
    metavar="auto|cpu|openvino|cuda|tensorrt|directml|coreml", rich_help_panel=RUN,
)]  # fmt: skip
TokenFile = Annotated[Path | None, shared("A file with the token that requests must carry.", metavar="FILE")]


def parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


AS_JSON = parameter("as_json", bool, flag("--json", "Print the result as JSON."))
RUN_OPTIONS = {name: parameter(name, kind, one) for name, kind, one in (
    ("quiet", bool, flag("--quiet", "Show no progress.", "-q")),
    ("workers", int, number("Threads (default: one per core).", rich_help_panel=RUN)),
    ("batch", int, number("Images per call of the network.", default=1, rich_help_panel=RUN)),
    ("store", Path, folder(
        "Keep intermediate results in this folder, where the next run finds them, also after a crash (default: a "
        "temporary one).", rich_help_panel=RUN)),
    ("store_limit", int, option(
        "Keep the folder of --store below this size, e.g. 20GB: what has not been used for longest is deleted.",
        metavar="SIZE", parser=parse_size, rich_help_panel=RUN)),
    ("memory", int, option(
        "Stay within this much memory, e.g. 600MB or 1.5GB: --workers and --batch are then upper bounds.",
        metavar="SIZE", parser=parse_size, rich_help_panel=RUN)),
    ("cluster", str, option(
        "Run on a Dask cluster: tcp://host:8786, the address of its scheduler, or local:N, N processes here.",
        metavar="WHERE", rich_help_panel=RUN)),
    ("skip_broken", bool, flag(
        "--skip-broken", "Leave out images that cannot be read, with a warning.", rich_help_panel=RUN)),
)}  # fmt: skip


def setting_options(names: Iterable[str]) -> list[inspect.Parameter]:
    """The options --settings and --preset, and one for each of these settings."""
    text = "A named configuration to start from (see `mhpatchcore presets`)."
    preset = option(text, default="default", metavar="NAME", show_default=False)
    settings = file("A TOML file of settings; options take precedence over it.")
    given = [parameter("settings", Path, settings), parameter("preset", str, preset)]
    return [*given, *map(_setting_option, names)]


def _setting_option(name: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    flags = setting.flags or (f"--{name.replace('_', '-')}",)
    hint = get_type_hints(Config)[name]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    default = getattr(Config(), name)
    kind: Any = kinds[0]
    metavar = "SHARE" if setting.share else {int: "N", float: "NUMBER"}.get(kind, "TEXT")
    more: dict[str, Any] = {"show_default": False, "metavar": setting.metavar or metavar}
    if not setting.common:
        more["rich_help_panel"] = setting.panel
    if setting.parse is not None:
        more["parser"] = setting.parse
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    elif setting.share:
        more["parser"] = share_parser(flags[0])
        default = None if default is None else f"{100 * default:g}%"
    elif len(kinds) < len(get_args(hint)):
        more["parser"] = _number_or_none(flags[0], kind)
    elif kind is bool:
        flags, default = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",), None
    shown = f" (default: {default})" if default not in (None, "") else ""
    return parameter(name, kind, option(f"{setting.help}{shown}.", *flags, **more))


def _number_or_none(flag: str, kind: type) -> Callable[[str], Any]:
    """Reads a number, or the word none, which undoes a preset's value."""

    def parse(text: str) -> Any:
        try:
            return text if text == "none" else kind(text)
        except ValueError:
            raise UserError(f"{flag} takes a number or none, not '{text}'") from None

    return parse


def config_of(settings: Path | None, preset: str = "default", **options: Any) -> Config:
    """The preset, changed by the TOML file, changed by the options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    return preset_named(preset).config.with_changes(**read_settings(settings)).with_changes(**given)


def read_settings(source: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each in its own type; a share may be a text such as "5%"."""
    if source is None:
        return {}
    try:
        settings = tomllib.loads(source.read_text(encoding="utf-8"))
        return {name: coerce_setting(name, value) for name, value in settings.items()}
    except OSError as error:
        raise UserError(f"cannot read settings {source}: {error.strerror}; check the path") from error
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source} is not TOML: {in_one_line(error)}; write lines like K = 1000") from error
