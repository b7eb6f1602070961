"""A change of a model is a transaction: whole or not at all, recorded either way, and taken back step by step."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from same_model import assert_same_model
from services import png
from small_detector import small_detector, vials, with_changes

from mhpatchcore import Detector, UserError
from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox import journal as inbox_journal
from mhpatchcore.deploy.inbox import versions as inbox_versions
from mhpatchcore.deploy.inbox.journal import Change, InboxError, Journal
from mhpatchcore.deploy.inbox.proposals import Request, accept, propose
from mhpatchcore.deploy.inbox.versions import (
    ModelChangedError,
    NotWrittenError,
    changed,
    locked,
    recover,
    sha256_of,
    versions,
)
from mhpatchcore.model.file import to_bytes
from mhpatchcore.model.history import OtherProductError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "part.mhpc"
    small_detector().save(path)
    return path


@pytest.fixture
def inbox(path: Path) -> Inbox:
    return Inbox.beside(path)


def recalibrated(inbox: Inbox, path: Path, rate: float) -> str:
    return accept(inbox, propose(inbox, path, Request("recalibrate", false_alarm=rate, who="Ada")))


def gone_back(inbox: Inbox, path: Path, version: int | None = None) -> str:
    return accept(inbox, propose(inbox, path, Request("undo", version=version, who="Ben"), scored=False))


def states(inbox: Inbox) -> list[str]:
    return [one.state for one in inbox.journal.changes("part") if one.what != "found"]


@contextmanager
def locked_by_another(inbox: Inbox) -> Iterator[None]:
    with closing(sqlite3.connect(inbox.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_versions_are_numbered_and_undo_goes_back_step_by_step(path: Path, inbox: Inbox) -> None:
    hashes = [sha256_of(path), *(recalibrated(inbox, path, rate) for rate in (0.2, 0.3, 0.4))]
    found = versions(inbox.journal, path)
    assert [(one.version, one.sha256) for one in found] == list(zip((4, 3, 2, 1), hashes[::-1], strict=True))
    assert [one.in_use for one in found] == [True, False, False, False]
    assert [one.false_alarm for one in found] == [0.4, 0.3, 0.2, small_detector().config.false_alarm]
    assert (found[1].what, found[3].what, found[1].images) == ("calibrate", "fit", 8)
    assert found[0].until == "" and found[1].until.endswith("Z")
    assert [gone_back(inbox, path) for _ in range(3)] == hashes[2::-1]
    with pytest.raises(
        UserError, match=r"no earlier version of .*part\.mhpc to go back to: version 1 is in use"
    ):
        gone_back(inbox, path)
    assert [one.version for one in versions(inbox.journal, path) if one.in_use] == [1]
    gone_back(inbox, path, 3)
    fifth = recalibrated(inbox, path, 0.45)  # made from the third
    assert versions(inbox.journal, path)[0].version == 5 and sha256_of(path) == fifth
    assert gone_back(inbox, path) == hashes[2] and gone_back(inbox, path, 5) == fifth
    assert {one.sha256 for one in versions(inbox.journal, path)} == {*hashes, fifth}  # nothing is lost
    for wrong, why in ((9, "no version 9"), (5, "version 5 is in use")):
        with pytest.raises(UserError, match=why):
            gone_back(inbox, path, wrong)


def test_a_clock_that_jumps_changes_no_order(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = [sha256_of(path)]
    for rate, year in ((0.2, 30), (0.3, 0), (0.4, 10)):
        now = time.time() + year * 365 * 86400
        monkeypatch.setattr(time, "time", lambda now=now: now)
        monkeypatch.setattr(time, "gmtime", lambda seconds=now, true=time.gmtime: true(seconds))
        hashes.append(recalibrated(inbox, path, rate))
        monkeypatch.undo()
    assert [one.sha256 for one in versions(inbox.journal, path)] == hashes[::-1]
    assert [gone_back(inbox, path) for _ in range(3)] == hashes[2::-1]


def test_what_cannot_be_read_is_no_version(path: Path, inbox: Inbox, tmp_path: Path) -> None:
    hashes = [sha256_of(path), recalibrated(inbox, path, 0.2), recalibrated(inbox, path, 0.3)]
    kept = tmp_path / "versions" / "part"
    (kept / "7-0123456789ab.mhpc").write_bytes(b"torn")
    assert [one.sha256 for one in versions(inbox.journal, path)] == hashes[::-1]
    proposal = propose(inbox, path, Request("undo"), scored=False)
    (file,) = kept.glob("2-*")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="damaged"):
        propose(inbox, path, Request("undo", version=2), scored=False)
    assert accept(inbox, proposal) == hashes[1]  # it was read before that


def test_only_the_first_and_the_newest_versions_are_kept(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_versions, "MOST_KEPT", 2)
    for i in range(5):
        recalibrated(inbox, path, 0.2 + i / 100)
    assert [one.version for one in versions(inbox.journal, path)] == [6, 5, 4, 1]
    gone_back(inbox, path, 4)
    for i in range(3):
        recalibrated(inbox, path, 0.3 + i / 100)
    assert [one.version for one in versions(inbox.journal, path)] == [9, 8, 7, 1]
    assert len(states(inbox)) == 9  # the journal forgets nothing


def test_a_preview_of_going_back_says_what_it_does(path: Path, inbox: Inbox) -> None:
    first = sha256_of(path)
    recalibrated(inbox, path, 0.4)
    preview = propose(inbox, path, Request("undo")).preview
    assert (preview.action, preview.version, preview.model_sha256) == ("undo", 1, sha256_of(path))
    assert preview.threshold_after == small_detector().threshold > (preview.threshold_before or 0)
    assert sha256_of(path) != first


def test_a_model_that_was_replaced_meanwhile_is_not_overwritten(
    path: Path, inbox: Inbox, tmp_path: Path
) -> None:
    proposal = propose(inbox, path, Request("recalibrate", false_alarm=0.2))
    small_detector().calibrated(0.3).save(path)
    before = path.read_bytes()
    with pytest.raises(ModelChangedError, match="changed meanwhile"):
        accept(inbox, proposal)
    assert path.read_bytes() == before and states(inbox) == [] and not (tmp_path / "learnt").exists()


@pytest.mark.parametrize("request_", [Request("recalibrate", false_alarm=0.3), Request("undo")])
def test_a_locked_inbox_leaves_the_old_model(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, request_: Request
) -> None:
    monkeypatch.setattr(inbox_journal, "WAIT", 0.1)
    recalibrated(inbox, path, 0.2)
    before, proposal = path.read_bytes(), propose(inbox, path, request_)
    with locked_by_another(inbox):
        with pytest.raises(InboxError, match="locked"):
            accept(inbox, proposal)
        with pytest.raises(InboxError, match="locked"):
            inbox.add("part", "good", b"x")
    assert path.read_bytes() == before and states(inbox) == ["done"] and inbox.parts() == []
    assert accept(inbox, proposal) == sha256_of(path)  # and now it works
    assert states(inbox) == ["done", "done"]


def test_an_inbox_that_is_locked_after_the_rename_reports_no_failure(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked_out(*_: object) -> None:
        raise InboxError("the database is locked")

    proposal = propose(inbox, path, Request("recalibrate", false_alarm=0.3))
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "end", locked_out)
        assert accept(inbox, proposal) == sha256_of(path)
    assert states(inbox) == ["intended"]
    recover(inbox.journal, path)
    assert states(inbox) == ["done"]


def test_versions_are_listed_where_the_inbox_cannot_be_read(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`inbox undo` lists them after the change: nothing that fails then is a failure of the change."""
    recalibrated(inbox, path, 0.3)
    monkeypatch.setattr(inbox_journal, "WAIT", 0.1)
    inbox.path.rename(inbox.path.with_name("elsewhere"))
    inbox.path.mkdir()
    with pytest.raises(InboxError):
        inbox.journal.changes("part")
    assert [(one.version, one.until) for one in versions(inbox.journal, path)] == [(2, ""), (1, "")]


