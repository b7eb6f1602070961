"""Commands about a model that is there: `info`, `calibrate`, `teach`, `update` and `merge`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mhpatchcore.calibration.choices import rate_that_finds
from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.facts import (
    bank_note,
    copies_note,
    defects_note,
    describe,
    summary,
    threshold_before,
    threshold_lines,
    threshold_note,
    warn_without_threshold,
)
from mhpatchcore.cli.paths import check_file, check_product, given_images
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.changing import merged
from mhpatchcore.inputs.sources import list_images
from mhpatchcore.model.file import read_document, read_file

RISE = 1.1  # of a threshold, beyond which an update warns


@command()
def info(model: options.Model) -> Answer:
    """Show what a model file holds: where it comes from, its settings, its threshold."""
    detector = Detector.load(model)
    content, name = read_file(model)
    document = read_document(content, name)
    facts = summary(detector, model, history=True)
    facts |= {one: document[one] for one in ("config", "version", "format")}
    size = f"{len(content) / 1e6:.1f} MB"
    title = f"{name}  (written by mhpatchcore {printable(document['version'])}, {size})"
    return Answer(facts, [title, *_info_lines(detector)])


def _info_lines(detector: Detector) -> Iterator[str]:
    model, config, calibration = detector.model, detector.config, detector.calibration
    network = model.scales[0].backbone.info
    yield f"  product     {printable(model.product) or 'not known'}"
    yield f"  images      {counted(model.n_learnt, 'normal image')}, {model.patches} patches"
    if model.defects.names:
        yield f"  defects     {defects_note(detector)}"
    if model.excluded:
        yield f"  left out    {', '.join(map(printable, model.excluded))}"
    yield f"  copies      {copies_note(detector)}"
    # a file from elsewhere may hold any texts, and a terminal obeys some of them
    described = f"{network.name}, layers {', '.join(network.layers)}, {network.descriptor} descriptor"
    yield f"  backbone    {printable(described)}"
    yield f"  weights     {printable(f'{network.weights_source}, sha256 {network.weights_sha256}')}"
    yield f"  precision   {printable(network.precision)}"
    yield f"  depth       {printable(config.views[0].window.note)}"
    for scale in model.scales:
        seen, whitening = scale.backbone.info, scale.whitening
        yield f"  view        {seen.height} × {seen.width}, grid {seen.grid[0]} × {seen.grid[1]}"
        yield f"  whitening   {seen.dim} → {whitening.k} dimensions, {whitening.retained:.2%} retained"
        yield f"              shrinkage {whitening.lam:.3g}, jitter {whitening.jitter:.0e}"
        yield f"  bank        {len(scale.raw)} rows by {config.constructor}"
    yield f"  score       {config.score}, local {config.local}"
    yield from threshold_lines(detector, "  threshold   ")
    if calibration.n:
        yield f"              from {counted(calibration.n, 'image')}, {printable(calibration.method)}"
    for i, event in enumerate(detector.history):
        yield f"  {'history' if i == 0 else '':12}{printable(describe(event))}"


@command("workers", "store", "store_limit", "skip_broken")
def calibrate(
    model: options.Model,
    false_alarm: options.FalseAlarm = None,
    images: list[Path] = typer.Option(
        None,
        "--with",
        metavar="IMAGES",
        help="Good parts that the model has not learnt from: a folder, a file, or - for a list on standard input; may "
        "be given several times.",
    ),
    all_good: options.AllGood = False,
    threshold: float = typer.Option(
        None, metavar="SCORE", help="A threshold of your own instead of a rate: scores above it are rejected."
    ),
    add: bool = typer.Option(
        False, "--add", help="Add the scores of --with to the stored ones instead of replacing them."
    ),
    defects: list[Path] = typer.Option(
        None, metavar="IMAGES", help="A few known defects: shows how many of them each rate would find."
    ),
    find: Annotated[
        float | None,
        options.share(
            "--find",
            "With --defects: take the threshold with the fewest false alarms that finds this share of them.",
        ),
    ] = None,
    out: Path = options.file("The model file to write (default: only show the threshold).", *options.OUT),
    *,
    run: Run,
) -> Answer:
    """Set another threshold, at another false-alarm rate or from other good parts, without a new fit.

    With a few known defects it shows what each rate would find: --defects parts/bad --find 95%. You can also set a
    threshold yourself: --threshold 20.

    Example: mhpatchcore calibrate part.mhpc --false-alarm 0.5% --with parts/fresh -o part.mhpc
    """
    if add and not images:
        raise UserError("--add goes with --with: it adds the scores of those images")
    if find is not None and (not defects or false_alarm is not None):
        raise UserError("--find goes with --defects, and chooses the rate itself: leave --false-alarm out")
    check_file(out, "part.mhpc")
    before = Detector.load(model)
    detector = before.calibrated(
        false_alarm,
        given_images(images) if images else None,
        add=add,
        threshold=threshold,
        all_good=all_good,
        execution=run.execution,
    )
    known: list[float] | None = None
    if defects:
        results = run.scores(detector, list_images(given_images(defects)))
        known = [result.score for result in results if result is not None]
        if find is not None:
            detector = detector.calibrated(rate_that_finds(detector.calibration, np.array(known), find))
    if out is not None:
        detector.save(out)
    warn_without_threshold(detector, out or model)
    facts = summary(detector, out or model, known) | {
        "threshold_before": before.threshold,
        "written": out is not None,
        "warnings": run.warnings,
    }
    written = f"wrote {out}" if out else f"not written; -o {model} would keep it"
    return Answer(facts, [*_calibrate_lines(detector, before, known), written])


def _calibrate_lines(detector: Detector, before: Detector, known: Sequence[float] | None) -> Iterator[str]:
    calibration = detector.calibration
    yield from threshold_lines(detector, "threshold   ", known)
    if calibration.judges:
        was = "" if detector.threshold == before.threshold else f"{threshold_before(before)}; "
        yield f"            {was}for pixels it is {calibration.pixel_threshold:.4g}"
    if calibration.n:
        yield f"from        {counted(calibration.n, 'image')}, {calibration.method}"
    if known is not None:
        found = sum(score > calibration.threshold for score in known)
        yield f"defects     {found} of {len(known)} exceed the threshold"


@command("skip_broken")
def teach(
    model: options.Model,
    defects: list[Path] = typer.Argument(
        ..., help="Images of defects: folders, files, or - for a list on standard input."
    ),
    name: str = typer.Option(
        None, metavar="NAME", help="What the defects are called (default: the name of their folder)."
    ),
    masks: options.Masks = None,
    *,
    out: options.ModelOut,
    run: Run,
) -> Answer:
    """Show a model some defects, so that parts that look like them are rejected, by name.

    Example: mhpatchcore teach part.mhpc parts/scratched --name scratch -o part.mhpc
    """
    check_file(out, "part.mhpc")
    images = given_images(defects)
    detector = Detector.load(model).taught(images, name=name, masks=masks, execution=run.execution)
    detector.save(out)
    new = detector.history[-1].images
    lines = (f"{out}: learnt {counted(new, 'image')} of defects", f"  defects    {defects_note(detector)}")
    facts = {"new_defects": new, "skipped": run.warnings}
    return Answer(summary(detector, out, history=True) | facts, lines)


@command("workers", "store", "store_limit", "skip_broken")
def update(
    model: options.Model,
    normals: list[Path] = typer.Argument(
        ...,
        help="Images of good parts that are new to the model: folders, files, or - for a list on standard input.",
    ),
    all_good: options.AllGood = False,
    stack: options.Stack = False,
    every: options.Every = 1,
    *,
    out: options.ModelOut,
    returned: bool = typer.Option(
        False,
        "--returned",
        help="They were picked because they had been rejected: learn them, but do not set the threshold by them.",
    ),
    other_product: options.OtherProduct = False,
    run: Run,
) -> Answer:
    """Learn from more images of good parts. The images of the first fit are not needed.

    Example: mhpatchcore update part.mhpc parts/returned --returned -o part.mhpc
    """
    check_file(out, "part.mhpc")
    before = Detector.load(model)
    check_product(out, before.model.product, other_product)
    images = given_images(normals, stack, every)
    detector = before.updated(images, returned=returned, all_good=all_good, execution=run.execution)
    detector.save(out)
    known = len(before.model.images)
    facts = summary(detector, out, history=True) | {
        "new_images": detector.history[-1].images,
        "threshold_before": before.threshold,
        "new_rows": sum(int((scale.origin[:, 0] >= known).sum()) for scale in detector.scales),
        "seconds": run.seconds,
        "warnings": run.warnings,
    }
    if before.calibration.n and detector.threshold > RISE * before.threshold:
        picked = "use --returned for parts that were picked because they had been rejected, and "
        warn(
            f"the threshold has risen from {before.threshold:.4g} to {detector.threshold:.4g}, so fewer defects are "
            f"found: {'' if returned else picked}`calibrate --with` a fair sample of today's parts"
        )
    warn_without_threshold(detector, out)
    return Answer(facts, _update_lines(facts, detector, before))


def _update_lines(facts: dict[str, Any], detector: Detector, before: Detector) -> Iterator[str]:
    new = counted(facts["new_images"], "new image")
    yield f"{facts['model']}: learnt {new}, now {facts['images']}, in {facts['seconds']:.1f} s"
    yield f"  bank       {facts['rows']} rows, {facts['new_rows']} of them from the new images"
    yield from threshold_lines(detector, "  threshold  ")
    yield f"             {threshold_before(before)}"


@command()
def merge(
    models: list[Path] = typer.Argument(..., help="Two or more model files of the same product."),
    out: Path = options.file("The model file to write.", *options.OUT, default=...),
    other_product: options.OtherProduct = False,
) -> Answer:
    """Combine models that were fitted separately, with the same settings on different images.

    Example: mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc
    """
    check_file(out, "part.mhpc")
    names = [str(model) for model in models]
    detector = Detector(merged([Detector.load(model).model for model in models], names))
    check_product(out, detector.model.product, other_product)
    detector.save(out)
    facts = summary(detector, out, history=True) | {"merged": names}
    lines = (
        f"{out}: {len(models)} models, {facts['images']} images",
        f"  bank       {bank_note(detector)}",
        f"  threshold  {threshold_note(detector)}",
    )
    return Answer(facts, lines)
