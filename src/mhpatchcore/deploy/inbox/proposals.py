"""From labels to a better model: a change is proposed, shown on the inbox, then accepted or forgotten.

    proposed = propose(inbox, Path("part.mhpc"), Request("learn"))
    proposed.preview.lost                   # labelled defects that are caught now and would pass
    accept(inbox, proposed)                 # the former model is kept: Request("undo") goes back to it

Nothing is written before `accept`. Good parts that had been rejected are learnt as returned ones: picked because they
scored high, they are not a fair sample, so they do not count in the threshold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from mhpatchcore.deploy.inbox import Inbox, Label, Part
from mhpatchcore.deploy.inbox.versions import changed, earlier_version, learnt_of
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.storekeeping import temporary_folder
from mhpatchcore.inputs.places import SUFFIXES
from mhpatchcore.model.file import from_bytes, read_file, to_bytes
from mhpatchcore.model.history import differ
from mhpatchcore.runtime.files import atomic_path

Action = Literal["learn", "teach", "recalibrate", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
FAR = 1.5  # times the threshold: what scores more is more likely a defect than a good part to be learnt
STEM = 60  # letters
LARGEST_RATE = 0.5  # of good parts that may be rejected
NAMES: dict[Label, str] = {"good": "good part", "defect": "defect"}


@dataclass(frozen=True)
class Request:
    """What is asked for: "learn" good parts, "teach" defects, "recalibrate" at another rate, with good parts, or both;
    or "undo".

    `ids` are those of labelled parts; None are all that the model does not know, when learning or teaching, and no
    parts when recalibrating. Their scores join those that the model has, or with `instead` take their place.
    `name` is what taught defects are called; "" are the notes of their labels. `version` is the one to go back to; None
    is one step.
    """

    action: Action
    ids: tuple[int, ...] | None = None
    false_alarm: float | None = None
    instead: bool = False
    version: int | None = None
    name: str = ""
    who: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise UserError(f"an action is {' or '.join(ACTIONS)}, not '{self.action}'")
        if self.false_alarm is not None and not 0 < self.false_alarm <= LARGEST_RATE:
            raise UserError(f"a rate lies between 0 and {LARGEST_RATE}, for example 0.01")


@dataclass(frozen=True)
class Outcome:
    """What a model says of a part."""

    score: float
    verdict: str


@dataclass(frozen=True)
class Effect:
    """A labelled part under the model in use and under the proposed one.

    Of a part that is learnt the second says little: the model has seen it.
    """

    id: int
    name: str
    part: str
    label: Label
    learnt: bool
    before: Outcome
    after: Outcome


@dataclass(frozen=True)
class Counts:
    """How many labelled parts of a kind are judged rightly: good ones that pass, or defects that are rejected."""

    parts: int
    right_before: int
    right_after: int


@dataclass(frozen=True)
class Preview:
    """What a change would do: to the threshold, and to every labelled part (`effects`).

    Rates are those that are really promised. `learnt` are the ids of parts that would be learnt; `outliers` those that
    score far above the threshold; `lost` defects that are caught now and would pass. `version` is the one that an
    "undo" goes back to.
    """

    action: Action
    model_sha256: str
    version: int | None
    new_images: int
    threshold_before: float | None
    threshold_after: float | None
    rate_before: float
    rate_after: float
    effects: list[Effect]
    good: Counts
    defects: Counts
    learnt: list[int]
    outliers: list[int]
    lost: list[int]
    warnings: list[str]


@dataclass(frozen=True, eq=False)
class Proposal:
    """A changed model, as its file, that waits for a yes; what it would do, and the parts that it has learnt."""

    path: Path
    request: Request
    content: bytes
    preview: Preview
    learnt: list[Part]


def propose(
    inbox: Inbox, path: Path, request: Request, execution: Execution | None = None, *, scored: bool = True
) -> Proposal:
    """Make the change and see what it does, without writing anything; labelled parts are left out unless `scored`."""
    remarks: list[str] = []
    execution = replace(execution or Execution(), warn=remarks.append)
    sha256, before = loaded(path)
    new, version = [], None
    if request.action == "undo":
        version, content = earlier_version(inbox.journal, path, request.version)
        after = Detector(from_bytes(content, f"version {version} of {path}"))
        if differ(before.model.product, after.model.product):
            remarks.append(f"version {version} is a model of {after.model.product}")
    else:
        new = _chosen(inbox, path.stem, request, before)
        with temporary_folder() as temporary:
            files = [(one, write_image(inbox, one, temporary)) for one in new]
            after = _changed(before, request, files, execution)
        after = _signed(after, len(before.history), str(learnt_of(path).resolve()), request)
        content = to_bytes(after.model)
    learnt = new if request.action == "learn" else []
    effects = _effects(inbox, path.stem, before, after, execution) if scored else []
    ids, limit = [one.id for one in learnt], FAR * before.threshold
    outliers = [one for one in effects if one.id in ids and one.before.score > limit]
    defects = [one for one in effects if one.label == "defect" and one.before.verdict == "rejected"]
    preview = Preview(
        action=request.action,
        model_sha256=sha256,
        version=version,
        new_images=len(new),
        threshold_before=before.threshold,
        threshold_after=after.threshold,
        rate_before=before.calibration.expected_rate,
        rate_after=after.calibration.expected_rate,
        effects=effects,
        good=_counts(effects, "good"),
        defects=_counts(effects, "defect"),
        learnt=ids,
        outliers=[one.id for one in outliers],
        lost=[one.id for one in defects if one.after.verdict != "rejected"],
        warnings=remarks + _warnings(outliers, before.threshold),
    )
    return Proposal(path, request, content, preview, learnt)


def accept(inbox: Inbox, proposal: Proposal) -> str:
    """Put the proposed model in the place of the one it was made from; the new file's hash.

    Images that it has learnt are written into a folder where evidence finds them.
    """
    path, request = proposal.path, proposal.request

    def write_learnt() -> None:
        for part in proposal.learnt:
            write_image(inbox, part, learnt_of(path))

    signed = {"who": request.who, "note": request.note, "instead_of": proposal.preview.model_sha256}
    return changed(inbox.journal, path, proposal.content, request.action, first=write_learnt, **signed)


def loaded(path: Path) -> tuple[str, Detector]:
    """A model file's hash, and the detector in it."""
    content, name = read_file(path)
    return hashlib.sha256(content).hexdigest(), Detector(from_bytes(content, name))


