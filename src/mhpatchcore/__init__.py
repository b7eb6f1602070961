"""Mahalanobis PatchCore: learns from images of good parts alone and finds what departs from them.

from mhpatchcore import Detector

detector = Detector.fit("parts/good")
result = detector.score("parts/new/0001.png")
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# libraries that report their use ask these before they load: nothing leaves the machine unless the user wants it
for _switch in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_switch, "1")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mhpatchcore.backbone.session import use_device
    from mhpatchcore.config import Config
    from mhpatchcore.detector import Detector, Study
    from mhpatchcore.errors import ImageError, ImageWarning, ModelFileError, UserError, WeightsError
    from mhpatchcore.fitting.checks import ImageChecks
    from mhpatchcore.fitting.execution import Execution
    from mhpatchcore.inputs.places import stacked
    from mhpatchcore.inspection.evidence import Evidence
    from mhpatchcore.presets import PRESETS
    from mhpatchcore.result import Result
    from mhpatchcore.results import Results

# imported when first used, so that `import mhpatchcore` itself costs nothing
_HOMES = {
    "Config": "config",
    "Detector": "detector",
    "Evidence": "inspection.evidence",
    "Execution": "fitting.execution",
    "ImageError": "errors",
    "ImageWarning": "errors",
    "ModelFileError": "errors",
    "PRESETS": "presets",
    "Result": "result",
    "Results": "results",
    "ImageChecks": "fitting.checks",
    "Study": "detector",
    "UserError": "errors",
    "WeightsError": "errors",
    "stacked": "inputs.places",
    "use_device": "backbone.session",
}

__all__ = [
    "PRESETS",
    "Config",
    "Detector",
    "Evidence",
    "Execution",
    "ImageChecks",
    "ImageError",
    "ImageWarning",
    "ModelFileError",
    "Result",
    "Results",
    "Study",
    "UserError",
    "WeightsError",
    "__version__",
    "stacked",
    "use_device",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mhpatchcore' has no attribute '{name}'")
    return getattr(import_module(f"mhpatchcore.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """What there is to use."""
    return sorted(__all__)
