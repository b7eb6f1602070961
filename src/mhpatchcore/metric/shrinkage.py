"""Shrinkage towards the scaled identity, Σ_shr = (1−λ)·Σ̂ + λ·σ̄·I with σ̄ = tr(Σ̂)/d, and how λ is chosen.

Everything here depends on Σ̂ only through its spectrum, so the functions take eigenvalues γ (d,).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.arrays import Doubles


def shrink(eigenvalues: Doubles, lam: float) -> Doubles:
    """Eigenvalues of Σ_shr."""
    shrunk: Doubles = (1 - lam) * eigenvalues + lam * eigenvalues.mean()
    return shrunk


def oas(eigenvalues: Doubles, n: float) -> float:
    """Oracle approximating shrinkage (Chen et al. 2010), the paper's form.

        λ = clip[ ((1 − 2/d)·tr(Σ̂²) + tr(Σ̂)²) / ((n + 1 − 2/d)·(tr(Σ̂²) − tr(Σ̂)²/d)) ]

    >>> oas(np.array([1.0, 1.0, 1.0]), 50)  # already spherical
    1.0
    """
    d, trace, trace_of_square = _traces(eigenvalues)
    return _clipped_ratio(
        (1 - 2 / d) * trace_of_square + trace**2,
        (n + 1 - 2 / d) * (trace_of_square - trace**2 / d),
    )


def rblw(eigenvalues: Doubles, n: float) -> float:
    """Rao–Blackwell Ledoit–Wolf: needs the covariance alone, so it suits a stream.

    λ = clip[ ((n−2)/n·tr(Σ̂²) + tr(Σ̂)²) / ((n + 2)·(tr(Σ̂²) − tr(Σ̂)²/d)) ]
    """
    d, trace, trace_of_square = _traces(eigenvalues)
    return _clipped_ratio(
        (n - 2) / n * trace_of_square + trace**2,
        (n + 2) * (trace_of_square - trace**2 / d),
    )


def ledoit_wolf(eigenvalues: Doubles, n: float, fourth_moment: float) -> float:
    """Ledoit–Wolf (2004): λ = clip[ (Σᵢ‖xᵢ‖⁴/n − tr(Σ̂²)) / (n·(tr(Σ̂²) − tr(Σ̂)²/d)) ].

    `fourth_moment` is the mean of ‖xᵢ − μ‖⁴ over the n rows, which covariance alone does not tell: it can be
    had only where the rows can be read again.
    """
    d, trace, trace_of_square = _traces(eigenvalues)
    return _clipped_ratio(fourth_moment - trace_of_square, n * (trace_of_square - trace**2 / d))


def parse_shrinkage(policy: str | float) -> str | float:
    """A fixed λ in [0, 1], or the name of a policy; anything else is an error that lists the choices.

    >>> parse_shrinkage("0.07"), parse_shrinkage("oas")
    (0.07, 'oas')
    """
    if policy in POLICIES:
        return policy
    try:
        lam = float(policy)
    except ValueError:
        lam = -1.0
    if not 0 <= lam <= 1:
        raise UserError(
            f"shrinkage '{policy}' is neither a number from 0 to 1 nor one of: {', '.join(POLICIES)}"
        )
    return lam


POLICIES = ("oas", "rblw", "ledoit-wolf", "none")


def _traces(eigenvalues: Doubles) -> tuple[int, float, float]:
    return len(eigenvalues), float(eigenvalues.sum()), float((eigenvalues**2).sum())


def _clipped_ratio(numerator: Any, denominator: Any) -> float:
    """Numerator / denominator in [0, 1]; a spherical covariance has a zero denominator and takes λ = 1."""
    if denominator <= 0:
        return 1.0
    return float(np.clip(numerator / denominator, 0.0, 1.0))
