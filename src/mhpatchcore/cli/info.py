"""`mhpatchcore info part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, counted, print_json, printable
from mhpatchcore.cli.fit import summary, threshold_note
from mhpatchcore.cli.history import history_facts, told
from mhpatchcore.detector import Detector
from mhpatchcore.model.file import read_document


def info(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    as_json: bool = JsonFlag,
) -> None:
    """Show what a model file holds: where it comes from, its settings, its threshold."""
    document = read_document(model)
    detector = Detector.load(model)
    facts = summary(detector, model)
    if as_json:
        print_json(
            facts
            | {"config": document["config"], "version": document["version"], "format": document["format"]}
            | {"history": history_facts(detector)}
        )
        return
    backbone, config = detector.backbone.info, detector.config
    print(f"{model}  (written by mhpatchcore {document['version']}, {model.stat().st_size / 1e6:.1f} MB)")
    print(f"  images      {counted(facts['images'], 'normal image')}, {detector.moments.n} patches")
    if detector.excluded:
        print(f"  left out    {', '.join(map(printable, detector.excluded))}")
    print(
        f"  backbone    {backbone.name}, layers {', '.join(backbone.layers)}, {backbone.descriptor} descriptor"
    )
    print(f"  weights     {backbone.weights_source}, sha256 {backbone.weights_sha256}")
    print(f"  precision   {backbone.precision}")
    print(f"  view        {backbone.height} × {backbone.width}, grid {backbone.grid[0]} × {backbone.grid[1]}")
    print(
        f"  whitening   {backbone.dim} → {facts['dimensions']} dimensions, {facts['retained_variance']:.2%} retained"
    )
    print(f"              shrinkage {facts['shrinkage']:.3g}, jitter {detector.whitening.jitter:.0e}")
    print(f"              place counts {config.place:g}")
    print(f"  bank        {facts['rows']} rows by {config.constructor}")
    print(
        f"  score       {config.score}, reach {config.reach:g}, span {config.span}, map of {config.parts} parts"
    )
    print(f"  threshold   {threshold_note(detector)}")
    print(f"              from {counted(facts['calibration_images'], 'image')}, {facts['calibration']}")
    for i, event in enumerate(detector.history):
        print(f"  {'history' if i == 0 else '':12}{told(event)}")
