"""Names for array types. They tell a reader what is meant; numpy's own stubs are too loose to enforce more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]  # float32 unless said otherwise
Doubles = NDArray[np.floating[Any]]  # float64
Indices = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
