"""`mhpatchcore score part.mhpc IMAGES|DIR`"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, QuietFlag, print_json, progress_display, warn
from mhpatchcore.detector import Detector, Result
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.images import ImageLike, list_images

COLUMNS = ("image", "score", "threshold", "is_anomalous", "p_value", "regions")


def score(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    images: list[Path] = typer.Argument(..., help="Images, or folders of images."),
    heatmaps: Path = typer.Option(None, help="Write a picture for every image into this folder."),
    as_csv: bool = typer.Option(False, "--csv", help="Print comma-separated values."),
    as_json: bool = JsonFlag,
    skip_broken: bool = typer.Option(
        False, "--skip-broken", help="Report images that cannot be read and go on."
    ),
    fail: bool = typer.Option(False, "--fail", help="Exit with code 1 if any image is anomalous."),
    workers: int = typer.Option(None, help="Threads. [default: all cores]"),
    quiet: bool = QuietFlag,
) -> None:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/
    """
    if as_csv and as_json:
        raise UserError("choose one of --csv and --json")
    detector = Detector.load(model)
    paths: list[ImageLike] = [path for source in images for path in list_images(source)]
    names = _picture_names([Path(str(path)) for path in paths]) if heatmaps else {}
    results: list[Result] = []
    with progress_display(quiet or len(paths) < 2) as progress:
        for result in _scored(detector, paths, workers, skip_broken, progress):
            if heatmaps is not None and result.path is not None:
                from mhpatchcore.drawing import save_picture, triptych

                save_picture(heatmaps / names[result.path], triptych(result.path, result))
            results.append(result)
    if as_json:
        print_json([result.to_json() for result in results])
    elif as_csv:
        _print_csv(results)
    else:
        _print_table(results)
    if fail and any(result.is_anomalous for result in results):
        raise typer.Exit(1)


def _scored(
    detector: Detector,
    paths: list[ImageLike],
    workers: int | None,
    skip_broken: bool,
    progress: Callable[[str, int, int], None],
) -> Iterator[Result]:
    progress("score", 0, len(paths))
    outcomes = detector.score_many(paths, workers, on_error=_reported if skip_broken else None)
    for done, result in enumerate(outcomes, start=1):
        if result is not None:
            yield result
        progress("score", done, len(paths))


def _reported(error: ImageError) -> None:
    warn(f"skipped: {error}")


def _picture_names(paths: list[Path]) -> dict[str, str]:
    """A file name for every image's picture: its own name, with as many parent folders as keep names apart."""
    names: dict[str, str] = {}
    depth = 1
    while len(set(names.values())) < len(set(paths)):
        names = {
            str(path): "_".join((*path.parts[-depth:-1], path.stem)).replace("/", "") + ".png"
            for path in paths
        }
        depth += 1
    return names


def _print_csv(results: list[Result]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        fields = result.to_json() | {"regions": len(result.regions)}
        writer.writerow([fields[column] for column in COLUMNS])


def _print_table(results: list[Result]) -> None:
    if not results:
        return
    print(f"{'score':>9}  {'p-value':>8}  verdict    regions  image   (threshold {results[0].threshold:.4g})")
    for result in results:
        verdict = "ANOMALOUS" if result.is_anomalous else "ok"
        print(
            f"{result.score:9.4g}  {result.p_value:8.3g}  {verdict:<9}  {len(result.regions):7d}  {result.path}"
        )
    anomalous = sum(result.is_anomalous for result in results)
    print(f"{anomalous} of {len(results)} anomalous")
