"""The inbox: labels and images in SQLite, shared by threads and processes, bounded, and told from other files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mhpatchcore import UserError
from mhpatchcore.deploy import inbox as module
from mhpatchcore.deploy.inbox import Inbox, Said
from mhpatchcore.deploy.inbox.journal import Change


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox.beside(tmp_path / "part.mhpc")


def test_a_part_comes_back_as_it_was_given(inbox: Inbox) -> None:
    said = Said(12.5, 10.0, 0.01, "rejected", "ab" * 32)
    part = inbox.add("part", "good", b"image", "7.png", part="A-7", said=said, who="Ada", note="dust")
    assert inbox.parts() == [part] and inbox.part(part.id) == part and inbox.image(part.id) == b"image"
    assert (part.model, part.label, part.part, part.name, part.bytes) == ("part", "good", "A-7", "7.png", 5)
    assert (part.score, part.threshold, part.p_value, part.verdict) == (12.5, 10.0, 0.01, "rejected")
    assert part.who == "Ada" and part.note == "dust" and part.at.endswith("Z")


def test_the_newest_is_first_and_filters_hold(inbox: Inbox) -> None:
    ids = [
        inbox.add(model, label, f"{i}".encode()).id
        for i, (model, label) in enumerate([("a", "good"), ("a", "defect"), ("b", "good")])
    ]
    assert [one.id for one in inbox.parts()] == ids[::-1]
    assert [one.id for one in inbox.parts("a")] == [ids[1], ids[0]]
    assert [one.id for one in inbox.parts("a", "defect")] == [ids[1]]
    assert [one.id for one in inbox.parts(ids=[ids[0], ids[2]])] == [ids[2], ids[0]]
    with pytest.raises(UserError, match="no part 99"):
        inbox.parts(ids=[99])
    with pytest.raises(UserError, match=f"no part {ids[2]}"):
        inbox.parts("a", ids=[ids[2]])  # it belongs to another model


def test_what_the_caller_calls_a_part_comes_back_as_given(inbox: Inbox) -> None:
    odd = " LOT 7 /12/4\t"
    part = inbox.add("part", "good", b"x", odd, part=odd)
    assert (part.part, part.name) == (odd, odd) and inbox.parts() == [part]
    assert (
        inbox.add("part", "good", b"y", "a\udcff.png").name == r"a\udcff.png"
    )  # a file's name that is no text


def test_every_statement_stays_and_the_newest_counts(inbox: Inbox) -> None:
    first = inbox.add("part", "good", b"x", "1.png", who="Ada", note="dust")
    second = inbox.add("part", "defect", b"x", "again.png", who="Ben")
    other = inbox.add("other", "good", b"x")
    assert second.id == first.id and (second.label, second.who, second.name) == ("defect", "Ben", "again.png")
    assert {one.id for one in inbox.parts()} == {first.id, other.id}
    again = inbox.relabel(first.id, "good", note="looked again")
    assert (again.label, again.who, again.note) == ("good", "", "looked again")  # Ben has not said that
    inbox.withdraw(first.id, who="Cy", note="not ours")
    assert inbox.parts("part") == [] and inbox.image(first.id) == b"x"
    for act in (inbox.withdraw, inbox.relabel):
        with pytest.raises(UserError, match=f"no part {first.id}"):
            act(first.id)
    told = [(one.label, one.who, one.note, one.name) for one in inbox.statements(first.id)]
    assert told == [
        (None, "Cy", "not ours", "again.png"),
        ("good", "", "looked again", "again.png"),
        ("defect", "Ben", "", "again.png"),
        ("good", "Ada", "dust", "1.png"),
    ]
    assert inbox.relabel(first.id, "defect", who="Di").label == "defect"  # it is back
    assert len(inbox.statements(first.id)) == 5 and inbox.statements(other.id)[0].label == "good"
    assert inbox.add("part", "good", b"y").id > other.id  # a number is never given twice


def test_what_is_said_twice_is_written_once(inbox: Inbox) -> None:
    for _ in range(3):  # a key that bounces
        part = inbox.add("part", "good", b"x", "1.png", who="Ada")
    inbox.relabel(part.id, "good", who="Ada")
    assert len(inbox.statements(part.id)) == 1


def test_nothing_in_the_journal_can_be_erased_or_rewritten(inbox: Inbox) -> None:
    inbox.add("part", "good", b"x", who="Ada")
    with sqlite3.connect(inbox.path) as db:
        for statement in ("DELETE FROM journal", "UPDATE journal SET who = 'Ben'"):
            with pytest.raises(sqlite3.IntegrityError, match="the journal stays"):
                db.execute(statement)


def test_withdrawn_images_make_room(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 25)
    first, second = (inbox.add("part", "good", letter * 10) for letter in (b"a", b"b"))
    inbox.withdraw(first.id)
    assert inbox.image(first.id) == b"a" * 10  # there is room
    third = inbox.add("part", "good", b"c" * 10)
    assert [one.id for one in inbox.parts()] == [third.id, second.id]
    for act in (inbox.image, lambda id: inbox.relabel(id, "good")):
        with pytest.raises(UserError, match=f"no part {first.id}"):
            act(first.id)
    assert [one.label for one in inbox.statements(first.id)] == [None, "good"]  # what was said is still known
    with pytest.raises(UserError, match="inbox export"):
        inbox.add("part", "good", b"a" * 10)
    inbox.withdraw(second.id)
    assert inbox.add("part", "defect", b"a" * 10).id == first.id and inbox.image(first.id) == b"a" * 10


def test_what_is_no_label_or_too_large_is_refused(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="good or defect, not 'bad'"):
        inbox.add("part", "bad", b"x")
    with pytest.raises(UserError, match="empty"):
        inbox.add("part", "good", b"")
    with pytest.raises(UserError, match="note has 3000 letters"):
        inbox.add("part", "good", b"x", note="x" * 3000)
    for id, act in ((5, inbox.withdraw), (6, inbox.image), (7, inbox.relabel), (8, inbox.statements)):
        with pytest.raises(UserError, match=f"no part {id}"):
            act(id)
    monkeypatch.setattr(module, "MOST_IMAGE", 10)
    with pytest.raises(UserError, match=r"big\.png has .* save it smaller"):
        inbox.add("part", "good", b"x" * 11, "big.png")
    assert inbox.parts() == []


def test_looking_makes_no_file(inbox: Inbox) -> None:
    assert inbox.parts() == [] and inbox.journal.changes("part") == [] and not inbox.path.exists()


def test_another_file_is_not_taken_for_an_inbox(inbox: Inbox, tmp_path: Path) -> None:
    inbox.path.write_bytes(b"no database at all, but long enough to be looked at" * 50)
    with pytest.raises(UserError, match=r"inbox\.sqlite"):
        inbox.parts()
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE secrets (x)")
    before = foreign.read_bytes()
    with pytest.raises(UserError, match="not an inbox"):
        Inbox(foreign).add("part", "good", b"x")
    assert foreign.read_bytes() == before
    with pytest.raises(UserError, match="cannot use the inbox"):
        Inbox(tmp_path / "none" / "inbox.sqlite").add("part", "good", b"x")


def test_it_is_in_wal_mode_and_threads_share_it(inbox: Inbox) -> None:
    with ThreadPoolExecutor(8) as pool:  # the first ones make the file together
        list(pool.map(lambda i: inbox.add("part", "good", f"{i}".encode()), range(40)))
    assert len(inbox.parts("part")) == 40
    with sqlite3.connect(inbox.path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_killed_writer_leaves_whole_rows(inbox: Inbox) -> None:
    inbox.add("part", "good", b"first")
    code = (
        "import sys; from pathlib import Path; from mhpatchcore.deploy.inbox import Inbox\n"
        "box = Inbox(Path(sys.argv[1]))\n"
        "for i in range(10**6):\n"
        "    box.add('part', 'good', f'{i}'.encode() * 1000, str(i)); print(i, flush=True)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(inbox.path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) == 20:
            writer.kill()
    writer.wait()
    parts = inbox.parts()
    assert len(parts) >= 22  # all that it had told of
    for one in parts[:-1]:
        assert inbox.image(one.id) == one.name.encode() * 1000
    inbox.add("part", "defect", b"after")


def test_changes_are_written_down(inbox: Inbox) -> None:
    journal = inbox.journal
    values = ("lot 7", "a", "b", 8.0, float("inf"), "vial")
    first, _ = (journal.intend(Change("part", "learn", who, *values)) for who in ("Ada", "Ben"))
    journal.end(first, "done")
    ben, ada = journal.changes("part")
    assert (ada.who, ada.state, ben.who, ben.state) == ("Ada", "done", "Ben", "intended")
    assert (ada.threshold_before, ada.threshold_after) == (8.0, None) and ada.at.endswith("Z")
    assert journal.changes("other") == [] and journal.product("part") == "vial"
    inbox.add("part", "good", b"x", who="Cy")
    assert [(one["what"], one["who"]) for one in journal.entries("part")] == [
        ("label", "Cy"),
        ("learn", "Ben"),
        ("learn", "Ada"),
    ]


def test_a_model_that_is_found_is_written_down_once(inbox: Inbox) -> None:
    journal = inbox.journal
    for sha256 in ("a", "a", "b"):
        journal.found("part", sha256, 8.0, "vial")
    intent = journal.intend(Change("part", "learn", "Ada", "", "b", "c", 9.0, 9.5, "vial"))
    for sha256 in ("b", "c"):  # which of them it is, only the intent's end will say
        journal.found("part", sha256, 9.0, "vial")
    journal.end(intent, "done")
    told = [(one.what, one.sha256_before, one.sha256_after) for one in journal.changes("part")]
    assert told == [("learn", "b", "c"), ("found", "a", "b"), ("found", "", "a")]
    assert journal.was_accepted("part", "c") and not journal.was_accepted("part", "b")
