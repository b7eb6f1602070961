"""A model ready to score: sessions made once, shared by all threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import letting_go, make_session
from mhpatchcore.calibration.threshold import Calibration, threshold_at
from mhpatchcore.config import Config
from mhpatchcore.inputs.loading import LoadedImage
from mhpatchcore.inputs.views import whole_view
from mhpatchcore.model.value import Scale
from mhpatchcore.runtime.arrays import Array, Floats, Mask
from mhpatchcore.runtime.parallel import Memoised, one_blas_thread
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.known_defects import NO_DEFECTS, KnownDefects, likenesses
from mhpatchcore.scoring.maps import ViewScores
from mhpatchcore.scoring.score import Rule, Scored, combined_score, scored_by


class Runtime:
    """Heads and sessions of a model's scales. Each is made when first asked for, by one thread while others wait.

    One image at a time is scored on all cores; many side by side take one core each, which is faster for them all.
    """

    def __init__(self, scales: Sequence[Scale], config: Config, defects: KnownDefects = NO_DEFECTS) -> None:
        self._scales, self._config, self._defects = tuple(scales), config, defects
        self._made_heads = Memoised(lambda: tuple(scale.head(config) for scale in scales))
        self._made_sessions = Memoised(partial(_make_sessions, self._made_heads))
        self._made_directions = Memoised(
            lambda: tuple(defects.directions(i, scale.whitening) for i, scale in enumerate(scales))
        )

    @property
    def heads(self) -> tuple[Head, ...]:
        return self._made_heads()

    @property
    def one_at_a_time(self) -> tuple[Any, ...]:
        """A session for each scale that uses all cores."""
        return self._made_sessions(0)

    @property
    def side_by_side(self) -> tuple[Any, ...]:
        """A session for each scale that uses one core per call."""
        return self._made_sessions(1)

    @property
    def known(self) -> tuple[list[Floats], ...]:
        """For each scale the whitened directions (m, k) of every known defect."""
        return self._made_directions()

    def check(self) -> None:
        """Run the network once: a damaged one is noticed when a model is loaded, not at its first part."""
        self._run_once(self.one_at_a_time)

    def warm_up(self) -> None:
        """Make all sessions and run each once, so that no part on the line waits for them."""
        for sessions in (self.one_at_a_time, self.side_by_side):
            self._run_once(sessions)

    def _run_once(self, sessions: Sequence[Any]) -> None:
        for i, (scale, session) in enumerate(zip(self._scales, sessions, strict=True)):
            black, tiled = np.zeros((*scale.size, 3), np.uint8), bool(self._config.sizes[i].zoom)
            self.score(i, session, black, let_go=tiled)  # runs over tiles take much memory

    def score_image(
        self, source: LoadedImage, sessions: Sequence[Any]
    ) -> tuple[float, tuple[ViewScores, ...], Floats]:
        """An image's score, all its views with the distances of the map, and what it says about the camera (m,)."""
        whole = whole_view(self._config.views)
        shown = source.pixels(whole, whole.geometry(*source.size))
        rule, scores, judged, nearest = Rule.of(self.heads), list[float](), list[ViewScores](), []
        for scale, (view, head) in enumerate(zip(self._config.views, self.heads, strict=True)):
            every = source.placed(view, head.grid)
            for placed in every:
                pixels = shown if view == whole else source.pixels(view, placed.where)
                # what tiles have taken is room to decode the next image in, which is often a large one
                is_last = bool(view.zoom) and placed is every[-1]
                one = self.score(scale, sessions[scale], pixels, placed.inside, let_go=is_last)
                scores.append(one.score)
                judged.append(rule.view(scale, placed.where, placed.inside, one.judged))
                known = None if one.z is None else likenesses(one.z, self.known[scale])
                known = None if known is None else known.reshape(-1, *head.grid)
                nearest.append(replace(judged[-1], distances=one.nearest, known=known))
        score = combined_score(rule.score, scores, judged)
        return score, tuple(nearest), source.measures(whole, shown)

    def score(
        self, scale: int, session: Any, view: Array, inside: Mask | None = None, let_go: bool = False
    ) -> Scored:
        """One view (H, W, 3) at one scale, of which only the patches inside (h, w) count; None: all.

        A session keeps the memory of a run for the next, unless it is told to `let_go` of it.
        """
        head = self.heads[scale]
        feed = {"image": np.ascontiguousarray(view[None], np.float32), "penalty": head.no_penalty}
        options = letting_go() if let_go else None
        return scored_by(session, feed, head.grid, inside, options, with_z=bool(self._defects.names))

    def likeness_limit(self, calibration: Calibration) -> float:
        """Images that are more like a known defect are rejected, whatever their score: infinity where none is known.

        Good parts exceed it at the share of the expected rate that the threshold leaves, by the patches that decided
        the scores of calibration images. Images whose patches are not kept scored low: they count as unlike.
        """
        deciding = calibration.deciding
        if not (self._defects.names and deciding):
            return inf
        like = [
            max(
                float(likenesses(scale.whitening(rows).T, known).max())
                for scale, rows, known in zip(self._scales, one.rows, self.known, strict=True)
            )
            for one in deciding
        ]
        rate = calibration.for_likeness * calibration.expected_rate * calibration.n / len(deciding)
        return threshold_at(1 + np.array(like, np.float32), min(rate, 0.5)) - 1


def _make_sessions(heads: Memoised[tuple[Head, ...]], threads: int) -> tuple[Any, ...]:
    with one_blas_thread():
        graphs = [head.whole_graph for head in heads()]
    return tuple(make_session(graph, threads) for graph in graphs)
