"""A variant to be tried: a configuration, and ideas that are part of the study alone until they prove useful."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.presets import preset


@dataclass(frozen=True)
class Trial:
    """A configuration with, beside it, what only the study knows.

    second    another backbone whose descriptors are appended, both scaled to the same mean square
    flips     "train": mirrored images are learnt too; "test": maps of an image and its mirror image are averaged
    scaling   "l2": descriptors of unit length
    rule      "knn": mean distance to the three nearest rows; "top": image score = mean of the largest 1 % of patches
    """

    config: Config
    second: str = ""
    flips: str = ""
    scaling: str = ""
    rule: str = ""


ONLY_HERE = tuple(field.name for field in fields(Trial) if field.name != "config")


def read_trials(path: Path) -> dict[str, Trial]:
    """One table per trial, with settings of `Config`; `preset = "name"` starts from a preset."""
    return {name: trial(table) for name, table in tomllib.loads(path.read_text()).items()}


def trial(table: Mapping[str, Any]) -> Trial:
    settings = {key: value for key, value in table.items() if key not in ("preset", *ONLY_HERE)}
    if settings.get("resize") == 0:  # TOML has no null: 0 says that there is no crop
        settings["resize"] = None
    base = preset(table["preset"]).config if "preset" in table else Config()
    ideas = {key: table[key] for key in ONLY_HERE if key in table}
    for key, choices in {"flips": ("train", "test"), "scaling": ("l2",), "rule": ("knn", "top")}.items():
        if key in ideas and ideas[key] not in choices:
            raise UserError(f"{key} is one of {', '.join(choices)}, not '{ideas[key]}'")
    return Trial(base.with_changes(**settings), **ideas)
