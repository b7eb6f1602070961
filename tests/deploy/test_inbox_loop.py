"""Labels become a better model: proposed, looked at, accepted, taken back. Small models, real images."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model
from small_detector import PIXELS, small_detector, vials

from mhpatchcore import Detector, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.deploy.inbox import Inbox, Said
from mhpatchcore.deploy.inbox_jobs import Jobs, NoSuchJobError
from mhpatchcore.deploy.inbox_loop import LEARNT, Request, accept, propose
from mhpatchcore.deploy.inbox_versions import ModelChangedError, replaced, sha256_of, undone, versions
from mhpatchcore.inputs.sources import content_hash


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "part.mhpc"
    small_detector().save(path)
    return path


@pytest.fixture
def inbox(path: Path) -> Inbox:
    """Two good parts that were rejected, one that passed, and a coarse defect."""
    inbox = Inbox.beside(path)
    for seed, verdict in ((20, "rejected"), (21, "rejected"), (22, "passed")):
        said = Said(9.0, 8.0, 0.1, verdict, sha256_of(path))
        inbox.add("part", "good", png(vials(seed, 1)[0]), f"{seed}.png", said=said, who="Ada")
    noise = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    inbox.add("part", "defect", png(noise), "noise.png")
    return inbox


def test_learning_is_an_update_with_returned_parts(path: Path, inbox: Inbox, tmp_path: Path) -> None:
    before = path.read_bytes()
    proposal = propose(inbox, path, Request("learn", who="Ada", note="new supplier"))
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == []
    preview = proposal.preview
    assert preview.new_images == 3 and {one.id for one in preview.effects} == {1, 2, 3, 4}
    assert {one.id for one in preview.effects if one.learnt} == {1, 2, 3}
    told = preview.to_json()
    assert told["defects"] == {"parts": 1, "right_before": 1, "right_after": 1} and told["lost"] == []
    assert told["good"]["parts"] == 3 and told["good"]["right_after"] == 3  # learnt, so they pass
    events = proposal.detector.history[1:]
    assert [(one.what, one.images, one.who, one.note) for one in events] == [
        ("update", 1, "Ada", "new supplier"),
        ("update", 2, "Ada", "new supplier"),
    ]
    by_hand = small_detector().updated(vials(22, 1)).updated(vials(20, 2), returned=True)
    ours, theirs = proposal.detector.calibration, by_hand.calibration
    assert ours.n == theirs.n and ours.threshold == pytest.approx(theirs.threshold)

    sha256 = accept(inbox, proposal)
    assert sha256 == sha256_of(path) and Detector.load(path).history == proposal.detector.history
    learnt = tmp_path / LEARNT / "part"
    assert sorted(content_hash(file) for file in learnt.iterdir()) == sorted(
        one.sha256 for one in inbox.parts(label="good")
    )
    assert {one.source for one in events} == {str(learnt)}
    (change,) = inbox.changes("part")
    assert (change.what, change.who, change.sha256_after) == ("learn", "Ada", sha256)
    with pytest.raises(UserError, match="no good parts"):
        propose(inbox, path, Request("learn"))
    with pytest.raises(UserError, match="part 1 already"):
        propose(inbox, path, Request("learn", (1,)))


def test_evidence_finds_what_was_learnt_from_the_inbox(path: Path, inbox: Inbox) -> None:
    accept(inbox, propose(inbox, path, Request("learn", (3,))))
    grown = Detector.load(path)
    image = vials(22, 1)[0]
    patches = [patch for place in grown.explain(image).places for patch in place.nearest]
    assert any(patch.image and patch.image.startswith("22-") and patch.file for patch in patches)


def test_recalibrating_by_rate_and_with_parts(path: Path, inbox: Inbox) -> None:
    only_rate = propose(inbox, path, Request("recalibrate", false_alarm=0.5))
    assert only_rate.preview.new_images == 0
    assert only_rate.preview.threshold_after < only_rate.preview.threshold_before
    assert only_rate.detector.calibration.n == small_detector().calibration.n
    added = propose(inbox, path, Request("recalibrate", (1, 3)))
    assert added.detector.calibration.n == small_detector().calibration.n + 2
    alone = propose(inbox, path, Request("recalibrate", (1, 3), instead=True))
    assert alone.detector.calibration.n == 2 and alone.preview.rate_after == pytest.approx(1 / 3)
    accept(inbox, only_rate)
    assert Detector.load(path).config.false_alarm == 0.5
    with pytest.raises(ModelChangedError, match=r"part\.mhpc has changed meanwhile"):
        accept(inbox, added)  # it was made from another model
    assert Detector.load(path).config.false_alarm == 0.5


def test_a_defect_that_would_be_lost_is_named(path: Path, inbox: Inbox) -> None:
    faint = png(vial_image(60, "scratch", PIXELS)[0])
    detector = small_detector()
    score = detector.score(vial_image(60, "scratch", PIXELS)[0]).score
    strict = next(rate for rate in (0.9, 0.7, 0.5, 0.3) if detector.calibrated(rate).threshold < score)
    detector.calibrated(strict).save(path)
    id = inbox.add("part", "defect", faint, "faint.png").id
    good = inbox.add("part", "good", png(np.rot90(255 - vials(23, 1)[0])), "odd.png").id
    preview = propose(inbox, path, Request("recalibrate", (good,), false_alarm=0.05)).preview
    assert preview.lost and id in {one.id for one in preview.lost}
    assert preview.to_json()["lost"] == [one.id for one in preview.lost]


def test_defects_are_never_learnt(path: Path, inbox: Inbox) -> None:
    for action in ("learn", "recalibrate"):
        with pytest.raises(UserError, match="part 4 is a defect"):
            propose(inbox, path, Request(action, (1, 4)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="learn or recalibrate"):
        Request("forget")  # type: ignore[arg-type]


def test_every_model_is_kept_and_any_comes_back(path: Path, tmp_path: Path) -> None:
    first, hashes = small_detector(), [sha256_of(path)]
    with pytest.raises(UserError, match="no earlier version"):
        undone(path)
    hashes += [replaced(path, first.calibrated(rate)) for rate in (0.2, 0.3, 0.4)]
    found = versions(path)
    assert [one.sha256 for one in found] == hashes[::-1] and found[0].in_use and not found[1].in_use
    assert [one.false_alarm for one in found] == [0.4, 0.3, 0.2, 0.01]
    assert (found[1].what, found[3].what, found[1].images) == ("calibrate", "fit", 8)
    assert undone(path, hashes[0][:12]).sha256 == hashes[0] == sha256_of(path)
    assert {one.sha256 for one in versions(path)} == set(hashes)  # nothing is lost by going back
    assert undone(path).sha256 == hashes[3] == sha256_of(path)  # what was in use before that
    with pytest.raises(UserError, match="no version 0000"):
        undone(path, "0000")
    for torn in (".2026.mhpc", "2026-11-17T08-30-00.123456Z-0000.mhpc"):  # what a crash or a disk has left
        (tmp_path / "versions" / "part" / torn).write_bytes(b"torn")
    assert {one.sha256 for one in versions(path)} == set(hashes)


@pytest.mark.parametrize("call", ["write_bytes", "replace", "read_bytes"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_leaves_the_old_model_or_the_new(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    class PowerCut(BaseException):
        pass

    old, new = path.read_bytes(), small_detector().calibrated(0.3)
    true, calls = getattr(Path, call), []

    def cut(self: Path, *arguments: object) -> object:
        calls.append(self)
        if len(calls) == nth:
            raise PowerCut
        return true(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, cut)
        try:
            replaced(path, new)
        except PowerCut:
            assert path.read_bytes() == old
    replaced(path, new)
    assert_same_model(Detector.load(path), new)
    (former,) = {one.sha256 for one in versions(path) if not one.in_use}
    assert former == hashlib.sha256(old).hexdigest()


def test_a_killed_process_leaves_one_of_two_models(path: Path) -> None:
    other = path.with_name("other.mhpc")
    small_detector().calibrated(0.3).save(other)
    known = {sha256_of(path), sha256_of(other)}
    code = (
        "import sys; from pathlib import Path; from mhpatchcore import Detector\n"
        "from mhpatchcore.deploy.inbox_versions import replaced\n"
        "path, both = Path(sys.argv[1]), [Detector.load(one) for one in sys.argv[2:]]\n"
        "for i in range(10**6):\n"
        "    replaced(path, both[i % 2]); print(i, flush=True)"
    )
    original = shutil.copy(path, path.with_name("original.mhpc"))
    for milliseconds in (3, 11):
        command = [sys.executable, "-c", code, str(path), str(other), str(original)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(milliseconds / 1000)
        writer.kill()
        writer.communicate()
        assert hashlib.sha256(path.read_bytes()).hexdigest() in known
    assert {one.sha256 for one in versions(path)} <= known
    undone(path)  # and it goes on


def wait_for(jobs: Jobs, id: str, *states: str) -> None:
    end = time.monotonic() + 60
    while jobs.job(id).state not in states:
        assert time.monotonic() < end and jobs.job(id).error == "", jobs.job(id)
        time.sleep(0.01)


def test_a_job_tells_how_far_it_is_and_waits_for_a_yes(path: Path, inbox: Inbox) -> None:
    jobs = Jobs(inbox)
    before = sha256_of(path)
    try:
        job = jobs.start(path, Request("learn", who="Ada"))
        with pytest.raises(UserError, match="only one that is ready"):
            jobs.accept(job.id)
        wait_for(jobs, job.id, "ready")
        told = job.to_json()
        assert told["preview"]["new_images"] == 3 and told["progress"]["done"] == 4
        assert sha256_of(path) == before
        assert jobs.accept(job.id).sha256 == sha256_of(path) != before
        assert jobs.accept(job.id).state == "accepted"  # asked twice, done once
        assert len(inbox.changes("part")) == 1
        failing = jobs.start(path, Request("learn", (4,)))
        while failing.state != "failed":
            time.sleep(0.01)
        assert "part 4 is a defect" in failing.error
        with pytest.raises(NoSuchJobError, match="no job x"):
            jobs.job("x")
    finally:
        jobs.close()


def test_a_discarded_job_stops_and_a_newer_one_takes_its_place(path: Path, inbox: Inbox) -> None:
    jobs = Jobs(inbox)
    try:
        first = jobs.start(path, Request("learn"))
        second = jobs.start(path, Request("recalibrate", false_alarm=0.2))
        assert first.state == "discarded"
        wait_for(jobs, second.id, "ready")
        assert jobs.discard(second.id).state == "discarded" and second.proposal is None
        with pytest.raises(UserError, match="is discarded"):
            jobs.accept(second.id)
        assert first.preview is None
    finally:
        jobs.close()
    assert len(versions(path)) == 1
