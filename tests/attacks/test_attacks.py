"""Every hostile file gives one line, or nothing happens: no traceback, no hang, no crash, bounded memory."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from benchmarks.stress.processes import HARMLESS, REFUSED, Family, Tally, run_trials
from cli_runs import Run, graphs, run
from hostile_archives import ARCHIVES
from hostile_images import IMAGES
from hostile_models import MODELS, names_that_are_commands_to_a_terminal_or_a_page
from hostile_networks import NETWORKS
from hostile_settings import SETTINGS
from hostile_weights import WEIGHTS
from recipes import MARKER, Recipe

__all__ = ["graphs", "run"]  # fixtures

ALL: list[Recipe] = [*MODELS.all, *NETWORKS.all, *WEIGHTS.all, *IMAGES.all, *ARCHIVES.all, *SETTINGS.all]
MEMORY, SECONDS = 500e6, 20.0


def prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def undamaged(folder: Path) -> None:
    """Everything that the attacks use is imported with them."""


def attempt(folder: Path, number: int) -> str:
    recipe = ALL[number]
    recipe.use(recipe.make(folder))
    return HARMLESS


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    """All attacks, in a process with limits."""
    folder = tmp_path_factory.mktemp("attacks")
    family = Family("attacks", prepare, undamaged, attempt)
    found = run_trials(family, folder, range(len(ALL)), 1, time.monotonic() + 600)
    assert not (folder / MARKER).exists(), "an attack got its way"
    return found


@pytest.mark.parametrize("number", range(len(ALL)), ids=[recipe.name for recipe in ALL])
def test_an_attack_ends_well(tally: Tally, number: int) -> None:
    outcome, seconds = tally.outcomes[number]
    assert outcome in ((REFUSED,) if ALL[number].refused else (REFUSED, HARMLESS))
    assert seconds < SECONDS


def test_memory_stays_bounded(tally: Tally) -> None:
    assert tally.peak < MEMORY


def test_texts_of_a_model_are_no_commands_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = names_that_are_commands_to_a_terminal_or_a_page(tmp_path)
    for command in (("info", path), ("info", path, "--json")):
        ran = run(*command)
        assert ran.code == 0 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", ran.out)
