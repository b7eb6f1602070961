"""`mhpatchcore score part.mhpc IMAGES`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.facts import warn_without_threshold
from mhpatchcore.cli.outputs import Outputs, Row, table_csv
from mhpatchcore.cli.paths import given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.sources import ImageLike, list_images
from mhpatchcore.result import UNREADABLE
from mhpatchcore.runtime.urls import shown

ANOMALY_FOUND, NO_THRESHOLD = 1, 7
RARE = ("device", "stack", "every", "full_size", "coco", "explain_all", "normals", "cluster")


@command("workers", rare=RARE)
def score(
    model: options.Model,
    images: list[Path] = options.argument(f"Images: {options.IMAGES}"),
    stack: options.Stack = False,
    every: options.Every = 1,
    *,
    outputs: Outputs,
    skip_broken: bool = options.flag(
        "--skip-broken", "Exit with code 0, not 3, if some images cannot be read."
    ),
    fail: bool = options.flag("--fail", "Exit with code 1 if any image is rejected."),
    run: Run,
    device: options.Device = None,
    cluster: options.Cluster = None,
) -> Answer:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/

    An image that cannot be read is reported, and the others are scored.
    """
    if outputs.printed and run.as_json:
        raise UserError("choose one of --json and --csv -, which both print the results")
    if cluster and outputs.parts is None:
        raise UserError("--cluster writes Parquet files, part by part: name a folder for them, --out results")
    outputs.check(model)
    paths = list_images(given_images(images, stack, every))
    if outputs.parts is not None:
        detector, facts = _score_into(outputs.parts, model, paths, outputs, cluster, run)
        code = _exit_code(set(facts["verdicts"]), detector, model, fail, skip_broken)
        return Answer(facts, _parts_lines(facts), code)
    detector = Detector.load(model)
    pictures = outputs.pictures([str(path) for path in paths])
    rows: list[Row] = []
    errors: list[ImageError] = []
    for path, result in zip(paths, run.scores(detector, paths, errors.append), strict=True):
        if result is None:
            warn(str(errors[-1]))
            rows.append({"image": str(path), "verdict": UNREADABLE, "error": str(errors[-1])})
        else:  # and not the result itself: its maps are too much to keep of many images
            evidence = outputs.draw(detector, result, pictures)
            rows.append(result.to_dict() | {"size": result.size} | evidence)
    outputs.write(rows)
    if any(_not_found(row) for row in rows):
        warn("some training images are not where their names say: --normals FOLDER says where they are now")
    code = _exit_code({row["verdict"] for row in rows}, detector, model, fail, skip_broken)
    lines = table_csv(rows).splitlines() if outputs.printed else _table(rows, detector.threshold)
    return Answer(rows, lines, code)


def _score_into(
    out: Path, model: Path, images: Sequence[ImageLike], outputs: Outputs, cluster: str | None, run: Run
) -> tuple[Detector, dict[str, Any]]:
    """Score images into a folder of Parquet files; the model, and the facts."""
    from mhpatchcore.batch.scoring import Batch, score_batch

    names = [image for image in images if isinstance(image, str | Path)]  # the command line gives no others
    batch = Batch.of(model, out, outputs.full_size)
    pictures = outputs.pictures([str(name) for name in names])
    heatmaps, masks = pictures.get("--heatmaps"), pictures.get("--masks")
    done, scored, verdicts = 0, 0, Counter[str]()
    progress = run.execution.progress
    with run.on(cluster) as executor:
        progress("score", 0, len(names))
        for part in score_batch(batch, names, executor, heatmaps, masks):
            done += part.images
            scored += part.scored
            verdicts.update(part.verdicts)
            progress("score", done, len(names))
    facts = {"table": shown(out), "images": done, "scored": scored, "kept": done - scored}
    return batch.detector, facts | {"verdicts": dict(verdicts), "seconds": run.seconds}


def _parts_lines(facts: dict[str, Any]) -> Iterator[str]:
    scored, kept, seconds = (facts[name] for name in ("scored", "kept", "seconds"))
    speed = f", {scored / seconds:.1f} a second" if scored and seconds else ""
    before = f", {kept} were there already" if kept else ""
    yield f"{facts['table']}: {counted(scored, 'image')} scored in {seconds:.1f} s{speed}{before}"
    unreadable, rejected = (facts["verdicts"].get(name, 0) for name in (UNREADABLE, "rejected"))
    unread = f", {unreadable} could not be read (see the column error)" if unreadable else ""
    yield f"{rejected} of {facts['images'] - unreadable} rejected{unread}"


def _not_found(row: Row) -> bool:
    places = row.get("evidence", {}).get("places", ())
    return any(patch["image"] and not patch["file"] for place in places for patch in place["nearest"])


def _table(rows: Sequence[Row], threshold: float) -> Iterator[str]:
    limit = f"threshold {threshold:.4g}" if isfinite(threshold) else "the model has no threshold"
    yield f"{'score':>9}  {'p-value':>8}  {'verdict':<12}  regions  image   ({limit})"
    for row in rows:
        score, p = (_number(row.get(name), digits) for name, digits in (("score", 4), ("p_value", 3)))
        regions = str(len(row["regions"])) if "regions" in row else "–"
        verdict = "REJECTED" if row["verdict"] == "rejected" else row["verdict"]
        name = f"  {printable(row['defect'])}" if row.get("defect") else ""
        yield f"{score:>9}  {p:>8}  {verdict:<12}  {regions:>7}  {printable(row['image'])}{name}"
    counts = Counter(row["verdict"] for row in rows)
    unreadable, read = counts[UNREADABLE], len(rows) - counts[UNREADABLE]
    judged = (
        f"{counts['rejected']} of {read} rejected" if isfinite(threshold) else f"{read} scored, none judged"
    )
    yield judged + (f", {unreadable} could not be read" if unreadable else "")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def _exit_code(verdicts: set[str], detector: Detector, model: Path, fail: bool, skip_broken: bool) -> int:
    """What cannot be judged at all comes first, then what could not be read, then anomalies."""
    if verdicts == {UNREADABLE}:
        print("error: none of the images could be read", file=sys.stderr)
        return ImageError.exit_code
    if warn_without_threshold(detector, model):
        return NO_THRESHOLD
    if UNREADABLE in verdicts and not skip_broken:
        return ImageError.exit_code
    return ANOMALY_FOUND if fail and "rejected" in verdicts else 0
