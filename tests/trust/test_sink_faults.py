"""A receiver of messages that redirects, is slow, dies or lies; `make stress` tries more of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.stress.sinks import KINDS, run_sink_faults


def test_no_message_is_lost_or_out_of_order(tmp_path: Path) -> None:
    struck = list(run_sink_faults(tmp_path, trials=2))
    assert [one for one in struck if one.problem] == []
    assert {one.kind for one in struck if one.reached} == set(KINDS)
