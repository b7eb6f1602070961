"""A record of verdicts whose writes fail, or whose process is killed; `make stress` tries every write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.stress.faults import KINDS
from benchmarks.stress.record_faults import run_record_faults


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_rows_are_whole_and_what_was_written_is_there(tmp_path: Path) -> None:
    struck = list(run_record_faults(tmp_path, step=13))
    assert [one for one in struck if one.problem] == []
    for kind in KINDS.values():
        ends = [one.reached for one in struck if one.kind == kind]
        assert ends.count(True) >= 5, "faults have struck"
        assert ends[-1] is False, "and the last trial came through"
