"""Scoring in plain numpy and float64, straight from the definitions: what the graph is held to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from plain_alignment import aligned
from scipy.ndimage import gaussian_filter

from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.local import map_parts, rows_per_run

RIDGE = 0.03
COMPARED = 8  # one in so many patches


@dataclass(frozen=True)
class PlainScores:
    """Of one view: its score, its map's peak, distances (h, w) of the map and of the score."""

    score: float
    peak: float
    nearest: np.ndarray
    judged: np.ndarray


def plain_whitened(head: Head, maps: list[np.ndarray]) -> np.ndarray:
    """Layers (C_l, h_l, w_l) → z (h·w, k): aligned, side by side, centred, multiplied."""
    u = np.concatenate([aligned(layer.astype(np.float64), *head.grid) for layer in maps])
    return (u.reshape(len(u), -1).T - head.whitening.mean) @ head.whitening.A.T


def plain_scores(
    head: Head, z: np.ndarray, counts: np.ndarray | None = None, inside: np.ndarray | None = None
) -> PlainScores:
    """What is said of patches z (h·w, k) by the bank rows that count (K,): excluded rows are not there at all.

    Patches that are not inside (h·w,) are no distance from anything.
    """
    inside = np.ones(len(z), bool) if inside is None else inside
    counts = np.ones(len(head.bank), bool) if counts is None else counts
    bank, weights = head.bank[counts].astype(np.float64), head.weights[counts].astype(np.float64)
    delta = distances(z, bank)
    least = inside * delta.min(axis=1)
    part = np.arange(len(head.bank)) // rows_per_run(len(head.bank)) % map_parts(head.local, len(head.bank))
    parts = [delta[:, part[counts] == one] for one in np.unique(part)]
    nearest = inside * np.mean([one.min(axis=1) if one.size else least for one in parts], axis=0)
    b = min(head.local, len(head.bank), 1 + head.bank.shape[1] // 4)
    judged = least if b == 1 else spanned(z, bank, weights, delta, b, inside)
    info = head.backbone.info
    size = (info.height, info.width, head.sigma)
    a = judged.reshape(head.grid)
    score = {
        "max": lambda: judged.max(),
        "reweighted": lambda: reweighted(judged, delta, bank, head.neighbours),
        "map-max": lambda: smoothed(a, *size).max(),
    }[head.score]()
    peak = smoothed(nearest.reshape(head.grid), *size).max()
    return PlainScores(float(score), float(peak), nearest.reshape(head.grid), a)


def distances(z: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """δ (n, K)."""
    return ((z[:, None].astype(np.float64) - bank[None]) ** 2).sum(axis=2)


def reweighted(a: np.ndarray, delta: np.ndarray, bank: np.ndarray, b: int) -> float:
    """w·a(u*), w = 1 − exp(δ(u*, m*)) / Σ over the b rows nearest to m* (itself among them) of exp(δ(u*, m))."""
    worst = int(a.argmax())
    nearest = int(delta[worst].argmin())
    around = np.argsort(distances(bank[[nearest]], bank)[0], kind="stable")[:b]
    exponents = delta[worst, around] - delta[worst, around].max()
    weight = 1 - np.exp(delta[worst, nearest] - delta[worst, around].max()) / np.exp(exponents).sum()
    return float(weight * a[worst])


def spanned(
    z: np.ndarray, bank: np.ndarray, weights: np.ndarray, delta: np.ndarray, b: int, inside: np.ndarray
) -> np.ndarray:
    """The farthest patches against what their b nearest rows span; the others follow in proportion."""
    nearest = inside * delta.min(axis=1)
    far = np.argsort(-nearest, kind="stable")[: max(1, len(z) // COMPARED)]
    found = np.empty(len(far))
    for i, patch in enumerate(far):
        rows = np.argsort(delta[patch], kind="stable")[:b]
        found[i] = inside[patch] * span_distance(np.sqrt(weights[rows])[:, None] * (z[patch] - bank[rows]))
    judged = nearest * found.sum() / max(nearest[far].sum(), 1e-12)
    judged[far] = found
    return judged


def span_distance(v: np.ndarray) -> float:
    """h = 1 / (1ᵀ(V + λI)⁻¹1) of the differences v (b, k), V = v·vᵀ, λ = RIDGE·tr V / b."""
    V = v @ v.T
    left = V + (RIDGE * np.trace(V) / len(v) + 1e-12) * np.eye(len(v))
    return float(1 / np.linalg.solve(left, np.ones(len(v))).sum())


def smoothed(a: np.ndarray, height: int, width: int, sigma: float) -> np.ndarray:
    """A map (h, w) on the view: bilinear, then Gaussian."""
    heat = aligned(a, height, width)
    return gaussian_filter(heat, sigma) if sigma else heat


def plain_combined(scored: list[PlainScores], heads: list[Head]) -> float:
    """One score of those of several scales: the maximum of the mean map, or by other rules the mean."""
    if heads[0].score != "map-max":
        return float(np.mean([one.score for one in scored]))
    sizes = [(head.backbone.info.height, head.backbone.info.width) for head in heads]
    finest = max(sizes)
    heats = [
        smoothed(one.judged, *finest, heads[0].sigma * finest[0] / size[0])
        for one, size in zip(scored, sizes, strict=True)
    ]
    return float(np.mean(heats, axis=0).max())
