"""A model file is the old one or the new one, whatever happens while it is written; `make stress` tries every write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.stress import tiny
from benchmarks.stress.faults import KINDS, Struck, run_faults

from mhpatchcore import Detector
from mhpatchcore.model.file import load

# at every so manieth write
STEPS = {"save": 3, "calibrate": 11, "merge": 11, "update": 13, "fit": 13, "fit --store": 29}


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> list[Struck]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return list(run_faults(tmp_path_factory.mktemp("faults"), STEPS))


@pytest.mark.parametrize("command", STEPS)
def test_a_fault_leaves_the_old_or_the_new_model(struck: list[Struck], command: str) -> None:
    trials = [one for one in struck if one.command == command]
    assert [one for one in trials if one.problem] == []
    for kind in KINDS.values():
        ends = [one.reached for one in trials if one.kind == kind]
        assert ends.count(True) >= 2, "faults have struck"
        assert ends[-1] is False, "and the last trial came through"


def test_the_server_itself_did_not_fail(struck: list[Struck]) -> None:
    assert {one.command for one in struck} == set(STEPS)


WRITER = """
import sys, time
from mhpatchcore.model.file import load, save
from pathlib import Path
model, target, until = load(Path(sys.argv[1])), Path(sys.argv[2]), time.monotonic() + float(sys.argv[3])
n = 0
while time.monotonic() < until:
    save(model, target)
    n += 1
print(n)
"""


def test_of_two_writers_at_one_place_either_is_whole(tmp_path: Path) -> None:
    models = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        network = tiny.write_network(tmp_path / str(i))
        path = tmp_path / f"{i}.mhpc"
        Detector.fit(tiny.pictures(10 * i, 4), tiny.settings(network)).save(path)
        models.append(path)
    target = tmp_path / "out" / "part.mhpc"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, target, "2"], stdout=subprocess.PIPE, text=True)
        for path in models
    ]
    contents = {path.read_bytes() for path in models}
    seen: set[bytes] = set()
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            seen.add(target.read_bytes())
        time.sleep(0.001)
    assert seen == contents, "both were seen, and nothing else"
    assert all(writer.returncode == 0 and int(writer.communicate()[0]) > 5 for writer in writers)
    assert [path.name for path in target.parent.iterdir()] == ["part.mhpc"]
    load(target)
