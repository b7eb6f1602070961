"""What the rows say: differences between configurations, beside what the paper reports of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mhpatchcore.evaluation.metrics import macro_average
from mhpatchcore.experiments.ladder import closest_in_ram
from mhpatchcore.experiments.published import PUBLISHED
from mhpatchcore.experiments.showing import Table, plain_entries, signed
from mhpatchcore.presets import OPEN_NETWORK

Row = dict[str, Any]
MINUTE = 60.0
DIGITS = 3
SMALL = 0.002


@dataclass(frozen=True)
class Claim:
    """That `better` beats `other` in mean image AUROC."""

    text: str
    better: str
    other: str

    @property
    def paper(self) -> float | None:
        """The difference of the paper's means over the 15 categories of MVTec AD, if it reports both."""
        means = PUBLISHED["mvtec"]["summary"]
        if self.better not in means or self.other not in means:
            return None
        return float(means[self.better]["image_auroc"] - means[self.other]["image_auroc"])


CLAIMS = (
    Claim("Whitening helps the streaming bank", "mh", "streaming-euclidean"),
    Claim("The offline reference stays ahead", "patchcore", "mh"),
    Claim("Patches serve better than centroids", "mh", "mh-kmeans"),
    Claim("Larger chunk summaries help", "mh-k1000-c1024", "mh"),
    Claim("A larger bank alone does not", "mh-k5000-c256", "mh"),
    Claim("Nor do both together", "mh-k5000-c4096", "mh"),
    Claim("A residual tail helps at the same size", "geores-k1000", "mh"),
    Claim("And with more rows", "geores-k2000", "mh"),
    Claim("The default against the paper's canonical setting", "default", "mh"),
    Claim("The default against the offline reference", "default", "patchcore"),
    Claim("A larger network and every fine patch (accurate) against the default", "accurate", "default"),
    Claim("One scale and fewer rows (fast) against the default", "fast", "default"),
)


def claims_table(rows: Sequence[Row]) -> Table | None:
    """Each claim with the paper's difference, the one found here, and where the first of the two loses.

    Only of configurations that ran on all data sets: a mean over the easy ones shows nothing. Pixels are those of whole
    images: some configurations crop, and others do not.
    """
    lines = []
    for claim in CLAIMS:
        image = differences(rows, claim.better, claim.other, "image_auroc")
        if set(image) != {row["dataset"] for row in rows}:
            continue
        pixel = differences(rows, claim.better, claim.other, "whole_pixel_auroc")
        behind = ", ".join(
            f"{name} {signed(value)}" for name, value in image.items() if round(value, DIGITS) < 0
        )
        texts = (
            f"{claim.better} − {claim.other}",
            "–" if claim.paper is None else signed(claim.paper),
            signed(macro_average(image.values())),
            _holds(claim.paper, macro_average(image.values())),
            signed(macro_average(pixel.values())) if pixel else "–",
            behind or "–",
        )
        lines.append((claim.text, plain_entries(texts)))
    heads = (
        "Difference of",
        "Paper, image AUROC",
        "Here",
        "Holds here",
        "Here, pixel AUROC (whole images)",
        "Behind on (image)",
    )
    return Table("The paper's findings, and ours", heads, tuple(lines)) if lines else None


def _holds(paper: float | None, here: float) -> str:
    """Whether a difference goes the paper's way, after rounding; no difference there means hardly any here."""
    if paper is None:
        return "–"
    found = round(here, DIGITS)
    if round(paper, DIGITS) == 0:
        return "yes" if abs(found) <= SMALL else "no"
    return "yes" if found > 0 else "level" if found == 0 else "no"


def differences(rows: Sequence[Row], first: str, second: str, name: str) -> dict[str, float]:
    """By data set, for those on which both ran."""
    values = {(row["preset"], row["dataset"]): row[name] for row in rows if row[name] is not None}
    return {
        dataset: values[first, dataset] - values[second, dataset]
        for preset, dataset in values
        if preset == first and (second, dataset) in values
    }


def one_swap(rows: Sequence[Row]) -> dict[str, float]:
    """By data set, what the order of a single pair of a good and a defective image is worth in AUROC."""
    return {
        row["dataset"]: 1 / (row["n_anomalous"] * (row["n_test"] - row["n_anomalous"]))
        for row in rows
        if 0 < row["n_anomalous"] < row["n_test"]
    }


def margins(rows: Sequence[Row]) -> list[tuple[str, list[int], list[int]]]:
    """By configuration, the sizes at which it is ahead of and behind offline PatchCore of the same size."""
    aurocs = {
        (row["preset"], row["n_train"]): round(row["image_auroc"], DIGITS)
        for row in rows
        if not row["grown_in"]
    }
    found: dict[str, tuple[list[int], list[int]]] = {}
    for (preset, n), auroc in sorted(aurocs.items()):
        offline = aurocs.get(("patchcore", n), auroc)
        if auroc != offline:
            found.setdefault(preset, ([], []))[auroc < offline].append(n)
    return [(preset, *sizes) for preset, sizes in found.items()]


def matched(rows: Sequence[Row], stream: str) -> tuple[Row, Row] | None:
    """The offline row at n* and the stream's row with the most images."""
    n = closest_in_ram(rows, stream)
    if n is None:
        return None
    fitted = [row for row in rows if not row["grown_in"]]
    offline = next(row for row in fitted if row["preset"] == "patchcore" and row["n_train"] == n)
    return offline, max((row for row in fitted if row["preset"] == stream), key=lambda row: row["n_train"])


def missing(rows: Sequence[Row]) -> list[str]:
    """The configurations that have not run on all data sets."""
    datasets, ran = {row["dataset"] for row in rows}, {(row["preset"], row["dataset"]) for row in rows}
    return [name for name in OPEN_NETWORK if any((name, dataset) not in ran for dataset in datasets)]


def is_busy(rows: Sequence[Row]) -> bool:
    """Whether others were at work when a cell began, or nobody knows. The cell before it counts for its cores."""
    return any(row["load"] is None or row["load"] > row["cores"] + 1 for row in rows)


def minutes(rows: Sequence[Row]) -> float:
    return float(sum(row["cell_seconds"] for row in rows)) / MINUTE
