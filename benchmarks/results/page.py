"""docs/results.md and its figures, from the results that are kept beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.results import findings
from mhpatchcore import Config
from mhpatchcore.experiments.cells import read_rows
from mhpatchcore.experiments.ladder import STREAM, ladder_figures, ladder_tables
from mhpatchcore.experiments.published import dataset_table, reproduction_tables
from mhpatchcore.experiments.tables import (
    MAIN,
    auroc_and_memory,
    headline_table,
)
from mhpatchcore.report.figures import figure_bytes
from mhpatchcore.runtime.files import atomic_path, write_text

Row = dict[str, Any]
COLOURS = 64
LADDER_FOLDER = "ladder"
TITLES = {
    "efficientnet_lite0": "EfficientNet-Lite0, the embedded network",
    "resnet18": "ResNet-18",
    "resnet50_v1.onnx": "ResNet-50 v1 from an ONNX file: the paper's layers, 1,024 numbers per patch",
}


def write_page(results: Path, docs: Path) -> Path:
    """Read the rows of every part that there is, and write the page with its figures."""
    networks = {folder.name: read_rows(folder / "cells.csv") for folder in network_folders(results)}
    kept = results / LADDER_FOLDER / "cells.csv"
    ladder = read_rows(kept) if kept.is_file() else []
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    everything = [*ladder, *(row for rows in networks.values() for row in rows)]
    page = environment.get_template("page.md.j2").render(
        datasets=dataset_table(_statistics(everything)).markdown() if everything else None,
        networks=[_network(name, rows, docs / "results") for name, rows in networks.items()],
        ladder=_ladder(ladder, docs / "results") if ladder else None,
    )
    write_text(docs / "results.md", page)
    return docs / "results.md"


def network_folders(results: Path) -> list[Path]:
    """Where grids are kept: the embedded network's first, then by name."""
    folders = [path.parent for path in results.glob("*/cells.csv") if path.parent.name != LADDER_FOLDER]
    return sorted(folders, key=lambda folder: (folder.name != Config().backbone, folder.name))


def _network(name: str, rows: Sequence[Row], figures: Path) -> dict[str, Any]:
    claims = findings.claims_table(rows)
    by_category, means = reproduction_tables(rows, MAIN), reproduction_tables(rows, ())
    tables = (headline_table(rows), by_category.get("reproduction"), means.get("reproduction-costs"))
    network = rows[0]["backbone"]
    own = "a network of one's own" if network.endswith(".onnx") else "a named network"
    return {
        "title": TITLES.get(network, f"{network}, {own}"),
        "weights": rows[0]["weights_sha256"],
        "claims": claims and claims.markdown(),
        "tables": [replace(table, note="").markdown() for table in tables if table],  # the page has them once
        "figure": _draw(auroc_and_memory(rows), figures / f"{name}-pareto.png"),
        "cells": len(rows),
        "missing": findings.missing(rows),
        "minutes": findings.minutes(rows),
        "is_busy": findings.is_busy(rows),
        "cores": rows[0]["cores"],
        "swaps": findings.one_swap(rows),
    }


def _ladder(rows: Sequence[Row], figures: Path) -> dict[str, Any]:
    return {
        "category": rows[0]["dataset"],
        "tables": [replace(table, note="").markdown() for table in ladder_tables(rows).values()],
        "figures": [
            _draw(figure, figures / f"ladder-{name}.png") for name, figure in ladder_figures(rows).items()
        ],
        "margins": findings.margins(rows),
        "match": findings.matched(rows, STREAM),
        "cells": len(rows),
        "minutes": findings.minutes(rows),
        "is_busy": findings.is_busy(rows),
        "cores": rows[0]["cores"],
    }


def _statistics(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table of data sets from rows."""
    by_name = {row["dataset"]: row for row in rows}
    return [
        {
            "dataset": name,
            "labels": "image" if row["pixel_auroc"] is None else "image + pixel",
            "train": row["n_available"],
            "test": row["n_test"],
            "anomalous": row["n_anomalous"],
        }
        for name, row in sorted(by_name.items())
    ]


def _draw(figure: Figure | None, path: Path) -> str | None:
    """Write a figure and return its place as seen from the page."""
    if figure is None:
        return None
    few_colours = Image.open(BytesIO(figure_bytes(figure, "png"))).convert("RGB").quantize(COLOURS)
    with atomic_path(path) as temporary:
        few_colours.save(temporary, optimize=True)  # a page in a repository should stay small
    return f"{path.parent.name}/{path.name}"
