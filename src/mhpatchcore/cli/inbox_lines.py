"""What `mhpatchcore inbox` prints: a line for each part, and what a change would do to them."""

from __future__ import annotations

from typing import Any

from mhpatchcore.cli.console import counted, printable
from mhpatchcore.deploy.inbox import Part
from mhpatchcore.deploy.inbox_preview import Effect, Preview


def print_preview(preview: Preview) -> None:
    for one in preview.effects:
        print(_told(one))
    counts = preview.to_json()
    good, defects = counts["good"], counts["defects"]
    if preview.action == "learn":
        print(f"learns      {counted(preview.new_images, 'good part')}")
    if preview.version is not None:
        print(f"goes back   to version {preview.version}")
    print(
        f"threshold   {preview.threshold_before:.4g} → {preview.threshold_after:.4g}, "
        f"about {preview.rate_before:.2%} → {preview.rate_after:.2%} of good parts exceed it"
    )
    print(f"good parts  {good['right_before']} → {good['right_after']} of {good['parts']} pass")
    print(
        f"defects     {defects['right_before']} → {defects['right_after']} of {defects['parts']} are caught"
    )
    for one in preview.lost:
        print(f"            {printable(one.name)} ({one.id}) would no longer be caught")


def _told(effect: Effect) -> str:
    moved = "" if effect.before.verdict == effect.after.verdict else "  *"
    learnt = ", learnt" if effect.learnt else ""
    return (
        f"{effect.id:5}  {effect.label:7} {effect.before.score:8.4g} {effect.before.verdict:10} → "
        f"{effect.after.score:8.4g} {effect.after.verdict}{learnt}{moved}  {printable(effect.name)}"
    )


def line(part: Part, learnt: bool = False) -> str:
    score = "" if part.score is None else f"{part.score:.4g}, "
    facts = f"{score}{part.verdict}{', learnt' if learnt else ''}"
    return f"{part.id:5}  {part.label:7} {printable(part.name)}  ({facts})  {when(part.at)}{by(part.who, part.note)}"


def journal_line(entry: dict[str, Any]) -> str:
    """An entry of the journal: a statement about a part, or a change of the model."""
    if "part_id" in entry:
        what = f"{entry.get('label', 'withdrawn'):9} part {entry['part_id']} {printable(entry['name'])}"
    else:
        what = f"{entry['what']:9} {entry['sha256_before'][:12] or 'nothing'} → {entry['sha256_after'][:12]}"
        limits = [entry.get(f"threshold_{side}") for side in ("before", "after")]
        what += ", threshold " + " → ".join("none" if one is None else f"{one:.4g}" for one in limits)
    state = "" if entry["state"] == "done" else f", {entry['state']}"
    return f"{entry['id']:5}  {when(entry['at'])}  {what}{state}{by(entry['who'], entry['note'])}"


def by(who: str, note: str) -> str:
    return (f", by {printable(who)}" if who else "") + (f": {printable(note)}" if note else "")


def when(at: str) -> str:
    return at.replace("T", " ")[:16]
