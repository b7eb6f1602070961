"""Labels become a better model: proposed, looked at, accepted, taken back. Small models, real images."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from services import png
from small_detector import PIXELS, small_detector, vials

from mhpatchcore import Detector, UserError
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.deploy.inbox import Inbox, Said
from mhpatchcore.deploy.inbox.jobs import MOST_READY, Jobs, NoSuchJobError
from mhpatchcore.deploy.inbox.proposals import Counts, Proposal, Request, accept, propose
from mhpatchcore.deploy.inbox.versions import ModelChangedError, sha256_of, versions
from mhpatchcore.inputs.sources import content_hash
from mhpatchcore.model.file import from_bytes


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


def proposed(proposal: Proposal) -> Detector:
    return Detector(from_bytes(proposal.content))


def test_learning_is_an_update_with_returned_parts(path: Path, inbox: Inbox, tmp_path: Path) -> None:
    before = path.read_bytes()
    proposal = propose(inbox, path, Request("learn", who="Ada", note="new supplier"))
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == []
    assert proposal.preview.new_images == 3 and {one.id for one in proposal.preview.effects} == {1, 2, 3, 4}
    assert {one.id for one in proposal.preview.effects if one.learnt} == {1, 2, 3}
    assert proposal.preview.defects == Counts(1, 1, 1) and proposal.preview.lost == []
    assert proposal.preview.good.parts == 3 == proposal.preview.good.right_after  # learnt, so they pass
    detector = proposed(proposal)
    events = detector.history[1:]
    assert [(one.what, one.images, one.who, one.note) for one in events] == [
        ("update", 1, "Ada", "new supplier"),
        ("update", 2, "Ada", "new supplier"),
    ]
    by_hand = small_detector().updated(vials(22, 1)).updated(vials(20, 2), returned=True)
    ours, theirs = detector.calibration, by_hand.calibration
    assert ours.n == theirs.n and ours.threshold == pytest.approx(theirs.threshold)

    sha256 = accept(inbox, proposal)
    assert sha256 == sha256_of(path) and Detector.load(path).history == detector.history
    learnt = tmp_path / "learnt" / "part"
    assert sorted(content_hash(file) for file in learnt.iterdir()) == sorted(
        one.sha256 for one in inbox.parts(label="good")
    )
    assert {one.source for one in events} == {str(learnt)}
    change, found = inbox.journal.changes("part")
    assert (change.what, change.state, change.who, change.note) == ("learn", "done", "Ada", "new supplier")
    assert (change.sha256_before, change.sha256_after) == (proposal.preview.model_sha256, sha256)
    assert (change.threshold_before, change.threshold_after) == (
        proposal.preview.threshold_before,
        proposal.preview.threshold_after,
    )
    assert (found.what, found.sha256_after) == ("found", proposal.preview.model_sha256)
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
    shown = only_rate.preview
    assert shown.new_images == 0 and shown.threshold_before is not None and shown.threshold_after is not None
    assert shown.threshold_after < shown.threshold_before
    assert proposed(only_rate).calibration.n == small_detector().calibration.n
    added = propose(inbox, path, Request("recalibrate", (1, 3)))
    assert proposed(added).calibration.n == small_detector().calibration.n + 2
    alone = propose(inbox, path, Request("recalibrate", (1, 3), instead=True))
    assert proposed(alone).calibration.n == 2 and alone.preview.rate_after == pytest.approx(1 / 3)
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
    assert id in propose(inbox, path, Request("recalibrate", (good,), false_alarm=0.05)).preview.lost


def test_defects_are_never_learnt(path: Path, inbox: Inbox) -> None:
    for action in ("learn", "recalibrate"):
        with pytest.raises(UserError, match="part 4 is a defect"):
            propose(inbox, path, Request(action, (1, 4)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="learn or teach or recalibrate"):
        Request("forget")  # type: ignore[arg-type]


def test_teaching_names_defects_once(path: Path, inbox: Inbox, tmp_path: Path) -> None:
    proposal = propose(inbox, path, Request("teach", name="noise", who="Ada"))
    assert proposal.preview.new_images == 1 and proposal.preview.defects.right_after == 1
    accept(inbox, proposal)
    taught = Detector.load(path)
    assert taught.model.defects is not None and set(taught.model.defects.names) == {"noise"}
    assert (taught.history[-1].what, taught.history[-1].who) == ("teach", "Ada")
    assert not (tmp_path / "learnt").exists()  # what is kept of good parts is not for defects
    with pytest.raises(UserError, match="knows all of these defects already"):
        propose(inbox, path, Request("teach", name="noise"))
    with pytest.raises(UserError, match="part 1 is a good part"):
        propose(inbox, path, Request("teach", (1,)))


def test_a_defect_is_called_what_its_label_says(path: Path, inbox: Inbox) -> None:
    again = np.random.default_rng(1).integers(0, 256, (PIXELS, PIXELS, 3)).astype(np.uint8)
    inbox.add("part", "defect", png(again), "again.png", note="hail")
    taught = proposed(propose(inbox, path, Request("teach")))
    assert taught.model.defects is not None and set(taught.model.defects.names) == {"defect", "hail"}


def test_a_part_far_above_the_threshold_is_not_learnt_without_a_word(path: Path, inbox: Inbox) -> None:
    rusty = png(np.rot90(255 - vials(23, 1)[0]))
    id = inbox.add("part", "good", rusty, "23.png", part="LOT 7 /12/4").id
    preview = propose(inbox, path, Request("learn")).preview
    (effect,) = (one for one in preview.effects if one.id == id)
    assert effect.before.score > 1.5 * (preview.threshold_before or 0)
    assert preview.outliers == [id] and "LOT 7 /12/4 scores far above" in preview.warnings[-1]
    left_out = propose(inbox, path, Request("learn", (1, 2, 3))).preview
    assert not left_out.outliers and not left_out.warnings
    assert propose(inbox, path, Request("recalibrate", (id,))).preview.outliers == []  # it is not learnt


def wait_for(jobs: Jobs, id: str, *states: str) -> None:
    end = time.monotonic() + 60
    while jobs.job(id).state not in states:
        assert time.monotonic() < end and not jobs.job(id).error, jobs.job(id)
        time.sleep(0.01)


def test_a_job_tells_how_far_it_is_and_waits_for_a_yes(path: Path, inbox: Inbox) -> None:
    jobs = Jobs(inbox)
    before = sha256_of(path)
    try:
        job = jobs.start(path, Request("learn", who="Ada"))
        with pytest.raises(UserError, match="only one that is ready"):
            jobs.accept(job.id)
        wait_for(jobs, job.id, "ready")
        assert job.preview is not None and job.preview.new_images == 3 and job.progress["done"] == 4
        assert sha256_of(path) == before
        assert jobs.accept(job.id).sha256 == sha256_of(path) != before
        assert jobs.accept(job.id).state == "accepted"  # asked twice, done once
        assert [one.what for one in inbox.journal.changes("part")] == ["learn", "found"]
        failing = jobs.start(path, Request("learn", (4,)))
        while failing.state != "failed":
            time.sleep(0.01)
        assert "part 4 is a defect" in (failing.error or "")
        with pytest.raises(NoSuchJobError, match="no job x"):
            jobs.job("x")
    finally:
        jobs.close()


def test_previews_of_two_people_do_not_disturb_each_other(path: Path, inbox: Inbox) -> None:
    jobs = Jobs(inbox)
    try:
        first = jobs.start(path, Request("learn", who="Ada"))
        second = jobs.start(path, Request("recalibrate", false_alarm=0.2, who="Ben"))
        wait_for(jobs, second.id, "ready")
        assert first.state == "ready" and first.preview is not None
        assert jobs.accept(second.id).state == "accepted"
        with pytest.raises(ModelChangedError, match="changed meanwhile"):
            jobs.accept(first.id)
        assert jobs.discard(first.id).state == "discarded" and first.id not in jobs._proposals
        assert first.preview is not None  # what was shown can still be shown
        with pytest.raises(UserError, match="is discarded"):
            jobs.accept(first.id)
        every = [jobs.start(path, Request("recalibrate", false_alarm=0.3)) for _ in range(MOST_READY + 1)]
        wait_for(jobs, every[-1].id, "ready")
        assert [one.state for one in every] == ["discarded"] + ["ready"] * MOST_READY
        with pytest.raises(UserError, match="newer previews have taken its room"):
            jobs.accept(every[0].id)
    finally:
        jobs.close()


def test_a_discarded_job_stops(path: Path, inbox: Inbox) -> None:
    jobs = Jobs(inbox)
    try:
        job = jobs.start(path, Request("learn"))
        assert jobs.discard(job.id).state == "discarded"
    finally:
        jobs.close()
    assert job.preview is None and len(versions(inbox.journal, path)) == 1
