"""The settings of a model on the command line: an option for each, or a TOML file; options win.

What a setting is called, what it can be and what its help says stands in `Config`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from mhpatchcore.cli.options import listed, share_parser
from mhpatchcore.config import SETTINGS, Config, coerce_setting
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.presets import preset as named


def parameters(names: Iterable[str]) -> list[inspect.Parameter]:
    """The options --settings and --preset, and one for each of these settings."""
    file = typer.Option(None, help="A TOML file of settings; options win over it.")
    preset = typer.Option(
        "default", help="A named configuration to start from (see `mhpatchcore presets`).", show_default=False
    )
    return [
        _parameter("settings", Path, file),
        _parameter("preset", str, preset),
        *(_setting_parameter(name) for name in names),
    ]


def config_of(settings: Path | None, preset: str, **options: Any) -> Config:
    """The preset, changed by the file, changed by the options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    return settings_from(settings, given, named(preset).config)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _setting_parameter(name: str) -> inspect.Parameter:
    setting = SETTINGS[name]
    flags = setting.flags or (f"--{name.replace('_', '-')}",)
    hint = get_type_hints(Config)[name]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    default = getattr(Config(), name)
    kind: Any = kinds[0]
    options: dict[str, Any] = {"show_default": False}
    if not setting.common:
        options["rich_help_panel"] = setting.panel
    if setting.parse is not None:
        parser = listed if name == "layers" else setting.parse
        options |= {"parser": parser, "metavar": setting.metavar}
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    elif setting.share:
        options |= {"parser": share_parser(flags[0]), "metavar": "SHARE"}
        default = None if default is None else f"{100 * default:g}%"
    elif len(kinds) < len(get_args(hint)):
        options |= {"parser": _or_none(flags[0], kind), "metavar": kind.__name__.upper()}
    elif kind is bool:
        flags, default = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",), None
    shown = f" (default: {default})" if default not in (None, "") else ""
    return _parameter(name, kind, typer.Option(None, *flags, help=f"{setting.help}{shown}.", **options))


def _or_none(flag: str, kind: type) -> Callable[[str], Any]:
    """Reads a number, or the word none, which takes a preset's value back."""

    def parse(text: str) -> Any:
        try:
            return text if text == "none" else kind(text)
        except ValueError:
            raise UserError(f"{flag} takes a number or none, not '{text}'") from None

    return parse


def settings_from(file: Path | None, changes: Mapping[str, Any], base: Config) -> Config:
    """`base`, changed by the file, changed by what was given as options."""
    return base.with_changes(**read_settings(file)).with_changes(**changes)


def read_settings(file: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each of its kind; shares may be texts such as "5%"."""
    if file is None:
        return {}
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings {file}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is not TOML: {in_one_line(error)}; it wants lines such as K = 1000"
        ) from error
    try:
        return {name: coerce_setting(name, value) for name, value in settings.items()}
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
