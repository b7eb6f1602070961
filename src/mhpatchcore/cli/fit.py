"""`mhpatchcore fit IMAGES -o part.mhpc`, and `mhpatchcore fit-many PARTS -o models` for many products."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, labelled, printable, warn
from mhpatchcore.cli.facts import (
    bank_note,
    copies_note,
    defects_note,
    summary,
    threshold_lines,
    warn_without_threshold,
)
from mhpatchcore.cli.paths import given_images
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector, Study
from mhpatchcore.fitting.budget import Estimate
from mhpatchcore.fitting.checks import ImageChecks, Suspect, parse_exclusion
from mhpatchcore.runtime.costs import Costs
from mhpatchcore.runtime.system import share_one_heap
from mhpatchcore.runtime.texts import format_bytes
from mhpatchcore.runtime.urls import shown

if TYPE_CHECKING:
    from mhpatchcore.batch.many import Fitted

RARE = ("device", "stack", "every", "weights", "defect_masks", "batch", "store_limit", "memory", "cluster")
SUMMARY = "summary.html"
SOME_FAILED = 6


@command("workers", "batch", "store", "store_limit", "memory", "cluster", "skip_broken", rare=RARE)
def fit(
    normals: list[Path] = options.argument(f"Images of good parts: {options.IMAGES}"),
    out: Path = options.out("The model file to write, e.g. part.mhpc.", "part.mhpc"),
    *,
    name: str = options.option(
        "What the parts are (default: the name of their folder, leaving out good, train and the like). A model of "
        "another product cannot replace it by mistake.",
        metavar="PRODUCT",
    ),
    config: Config,
    all_good: options.AllGood = False,
    stack: options.Stack = False,
    every: options.Every = 1,
    weights: options.Weights = None,
    report: Path = options.output("Write an HTML page about the fit and its suspicious images.", "fit.html"),
    suspicious: int = options.number("Name the N images that differ most from the rest.", default=0, min=0),
    exclude_suspicious: str = options.option(
        "Fit without the N most suspicious images, or that share.", metavar="N|SHARE"
    ),
    defects: Path = options.folder("Known defects, in a folder for each kind: see `mhpatchcore teach`."),
    defect_masks: options.Masks = None,
    run: Run,
    device: options.Device = None,
) -> Answer:
    """Learn what good parts look like and write a model file.

    Example: mhpatchcore fit parts/good -o part.mhpc

    Only the images and -o are needed; --help-all also shows the options for experiments. Given a whole data set
    (train/good, test, …), it learns the normal training images. Folders whose names suggest defects or masks are
    refused.

    Settings that you do not give come from the preset (`mhpatchcore presets --json` shows them). A SHARE is a number
    or a percentage: 0.05 or 5%.
    """
    checks = ImageChecks(
        rank=suspicious > 0 or report is not None,
        exclude=parse_exclusion(exclude_suspicious) if exclude_suspicious else 0,
        coverage=report is not None,
    )
    foreseen: list[Estimate] = []

    def foresee(estimate: Estimate) -> None:
        foreseen.append(estimate)
        if not run.quiet:
            print(f"memory: {estimate}", file=sys.stderr)

    share_one_heap()
    costs = Costs()
    known: list[float] | None = None
    executor = run.executor if run.cluster else None
    execution = replace(run.execution, telemetry=costs, foresee=foresee, executor=executor)
    images = given_images(normals, stack, every)
    study = Detector.study(
        images, config, checks, weights=weights, name=name, all_good=all_good, execution=execution
    )
    if defects is not None:
        detector = study.detector.taught(defects, masks=defect_masks, execution=execution)
        study = replace(study, detector=detector)
        scored = detector.score_many(defects, run.workers, lambda error: None)
        known = [result.score for result in scored if result is not None]
    study.detector.save(out)
    if report is not None:
        from mhpatchcore.report.fit import write_fit_report

        write_fit_report(study, out.name, report, costs.to_json())
    suspects = study.suspects[:suspicious]
    facts = summary(study.detector, out, known) | {
        "seconds": run.seconds,
        "memory_peak": costs.peak_rss,
        "memory_estimate": foreseen[0].peak if foreseen else None,
        "passed_over": dict(Counter(Path(one).suffix.lower() for one in study.passed_over).most_common()),
        "warnings": run.warnings,
        **({"suspicious": [suspect.to_json() for suspect in suspects]} if suspicious else {}),
        **({"report": shown(report)} if report else {}),
    }
    warn_without_threshold(study.detector, out)
    return Answer(facts, _lines(study, facts, suspects, known))


def _lines(
    study: Study, facts: dict[str, Any], suspects: Sequence[Suspect], known: Sequence[float] | None
) -> Iterator[str]:
    detector = study.detector
    yield (
        f"{facts['model']}: learnt from {counted(facts['images'], 'image')} in {facts['seconds']:.1f} s, "
        f"{format_bytes(facts['memory_peak'])} at most"
    )
    weights = f"weights {facts['weights_sha256'][:12]} ({facts['weights_source']})"
    kinds = ", ".join(f"{n} {kind or 'without a suffix'}" for kind, n in facts["passed_over"].items())
    yield from labelled(
        ("backbone", f"{facts['backbone']}, {weights}"),
        ("bank", bank_note(detector)),
        ("copies", copies_note(detector)),
        ("defects", defects_note(detector)),
        ("threshold", threshold_lines(detector, known)),
        ("not read", kinds and f"files that are not images: {kinds}"),
        ("left out", ", ".join(detector.model.excluded)),
    )
    if suspects:
        yield "  suspicious (× the typical image)"
    for suspect in suspects:
        left_out = "  (left out)" if suspect.excluded else ""
        yield f"    {suspect.times_typical:6.2f}  {printable(suspect.name)}{left_out}"
    if "report" in facts:
        yield f"open: {facts['report']}"
    if detector.calibration.judges:
        yield f"next: mhpatchcore score {facts['model']} IMAGES --heatmaps heatmaps/"


@command("workers", "cluster", "skip_broken", rare=("weights", "cluster"))
def fit_many(
    parts: Path = options.argument(
        "A folder with a folder for each product. Images of good parts are in its good/ (or ok/, normal/) or "
        "train/good/, or in the folder itself."
    ),
    out: Path = options.out("The folder for the models, one for each product.", "models/"),
    *,
    config: Config,
    all_good: options.AllGood = False,
    weights: options.Weights = None,
    run: Run,
    device: options.Device = None,
) -> Answer:
    """Learn a model for every product, one for each subfolder, and write a page about them all.

    Example: mhpatchcore fit-many plant/parts -o plant/models

    The next run fits only products whose images or settings have changed. A product that cannot be fitted does not
    stop the others.
    """
    from mhpatchcore.batch.many import Recipe, fit_products, products_in, render
    from mhpatchcore.inputs.files import absolute_name
    from mhpatchcore.runtime.files import write_text

    products = products_in(parts)
    share_one_heap()
    local_weights = None if weights is None else absolute_name(weights)
    recipe = Recipe(config, absolute_name(out), local_weights, run.execution.skip_broken, all_good)
    fitted = []
    width = max(len(printable(product.name)) for product in products)
    progress = run.execution.progress
    progress("products", 0, len(products))
    for one in fit_products(recipe, products, run.executor):
        fitted.append(one)
        progress("products", len(fitted), len(products))
        messages = [] if one.kept else [*one.warnings]
        if one.error is not None:
            messages.append(one.error)
        for message in messages:
            warn(f"{one.product}: {message}")
        if one.error is None and not run.as_json:
            print(f"{printable(one.product):{width}}  {_product_line(one)}", flush=True)
    seconds, page = run.seconds, f"{recipe.out}/{SUMMARY}"
    write_text(page, render(recipe, products, fitted, seconds))
    failed = [one.product for one in fitted if one.error is not None]
    kept = sum(one.kept for one in fitted)
    if failed:
        print(f"{len(failed)} of {counted(len(fitted), 'product')} failed", file=sys.stderr)
    facts = {
        "models": shown(out),
        "failed": failed,
        "seconds": seconds,
        "summary": page,
        "products": [one.to_json() for one in fitted],
    }
    fresh = counted(len(fitted) - len(failed) - kept, "model")
    lines = (
        f"{fresh} fitted in {seconds:.1f} s, {kept} kept, {len(failed)} failed",
        f"open: {shown(out / SUMMARY)}",
    )
    return Answer(facts, lines, exit_code=SOME_FAILED if failed else 0)


def _product_line(one: Fitted) -> str:
    threshold = "none" if one.threshold is None else f"{one.threshold:.4g}"
    expected = "" if one.false_alarm is None else f", about {one.false_alarm:.2%} of good parts exceed it"
    time = "(kept)" if one.kept else f"{one.seconds:.1f} s"
    odd = f"  far beyond all others: {printable(', '.join(one.odd))}" if one.odd else ""
    return f"{one.images:5d} images  threshold {threshold:>7}{expected}  {time}{odd}"
