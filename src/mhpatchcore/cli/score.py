"""`mhpatchcore score part.mhpc IMAGES`, and what it writes: tables, regions, pictures and masks."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.facts import warn_without_threshold
from mhpatchcore.cli.paths import STANDARD_OUTPUT, check_output, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.inputs.sources import ImageLike, list_images
from mhpatchcore.result import UNREADABLE, Result
from mhpatchcore.results import COLUMNS, coco, flat, write_parquet, write_xlsx
from mhpatchcore.runtime.files import csv_text, import_parquet, write_csv, write_text
from mhpatchcore.runtime.texts import representable
from mhpatchcore.runtime.urls import shown

ANOMALY_FOUND, NO_THRESHOLD = 1, 7
RARE = ("device", "stack", "every", "full_size", "coco", "explain_all", "normals", "cluster")
TABLE_COLUMNS = (*COLUMNS, "error")
CORNERS, PEAK_AT = ("top", "left", "bottom", "right"), ("peak_row", "peak_column")
REGION_COLUMNS = ("image", *CORNERS, "area", "peak", *PEAK_AT, "name", "sure")
ENDINGS = (".csv", ".jsonl", ".parquet", ".xlsx")
Row = dict[str, Any]
Pictures = dict[str, dict[str, Path]]


@dataclass(frozen=True)
class Outputs:
    """The options of `score` about what is written; None for what was not asked for."""

    out: Path | None = options.option(
        "Write a row for every image into this file (.csv, .jsonl, .xlsx, .parquet). For very many images name a "
        "folder: it gets Parquet files, part by part, and the same command resumes.", "--out", "-o", metavar="FILE|DIR",
    )  # fmt: skip
    csv: Path | None = options.output("The same as CSV, whatever the name; - prints it.", "results.csv")
    heatmaps: Path | None = options.output("Write a picture of every image into this folder.", "heatmaps/")
    full_size: bool = options.flag("--full-size", "Draw heatmaps at the size of the images, not of a screen.")
    masks: Path | None = options.output(
        "Write a PNG mask of every image, 0 or 255, into this folder.", "masks/"
    )
    regions: Path | None = options.output("Write all regions into this CSV file.", "regions.csv")
    coco: Path | None = options.output("Write them as COCO annotations into this JSON file.", "regions.json")
    explain: Path | None = options.output(
        "Write a picture of every rejected image and what it was compared with into this folder.",
        "why/",
    )
    explain_all: bool = options.flag("--explain-all", "Explain images that pass as well.")
    normals: list[Path] | None = options.folder("Where the training images are now, for --explain.")

    @property
    def parts(self) -> Path | None:
        """The folder for Parquet files, where --out names no file."""
        return self.out if self.out is not None and not self.out.suffix else None

    @property
    def printed(self) -> bool:
        """Whether the table goes to standard output."""
        return self.csv == STANDARD_OUTPUT

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of pictures, by their options."""
        named = {"--heatmaps": self.heatmaps, "--masks": self.masks, "--explain": self.explain}
        return {flag: folder for flag, folder in named.items() if folder is not None}

    def check(self) -> None:
        for normals in self.normals or ():
            if not normals.is_dir():
                raise UserError(f"--normals: there is no folder {normals}; check the path")
        if self.parts is not None:
            check_output(self.parts, "results/")
            if self.csv or self.regions or self.coco or self.explain:
                raise UserError(
                    "a folder of --out has the boxes of all regions: leave out --csv, --regions, --coco and --explain, "
                    "or name a file, --out results.parquet"
                )
        elif self.out is not None:
            if self.out.suffix.lower() not in ENDINGS:
                raise UserError(
                    f"cannot write {self.out}: name a file that ends in {', '.join(ENDINGS)}, or a folder"
                )
            check_output(self.out, "results.csv")
            if self.out.suffix.lower() == ".parquet":
                import_parquet()

    def write(self, rows: Sequence[Row]) -> None:
        read = [row for row in rows if "regions" in row]
        if self.out is not None:
            write_table(rows, self.out)
        if self.csv is not None and not self.printed:
            write_text(self.csv, table_csv(rows))
        if self.regions is not None:
            write_csv(self.regions, REGION_COLUMNS, _region_rows(read))
        if self.coco is not None:
            write_text(self.coco, json.dumps(coco(read), indent=1) + "\n")

    def pictures(self, images: Sequence[str | Path]) -> Pictures:
        """Where the pictures of each image go, by option and image; nothing for those that were not asked for."""
        return {flag: picture_paths(images, at, flag) for flag, at in self.folders.items()}

    def draw(self, detector: Detector, result: Result, pictures: Pictures) -> Row:
        """Write the pictures of an image, and return its evidence if it is explained."""
        from mhpatchcore.report.drawing import save_picture, triptych

        image = result.path
        assert image is not None  # only files are scored here
        if self.heatmaps is not None:
            save_picture(pictures["--heatmaps"][image], triptych(image, result, self.full_size))
        if self.masks is not None:
            save_picture(pictures["--masks"][image], result.mask * np.uint8(255))
        if self.explain is None or not (self.explain_all or result.is_rejected):
            return {}
        path, evidence = pictures["--explain"][image], detector.explain(result, self.normals or ())
        evidence.save(path)
        return {"evidence": evidence.to_dict() | {"picture": str(path)}}


