"""`mhpatchcore score part.mhpc IMAGES`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.facts import warn_without_threshold
from mhpatchcore.cli.outputs import Outputs, table_csv
from mhpatchcore.cli.paths import STANDARD_INPUT, check_folder, check_input_folder, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.sources import ImageLike, list_images
from mhpatchcore.result import UNREADABLE
from mhpatchcore.runtime.urls import shown

ANOMALY_FOUND, NO_THRESHOLD = 1, 7
STANDARD_OUTPUT = STANDARD_INPUT
RARE = ("device", "stack", "every", "full_size", "coco", "explain_all", "normals", "cluster")


@command("workers", rare=RARE)
def score(
    model: options.Model,
    images: list[Path] = typer.Argument(..., help=f"Images: {options.IMAGES}"),
    stack: options.Stack = False,
    every: options.Every = 1,
    out: Path = typer.Option(
        None,
        *options.OUT,
        metavar="FILE|DIR",
        help="Write a row for every image into this file (.csv, .jsonl, .parquet). For very many images name a "
        "folder: it gets Parquet files, part by part, and the same command resumes.",
    ),
    csv: Path = options.file("Write a row for every image into this CSV file; - prints them."),
    heatmaps: Path = options.folder("Write a picture of every image into this folder."),
    full_size: bool = typer.Option(
        False, "--full-size", help="Draw heatmaps at the size of the images, not of a screen."
    ),
    masks: Path = options.folder(
        "Write a mask for every image into this folder: a PNG of its size, 0 or 255."
    ),
    regions: Path = options.file("Write all anomalous regions into this CSV file: boxes, areas, peaks."),
    coco: Path = options.file("Write them as COCO annotations into this JSON file."),
    explain: Path = options.folder(
        "Write a picture of every rejected image into this folder: the normal patches it was compared with."
    ),
    explain_all: bool = typer.Option(False, "--explain-all", help="Explain images that pass as well."),
    normals: list[Path] = options.folder("Where the training images are now, for --explain."),
    skip_broken: bool = typer.Option(
        False, "--skip-broken", help="Exit with code 0, not 3, if some images cannot be read."
    ),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if any image is rejected."),
    *,
    run: Run,
    device: options.Device = None,
    cluster: options.Cluster = None,
) -> Answer:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/

    An image that cannot be read is reported, and the others are scored.
    """
    printed = csv == STANDARD_OUTPUT
    if printed and run.as_json:
        raise UserError("choose one of --json and --csv -, which both print the results")
    for folder in normals or ():
        check_input_folder(folder, "--normals")
    files = (out if out and out.suffix else None, None if printed else csv, regions, coco)
    outputs = Outputs(*files, heatmaps, masks, explain, full_size, explain_all, tuple(normals or ()))
    outputs.check(model)
    if cluster and (out is None or out.suffix):
        raise UserError("--cluster writes Parquet files, part by part: name a folder for them, --out results")
    paths = list_images(given_images(images, stack, every))
    if out is not None and not out.suffix:
        if csv or regions or coco or explain:
            raise UserError(
                "a folder of --out has the boxes of all regions: leave out --csv, --regions, --coco and --explain, or "
                "name a file, --out results.parquet"
            )
        detector, facts, verdicts = _score_into(out, model, paths, outputs, cluster, run)
        return Answer(facts, _folder_lines(facts), _exit_code(verdicts, detector, model, fail, skip_broken))
    detector = Detector.load(model)
    pictures = outputs.pictures([str(path) for path in paths])
    rows: list[dict[str, Any]] = []
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
    return Answer(rows, table_csv(rows).splitlines() if printed else _table(rows, detector.threshold), code)


def _score_into(
    out: Path, model: Path, images: Sequence[ImageLike], outputs: Outputs, cluster: str | None, run: Run
) -> tuple[Detector, dict[str, Any], set[str]]:
    """Score images into a folder of Parquet files; the model, the facts, and the verdicts that occur."""
    from mhpatchcore.batch.scoring import Batch, score_batch

    check_folder(out)
    names = [image for image in images if isinstance(image, str | Path)]  # the command line gives no others
    batch = Batch.of(model, out, outputs.full_size)
    pictures = outputs.pictures([str(name) for name in names])
    done, scored, verdicts = 0, 0, Counter[str]()
    progress = run.execution.progress
    with run.on(cluster) as executor:
        progress("score", 0, len(names))
        heatmaps, masks = pictures.get("--heatmaps"), pictures.get("--masks")
        for part in score_batch(batch, names, executor, heatmaps, masks):
            done += part.images
            scored += part.scored
            verdicts.update(part.verdicts)
            progress("score", done, len(names))
    facts = {"table": shown(out), "images": done, "scored": scored, "kept": done - scored}
    facts |= {"verdicts": dict(verdicts), "seconds": run.seconds}
    return batch.detector, facts, set(verdicts)


def _folder_lines(facts: dict[str, Any]) -> Iterator[str]:
    scored, kept, seconds = (facts[name] for name in ("scored", "kept", "seconds"))
    speed = f", {scored / seconds:.1f} a second" if scored and seconds else ""
    before = f", {kept} were there already" if kept else ""
    yield f"{facts['table']}: {counted(scored, 'image')} scored in {seconds:.1f} s{speed}{before}"
    unreadable, rejected = (facts["verdicts"].get(name, 0) for name in (UNREADABLE, "rejected"))
    unread = f", {unreadable} could not be read (see the column error)" if unreadable else ""
    yield f"{rejected} of {facts['images'] - unreadable} rejected{unread}"


def _not_found(row: dict[str, Any]) -> bool:
    places = row.get("evidence", {}).get("places", ())
    return any(patch["image"] and not patch["file"] for place in places for patch in place["nearest"])


def _table(rows: Sequence[dict[str, Any]], threshold: float) -> Iterator[str]:
    limit = f"threshold {threshold:.4g}" if isfinite(threshold) else "the model has no threshold"
    yield f"{'score':>9}  {'p-value':>8}  {'verdict':<12}  regions  image   ({limit})"
    for row in rows:
        score, p = (_number(row.get(name), digits) for name, digits in (("score", 4), ("p_value", 3)))
        regions = str(len(row["regions"])) if "regions" in row else "–"
        verdict = {"rejected": "REJECTED"}.get(row["verdict"], row["verdict"])
        name = f"  {printable(row['defect'])}" if row.get("defect") else ""
        yield f"{score:>9}  {p:>8}  {verdict:<12}  {regions:>7}  {printable(row['image'])}{name}"
    unreadable = sum(row["verdict"] == UNREADABLE for row in rows)
    rejected, read = sum(row["verdict"] == "rejected" for row in rows), len(rows) - unreadable
    judged = f"{rejected} of {read} rejected" if isfinite(threshold) else f"{read} scored, none judged"
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
