"""Settings from a TOML file and from flags, flags first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError

KINDS = {int: "a whole number", float: "a number", str: "a text in quotes"}


def settings_from(file: Path | None, flags: Mapping[str, Any], base: Config) -> Config:
    """`base`, changed by the file, changed by those flags that were given and are settings."""
    names = {field.name for field in fields(Config)}
    given = {name: value for name, value in flags.items() if name in names and value is not None}
    if isinstance(given.get("layers"), str):
        given["layers"] = listed(given["layers"])
    return base.with_changes(**read_settings(file)).with_changes(**given)


def read_settings(file: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each of the kind that `Config` wants."""
    if file is None:
        return {}
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings {file}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise UserError(f"{file} is not TOML: {error}; it wants lines such as K = 1000") from error
    hints = get_type_hints(Config)
    for name, value in settings.items():
        if name in hints and not _fits(value, name, hints[name]):
            raise UserError(f"{file}: {name} must be {_kind(name, hints[name])}, not {value!r}")
    return settings


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> listed("mh, patchcore,")
    ('mh', 'patchcore')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _fits(value: Any, name: str, hint: Any) -> bool:
    if name == "layers":
        return isinstance(value, list) and all(isinstance(layer, str) for layer in value)
    wanted = _kinds(hint)
    return type(value) in wanted or (type(value) is int and float in wanted)


def _kind(name: str, hint: Any) -> str:
    if name == "layers":
        return 'a list of texts such as ["layer2", "layer3"]'
    return " or ".join(KINDS[kind] for kind in _kinds(hint))


def _kinds(hint: Any) -> tuple[type, ...]:
    """int | None → (int,); TOML has no null."""
    return tuple(kind for kind in getattr(hint, "__args__", (hint,)) if kind in KINDS)
