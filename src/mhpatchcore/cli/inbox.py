"""`mhpatchcore inbox COMMAND part.mhpc`: labelled parts, what can be learnt from them, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, labelled, printable, warn
from mhpatchcore.cli.facts import by, when
from mhpatchcore.cli.paths import given_images
from mhpatchcore.deploy.inbox import Inbox, Part, Said
from mhpatchcore.deploy.inbox.journal import Change
from mhpatchcore.deploy.inbox.proposals import Effect, Preview, Request, accept, loaded, propose, write_image
from mhpatchcore.deploy.inbox.versions import Version, recover, versions
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.model.file import check_file
from mhpatchcore.runtime.files import write_csv
from mhpatchcore.runtime.system import account_name

EXPORTED = (
    *("id", "file", "label", "part", "name", "score", "threshold", "verdict", "who", "at", "note"),
    *("sha256", "model_sha256"),
)
Label = Annotated[str, options.argument("good or defect.")]
Ids = Annotated[list[int] | None, options.shared("A labelled part; may be repeated.", "--id", metavar="ID")]
Instead = Annotated[bool, options.shared("Their scores replace those that the model has.", "--instead")]
Name = Annotated[str, options.shared("What the defects are called (default: the notes of their labels).")]
VERSION = "A version that `inbox versions` shows (default: one step back)."


@dataclass(frozen=True)
class Box:
    """A model and the inbox of its parts."""

    model: Path = options.argument("A model file; the inbox lies beside it.")
    inbox: Path | None = options.file("The inbox (default: inbox.sqlite beside the model).")

    def open(self) -> Inbox:
        check_file(self.model)
        return Inbox(self.inbox) if self.inbox else Inbox.beside(self.model)


@dataclass(frozen=True)
class Signed:
    """Who says or does something, and why."""

    who: str | None = options.option("Who says so (default: the name of the account).", metavar="NAME")
    note: str | None = options.option("Why.", metavar="TEXT")

    @property
    def facts(self) -> dict[str, Any]:
        who = account_name() if self.who is None else self.who
        return {"who": who, "note": self.note or ""}


@command()
def list_(box: Box, label: str = options.option("Only good, or only defect.", metavar="LABEL")) -> Answer:
    """Show the labelled parts, the newest first."""
    _, detector = loaded(box.model)
    parts, learnt = box.open().parts(box.model.stem, label), set(detector.model.hashes)
    facts = [asdict(one) | {"learnt": one.sha256 in learnt} for one in parts]
    good = sum(one.label == "good" for one in parts)
    lines = [_part_line(one, one.sha256 in learnt) for one in parts]
    return Answer(facts, [*lines, f"{counted(good, 'good part')}, {counted(len(parts) - good, 'defect')}"])


@command()
def add(
    box: Box,
    label: Label,
    images: list[Path] = options.argument("Images: files, folders, or - for a list on standard input."),
    part: str = options.option("What the line calls the part.", default="", metavar="ID"),
    *,
    signed: Signed,
) -> Answer:
    """Score images and keep them with their label.

    Example: mhpatchcore inbox add part.mhpc good rejected/0042.png --note "only dust"
    """
    sha256, detector = loaded(box.model)
    inbox, added = box.open(), []
    for image in list_images(given_images(images)):
        if not isinstance(image, str | Path) or not Path(image).is_file():
            raise UserError(f"{image} is not a file of its own: the inbox keeps files; export it first")
        result = detector.score(image)
        said = Said(result.score, result.threshold, result.p_value, result.verdict, sha256)
        content, name = Path(image).read_bytes(), Path(image).name
        added.append(inbox.add(box.model.stem, label, content, name, part=part, said=said, **signed.facts))
    lines = [_part_line(one, one.sha256 in detector.model.hashes) for one in added]
    return Answer([asdict(one) for one in added], lines)


@command()
def label(
    box: Box,
    id: Annotated[int, options.argument("The part, as `inbox list` numbers it.")],
    label: Label,
    *,
    signed: Signed,
) -> Answer:
    """Correct a label. A note stays unless another is given."""
    part = box.open().relabel(id, label, who=signed.facts["who"], note=signed.note)
    return Answer(asdict(part), [_part_line(part)])


@command()
def remove(
    box: Box,
    ids: list[int] = options.argument("Parts, as `inbox list` numbers them."),
    *,
    signed: Signed,
) -> Answer:
    """Withdraw labels: the parts count no more, and their images go when the room is needed. `label` brings them back.

    Models that have learnt from them stay as they are.
    """
    inbox = box.open()
    parts = inbox.parts(box.model.stem, ids=ids)
    for one in parts:
        inbox.withdraw(one.id, **signed.facts)
    return Answer([asdict(one) for one in parts], [f"withdrawn: {counted(len(parts), 'part')}"])


@command()
def export(
    box: Box,
    output: Path = options.out("A folder: good/, defect/ and labels.csv.", "labelled/"),
) -> Answer:
    """Write all labelled images into a folder, as `fit`, `evaluate` and `calibrate` take them."""
    inbox, rows = box.open(), []
    for one in reversed(inbox.parts(box.model.stem)):
        file = write_image(inbox, one, output / one.label)
        rows.append(asdict(one) | {"file": file.relative_to(output).as_posix()})
    write_csv(output / "labels.csv", EXPORTED, rows)
    return Answer(rows, [f"{output}: {counted(len(rows), 'image')} and labels.csv"])


@command()
def journal(box: Box) -> Answer:
    """Show everything that was said of parts and done to the model, the latest first: who, when, why."""
    entries = box.open().journal.entries(box.model.stem)
    return Answer(entries, map(_journal_line, entries))


@command("workers")
def preview(
    action: Annotated[str, options.argument("learn, teach, recalibrate or undo.")],
    box: Box,
    ids: Ids = None,
    false_alarm: options.FalseAlarm = None,
    instead: Instead = False,
    name: Name = "",
    version: int = options.option(VERSION, metavar="N"),
    *,
    run: Run,
) -> Answer:
    """Show what `learn`, `teach`, `recalibrate` or `undo` would do to every labelled part. Nothing is written.

    Example: mhpatchcore inbox preview learn part.mhpc
    """
    more = {"false_alarm": false_alarm, "instead": instead, "name": name, "version": version}
    return _changed(box, run, action, ids, write=False, **more)


@command("workers")
def learn(box: Box, ids: Ids = None, *, signed: Signed, run: Run) -> Answer:
    """Learn good parts of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox learn part.mhpc --id 3 --id 7
    """
    return _changed(box, run, "learn", ids, **signed.facts)


@command("workers")
def teach(box: Box, ids: Ids = None, name: Name = "", *, signed: Signed, run: Run) -> Answer:
    """Teach defects of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox teach part.mhpc --name scratch --id 4
    """
    return _changed(box, run, "teach", ids, name=name, **signed.facts)


@command("workers")
def recalibrate(
    box: Box,
    ids: Ids = None,
    false_alarm: options.FalseAlarm = None,
    instead: Instead = False,
    *,
    signed: Signed,
    run: Run,
) -> Answer:
    """Set the threshold at another rate, or with the scores of good parts of the inbox. The former model is kept.

    Example: mhpatchcore inbox recalibrate part.mhpc --false-alarm 0.5%
    """
    return _changed(box, run, "recalibrate", ids, false_alarm=false_alarm, instead=instead, **signed.facts)


def _changed(
    box: Box, run: Run, action: Any, ids: Sequence[int] | None, write: bool = True, **more: Any
) -> Answer:
    """Propose a change, show it, and put it into use if that was asked for."""
    inbox, model = box.open(), box.model
    proposal = propose(inbox, model, Request(action, tuple(ids) if ids else None, **more), run.execution)
    for message in proposal.preview.warnings:
        warn(message)
    sha256 = accept(inbox, proposal) if write else None
    done = f"{model} is written; `mhpatchcore inbox undo {model}` takes it back"
    if not write:
        done = f"not written; `mhpatchcore inbox {action} {model}` does it"
    facts = asdict(proposal.preview) | {"model": str(model), "written": write, "sha256": sha256}
    return Answer(facts, [*_preview_lines(proposal.preview), done])


@command()
def versions_(box: Box) -> Answer:
    """Show the model in use, the earlier ones, and who changed it when."""
    journal = box.open().journal
    recover(journal, box.model)
    found, changes = versions(journal, box.model), journal.changes(box.model.stem)
    facts = {"versions": [asdict(one) for one in found], "changes": [asdict(one) for one in changes]}
    return Answer(facts, [*map(_version_line, found), *map(_change_line, changes)])


@command()
def undo(box: Box, version: int = options.argument(VERSION, None), *, signed: Signed) -> Answer:
    """Go back to an earlier model, byte for byte. The present one is kept.

    Without a version it is one step: to the model that the present one was made from.
    """
    inbox = box.open()
    accept(inbox, propose(inbox, box.model, Request("undo", version=version, **signed.facts), scored=False))
    chosen = next(one for one in versions(inbox.journal, box.model) if one.in_use)
    images, at = counted(chosen.images, "image"), when(chosen.when)
    line = f"{box.model} is version {chosen.version} again: {images}, {chosen.what} {at}"
    return Answer(asdict(chosen) | {"model": str(box.model)}, [line])


def _preview_lines(preview: Preview) -> Iterator[str]:
    yield from map(_effect_line, preview.effects)
    good, defects = preview.good, preview.defects
    gone = [one for one in preview.effects if one.id in preview.lost]
    lost = (f"{one.name} ({one.id}) would no longer be caught" for one in gone)
    yield from labelled(
        ("learns", counted(preview.new_images, "good part") if preview.action == "learn" else ""),
        ("goes back", "" if preview.version is None else f"to version {preview.version}"),
        (
            "threshold",
            f"{preview.threshold_before:.4g} → {preview.threshold_after:.4g}, "
            f"about {preview.rate_before:.2%} → {preview.rate_after:.2%} of good parts exceed it",
        ),
        ("good parts", f"{good.right_before} → {good.right_after} of {good.parts} pass"),
        (
            "defects",
            [f"{defects.right_before} → {defects.right_after} of {defects.parts} are caught", *lost],
        ),
    )


def _effect_line(effect: Effect) -> str:
    moved = "" if effect.before.verdict == effect.after.verdict else "  *"
    learnt = ", learnt" if effect.learnt else ""
    return (
        f"{effect.id:5}  {effect.label:7} {effect.before.score:8.4g} {effect.before.verdict:10} → "
        f"{effect.after.score:8.4g} {effect.after.verdict}{learnt}{moved}  {printable(effect.name)}"
    )


def _version_line(one: Version) -> str:
    mark = "in use" if one.in_use else f"until {when(one.until)}" if one.until else ""
    return (
        f"{one.version:5}  {mark:22}  {counted(one.images, 'image')}, rate {one.false_alarm:.2%}, "
        f"{one.what} {when(one.when)}{by(one.who, one.note)}"
    )


def _change_line(change: Change) -> str:
    which = f"{change.sha256_before[:12]} → {change.sha256_after[:12]}"
    state = "" if change.state == "done" else f", {change.state}"
    return f"  {when(change.at)}  {change.what}: {which}{state}{by(change.who, change.note)}"


def _part_line(part: Part, learnt: bool = False) -> str:
    score = "" if part.score is None else f"{part.score:.4g}, "
    facts = f"{score}{part.verdict}{', learnt' if learnt else ''}"
    return f"{part.id:5}  {part.label:7} {printable(part.name)}  ({facts})  {when(part.at)}{by(part.who, part.note)}"


def _journal_line(entry: dict[str, Any]) -> str:
    if "part_id" in entry:
        what = f"{entry.get('label', 'withdrawn'):9} part {entry['part_id']} {printable(entry['name'])}"
    else:
        limits = [entry.get(f"threshold_{side}") for side in ("before", "after")]
        shown = " → ".join("none" if one is None else f"{one:.4g}" for one in limits)
        before, after = entry["sha256_before"][:12] or "nothing", entry["sha256_after"][:12]
        what = f"{entry['what']:9} {before} → {after}, threshold {shown}"
    state = "" if entry["state"] == "done" else f", {entry['state']}"
    return f"{entry['id']:5}  {when(entry['at'])}  {what}{state}{by(entry['who'], entry['note'])}"
