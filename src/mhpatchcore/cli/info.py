"""`mhpatchcore info part.mhpc`"""

from __future__ import annotations

from pathlib import Path

import typer

from mhpatchcore.cli.console import JsonFlag, counted, print_json, printable
from mhpatchcore.cli.facts import copies_note, defects_note, history_facts, print_threshold, summary, told
from mhpatchcore.detector import Detector
from mhpatchcore.model.file import read_document, read_file


def info(
    model: Path = typer.Argument(..., help="A model file written by `fit`."),
    as_json: bool = JsonFlag,
) -> None:
    """Show what a model file holds: where it comes from, its settings, its threshold."""
    detector = Detector.load(model)
    content, name = read_file(model)
    document = read_document(content, name)
    facts = summary(detector, model)
    if as_json:
        written = {name: document[name] for name in ("config", "version", "format")}
        print_json(facts | written | {"history": history_facts(detector)})
        return
    learnt, config = detector.model, detector.config
    backbone = learnt.scales[0].backbone.info
    print(f"{name}  (written by mhpatchcore {printable(document['version'])}, {len(content) / 1e6:.1f} MB)")
    print(f"  product     {printable(learnt.product) or 'not known'}")
    print(f"  images      {counted(facts['images'], 'normal image')}, {learnt.patches} patches")
    if learnt.defects.names:
        print(f"  defects     {defects_note(detector)}")
    if learnt.excluded:
        print(f"  left out    {', '.join(map(printable, learnt.excluded))}")
    print(f"  copies      {copies_note(detector)}")
    layers = ", ".join(backbone.layers)
    network = f"{backbone.name}, layers {layers}, {backbone.descriptor} descriptor"
    # a file from elsewhere may hold any texts, and a terminal obeys some of them
    print(f"  backbone    {printable(network)}")
    print(f"  weights     {printable(f'{backbone.weights_source}, sha256 {backbone.weights_sha256}')}")
    print(f"  precision   {printable(backbone.precision)}")
    print(f"  depth       {printable(config.views[0].window.note)}")
    for scale in learnt.scales:
        seen, whitening = scale.backbone.info, scale.whitening
        print(f"  view        {seen.height} × {seen.width}, grid {seen.grid[0]} × {seen.grid[1]}")
        retained = f"{whitening.retained:.2%} retained"
        print(f"  whitening   {seen.dim} → {whitening.k} dimensions, {retained}")
        print(f"              shrinkage {whitening.lam:.3g}, jitter {whitening.jitter:.0e}")
        print(f"  bank        {len(scale.raw)} rows by {config.constructor}")
    print(f"  score       {config.score}, local {config.local}")
    print_threshold(detector, "  threshold   ")
    if facts["calibration_images"]:
        print(
            f"              from {counted(facts['calibration_images'], 'image')}, {printable(facts['calibration'])}"
        )
    for i, event in enumerate(detector.history):
        print(f"  {'history' if i == 0 else '':12}{printable(told(event))}")
