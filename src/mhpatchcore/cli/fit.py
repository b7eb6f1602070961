"""`mhpatchcore fit NORMAL_DIR -o part.mhpc`"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli.console import (
    JsonFlag,
    QuietFlag,
    counted,
    print_json,
    printable,
    progress_display,
    warn_and_keep,
)
from mhpatchcore.cli.paths import check_file
from mhpatchcore.cli.settings import settings_from

GEOMETRY, BANK, SCORE, REST = "Geometry", "Bank", "Score and threshold", "The rest"
RUN = "How the work is done (changes nothing in the model)"


def fit(
    normals: Path = typer.Argument(..., help="A folder of images of good parts (subfolders are read too)."),
    output: Path = typer.Option(..., "--output", "-o", help="The model file to write, e.g. part.mhpc."),
    false_alarm: float = typer.Option(None, help="Share of good parts that may be rejected (default: 0.01)."),
    backbone: str = typer.Option(
        None,
        help="efficientnet_lite0 (installed with it, default), resnet18, resnet50, wide_resnet50_2, or an .onnx file.",
    ),
    weights: Path = typer.Option(None, help="A local weights file for the backbone (.safetensors, .pth)."),
    tag: str = typer.Option(None, help="Training recipe of weights from the hub (default: tv_in1k)."),
    precision: str = typer.Option(
        None, help="fp32 (default), int8, or auto: int8 where it is known to be faster."
    ),
    size: int = typer.Option(None, help="Side of the square the network sees, in pixels (default: 224)."),
    resize: int = typer.Option(
        None,
        help="Resize the shorter side to this and crop the centre (the paper: 256; default: see the whole image).",
    ),
    layers: str = typer.Option(
        None, help="Layers that describe patches, separated by commas, e.g. layer2,layer3."
    ),
    descriptor: str = typer.Option(
        None,
        help="concat, patchcore, or published: patchcore for ResNets (default: what suits the backbone).",
    ),
    report: Path = typer.Option(
        None, help="Write a page about the fit and its suspicious images into this HTML file."
    ),
    suspicious: int = typer.Option(
        0, min=0, metavar="N", help="Name the N images that stand farthest from the rest.", show_default=False
    ),
    exclude_suspicious: str = typer.Option(
        None, metavar="N|P%", help="Fit without the N images, or that share of them, that stand farthest."
    ),
    metric: str = typer.Option(None, help="mahalanobis or euclidean.", rich_help_panel=GEOMETRY),
    reduction: str = typer.Option(
        None, help="pca, ipca (the paper's literal path) or none.", rich_help_panel=GEOMETRY
    ),
    variance: float = typer.Option(None, help="Share of the variance to retain.", rich_help_panel=GEOMETRY),
    components: int = typer.Option(None, help="Keep this many directions instead.", rich_help_panel=GEOMETRY),
    shrinkage: str = typer.Option(
        None, help="A number from 0 to 1, or oas, rblw, ledoit-wolf, none.", rich_help_panel=GEOMETRY
    ),
    floor: float = typer.Option(
        None, help="Eigenvalue floor, relative to their mean.", rich_help_panel=GEOMETRY
    ),
    place: float = typer.Option(
        None,
        help="How much it counts that a patch is not where its like is seen (0: the paper).",
        rich_help_panel=GEOMETRY,
    ),
    constructor: str = typer.Option(
        None, help="always-full, tree, offline-greedy, kmeans, geores or random.", rich_help_panel=BANK
    ),
    K: int = typer.Option(None, "--rows", "-K", help="Rows of the bank (K).", rich_help_panel=BANK),
    m_c: int = typer.Option(
        None, "--local-rows", help="Rows kept of each chunk of images (m_c).", rich_help_panel=BANK
    ),
    dense: float = typer.Option(
        None, help="always-full: share of the rows drawn at random.", rich_help_panel=BANK
    ),
    shuffle: bool = typer.Option(
        None, help="Make the bank from the images in random order, or as they come.", rich_help_panel=BANK
    ),
    fraction: float = typer.Option(
        None, help="offline-greedy: this share of all patches.", rich_help_panel=BANK
    ),
    projection: int = typer.Option(
        None, help="offline-greedy: select in so many random directions.", rich_help_panel=BANK
    ),
    start: str = typer.Option(None, help="offline-greedy: first, centre or random.", rich_help_panel=BANK),
    alpha: float = typer.Option(None, help="geores: share of the main bank.", rich_help_panel=BANK),
    q: int = typer.Option(None, help="geores: candidates for the tail.", rich_help_panel=BANK),
    score: str = typer.Option(None, help="map-max, max or reweighted.", rich_help_panel=SCORE),
    reach: float = typer.Option(
        None,
        help="How much the bank's local spacing counts in the image score (0: the paper).",
        rich_help_panel=SCORE,
    ),
    span: int = typer.Option(
        None,
        help="Nearest bank rows between which a patch counts as known in the image score (1: the paper).",
        rich_help_panel=SCORE,
    ),
    parts: int = typer.Option(
        None, help="Parts of the bank the map averages over (1: the paper).", rich_help_panel=SCORE
    ),
    neighbours: int = typer.Option(
        None, help="reweighted: bank rows that the weight looks at (b).", rich_help_panel=SCORE
    ),
    sigma: float = typer.Option(
        None, help="Smoothing of the map, in pixels of the view.", rich_help_panel=SCORE
    ),
    calibration: str = typer.Option(None, help="cross-image or held-out.", rich_help_panel=SCORE),
    calibration_images: int = typer.Option(
        None, help="Images used for the threshold.", rich_help_panel=SCORE
    ),
    chunk_images: int = typer.Option(None, help="Images per chunk.", rich_help_panel=REST),
    stored_as: str = typer.Option(None, help="Keep descriptors as float16 or float32.", rich_help_panel=REST),
    seed: int = typer.Option(None, help="Seed of everything random.", rich_help_panel=REST),
    settings: Path = typer.Option(None, help="A TOML file of settings; flags win over it."),
    preset: str = typer.Option(
        "default",
        help="A named configuration to start from (see `mhpatchcore presets`).",
        show_default=False,
    ),
    workers: int = typer.Option(
        None, min=1, metavar="N", help="Threads (default: one per core).", rich_help_panel=RUN
    ),
    batch: int = typer.Option(
        1, min=1, metavar="N", help="Images per call of the network.", rich_help_panel=RUN
    ),
    spool: str = typer.Option("disk", help="disk, or none to run the network twice.", rich_help_panel=RUN),
    spool_dir: Path = typer.Option(
        None, help="Folder for the spool (default: the temporary folder).", rich_help_panel=RUN
    ),
    memory: str = typer.Option(
        None,
        metavar="SIZE",
        help="Stay within this much memory, e.g. 600MB or 1.5GB: workers and batch are then upper bounds.",
        rich_help_panel=RUN,
    ),
    skip_broken: bool = typer.Option(
        False, "--skip-broken", help="Leave out images that cannot be read, and say so.", rich_help_panel=RUN
    ),
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
) -> None:
    """Learn what good parts look like and write a model file.

    Example: mhpatchcore fit parts/good -o part.mhpc

    Only the folder and -o are needed; the other options are for experiments.

    Settings that are not given come from the preset (`mhpatchcore presets --json` shows them).
    """
    given = dict(locals())
    from mhpatchcore.detector import Detector
    from mhpatchcore.fitting.budget import Estimate
    from mhpatchcore.fitting.extraction import Execution
    from mhpatchcore.inspection.suspicion import Scrutiny, parse_exclusion
    from mhpatchcore.presets import preset as named
    from mhpatchcore.runtime.memory import in_words, parse_size, share_one_heap
    from mhpatchcore.runtime.parallel import available_cores
    from mhpatchcore.runtime.telemetry import Telemetry

    config = settings_from(settings, given, named(preset).config)
    check_file(output, "part.mhpc")
    check_file(report, "fit.html", output)
    scrutiny = Scrutiny(
        rank=suspicious > 0 or report is not None,
        exclude=parse_exclusion(exclude_suspicious) if exclude_suspicious else 0,
        coverage=report is not None,
    )
    budget = parse_size(memory) if memory else None
    foreseen: list[Estimate] = []
    skipped: list[str] = []

    def foresee(estimate: Estimate) -> None:
        foreseen.append(estimate)
        if not quiet:
            print(f"memory: {estimate}", file=sys.stderr)

    share_one_heap()
    started = time.perf_counter()
    with progress_display(quiet) as progress:
        telemetry = Telemetry(also=progress)
        execution = Execution(
            workers=workers or available_cores(),
            batch=batch,
            spool=spool,
            spool_folder=spool_dir,
            skip_broken=skip_broken,
            memory=budget,
            progress=telemetry.progress,
            spent=telemetry.spent,
            warn=warn_and_keep(skipped),
            foresee=foresee,
        )
        study = Detector.study(normals, config, scrutiny, weights=weights, execution=execution)
        detector = study.detector
        detector.save(output)
        telemetry.finish()
    if report is not None:
        from mhpatchcore.report.fit import write_fit_report

        write_fit_report(study, output.name, report, telemetry.to_json())
    suspects = study.suspects[:suspicious]
    facts = summary(detector, output) | {
        "seconds": round(time.perf_counter() - started, 2),
        "memory_peak": telemetry.peak_rss,
        "memory_estimate": foreseen[0].peak if foreseen else None,
        "skipped": skipped,
    }
    if as_json:
        asked = {"suspicious": [suspect.to_json() for suspect in suspects]} if suspicious else {}
        print_json(facts | asked | ({"report": str(report)} if report is not None else {}))
        return
    print(
        f"{output}: learnt from {counted(facts['images'], 'image')} in {facts['seconds']:.1f} s, "
        f"{in_words(facts['memory_peak'])} at most"
    )
    print(
        f"  backbone   {facts['backbone']}, weights {facts['weights_sha256'][:12]} ({facts['weights_source']})"
    )
    print(f"  bank       {facts['rows']} rows of {facts['dimensions']} dimensions")
    print(f"  threshold  {threshold_note(detector)}")
    if detector.excluded:
        print(f"  left out   {', '.join(map(printable, detector.excluded))}")
    if suspects:
        print("  suspicious (× the typical image)")
    for suspect in suspects:
        print(
            f"    {suspect.times_typical:6.2f}  {printable(suspect.name)}{'  (left out)' if suspect.excluded else ''}"
        )
    if report is not None:
        print(f"open: {report}")
    print(f"next: mhpatchcore score {output} IMAGES --heatmaps heatmaps/")


def summary(detector: Any, path: Path) -> dict[str, Any]:
    """The facts about a model that `fit` and `info` print."""
    info = detector.backbone.info
    return {
        "model": str(path),
        "images": detector.n_learnt,
        "backbone": info.name,
        "weights_source": info.weights_source,
        "weights_sha256": info.weights_sha256,
        "precision": info.precision,
        "rows": len(detector.bank_raw),
        "dimensions": detector.whitening.k,
        "retained_variance": detector.whitening.retained,
        "shrinkage": detector.whitening.lam,
        "threshold": detector.threshold,
        "pixel_threshold": detector.calibration.pixel_threshold,
        "false_alarm": detector.calibration.false_alarm,
        "supported_false_alarm": detector.calibration.supported_rate,
        "calibration_images": detector.calibration.n,
        "calibration": detector.calibration.method,
        "excluded": list(detector.excluded),
    }


def threshold_note(detector: Any) -> str:
    """The threshold and what it promises, in words."""
    calibration = detector.calibration
    if calibration.n == 0:
        return "none, because it takes a second image: `mhpatchcore calibrate --with IMAGES` sets one"
    note = f"{calibration.threshold:.4g}: about {calibration.supported_rate:.2%} of good parts will exceed it"
    if calibration.supported_rate > calibration.false_alarm:
        note += (
            f" ({counted(calibration.n, 'calibration image')} support no smaller rate; "
            f"{calibration.false_alarm:.2%} needs {calibration.needed})"
        )
    return note
