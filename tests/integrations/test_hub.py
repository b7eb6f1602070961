"""Detectors go to the hub and come back, against a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_detector import small_detector
from tests.integrations.hub_stand_in import Hub, environment, running_hub

from mhpatchcore.integrations.hub import card

ROUND_TRIP = """
import sys
from mhpatchcore import Detector
from mhpatchcore.integrations.hub import from_hub, push_to_hub
print(push_to_hub(Detector.load(sys.argv[1]), "me/vials", license="mit"))
print(from_hub("me/vials").threshold)
"""
MISSING = """
from mhpatchcore import UserError
from mhpatchcore.integrations.hub import from_hub
try:
    from_hub("me/nothing")
except UserError as error:
    print(error)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as served:
        yield served


def run(hub: Hub, cache: Path, code: str, *arguments: object) -> list[str]:
    """In a new process because the hub library reads its environment when it is imported."""
    settings = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()} | environment(hub, cache)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_detector_goes_to_the_hub_and_comes_back(hub: Hub, tmp_path: Path) -> None:
    detector = small_detector()
    detector.save(tmp_path / "part.mhpc")
    address, threshold = run(hub, tmp_path / "cache", ROUND_TRIP, tmp_path / "part.mhpc")
    assert address.startswith(hub.url) and float(threshold) == detector.threshold
    assert hub.private == {"me/vials": True}
    readme = hub.files["me/vials/README.md"].decode()
    assert "license: mit" in readme and "it should reject about" in readme


def test_what_is_not_there_is_told_in_a_line(hub: Hub, tmp_path: Path) -> None:
    (said,) = run(hub, tmp_path, MISSING)
    assert said.startswith("cannot download model.mhpc of me/nothing")


def test_a_card_has_the_promise_and_where_the_model_comes_from() -> None:
    text = card(small_detector(), "me/vials")
    assert text.startswith("---\nlibrary_name: mhpatchcore") and "| Training images | 8 (" in text
