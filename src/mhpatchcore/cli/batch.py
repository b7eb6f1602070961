"""`mhpatchcore score part.mhpc IMAGES --out results.parquet`: a table of many images, written part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.batch.scoring import Batch, score_batch
from mhpatchcore.cli.command import Answer, Run
from mhpatchcore.cli.console import counted
from mhpatchcore.cli.outputs import Outputs
from mhpatchcore.cli.paths import check_folder
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.result import UNREADABLE
from mhpatchcore.runtime.urls import shown


def score_into(
    out: Path,
    model: Path,
    images: Sequence[ImageLike],
    outputs: Outputs,
    cluster: str | None,
    run: Run,
) -> tuple[Answer, Detector, set[str]]:
    """Write the table and say what is in it, with the model and the verdicts that occur."""
    check_folder(out)
    if outputs.regions or outputs.coco or outputs.explain:
        raise UserError("--out writes the boxes of all regions: leave out --regions, --coco and --explain")
    names = [image for image in images if isinstance(image, str | Path)]  # the command line gives no others
    batch = Batch.of(model, out, outputs.full_size)
    pictures = outputs.pictures([str(name) for name in names])
    done, kept, verdicts = 0, 0, Counter[str]()
    progress = run.execution.progress
    with run.on(cluster) as executor:
        progress("score", 0, len(names))
        for part in score_batch(batch, names, executor, pictures.heatmaps, pictures.masks):
            done += part.images
            kept += part.images - part.scored
            verdicts.update(part.verdicts)
            progress("score", done, len(names))
    seconds, fresh = run.seconds, done - kept
    unreadable = verdicts[UNREADABLE]
    before = f", {kept} were there already" if kept else ""
    speed = f", {fresh / seconds:.1f} a second" if fresh and seconds else ""
    unread = f", {unreadable} could not be read (see the column error)" if unreadable else ""
    lines = (
        f"{shown(out)}: {counted(fresh, 'image')} scored in {seconds:.1f} s{speed}{before}",
        f"{verdicts['rejected']} of {done - unreadable} rejected{unread}",
    )
    facts = {"table": shown(out), "images": done, "scored": fresh, "kept": kept}
    facts |= {"verdicts": dict(verdicts), "seconds": seconds}
    return Answer(facts, lines), batch.detector, set(verdicts)