@pytest.mark.parametrize("outcome", ["done", "not done", "unknown"])
def test_an_intent_is_settled_by_the_file(path: Path, inbox: Inbox, tmp_path: Path, outcome: str) -> None:
    old, new = sha256_of(path), small_detector().calibrated(0.3)
    after = hashlib.sha256(to_bytes(new.model)).hexdigest()
    inbox.journal.intend(Change("part", "recalibrate", "Ada", "", old, after, 8.0, 7.0, ""))
    (tmp_path / ".part.mhpc.0123abcd.mhpc").write_bytes(b"torn")  # what the killed process was writing
    if outcome != "not done":
        (new if outcome == "done" else small_detector().calibrated(0.4)).save(path)
    recover(inbox.journal, path)
    assert states(inbox) == [outcome] and not list(tmp_path.glob(".part*"))


class PowerCut(BaseException):
    """A process ends here."""


@pytest.mark.parametrize("call", ["write_bytes", "replace", "read_bytes", "unlink"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_leaves_the_old_model_or_the_new(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    proposal = propose(inbox, path, Request("recalibrate", false_alarm=0.3))
    old, true, calls = path.read_bytes(), getattr(Path, call), []

    def cut(self: Path, *arguments: object, **more: object) -> object:
        calls.append(self)
        if len(calls) == nth:
            raise PowerCut
        return true(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, cut)
        try:
            accept(inbox, proposal)
        except PowerCut:
            assert path.read_bytes() in (old, proposal.content)
    recover(inbox.journal, path)
    assert states(inbox) in ([], ["not done"]) if path.read_bytes() == old else states(inbox) == ["done"]
    if path.read_bytes() == old:
        accept(inbox, proposal)
    assert_same_model(Detector.load(path), small_detector().calibrated(0.3))
    assert [one.version for one in versions(inbox.journal, path)] == [2, 1]
    assert gone_back(inbox, path) == hashlib.sha256(old).hexdigest()


def test_a_disk_error_is_told_and_nothing_has_happened(
    path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = propose(inbox, path, Request("recalibrate", false_alarm=0.3))
    old = path.read_bytes()

    def full(*_: object) -> None:
        raise UserError("cannot write: no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(inbox_versions, "keep", full)
        with pytest.raises(NotWrittenError, match="no space left"):
            accept(inbox, proposal)
    assert path.read_bytes() == old and states(inbox) == ["not done"]


def test_a_killed_process_leaves_one_of_two_models_and_its_record(path: Path, inbox: Inbox) -> None:
    other = path.with_name("other.mhpc")
    small_detector().calibrated(0.3).save(other)
    known = {sha256_of(path), sha256_of(other)}
    code = (
        "import sys, hashlib; from pathlib import Path; from mhpatchcore.deploy.inbox.versions import changed\n"
        "from mhpatchcore.deploy.inbox import Inbox\n"
        "path, both = Path(sys.argv[1]), [Path(one).read_bytes() for one in sys.argv[2:]]\n"
        "for i in range(10**6):\n"
        "    changed(Inbox.beside(path).journal, path, both[i % 2], 'learn',\n"
        "            instead_of=hashlib.sha256(path.read_bytes()).hexdigest())\n"
        "    print(i, flush=True)"
    )
    original = shutil.copy(path, path.with_name("original.mhpc"))
    for milliseconds in (3, 11, 40):
        command = [sys.executable, "-c", code, str(path), str(other), str(original)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(milliseconds / 1000)
        writer.kill()
        writer.communicate()
        assert hashlib.sha256(path.read_bytes()).hexdigest() in known
        recover(inbox.journal, path)
        done = [one for one in inbox.journal.changes("part") if one.state == "done"]
        assert done[0].sha256_after == sha256_of(path)
        assert all(one.sha256_before == before.sha256_after for one, before in pairwise(done))
    assert {one.sha256 for one in versions(inbox.journal, path)} <= known


def test_one_change_at_a_time(path: Path, inbox: Inbox) -> None:
    code = (
        "import sys; from pathlib import Path; from mhpatchcore.deploy.inbox.versions import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('in', flush=True)"
    )
    with locked(path):
        other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(3)
    assert other.communicate(timeout=30)[0] == "in\n"


def test_a_file_of_another_product_is_not_worked_on(path: Path, inbox: Inbox) -> None:
    with_changes(small_detector(), product="plate").save(path)
    recalibrated(inbox, path, 0.2)
    with_changes(small_detector(), product="bottle").save(path)  # somebody has copied the wrong file
    with pytest.raises(OtherProductError, match=r"is a model of bottle, and was one of plate"):
        recalibrated(inbox, path, 0.3)
    gone_back(inbox, path, 1)  # the way out
    assert Detector.load(path).model.product == "plate"
    recalibrated(inbox, path, 0.3)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_does_leaves_everything_to_the_service(path: Path, inbox: Inbox, tmp_path: Path) -> None:
    line = tmp_path / "line"
    line.mkdir(mode=0o700)
    path = Path(shutil.move(path, line))
    for one in (line, path):
        os.chown(one, 12345, 12346)
    path.chmod(0o640)
    inbox = Inbox.beside(path)
    inbox.add("part", "good", png(vials(20, 1)[0]))
    accept(inbox, propose(inbox, path, Request("learn")))
    gone_back(inbox, path)
    owners = {one: (one.stat().st_uid, one.stat().st_gid) for one in (line, *line.rglob("*"))}
    assert len(owners) >= 9 and set(owners.values()) == {(12345, 12346)}
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_same_model_again_is_no_change(path: Path, inbox: Inbox) -> None:
    content = path.read_bytes()
    assert changed(inbox.journal, path, content, "learn", instead_of=sha256_of(path)) == sha256_of(path)
    assert states(inbox) == []
