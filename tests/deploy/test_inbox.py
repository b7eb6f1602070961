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
from mhpatchcore.deploy.inbox import Inbox, Said, changed


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox.beside(tmp_path / "part.mhpc")


def test_a_part_comes_back_as_it_was_given(inbox: Inbox) -> None:
    said = Said(12.5, 10.0, 0.01, "rejected", "ab" * 32)
    part = inbox.add("part", "good", b"image", "7.png", part="A-7", said=said, who="Ada", note="dust")
    assert inbox.parts() == [part] and inbox.part(part.id) == part and inbox.image(part.id) == b"image"
    assert (part.model, part.label, part.part, part.name, part.bytes) == ("part", "good", "A-7", "7.png", 5)
    assert (part.score, part.threshold, part.p_value, part.verdict) == (12.5, 10.0, 0.01, "rejected")
    assert part.was_rejected and part.who == "Ada" and part.note == "dust" and part.at.endswith("Z")


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


def test_a_second_label_takes_the_place_of_the_first(inbox: Inbox) -> None:
    first = inbox.add("part", "good", b"x", "1.png", who="Ada")
    second = inbox.add("part", "defect", b"x", "1.png", who="Ben")
    other = inbox.add("other", "good", b"x")
    assert second.id == first.id and (second.label, second.who) == ("defect", "Ben")
    assert {one.id for one in inbox.parts()} == {first.id, other.id}
    again = inbox.relabel(first.id, "good", note="looked again")
    assert (again.label, again.who, again.note) == ("good", "Ben", "looked again")
    inbox.remove(first.id)
    assert inbox.parts("part") == []
    assert inbox.add("part", "good", b"y").id > other.id  # a number is never given twice


def test_what_is_no_label_or_too_large_is_refused(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="good or defect, not 'bad'"):
        inbox.add("part", "bad", b"x")
    with pytest.raises(UserError, match="empty"):
        inbox.add("part", "good", b"")
    with pytest.raises(UserError, match="note has 3000 letters"):
        inbox.add("part", "good", b"x", note="x" * 3000)
    for id, act in ((5, inbox.remove), (6, inbox.image), (7, inbox.relabel)):
        with pytest.raises(UserError, match=f"no part {id}"):
            act(id)
    monkeypatch.setattr(module, "MOST_IMAGE", 10)
    with pytest.raises(UserError, match=r"big\.png has .* save it smaller"):
        inbox.add("part", "good", b"x" * 11, "big.png")
    monkeypatch.setattr(module, "MOST_BYTES", 15)
    inbox.add("part", "good", b"x" * 10)
    with pytest.raises(UserError, match="inbox export"):
        inbox.add("part", "good", b"y" * 10)
    assert len(inbox.parts()) == 1


def test_looking_makes_no_file(inbox: Inbox) -> None:
    assert inbox.parts() == [] and inbox.changes("part") == [] and not inbox.path.exists()


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
    for who in ("Ada", "Ben"):
        inbox.record(changed("part", "learn", who, "", "a", "b"))
    assert [one.who for one in inbox.changes("part")] == ["Ben", "Ada"] and inbox.changes("other") == []
