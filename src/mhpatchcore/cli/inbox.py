"""`mhpatchcore inbox COMMAND part.mhpc`: labelled parts, what can be learnt from them, and the way back."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    WorkersOption,
    counted,
    print_json,
    progress_display,
    warn,
)
from mhpatchcore.cli.inbox_lines import by, line, print_preview, when
from mhpatchcore.cli.paths import check_folder, given_images
from mhpatchcore.cli.settings import share_parser
from mhpatchcore.deploy.inbox import Inbox, Said, changed
from mhpatchcore.deploy.inbox_loop import (
    ACTIONS,
    Request,
    accept,
    file_name,
    loaded,
    propose,
)
from mhpatchcore.deploy.inbox_versions import sha256_of, undone, versions
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.model.file import check_file
from mhpatchcore.runtime.files import atomic_path, write_csv
from mhpatchcore.runtime.parallel import available_cores

EXPORTED = (
    *("id", "file", "label", "part", "name", "score", "threshold", "verdict", "who", "at", "note"),
    *("sha256", "model_sha256"),
)

ModelArgument = typer.Argument(..., help="A model file; the inbox lies beside it.")
InboxOption = typer.Option(
    None, "--inbox", metavar="FILE", help="The inbox (default: inbox.sqlite beside the model)."
)
WhoOption = typer.Option(None, metavar="NAME", help="Who says so (default: the name of the account).")
NoteOption = typer.Option("", metavar="TEXT", help="Why.")
IdsOption = typer.Option(None, "--id", metavar="ID", help="A labelled part; can be given several times.")
RateOption = typer.Option(
    None,
    parser=share_parser("--false-alarm"),
    metavar="SHARE",
    help="Share of good parts that may be rejected, such as 1% (default: as the model has it).",
)
InsteadFlag = typer.Option(
    False,
    "--instead",
    help="Their scores take the place of those that the model has, instead of joining them.",
)


def list_(
    model: Path = ModelArgument,
    label: str = typer.Option(None, metavar="LABEL", help="Only good, or only defect."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Show the labelled parts, the newest first."""
    _, detector = loaded(model)
    parts, learnt = _inbox(model, inbox).parts(model.stem, label), set(detector.model.hashes)
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
    box, added = _inbox(model, inbox), []
    for image in list_images(given_images(images)):
        if not isinstance(image, str | Path) or not Path(image).is_file():
            raise UserError(f"{image} is no file of its own: the inbox keeps single files; export it first")
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
                who=_who(who),
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
    part = _inbox(model, inbox).relabel(id, label, who=_who(who), note=note)
    print_json(part.to_json()) if as_json else print(line(part))


