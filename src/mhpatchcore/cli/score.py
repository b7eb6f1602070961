"""`mhpatchcore score part.mhpc IMAGES`"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import printable, warn
from mhpatchcore.cli.facts import warn_without_threshold
from mhpatchcore.cli.outputs import (
    Outputs,
    Pictures,
    write_coco,
    write_evidence,
    write_heatmap,
    write_mask,
    write_regions,
)
from mhpatchcore.cli.paths import check_input_folder, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.result import UNREADABLE, Result
from mhpatchcore.results import COLUMNS, flat
from mhpatchcore.runtime.files import csv_text

ANOMALY_FOUND, NO_THRESHOLD = 1, 7
RARE = ("stack", "every", "full_size", "coco", "explain_all", "normals", "cluster")


@command("workers", rare=RARE)
def score(
    model: options.Model,
    images: list[Path] = typer.Argument(
        ...,
        help="Images: files, folders (subfolders are read too), archives (.zip, .tar), lists (.txt, .csv), videos, "
        "or - for a list on standard input.",
    ),
    stack: options.Stack = False,
    every: options.Every = 1,
    heatmaps: Path = typer.Option(
        None, metavar="DIR", help="Write a picture for every image into this folder."
    ),
    full_size: bool = typer.Option(
        False, "--full-size", help="Draw heatmaps in the size of the images, not in that of a screen."
    ),
    masks: Path = typer.Option(
        None,
        metavar="DIR",
        help="Write a mask for every image into this folder: a PNG of its size, 0 or 255.",
    ),
    regions: Path = typer.Option(
        None, metavar="FILE", help="Write all anomalous regions into this CSV file: boxes, areas, peaks."
    ),
    coco: Path = typer.Option(
        None, metavar="FILE", help="Write them as COCO annotations into this JSON file."
    ),
    explain: Path = typer.Option(
        None,
        metavar="DIR",
        help="Write a picture for every rejected image into this folder: the normal patches it was compared with.",
    ),
    explain_all: bool = typer.Option(False, "--explain-all", help="Explain images that pass as well."),
    normals: list[Path] = typer.Option(
        None, metavar="DIR", help="Where the training images are now, for --explain."
    ),
    out: Path = typer.Option(
        None,
        metavar="DIR",
        help="Write a table into this folder, e.g. results.parquet, part by part; run again, it goes on.",
    ),
    as_csv: bool = typer.Option(False, "--csv", help="Print comma-separated values."),
    skip_broken: bool = typer.Option(
        False, "--skip-broken", help="Images that cannot be read are no error: exit with code 0, not 3."
    ),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if any image is rejected."),
    *,
    run: Run,
    cluster: options.Cluster = None,
) -> Answer:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/

    An image that cannot be read is reported, and the others are scored.
    """
    if as_csv and run.as_json:
        raise UserError("choose one of --csv and --json")
    for folder in normals or ():
        check_input_folder(folder, "--normals")
    outputs = Outputs(heatmaps, masks, explain, regions, coco, full_size, explain_all, tuple(normals or ()))
    outputs.check(model)
    if out is not None:
        from mhpatchcore.cli.batch import score_into

        if as_csv:
            raise UserError("choose one of --csv and --out")
        paths = list_images(given_images(images, stack, every))
        answer, detector, found = score_into(out, model, paths, outputs, cluster, run)
        return replace(answer, exit_code=_exit_code(found, detector, model, fail, skip_broken))
    if cluster is not None:
        raise UserError("--cluster writes a table: name a folder for it, --out results.parquet")
    detector = Detector.load(model)
    paths = list_images(given_images(images, stack, every))
    pictures = outputs.pictures([str(path) for path in paths])
    rows: list[dict[str, Any]] = []
    errors: list[ImageError] = []
    for path, result in zip(paths, run.scores(detector, paths, errors.append), strict=True):
        if result is None:
            warn(str(errors[-1]))
            rows.append({"image": str(path), "verdict": UNREADABLE, "error": str(errors[-1])})
        else:
            rows.append(_row(detector, result, pictures, outputs))
    read = [row for row in rows if row["verdict"] != UNREADABLE]
    if regions is not None:
        write_regions(read, regions)
    if coco is not None:
        write_coco(read, coco)
    if any(_not_found(row) for row in read):
        warn("some training images are not where their names say: --normals FOLDER says where they are now")
    code = _exit_code({row["verdict"] for row in rows}, detector, model, fail, skip_broken)
    return Answer(rows, _csv(rows) if as_csv else _table(rows, detector.threshold), code)


def _row(detector: Detector, result: Result, pictures: Pictures, outputs: Outputs) -> dict[str, Any]:
    """What is said of an image, and its pictures. The result itself holds maps: too much to keep of many images."""
    assert result.path is not None  # only files are scored here
    row = result.to_dict() | {"size": result.size}
    if pictures.heatmaps:
        write_heatmap(result, pictures.heatmaps[result.path], outputs.full_size)
    if pictures.masks:
        write_mask(result, pictures.masks[result.path])
    if pictures.evidence and (outputs.explain_all or result.is_rejected):
        path = pictures.evidence[result.path]
        row["evidence"] = write_evidence(detector, result, path, outputs.normals)
    return row


def _not_found(row: dict[str, Any]) -> bool:
    places = row.get("evidence", {}).get("places", ())
    return any(patch["image"] and not patch["file"] for place in places for patch in place["nearest"])


def _csv(rows: Sequence[dict[str, Any]]) -> list[str]:
    read = (flat(row) if "regions" in row else row for row in rows)
    return csv_text((*COLUMNS, "error"), read).removesuffix("\n").split("\n")


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
