"""Mahalanobis PatchCore: learns from images of good parts alone and finds what departs from them.

from mhpatchcore import Detector

detector = Detector.fit("parts/good")
result = detector.score("parts/new/0001.png")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mhpatchcore.config import Config
    from mhpatchcore.detector import Detector
    from mhpatchcore.errors import UserError
    from mhpatchcore.fitting.extraction import Execution
    from mhpatchcore.result import Result

# imported when first used, so that `import mhpatchcore` itself costs nothing
_HOMES = {
    "Config": "config",
    "Detector": "detector",
    "Execution": "fitting.extraction",
    "Result": "result",
    "UserError": "errors",
}

__all__ = ["Config", "Detector", "Execution", "Result", "UserError", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mhpatchcore' has no attribute '{name}'")
    return getattr(import_module(f"mhpatchcore.{_HOMES[name]}"), name)
