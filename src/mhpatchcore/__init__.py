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
    from mhpatchcore.backbone.session import use_device as use_device
    from mhpatchcore.config import Config as Config
    from mhpatchcore.detector import Detector as Detector
    from mhpatchcore.detector import Study as Study
    from mhpatchcore.errors import ImageError as ImageError
    from mhpatchcore.errors import ImageWarning as ImageWarning
    from mhpatchcore.errors import ModelFileError as ModelFileError
    from mhpatchcore.errors import UserError as UserError
    from mhpatchcore.errors import WeightsError as WeightsError
    from mhpatchcore.fitting.checks import ImageChecks as ImageChecks
    from mhpatchcore.fitting.execution import Execution as Execution
    from mhpatchcore.inputs.places import stacked as stacked
    from mhpatchcore.inspection.evidence import Evidence as Evidence
    from mhpatchcore.presets import PRESETS as PRESETS
    from mhpatchcore.result import Result as Result
    from mhpatchcore.results import Results as Results

# the public names, imported when first used, so that `import mhpatchcore` itself costs nothing
_HOMES = {
    "backbone.session": ("use_device",),
    "config": ("Config",),
    "detector": ("Detector", "Study"),
    "errors": ("ImageError", "ImageWarning", "ModelFileError", "UserError", "WeightsError"),
    "fitting.checks": ("ImageChecks",),
    "fitting.execution": ("Execution",),
    "inputs.places": ("stacked",),
    "inspection.evidence": ("Evidence",),
    "presets": ("PRESETS",),
    "result": ("Result",),
    "results": ("Results",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'mhpatchcore' has no attribute '{name}'")
    return getattr(import_module(f"mhpatchcore.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    """What there is to use."""
    return sorted(__all__)
