"""`mhpatchcore score part.mhpc IMAGES --out results.parquet`: a table of many images, written part by part."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mhpatchcore.cli.console import counted, print_json, progress_display
from mhpatchcore.cli.outputs import Outputs
from mhpatchcore.cli.paths import check_folder
from mhpatchcore.cli.running import running_on
from mhpatchcore.cluster.scoring import Batch, score_batch
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
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> tuple[Detector, set[str]]:
    """Write the table and say what is in it: the model, and the verdicts that occur."""
    check_folder(out)
    if outputs.regions or outputs.coco or outputs.explain:
        raise UserError("--out writes the boxes of all regions: leave out --regions, --coco and --explain")
    names = [image for image in images if isinstance(image, str | Path)]  # the command line gives no others
    batch = Batch.of(model, out, outputs.full_size)
    pictures = outputs.pictures([str(name) for name in names])
    started, done, kept, verdicts = time.perf_counter(), 0, 0, Counter[str]()
    with running_on(cluster, workers) as executor, progress_display(quiet) as progress:
        progress("score", 0, len(names))
        for part in score_batch(batch, names, executor, pictures.heatmaps, pictures.masks):
            done += part.images
            kept += part.images - part.scored
            verdicts.update(part.verdicts)
            progress("score", done, len(names))
    seconds = time.perf_counter() - started
    fresh, rejected, unreadable = done - kept, verdicts["rejected"], verdicts[UNREADABLE]
    if as_json:
        facts = {"table": shown(out), "images": done, "scored": fresh, "kept": kept}
        print_json(facts | {"verdicts": dict(verdicts), "seconds": round(seconds, 2)})
    else:
        before = f", {kept} were there already" if kept else ""
        speed = f", {fresh / seconds:.1f} a second" if fresh else ""
        print(f"{shown(out)}: {counted(fresh, 'image')} scored in {seconds:.1f} s{speed}{before}")
        print(f"{rejected} of {done - unreadable} rejected" + _unread(unreadable))
    return batch.detector, set(verdicts)


def _unread(n: int) -> str:
    return f", {n} could not be read (see the column error)" if n else ""