def remove(
    model: Path = ModelArgument,
    ids: list[int] = typer.Argument(..., help="Parts, as `inbox list` numbers them."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Forget parts and their images. Models that have learnt from them stay as they are."""
    box = _inbox(model, inbox)
    parts = box.parts(model.stem, ids=ids)
    for one in parts:
        box.remove(one.id)
    if as_json:
        print_json([one.to_json() for one in parts])
        return
    print(f"removed {counted(len(parts), 'part')}")


def preview(
    action: str = typer.Argument(..., help="learn or recalibrate."),
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    false_alarm: float = RateOption,
    instead: bool = InsteadFlag,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Show what `learn` or `recalibrate` would do to every labelled part. Nothing is written.

    Example: mhpatchcore inbox preview learn part.mhpc
    """
    if action not in ACTIONS:
        raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{action}'")
    request = Request(action, _chosen(ids), false_alarm, instead)
    _changed(model, request, inbox, as_json, quiet, workers, write=False)


def learn(
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Learn good parts of the inbox: all that are new to the model, or those named. The former model is kept.

    Example: mhpatchcore inbox learn part.mhpc --id 3 --id 7
    """
    request = Request("learn", _chosen(ids), who=_who(who), note=note)
    _changed(model, request, inbox, as_json, quiet, workers, write=True)


def recalibrate(
    model: Path = ModelArgument,
    ids: list[int] = IdsOption,
    false_alarm: float = RateOption,
    instead: bool = InsteadFlag,
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Set the threshold at another rate, or with the scores of good parts of the inbox. The former model is kept.

    Example: mhpatchcore inbox recalibrate part.mhpc --false-alarm 0.5%
    """
    request = Request("recalibrate", _chosen(ids), false_alarm, instead, _who(who), note)
    _changed(model, request, inbox, as_json, quiet, workers, write=True)


def versions_(model: Path = ModelArgument, inbox: Path = InboxOption, as_json: bool = JsonFlag) -> None:
    """Show the model in use, the earlier ones, and who changed it when."""
    found, changes = versions(model), _inbox(model, inbox).changes(model.stem)
    if as_json:
        told = {"versions": [one.to_json() for one in found], "changes": [one.to_json() for one in changes]}
        print_json(told)
        return
    for one in found:
        mark = "in use" if one.in_use else f"until {when(one.until)}"
        print(
            f"{one.version}  {mark:22}  {counted(one.images, 'image')}, rate {one.false_alarm:.2%}, "
            f"{one.what} {when(one.when)}{by(one.who, one.note)}"
        )
    for change in changes:
        which = f"{change.sha256_before[:12]} → {change.sha256_after[:12]}"
        print(f"  {when(change.at)}  {change.what}: {which}{by(change.who, change.note)}")


def undo(
    model: Path = ModelArgument,
    version: str = typer.Argument(
        "", help="A version that `inbox versions` shows (default: the one in use before)."
    ),
    who: str = WhoOption,
    note: str = NoteOption,
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Go back to an earlier model, byte for byte. The present one is kept, so this can be undone too."""
    before = sha256_of(model)
    chosen = undone(model, version)
    _inbox(model, inbox).record(changed(model.stem, "undo", _who(who), note, before, chosen.sha256))
    if as_json:
        print_json(chosen.to_json() | {"model": str(model)})
        return
    print(
        f"{model} is {chosen.version} again: {counted(chosen.images, 'image')}, {chosen.what} {when(chosen.when)}"
    )


def export(
    model: Path = ModelArgument,
    output: Path = typer.Option(..., "--output", "-o", help="A folder: good/, defect/ and labels.csv."),
    inbox: Path = InboxOption,
    as_json: bool = JsonFlag,
) -> None:
    """Write all labelled images into a folder, as `fit`, `evaluate` and `calibrate` take them."""
    check_folder(output)
    box = _inbox(model, inbox)
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
    "export": export,
}


def _changed(
    model: Path,
    request: Request,
    inbox: Path | None,
    as_json: bool,
    quiet: bool,
    workers: int | None,
    write: bool,
) -> None:
    """Propose a change, show it, and put it into use if that was asked for."""
    box = _inbox(model, inbox)
    with progress_display(quiet) as progress:
        execution = Execution(workers=workers or available_cores(), progress=progress)
        proposal = propose(box, model, request, execution)
    shown = proposal.preview
    for message in shown.warnings:
        warn(message)
    sha256 = accept(box, proposal) if write else None
    if as_json:
        print_json(shown.to_json() | {"model": str(model), "written": write, "sha256": sha256})
        return
    print_preview(shown)
    if write:
        print(f"{model} is written; `mhpatchcore inbox undo {model}` takes it back")
    else:
        print(f"not written; `mhpatchcore inbox {request.action} {model}` does it")


def _chosen(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(ids) if ids else None


def _inbox(model: Path, given: Path | None) -> Inbox:
    check_file(model)
    return Inbox(given) if given else Inbox.beside(model)


def _who(given: str | None) -> str:
    """The name that was given, or that of the account."""
    try:
        return given if given is not None else getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return str(os.getuid())
