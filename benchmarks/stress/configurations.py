"""Settings: TOML files for `fit --settings`, and what is given to Config in Python.

Each is refused in one line, or is a configuration that says of itself what it is, and reads back as the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.stress.mutations import (
    Random,
    another_value,
    damaged_bytes,
    mutated_document,
    one_of,
    random_of,
)
from benchmarks.stress.networks import _as_toml
from benchmarks.stress.processes import HARMLESS, Family, Violation
from mhpatchcore import Config
from mhpatchcore.cli.options import config_of


def prepare(folder: Path) -> None:
    """Settings are written by each trial."""


def undamaged(folder: Path) -> None:
    attempt(folder, -1)


def attempt(folder: Path, seed: int) -> str:
    random = random_of("settings", abs(seed))
    settings = {name: value for name, value in Config().to_json().items() if value not in (None, "", ())}
    settings["sizes"] = [list(size) for size in Config().sizes]
    if seed >= 0:
        for _ in range(int(random.integers(1, 3))):
            if settings:
                mutated_document(settings, random)
    config = _from_python(settings) if random.random() < 0.4 else _from_file(folder, settings, random, seed)
    if Config.from_json(json.loads(json.dumps(config.to_json()))) != config:
        raise Violation("verdict: settings read back are others")
    if not all(32 <= side <= 2048 for size in config.sizes for side in size[:2]):
        raise Violation(f"range: sizes {config.sizes}")
    return HARMLESS


FAMILY = Family("settings", prepare, undamaged, attempt)


def _from_python(settings: dict[str, Any]) -> Config:
    return Config.from_json(settings)


def _from_file(folder: Path, settings: dict[str, Any], random: Random, seed: int) -> Config:
    if seed >= 0 and random.random() < 0.2:
        settings[one_of(random, sorted(map(str, settings)) or ["K"])] = another_value("5%", random)
    data = _as_toml(settings).encode(errors="surrogatepass")
    if seed >= 0 and random.random() < 0.3:
        data = damaged_bytes(data, random)
    path = folder / f"{seed}.toml"
    try:
        path.write_bytes(data)
        return config_of(path)
    finally:
        path.unlink(missing_ok=True)
