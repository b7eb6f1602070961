"""`mhpatchcore info part.mhpc`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted, printable
from mhpatchcore.cli.facts import copies_note, defects_note, describe, summary, threshold_lines
from mhpatchcore.detector import Detector
from mhpatchcore.model.file import read_document, read_file


@command()
def info(model: options.Model) -> Answer:
    """Show what a model file holds: where it comes from, its settings, its threshold."""
    detector = Detector.load(model)
    content, name = read_file(model)
    document = read_document(content, name)
    facts = summary(detector, model, history=True) | {
        one: document[one] for one in ("config", "version", "format")
    }
    size = f"{len(content) / 1e6:.1f} MB"
    title = f"{name}  (written by mhpatchcore {printable(document['version'])}, {size})"
    return Answer(facts, [title, *_lines(detector, facts)])


def _lines(detector: Detector, facts: dict[str, Any]) -> Iterator[str]:
    learnt, config = detector.model, detector.config
    backbone = learnt.scales[0].backbone.info
    yield f"  product     {printable(learnt.product) or 'not known'}"
    yield f"  images      {counted(facts['images'], 'normal image')}, {learnt.patches} patches"
    if learnt.defects.names:
        yield f"  defects     {defects_note(detector)}"
    if learnt.excluded:
        yield f"  left out    {', '.join(map(printable, learnt.excluded))}"
    yield f"  copies      {copies_note(detector)}"
    layers = ", ".join(backbone.layers)
    network = f"{backbone.name}, layers {layers}, {backbone.descriptor} descriptor"
    # a file from elsewhere may hold any texts, and a terminal obeys some of them
    yield f"  backbone    {printable(network)}"
    yield f"  weights     {printable(f'{backbone.weights_source}, sha256 {backbone.weights_sha256}')}"
    yield f"  precision   {printable(backbone.precision)}"
    yield f"  depth       {printable(config.views[0].window.note)}"
    for scale in learnt.scales:
        seen, whitening = scale.backbone.info, scale.whitening
        yield f"  view        {seen.height} × {seen.width}, grid {seen.grid[0]} × {seen.grid[1]}"
        retained = f"{whitening.retained:.2%} retained"
        yield f"  whitening   {seen.dim} → {whitening.k} dimensions, {retained}"
        yield f"              shrinkage {whitening.lam:.3g}, jitter {whitening.jitter:.0e}"
        yield f"  bank        {len(scale.raw)} rows by {config.constructor}"
    yield f"  score       {config.score}, local {config.local}"
    yield from threshold_lines(detector, "  threshold   ")
    if facts["calibration_images"]:
        yield (
            f"              from {counted(facts['calibration_images'], 'image')}, {printable(facts['calibration'])}"
        )
    for i, event in enumerate(detector.history):
        yield f"  {'history' if i == 0 else '':12}{printable(describe(event))}"
