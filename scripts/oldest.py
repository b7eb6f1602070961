"""The lowest versions that pyproject.toml allows, as constraints for pip: `numpy>=1.26` becomes `numpy==1.26`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def oldest(requirements: list[str]) -> list[str]:
    """
    >>> oldest(["numpy>=1.26", "rich>=13"])
    ['numpy==1.26', 'rich==13']
    """
    return [re.sub(r">=\s*", "==", requirement) for requirement in requirements]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    print("\n".join(oldest(project["dependencies"])))
