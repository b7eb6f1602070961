"""The settings of a model on the command line: an option for each, or a TOML file.

What a setting is called, which values it can have and what its help says is declared in `Config`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from mhpatchcore.cli.options import file, share_parser
from mhpatchcore.config import SETTINGS, Config, coerce_setting
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.presets import preset as named


def parameters(names: Iterable[str]) -> list[inspect.Parameter]:
    """The options --settings and --preset, and one for each of these settings."""
    text = "A named configuration to start from (see `mhpatchcore presets`)."
    preset = typer.Option("default", metavar="NAME", help=text, show_default=False)
    settings = file("A TOML file of settings; options take precedence over it.")
    return [
        parameter("settings", Path, settings),
        parameter("preset", str, preset),
        *map(_setting_parameter, names),
    ]


def config_of(settings: Path | None, preset: str = "default", **options: Any) -> Config:
    """The preset, changed by the TOML file, changed by the options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    return named(preset).config.with_changes(**read_settings(settings)).with_changes(**given)


def parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _setting_parameter(name: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    flags = setting.flags or (f"--{name.replace('_', '-')}",)
    hint = get_type_hints(Config)[name]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    default = getattr(Config(), name)
    kind: Any = kinds[0]
    metavar = "SHARE" if setting.share else {int: "N", float: "NUMBER"}.get(kind, "TEXT")
    options: dict[str, Any] = {"show_default": False, "metavar": setting.metavar or metavar}
    if not setting.common:
        options["rich_help_panel"] = setting.panel
    if setting.parse is not None:
        options["parser"] = setting.parse
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    elif setting.share:
        options["parser"] = share_parser(flags[0])
        default = None if default is None else f"{100 * default:g}%"
    elif len(kinds) < len(get_args(hint)):
        options["parser"] = _or_none(flags[0], kind)
    elif kind is bool:
        flags, default = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",), None
    shown = f" (default: {default})" if default not in (None, "") else ""
    return parameter(name, kind, typer.Option(None, *flags, help=f"{setting.help}{shown}.", **options))


def _or_none(flag: str, kind: type) -> Callable[[str], Any]:
    """Reads a number, or the word none, which undoes a preset's value."""

    def parse(text: str) -> Any:
        try:
            return text if text == "none" else kind(text)
        except ValueError:
            raise UserError(f"{flag} takes a number or none, not '{text}'") from None

    return parse


def read_settings(source: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each in its own type; a share may be a text such as "5%"."""
    if source is None:
        return {}
    try:
        settings = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings {source}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{source} is not TOML: {in_one_line(error)}; it should have lines such as K = 1000"
        ) from error
    try:
        return {name: coerce_setting(name, value) for name, value in settings.items()}
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