@command("workers", "cluster", rare=RARE)
def score(
    model: options.Model,
    images: list[Path] = options.argument(f"Images: {options.IMAGES}"),
    stack: options.Stack = False,
    every: options.Every = 1,
    *,
    outputs: Outputs,
    skip_broken: bool = options.flag("--skip-broken", "Exit with 0, not 3, if some images cannot be read."),
    fail: bool = options.flag("--fail", "Exit with code 1 if any image is rejected."),
    run: Run,
    device: options.Device = None,
) -> Answer:
    """Score images: how far they are from what the model has learnt, and whether that is too far.

    Example: mhpatchcore score part.mhpc parts/new --heatmaps heatmaps/

    An image that cannot be read is reported, and the others are scored.
    """
    if outputs.printed and run.as_json:
        raise UserError("choose one of --json and --csv -, which both print the results")
    if run.cluster and outputs.parts is None:
        raise UserError("--cluster writes Parquet files, part by part: name a folder for them, --out results")
    outputs.check()
    paths = list_images(given_images(images, stack, every))
    if outputs.parts is not None:
        detector, facts = _score_into(outputs.parts, model, paths, outputs, run)
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
    out: Path, model: Path, images: Sequence[ImageLike], outputs: Outputs, run: Run
) -> tuple[Detector, dict[str, Any]]:
    """Score images into a folder of Parquet files; the model, and the facts."""
    from mhpatchcore.batch.scoring import Batch, score_batch

    names = [image for image in images if isinstance(image, str | Path)]  # the command line gives no others
    batch = Batch.of(model, out, outputs.full_size)
    pictures = outputs.pictures([str(name) for name in names])
    heatmaps, masks = pictures.get("--heatmaps"), pictures.get("--masks")
    done, scored, verdicts = 0, 0, Counter[str]()
    progress = run.execution.progress
    progress("score", 0, len(names))
    for part in score_batch(batch, names, run.executor, heatmaps, masks):
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
    judged = f"{counts['rejected']} of {read} rejected"
    yield (judged if isfinite(threshold) else f"{read} scored, none judged") + (
        f", {unreadable} could not be read" if unreadable else ""
    )


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


def picture_paths(images: Sequence[str | Path], folder: Path, flag: str = "--heatmaps") -> dict[str, Path]:
    """Where each image's picture goes: the images' own folders below what they have in common.

    >>> picture_paths([Path("a/1.png"), Path("b/1.png"), Path("b/2.jpg")], Path("out"))["b/2.jpg"].as_posix()
    'out/b/2.png'
    """
    places = {str(image): place(Path(image)) for image in images}
    top = os.path.commonpath([one.parent for one in places.values()])
    relative = {image: one.relative_to(top) for image, one in places.items()}
    names = {image: one.with_suffix(".png") for image, one in relative.items()}
    if len(set(names.values())) < len(set(relative.values())):  # 1.png beside 1.jpg
        names = {image: one.with_name(f"{one.name}.png") for image, one in relative.items()}
    pictures = {image: folder / name for image, name in names.items()}
    if {one.parent for one in places.values()} & {place(path).parent for path in pictures.values()}:
        raise UserError(f"pictures in {folder} would stand among the images: give {flag} another folder")
    return pictures


def place(path: Path) -> Path:
    """An absolute path that tells files apart; a link and what it points to are two."""
    return path.parent.resolve() / path.name


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write a row for every image, in the format of the ending: CSV, lines of JSON, Parquet, or a spreadsheet."""
    if path.suffix.lower() == ".parquet":
        write_parquet(path, TABLE_COLUMNS, map(_flat, rows))
    elif path.suffix.lower() == ".xlsx":
        write_xlsx(path, TABLE_COLUMNS, map(_flat, rows))
    elif path.suffix.lower() == ".jsonl":
        write_text(path, "".join(f"{json.dumps(representable(row))}\n" for row in rows))
    else:
        write_text(path, table_csv(rows))


def table_csv(rows: Sequence[Row]) -> str:
    return csv_text(TABLE_COLUMNS, map(_flat, rows))


def _flat(row: Row) -> Row:
    return flat(row) if "regions" in row else row


def _region_rows(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        for region in row["regions"]:
            corners = dict(zip(CORNERS, region["box"], strict=True))
            yield {
                "image": row["image"],
                **region,
                **corners,
                **dict(zip(PEAK_AT, region["peak_at"], strict=True)),
            }