def file_name(part: Part) -> str:
    """A name for a part's image that no other image has and that is no more than a name.

    >>> facts = {"id": 7, "label": "good", "part": "", "who": "", "at": "", "note": "", "model": "vial", "bytes": 9}
    >>> file_name(Part(name="../line 1/a*.PNG", sha256="ab" * 32, **facts))
    'a_-abababab.png'
    """
    given = Path(part.name or part.part or "part")
    stem = re.sub(r"[^\w.-]+", "_", given.stem)[:STEM] or "part"
    suffix = given.suffix.lower() if given.suffix.lower() in SUFFIXES else ".png"
    return f"{stem}-{part.sha256[:8]}{suffix}"


def _chosen(inbox: Inbox, model: str, request: Request, detector: Detector) -> list[Part]:
    """The labelled parts that take part in a change; good ones that the model has learnt from cannot."""
    known = set(detector.model.hashes)
    wanted: Label = "defect" if request.action == "teach" else "good"
    if request.ids is not None:
        chosen = inbox.parts(model, ids=request.ids)
    elif request.action == "recalibrate":
        return []
    else:
        chosen = [one for one in inbox.parts(model, wanted) if one.sha256 not in known]
    for one in chosen:
        if one.label != wanted:
            raise UserError(f"part {one.id} is a {NAMES[one.label]}: {request.action} takes {NAMES[wanted]}s")
        if one.sha256 in known:
            raise UserError(f"the model has learnt from part {one.id} already, as a good part: leave it out")
    if not chosen and request.action != "recalibrate":
        raise UserError(
            f"the inbox has no {NAMES[wanted]}s for {model} that it has not learnt from: label some first"
        )
    return chosen[::-1]  # as they came


def _changed(
    detector: Detector, request: Request, files: Sequence[tuple[Part, Path]], execution: Execution
) -> Detector:
    if request.action == "recalibrate":
        images = [file for _, file in files] or None
        return detector.calibrated(request.false_alarm, images, add=not request.instead, execution=execution)
    groups: dict[Any, list[Path]] = {}
    for part, file in files:
        name = request.name or part.note or "defect"
        groups.setdefault(name if request.action == "teach" else part.verdict == "rejected", []).append(file)
    for group, images in sorted(groups.items()):
        if request.action == "teach":
            detector = detector.taught(images, name=group, execution=execution)
        else:
            detector = detector.updated(images, returned=group, execution=execution)
    return detector


def _signed(detector: Detector, known: int, folder: str, request: Request) -> Detector:
    """What has been added to the history says who, why, and where the images will be."""
    model = detector.model
    new = (
        replace(one, source=folder if one.images else one.source, who=request.who, note=request.note)
        for one in model.history[known:]
    )
    return Detector(replace(model, history=(*model.history[:known], *new)))


def _effects(
    inbox: Inbox, model: str, before: Detector, after: Detector, execution: Execution
) -> list[Effect]:
    """Every labelled part under both models; one image at a time is in memory and on the disk."""
    effects, parts, learnt = [], inbox.parts(model), set(after.model.hashes)
    with temporary_folder() as temporary:
        for part in execution.track("score", parts, len(parts)):
            file = write_image(inbox, part, temporary)
            # on one core each, as the service scores
            results = [detector.score_opened(detector.opened(file)) for detector in (before, after)]
            outcomes = (Outcome(one.score, one.verdict) for one in results)
            effects.append(
                Effect(part.id, part.name, part.part, part.label, part.sha256 in learnt, *outcomes)
            )
            file.unlink()
    return effects


def _counts(effects: Sequence[Effect], label: Label) -> Counts:
    def is_right(outcome: Outcome) -> bool:
        return (outcome.verdict == "rejected") == (label == "defect")

    these = [one for one in effects if one.label == label]
    right_before = sum(is_right(one.before) for one in these)
    right_after = sum(is_right(one.after) for one in these)
    return Counts(len(these), right_before, right_after)


def _warnings(outliers: Sequence[Effect], threshold: float) -> list[str]:
    """What learning these would teach that it should not."""
    if not outliers:
        return []
    worst = max(outliers, key=lambda one: one.before.score)
    which = worst.part or worst.name or f"part {worst.id}"
    more = f" (and {len(outliers) - 1} more)" if len(outliers) > 1 else ""
    return [
        f"{which}{more} scores far above the threshold, {worst.before.score / threshold:.1f} times: once it is learnt, "
        "defects like that pass; leave out what is not certainly good"
    ]


def write_image(inbox: Inbox, part: Part, folder: Path) -> Path:
    """Write a part's image into a folder; the file."""
    file = folder / file_name(part)
    with atomic_path(file) as temporary:
        temporary.write_bytes(inbox.image(part.id))
    return file
