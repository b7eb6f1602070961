"""Conversions that must not change a number."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.runtime.arrays import as_float32


def test_every_finite_half_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    assert np.array_equal(as_float32(finite).view(np.uint32), finite.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shape_and_argument_stay_as_they_are(dtype: type) -> None:
    rows = np.linspace(-3, 3, 24).astype(dtype).reshape(4, 6)[:, ::2]
    before = rows.copy()
    assert np.array_equal(as_float32(rows), before.astype(np.float32))
    assert np.array_equal(rows, before)
