"""`mhpatchcore inbox COMMAND part.mhpc`: labelled parts, what can be learnt from them, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, counted, print_json
from mhpatchcore.cli.inbox_changes import learn, preview, recalibrate, undo, versions_
from mhpatchcore.cli.inbox_lines import journal_line, line
from mhpatchcore.cli.inbox_options import (
    InboxOption,
    ModelArgument,
    NoteOption,
    WhoOption,
    inbox_of,
    who_says,
)
from mhpatchcore.cli.paths import check_folder, given_images
from mhpatchcore.deploy.inbox import Said
from mhpatchcore.deploy.inbox_loop import file_name, loaded
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.runtime.files import atomic_path, write_csv

EXPORTED = (
    *("id", "file", "label", "part", "name", "score", "threshold", "verdict", "who", "at", "note"),
    *("sha256", "model_sha256"),
)


def list_(
    model: Path = ModelArgument,
    label: str = typer.Option(None, metavar="LABEL", help="Only good, or only defect."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Show the labelled parts, the newest first."""
    _, detector = loaded(model)
    parts, learnt = inbox_of(model, inbox).parts(model.stem, label), set(detector.model.hashes)
    if as_json:
        print_json([one.to_json() | {"learnt": one.sha256 in learnt} for one in parts])
        return
    for one in parts:
        print(line(one, one.sha256 in learnt))
    good = sum(one.label == "good" for one in parts)
    print(f"{counted(good, 'good part')}, {counted(len(parts) - good, 'defect')}")


def add(
    model: Path = ModelArgument,
    label: str = typer.Argument(..., help="good or defect."),
    images: list[Path] = typer.Argument(
        ..., help="Images: files, folders, or - for a list on standard input."
    ),
    part: str = typer.Option("", metavar="ID", help="What the line calls the part."),
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
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
    if as_json:
        print_json([one.to_json() for one in added])
        return
    for one in added:
        print(line(one, one.sha256 in detector.model.hashes))


def label(
    model: Path = ModelArgument,
    id: int = typer.Argument(..., help="The part, as `inbox list` numbers it."),
    label: str = typer.Argument(..., help="good or defect."),
    who: str = WhoOption,
    note: str = typer.Option(None, metavar="TEXT", help="Why (default: as it was)."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Correct a label."""
    part = inbox_of(model, inbox).relabel(id, label, who=who_says(who), note=note)
    print_json(part.to_json()) if as_json else print(line(part))


def remove(
    model: Path = ModelArgument,
    ids: list[int] = typer.Argument(..., help="Parts, as `inbox list` numbers them."),
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Withdraw labels: the parts count no more, and their images go when the room is needed. `label` brings them back.

    Models that have learnt from them stay as they are.
    """
    box = inbox_of(model, inbox)
    parts = box.parts(model.stem, ids=ids)
    for one in parts:
        box.withdraw(one.id, who=who_says(who), note=note)
    if as_json:
        print_json([one.to_json() for one in parts])
        return
    print(f"withdrawn: {counted(len(parts), 'part')}")


def export(
    model: Path = ModelArgument,
    output: Path = typer.Option(..., "--output", "-o", help="A folder: good/, defect/ and labels.csv."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Write all labelled images into a folder, as `fit`, `evaluate` and `calibrate` take them."""
    check_folder(output)
    box = inbox_of(model, inbox)
    rows = []
    for one in reversed(box.parts(model.stem)):
        file = Path(one.label) / file_name(one)
        with atomic_path(output / file) as temporary:
            temporary.write_bytes(box.image(one.id))
        rows.append(one.to_json() | {"file": file.as_posix()})
    write_csv(output / "labels.csv", EXPORTED, rows)
    if as_json:
        print_json(rows)
        return
    print(f"{output}: {counted(len(rows), 'image')} and labels.csv")


def journal(
    model: Path = ModelArgument,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Show everything that was said of parts and done to the model, the latest first: who, when, why."""
    entries = inbox_of(model, inbox).journal.entries(model.stem)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        print(journal_line(entry))


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_,
    "add": add,
    "label": label,
    "remove": remove,
    "preview": preview,
    "learn": learn,
    "recalibrate": recalibrate,
    "versions": versions_,
    "undo": undo,
    "journal": journal,
    "export": export,
}
