"""A model ready to score: sessions made once, shared by all threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from mhpatchcore.backbone.session import letting_go, make_session
from mhpatchcore.inputs.loading import LoadedImage
from mhpatchcore.inputs.views import whole_view
from mhpatchcore.model.value import Model
from mhpatchcore.result import Result
from mhpatchcore.runtime.arrays import Array, Mask
from mhpatchcore.runtime.parallel import Memoised, one_blas_thread
from mhpatchcore.scoring.graph import Head
from mhpatchcore.scoring.known_defects import likenesses
from mhpatchcore.scoring.maps import ViewScores
from mhpatchcore.scoring.score import Rule, Scored, combined_score, scored_by


class Runtime:
    """Heads and sessions of a model's scales. Each is made when first asked for, by one thread while others wait.

    One image at a time is scored on all cores; many side by side take one core each, which is faster for them all.
    """

    def __init__(self, model: Model) -> None:
        self._model, scales = model, model.scales
        self._heads = Memoised(lambda: tuple(scale.head(model.config) for scale in scales))
        self._sessions = Memoised(self._make_sessions)
        self._known = Memoised(
            lambda: tuple(model.defects.directions(i, scale.whitening) for i, scale in enumerate(scales))
        )

    @property
    def heads(self) -> tuple[Head, ...]:
        return self._heads()

    @property
    def one_at_a_time(self) -> tuple[Any, ...]:
        """A session for each scale that uses all cores."""
        return self._sessions(0)

    @property
    def side_by_side(self) -> tuple[Any, ...]:
        """A session for each scale that uses one core per call."""
        return self._sessions(1)

    def _make_sessions(self, threads: int) -> tuple[Any, ...]:
        with one_blas_thread():
            graphs = [head.whole_graph for head in self.heads]
        return tuple(make_session(graph, threads) for graph in graphs)

    def warm_up(self, *all_sessions: Sequence[Any]) -> None:
        """Run all sessions once, so that no part on the line waits for them and a damaged network is noticed."""
        for sessions in all_sessions or (self.one_at_a_time, self.side_by_side):
            for i, (scale, session) in enumerate(zip(self._model.scales, sessions, strict=True)):
                tiled = bool(self._model.config.sizes[i].zoom)
                # runs over tiles take much memory
                self.score(i, session, np.zeros((*scale.size, 3), np.uint8), let_go=tiled)

    def result(self, source: LoadedImage, sessions: Sequence[Any], path: str | None = None) -> Result:
        """What the model says of an image, on these sessions."""
        model, config = self._model, self._model.config
        whole = whole_view(config.views)
        shown = source.pixels(whole, whole.geometry(*source.size))
        rule, scores, judged, nearest = Rule.of(self.heads), list[float](), list[ViewScores](), []
        for scale, (view, head) in enumerate(zip(config.views, self.heads, strict=True)):
            every = source.placed(view, head.grid)
            for placed in every:
                pixels = shown if view == whole else source.pixels(view, placed.where)
                # what tiles have taken is room to decode the next image in, which is often a large one
                is_last = bool(view.zoom) and placed is every[-1]
                one = self.score(scale, sessions[scale], pixels, placed.inside, let_go=is_last)
                scores.append(one.score)
                judged.append(rule.view(scale, placed.where, placed.inside, one.judged))
                known = None
                if one.z is not None:
                    known = likenesses(one.z, self._known()[scale]).reshape(-1, *head.grid)
                nearest.append(replace(judged[-1], distances=one.nearest, known=known))
        score = combined_score(rule.score, scores, judged)
        likeness_limit, least_score = self.likeness_limits
        return Result(
            path=path,
            score=score,
            threshold=model.calibration.threshold,
            p_value=model.calibration.p_value(score),
            pixel_threshold=model.calibration.pixel_threshold,
            views=tuple(nearest),
            window=config.views[0].window,
            area=source.area,
            names=model.defects.names,
            likeness_limit=likeness_limit if score >= least_score else inf,
            measures=tuple(source.measures(whole, shown).tolist()),
        )

    def score(
        self, scale: int, session: Any, view: Array, inside: Mask | None = None, let_go: bool = False
    ) -> Scored:
        """One view (H, W, 3) at one scale, of which only the patches inside (h, w) count; None: all.

        A session keeps the memory of a run for the next, unless it is told to `let_go` of it.
        """
        head = self.heads[scale]
        feed = {"image": np.ascontiguousarray(view[None], np.float32), "penalty": head.no_penalty}
        options = letting_go() if let_go else None
        return scored_by(session, feed, head.grid, inside, options, with_z=bool(self._model.defects.names))

    @cached_property
    def likeness_limits(self) -> tuple[float, float]:
        """How like a known defect an image rejected for that is, and its least score; infinity where none is known."""
        scales, deciding = self._model.scales, self._model.calibration.deciding
        if not (self._model.defects.names and deciding):
            return inf, inf
        like = [
            max(
                float(likenesses(scale.whitening(rows).T, known).max())
                for scale, rows, known in zip(scales, one.rows, self._known(), strict=True)
            )
            for one in deciding
        ]
        return self._model.calibration.likeness_limit(np.array(like))
