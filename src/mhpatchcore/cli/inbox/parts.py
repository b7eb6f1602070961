"""`mhpatchcore inbox list|add|label|remove|export|journal`: labelled parts, and what was said of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.inbox.lines import Label, Model, Note, Place, Who, inbox_of, journal_line, line, who_says
from mhpatchcore.cli.paths import check_folder, given_images
from mhpatchcore.deploy.inbox import Said
from mhpatchcore.deploy.inbox.proposals import file_name, loaded
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.runtime.files import atomic_path, write_csv

EXPORTED = (
    *("id", "file", "label", "part", "name", "score", "threshold", "verdict", "who", "at", "note"),
    *("sha256", "model_sha256"),
)


@command()
def list_(
    model: Model,
    label: str = typer.Option(None, metavar="LABEL", help="Only good, or only defect."),
    inbox: Place = None,
) -> Answer:
    """Show the labelled parts, the newest first."""
    _, detector = loaded(model)
    parts, learnt = inbox_of(model, inbox).parts(model.stem, label), set(detector.model.hashes)
    facts = [asdict(one) | {"learnt": one.sha256 in learnt} for one in parts]
    good = sum(one.label == "good" for one in parts)
    lines = [line(one, one.sha256 in learnt) for one in parts]
    return Answer(facts, [*lines, f"{counted(good, 'good part')}, {counted(len(parts) - good, 'defect')}"])


@command()
def add(
    model: Model,
    label: Label,
    images: list[Path] = typer.Argument(
        ..., help="Images: files, folders, or - for a list on standard input."
    ),
    part: str = typer.Option("", metavar="ID", help="What the line calls the part."),
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
) -> Answer:
    """Score images and keep them with their label.

    Example: mhpatchcore inbox add part.mhpc good rejected/0042.png --note "only dust"
    """
    sha256, detector = loaded(model)
    box, added = inbox_of(model, inbox), []
    for image in list_images(given_images(images)):
        if not isinstance(image, str | Path) or not Path(image).is_file():
            raise UserError(
                f"{image} is not a file of its own: the inbox keeps single files; export it first"
            )
        result = detector.score(image)
        said = Said(result.score, result.threshold, result.p_value, result.verdict, sha256)
        added.append(
            box.add(
                model.stem,
                label,
                Path(image).read_bytes(),
                Path(image).name,
                part=part,
                said=said,
                who=who_says(who),
                note=note,
            )
        )
    lines = [line(one, one.sha256 in detector.model.hashes) for one in added]
    return Answer([asdict(one) for one in added], lines)


@command()
def label(
    model: Model,
    id: Annotated[int, typer.Argument(help="The part, as `inbox list` numbers it.")],
    label: Label,
    who: Who = None,
    note: str = typer.Option(None, metavar="TEXT", help="Why (default: as it was)."),
    inbox: Place = None,
) -> Answer:
    """Correct a label."""
    part = inbox_of(model, inbox).relabel(id, label, who=who_says(who), note=note)
    return Answer(asdict(part), [line(part)])


@command()
def remove(
    model: Model,
    ids: list[int] = typer.Argument(..., help="Parts, as `inbox list` numbers them."),
    who: Who = None,
    note: Note = "",
    inbox: Place = None,
) -> Answer:
    """Withdraw labels: the parts count no more, and their images go when the room is needed. `label` brings them back.

    Models that have learnt from them stay as they are.
    """
    box = inbox_of(model, inbox)
    parts = box.parts(model.stem, ids=ids)
    for one in parts:
        box.withdraw(one.id, who=who_says(who), note=note)
    return Answer([asdict(one) for one in parts], [f"withdrawn: {counted(len(parts), 'part')}"])


@command()
def export(
    model: Model,
    output: Path = typer.Option(..., "--out", "-o", help="A folder: good/, defect/ and labels.csv."),
    inbox: Place = None,
) -> Answer:
    """Write all labelled images into a folder, as `fit`, `evaluate` and `calibrate` take them."""
    check_folder(output)
    box = inbox_of(model, inbox)
    rows = []
    for one in reversed(box.parts(model.stem)):
        file = Path(one.label) / file_name(one)
        with atomic_path(output / file) as temporary:
            temporary.write_bytes(box.image(one.id))
        rows.append(asdict(one) | {"file": file.as_posix()})
    write_csv(output / "labels.csv", EXPORTED, rows)
    return Answer(rows, [f"{output}: {counted(len(rows), 'image')} and labels.csv"])


@command()
def journal(
    model: Model,
    inbox: Place = None,
) -> Answer:
    """Show everything that was said of parts and done to the model, the latest first: who, when, why."""
    entries = inbox_of(model, inbox).journal.entries(model.stem)
    return Answer(entries, map(journal_line, entries))
