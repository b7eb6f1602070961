"""`mhpatchcore score part.mhpc IMAGES|DIR`"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    WorkersOption,
    print_json,
    printable,
    progress_display,
    warn,
    warn_of_skipped,
)
from mhpatchcore.cli.paths import check_folder, check_input_folder
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.images import ImageLike, list_images
from mhpatchcore.result import Result

COLUMNS = ("image", "score", "threshold", "is_anomalous", "p_value", "regions")


def score(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    images: list[Path] = typer.Argument(..., help="Images, or folders of images."),
    heatmaps: Path = typer.Option(None, help="Write a picture for every image into this folder."),
    explain: Path = typer.Option(
        None,
        help="Write a picture for every anomalous image into this folder: the normal patches it was compared with.",
    ),
    explain_all: bool = typer.Option(False, "--explain-all", help="Explain images that pass as well."),
    normals: list[Path] = typer.Option(None, help="Where the training images are now, for --explain."),
    as_csv: bool = typer.Option(False, "--csv", help="Print comma-separated values."),
    as_json: bool = JsonFlag,
    skip_broken: bool = typer.Option(
        False, "--skip-broken", help="Report images that cannot be read and go on."
    ),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if any image is anomalous."),
    workers: int = WorkersOption,
    quiet: bool = QuietFlag,
) -> None:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/
    """
    if as_csv and as_json:
        raise UserError("choose one of --csv and --json")
    if explain is not None and heatmaps is not None and _place(explain) == _place(heatmaps):
        raise UserError("--heatmaps and --explain write files of the same names: give them different folders")
    for folder in normals or ():
        check_input_folder(folder, "--normals")
    check_folder(heatmaps)
    check_folder(explain)
    detector = Detector.load(model)
    paths: list[ImageLike] = [path for source in images for path in list_images(source)]
    files = [Path(str(path)) for path in paths]
    pictures = {} if heatmaps is None else picture_paths(files, heatmaps)
    explanations = {} if explain is None else picture_paths(files, explain, "--explain")
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    with progress_display(quiet or len(paths) < 2) as progress:
        for result in _scored(detector, paths, workers, skip_broken, progress):
            if isinstance(result, ImageError):
                warn_of_skipped(result)
                skipped.append({"image": str(paths[len(rows) + len(skipped)]), "error": str(result)})
                continue
            row = result.to_json()  # the result itself holds maps: too much to keep of many images
            if pictures:
                _draw(result, pictures)
            if explanations and (explain_all or result.is_anomalous):
                row["evidence"] = _explained(detector, result, explanations, normals or ())
            rows.append(row)
    if not rows:
        raise ImageError("none of the images could be read")
    if any(_not_found(row) for row in rows):
        warn("some training images are not where their names say: --normals FOLDER says where they are now")
    if as_json:
        print_json([*rows, *skipped])
    elif as_csv:
        _print_csv(rows)
    else:
        _print_table(rows, len(skipped))
    if fail and any(row["is_anomalous"] for row in rows):
        raise typer.Exit(1)


def picture_paths(images: Sequence[Path], folder: Path, flag: str = "--heatmaps") -> dict[str, Path]:
    """Where each image's picture goes: the images' own folders below what they have in common.

    >>> picture_paths([Path("a/1.png"), Path("b/1.png"), Path("b/2.jpg")], Path("out"))["b/2.jpg"].as_posix()
    'out/b/2.png'
    """
    places = {str(image): _place(image) for image in images}
    top = os.path.commonpath([place.parent for place in places.values()])
    relative = {image: place.relative_to(top) for image, place in places.items()}
    names = {image: place.with_suffix(".png") for image, place in relative.items()}
    if len(set(names.values())) < len(set(relative.values())):  # 1.png beside 1.jpg
        names = {image: place.with_name(f"{place.name}.png") for image, place in relative.items()}
    pictures = {image: folder / name for image, name in names.items()}
    among = {place.parent for place in places.values()} & {_place(path).parent for path in pictures.values()}
    if among:
        raise UserError(f"pictures in {folder} would stand among the images: give {flag} another folder")
    return pictures


def _place(path: Path) -> Path:
    """An absolute path that tells files apart; a link and what it points to are two."""
    return path.parent.resolve() / path.name


def _draw(result: Result, pictures: dict[str, Path]) -> None:
    from mhpatchcore.report.drawing import save_picture, triptych

    assert result.path is not None  # only files are scored here
    save_picture(pictures[result.path], triptych(result.path, result))


def _explained(
    detector: Detector, result: Result, pictures: dict[str, Path], normals: Sequence[Path]
) -> dict[str, Any]:
    """Draw the evidence and return it."""
    from mhpatchcore.inputs.images import load_pixels
    from mhpatchcore.report.evidence import evidence_figure
    from mhpatchcore.report.figures import figure_bytes
    from mhpatchcore.runtime.files import atomic_path

    assert result.path is not None
    evidence = detector.explain(result, normals)
    picture = pictures[result.path]
    with atomic_path(picture) as temporary:
        temporary.write_bytes(
            figure_bytes(evidence_figure(load_pixels(result.path), result, evidence), "png")
        )
    return evidence.to_json() | {"picture": str(picture)}


def _not_found(row: dict[str, Any]) -> bool:
    places = row.get("evidence", {}).get("places", ())
    return any(patch["image"] and not patch["file"] for place in places for patch in place["nearest"])


def _scored(
    detector: Detector,
    paths: list[ImageLike],
    workers: int | None,
    skip_broken: bool,
    progress: Callable[[str, int, int], None],
) -> Iterator[Result | ImageError]:
    """Every image's result, or why it was skipped, in their order."""
    progress("score", 0, len(paths))
    errors: list[ImageError] = []
    outcomes = detector.score_many(paths, workers, on_error=errors.append if skip_broken else None)
    for done, result in enumerate(outcomes, start=1):
        yield result if result is not None else errors[-1]
        progress("score", done, len(paths))


def _print_csv(rows: list[dict[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        fields = row | {"regions": len(row["regions"])}
        writer.writerow([fields[column] for column in COLUMNS])


def _print_table(rows: list[dict[str, Any]], skipped: int) -> None:
    threshold = rows[0]["threshold"]
    limit = f"threshold {threshold:.4g}" if isfinite(threshold) else "the model has no threshold"
    print(f"{'score':>9}  {'p-value':>8}  verdict    regions  image   ({limit})")
    for row in rows:
        verdict = "ANOMALOUS" if row["is_anomalous"] else "ok"
        name = printable(row["image"])
        print(f"{row['score']:9.4g}  {row['p_value']:8.3g}  {verdict:<9}  {len(row['regions']):7d}  {name}")
    anomalous = sum(row["is_anomalous"] for row in rows)
    print(f"{anomalous} of {len(rows)} anomalous" + (f", {skipped} skipped" if skipped else ""))
