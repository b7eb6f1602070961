"""Settings from a TOML file and from flags, flags first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError


def settings_from(file: Path | None, flags: Mapping[str, Any], base: Config) -> Config:
    """`base`, changed by the file, changed by those flags that were given and are settings."""
    names = {field.name for field in fields(Config)} - {"weights"}
    given = {name: value for name, value in flags.items() if name in names and value is not None}
    if isinstance(given.get("layers"), str):
        given["layers"] = tuple(given["layers"].split(","))
    return base.with_changes(**read_settings(file)).with_changes(**given)


def read_settings(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read settings {file}: {error}") from error
