"""What a recipe for a hostile file is: how the file is made, and what a user does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "was_here"  # a file that an attack makes if it gets its way


@dataclass(frozen=True)
class Recipe:
    """`make(folder)` writes the hostile file and gives its path; `use(path)` is what the user does with it.

    `refused` attacks must end in one line. The others may also be harmless: the file is used, and nothing happens.
    """

    make: Callable[[Path], Path]
    use: Callable[[Path], Any]
    refused: bool

    @property
    def name(self) -> str:
        return f"{self.make.__module__.removeprefix('hostile_')}: {self.make.__name__.replace('_', ' ')}"


class Recipes:
    """The recipes of a module: functions are added by `@recipes.refused` or `@recipes.harmless`."""

    def __init__(self, use: Callable[[Path], Any]) -> None:
        self.use = use
        self.all: list[Recipe] = []

    def refused(self, make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        self.all.append(Recipe(make, self.use, refused=True))
        return make

    def harmless(self, make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        self.all.append(Recipe(make, self.use, refused=False))
        return make
