"""Settings from a TOML file and from flags, flags first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mhpatchcore.config import Config, of_its_kind
from mhpatchcore.errors import UserError


def settings_from(file: Path | None, flags: Mapping[str, Any], base: Config) -> Config:
    """`base`, changed by the file, changed by those flags that were given and are settings."""
    names = {field.name for field in fields(Config)}
    given = {name: value for name, value in flags.items() if name in names and value is not None}
    if isinstance(given.get("layers"), str):
        given["layers"] = listed(given["layers"])
    return base.with_changes(**read_settings(file)).with_changes(**given)


def read_settings(file: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each of its kind."""
    if file is None:
        return {}
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
        return {name: of_its_kind(name, value) for name, value in settings.items()}
    except OSError as error:
        raise UserError(f"cannot read settings {file}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise UserError(f"{file} is not TOML: {error}; it wants lines such as K = 1000") from error
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> listed("mh, patchcore,")
    ('mh', 'patchcore')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())
