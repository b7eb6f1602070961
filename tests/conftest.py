"""Fixtures that every test stands on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# what tests of one room are measured by (plain twins, made-up data) is there for the others too
sys.path += sorted(str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir())

collect_ignore = ["backbone/make_golden.py"]  # needs PyTorch, and is run by hand


@pytest.fixture(scope="session", autouse=True)
def graph_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Graphs are built once for all tests, and never read from or left in the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MHPATCHCORE_CACHE", str(tmp_path_factory.mktemp("graphs")))
        yield
