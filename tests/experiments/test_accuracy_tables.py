"""The tables of the accuracy study: what they compare, and how they get onto their page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("benchmarks.accuracy", reason="benchmarks are not here")

from benchmarks.accuracy import tables
from benchmarks.accuracy.__main__ import VARIANTS
from benchmarks.accuracy.cells import Cell, auroc_error, read_variants
from benchmarks.accuracy.page import paste, study_tables, with_tables

from mhpatchcore.errors import UserError
from mhpatchcore.evaluation.metrics import auroc

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def cell(variant: str, category: str, seed: int, image: float, pixel: float = np.nan) -> Cell:
    return Cell(variant, category, seed, 150, image, pixel, pixel, 10_000, 1.0)


CELLS = [
    cell("default", "bottle", 0, 0.90, 0.8),
    cell("default", "bottle", 1, 0.92, 0.8),
    cell("default", "casting", 0, 0.80),
    cell("default", "casting", 1, 0.84),
    cell("plain", "bottle", 0, 0.95, 0.7),  # better than chance explains
    cell("plain", "casting", 0, 0.79),  # no worse than that
    cell("offline", "bottle", 0, 0.99, 0.9),  # casting has not been run yet
]


def test_a_line_that_lacks_a_category_has_no_mean() -> None:
    assert tables.whole_lines(CELLS, ["default", "plain", "offline"]) == ["default", "plain"]
    assert tables.means_of(CELLS, "offline") == {}
    assert tables.means_of(CELLS, "default") == pytest.approx({"image": 0.865, "pixel": 0.8, "aupro": 0.8})


def test_the_sampling_error_of_a_mean_is_that_of_independent_categories() -> None:
    known = [replace(one, error=0.03 if one.category == "bottle" else 0.04) for one in CELLS]
    assert tables.sampling_error(known, "default") == "± 0.025"
    assert tables.sampling_error(known, "offline") == tables.sampling_error(CELLS, "default") == "–"


def test_defects_found_stand_beside_the_auroc_where_they_were_counted() -> None:
    counted = [replace(one, found=0.75) if one.variant == "default" else one for one in CELLS]
    lines = study_tables(counted, read_variants(VARIANTS))["summary"].splitlines()
    assert lines[0].startswith("| | what it is | image AUROC | defects found | pixel AUROC |")
    assert "| 0.865 | 0.750 | 0.800 |" in lines[2] and "| – | – | – | – |" in lines[3]
    assert np.isnan(tables.difference(counted, "plain", "found"))


def test_lines_are_compared_on_the_seeds_that_both_have() -> None:
    assert tables.difference(CELLS, "plain", "image") == pytest.approx((0.05 - 0.01) / 2)
    assert tables.difference(CELLS, "plain", "pixel") == pytest.approx(-0.1)
    assert tables.better_and_worse(CELLS, "plain") == "1 / 0"


def test_the_spread_names_the_category_that_seeds_move_most() -> None:
    assert tables.spread(CELLS, ["default", "plain"]).splitlines()[2:] == [
        "| default | 2 | 0.8500, 0.8800 | 0.0300 | 0.040 (casting) |"
    ]


def test_the_others_choose_for_a_category_that_is_left_out() -> None:
    assert tables.left_out(CELLS, ["default", "plain", "offline"]).splitlines()[2:] == [
        "| bottle | default | 0.910 | 0.910 | 0.950 (plain) |",
        "| casting | plain | 0.790 | 0.820 | 0.820 (default) |",
    ]


def test_the_page_has_places_for_tables_that_there_are(tmp_path: Path) -> None:
    found = study_tables(CELLS, read_variants(VARIANTS))
    copy = tmp_path / "accuracy.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert {"summary", "ingredients", "image", "spread", "left-out"} <= set(paste(copy, "lite0", found))
    assert (
        "| default | what `fit` does without flags | 0.865 | – | 0.800 | 0.800 | – | 2 |" in copy.read_text()
    )
    again = copy.read_text()
    paste(copy, "lite0", found)
    assert copy.read_text() == again
    with pytest.raises(UserError, match="there is no table 'other'"):
        with_tables("<!-- a:other -->\n<!-- /a:other -->", "a", found)


def test_few_normals_are_a_table_of_their_own() -> None:
    few = [cell("default@2", name, seed, 0.7 + 0.1 * seed) for name in "ab" for seed in (0, 1)]
    few += [cell("default@16", name, 0, 0.9) for name in "ab"]
    tables = study_tables(CELLS + few, read_variants(VARIANTS))
    assert "| 2 | 0.750 | – | – | – | 0.700, 0.800 |\n| 16 | 0.900 | – | – | – | 0.900 |" in tables["few"]
    assert "@" not in "".join(table for name, table in tables.items() if name != "few")


def test_few_normals_alone_are_a_study_too() -> None:
    few = [cell("default@2", name, 0, 0.7) for name in "ab"]
    assert "| 2 | 0.700 |" in study_tables(few, read_variants(VARIANTS))["few"]


def test_the_sampling_error_of_auroc_is_how_far_other_images_would_move_it() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) < 120
    sets = [rng.normal(size=200) + 1.2 * labels for _ in range(400)]
    found = np.mean([auroc_error(labels, scores, draws=100) for scores in sets[:20]])
    assert found == pytest.approx(np.std([auroc(labels, scores) for scores in sets]), rel=0.15)
    assert np.isnan(auroc_error([True, True], [0.0, 1.0]))
