"""Commands about a model that is there: `info`, `calibrate`, `teach`, `update` and `merge`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mhpatchcore.calibration.choices import rate_that_finds
from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, labelled, printable, warn
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
from mhpatchcore.cli.paths import check_product, given_images
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
    facts = summary(detector, model)
    facts |= {one: document[one] for one in ("config", "version", "format")}
    size = f"{len(content) / 1e6:.1f} MB"
    title = f"{name}  (written by mhpatchcore {printable(document['version'])}, {size})"
    return Answer(facts, [title, *_info_lines(detector)])


def _info_lines(detector: Detector) -> Iterator[str]:
    model, config, calibration = detector.model, detector.config, detector.calibration
    network = model.scales[0].backbone.info
    scales = []
    for scale in model.scales:
        seen, whitening = scale.backbone.info, scale.whitening
        dimensions = f"{seen.dim} → {whitening.k} dimensions, {whitening.retained:.2%} retained"
        scales += [
            ("view", f"{seen.height} × {seen.width}, grid {seen.grid[0]} × {seen.grid[1]}"),
            ("whitening", [dimensions, f"shrinkage {whitening.lam:.3g}, jitter {whitening.jitter:.0e}"]),
            ("bank", f"{len(scale.raw)} rows by {config.constructor}"),
        ]
    measured = f"from {counted(calibration.n, 'image')}, {calibration.method}" if calibration.n else ""
    return labelled(
        ("product", model.product or "not known"),
        ("images", f"{counted(model.n_learnt, 'normal image')}, {model.patches} patches"),
        ("defects", defects_note(detector)),
        ("left out", ", ".join(model.excluded)),
        ("copies", copies_note(detector)),
        ("backbone", f"{network.name}, layers {', '.join(network.layers)}, {network.descriptor} descriptor"),
        ("weights", f"{network.weights_source}, sha256 {network.weights_sha256}"),
        ("precision", network.precision),
        ("depth", config.views[0].window.note),
        *scales,
        ("score", f"{config.score}, local {config.local}"),
        ("threshold", [*threshold_lines(detector), measured]),
        ("history", list(map(describe, detector.history))),
    )


@command("workers", "store", "store_limit", "skip_broken")
def calibrate(
    model: options.Model,
    false_alarm: options.FalseAlarm = None,
    images: list[Path] = options.option(
        "Good parts that the model has not learnt from: a folder, a file, or - for standard input; may be repeated.",
        "--with",
        metavar="IMAGES",
    ),
    all_good: options.AllGood = False,
    threshold: float = options.option("Your own threshold: scores above it are rejected.", metavar="SCORE"),
    add: bool = options.flag("--add", "Keep the stored scores too, beside those of --with."),
    defects: list[Path] = options.option("Known defects: how many each rate would find.", metavar="IMAGES"),
    find: float = options.share(
        "With --defects: take the highest threshold that finds this share of them.", "--find"
    ),
    out: Path = options.out("The model file (default: only show the threshold).", "part.mhpc", default=None),
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
    before = Detector.load(model)
    fresh = given_images(images) if images else None
    detector = before.calibrated(
        false_alarm, fresh, add=add, threshold=threshold, all_good=all_good, execution=run.execution
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
    was = "" if detector.threshold == before.threshold else f"{threshold_before(before)}; "
    pixels = f"{was}for pixels it is {calibration.pixel_threshold:.4g}" if calibration.judges else ""
    found = sum(score > calibration.threshold for score in known or ())
    return labelled(
        ("threshold", [*threshold_lines(detector, known), pixels]),
        ("from", f"{counted(calibration.n, 'image')}, {calibration.method}" if calibration.n else ""),
        ("defects", f"{found} of {len(known)} exceed the threshold" if known is not None else ""),
    )


@command("skip_broken")
def teach(
    model: options.Model,
    defects: list[Path] = options.argument("Defects: folders, files, or - for standard input."),
    name: str = options.option("What they are called (default: the name of their folder).", metavar="NAME"),
    masks: options.Masks = None,
    *,
    out: options.ModelOut,
    run: Run,
) -> Answer:
    """Show a model some defects, so that parts that look like them are rejected, by name.

    Example: mhpatchcore teach part.mhpc parts/scratched --name scratch -o part.mhpc
    """
    images = given_images(defects)
    detector = Detector.load(model).taught(images, name=name, masks=masks, execution=run.execution)
    detector.save(out)
    new = detector.history[-1].images
    title = f"{out}: learnt {counted(new, 'image')} of defects"
    facts = summary(detector, out) | {"new_defects": new, "skipped": run.warnings}
    return Answer(facts, [title, *labelled(("defects", defects_note(detector)))])


@command("workers", "store", "store_limit", "skip_broken")
def update(
    model: options.Model,
    normals: list[Path] = options.argument("New good parts: folders, files, or - for standard input."),
    all_good: options.AllGood = False,
    stack: options.Stack = False,
    every: options.Every = 1,
    *,
    out: options.ModelOut,
    returned: bool = options.flag(
        "--returned",
        "They had been rejected: learn them, but do not set the threshold by them.",
    ),
    other_product: options.OtherProduct = False,
    run: Run,
) -> Answer:
    """Learn from more images of good parts. The images of the first fit are not needed.

    Example: mhpatchcore update part.mhpc parts/returned --returned -o part.mhpc
    """
    before = Detector.load(model)
    check_product(out, before.model.product, other_product)
    images = given_images(normals, stack, every)
    detector = before.updated(images, returned=returned, all_good=all_good, execution=run.execution)
    detector.save(out)
    known = len(before.model.images)
    facts = summary(detector, out) | {
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
    new = counted(facts["new_images"], "new image")
    lines = labelled(
        ("bank", f"{facts['rows']} rows, {facts['new_rows']} of them from the new images"),
        ("threshold", [*threshold_lines(detector), threshold_before(before)]),
    )
    title = f"{facts['model']}: learnt {new}, now {facts['images']}, in {facts['seconds']:.1f} s"
    return Answer(facts, [title, *lines])


@command()
def merge(
    models: list[Path] = options.argument("Two or more model files of the same product."),
    out: Path = options.out("The model file to write.", "part.mhpc"),
    other_product: options.OtherProduct = False,
) -> Answer:
    """Combine models that were fitted separately, with the same settings on different images.

    Example: mhpatchcore merge line1.mhpc line2.mhpc -o part.mhpc
    """
    names = [str(model) for model in models]
    detector = Detector(merged([Detector.load(model).model for model in models], names))
    check_product(out, detector.model.product, other_product)
    detector.save(out)
    facts = summary(detector, out) | {"merged": names}
    lines = labelled(("bank", bank_note(detector)), ("threshold", threshold_note(detector)))
    return Answer(facts, [f"{out}: {len(models)} models, {facts['images']} images", *lines])
