"""Tables know their best values and survive any text; the paper's tables have the paper's shapes."""

from __future__ import annotations

import html.parser
import math
import re
from pathlib import Path

import pytest
from made_up_rows import made_up, made_up_grid

from mhpatchcore.experiments.ladder import (
    LADDER,
    PLOTTED,
    STREAM,
    closest_in_ram,
    growing_table,
    ladder_cells,
    ladder_figures,
    ladder_table,
    write_ladder,
)
from mhpatchcore.experiments.published import FAMILIES, PUBLISHED, dataset_table, reproduction_tables
from mhpatchcore.experiments.showing import Table, best_marked, write_formats
from mhpatchcore.experiments.tables import GEORES, MAIN, auroc_and_memory, paper_tables, write_tables
from mhpatchcore.presets import LADDER_SIZES, PAPER, PRESETS

ROWS = made_up_grid(("bottle", "pill"), tuple(PRESETS))


def cells(table: Table, row: str) -> list[str]:
    """The texts of a row, bold ones with stars."""
    (entries,) = [entries for name, entries in table.rows if name == row]
    return [" ".join(f"*{text}*" if bold else text for text, bold in entry) for entry in entries]


@pytest.mark.parametrize(
    ("values", "digits", "higher", "bold"),
    [
        ([0.9871, 0.9869, 0.986], 3, True, [True, True, False]),  # ties after rounding
        ([0.98749, 0.98751], 3, True, [False, True]),
        ([12.04, 11.96, 12.3], 1, False, [True, True, False]),
        ([None, math.nan, 0.5], 3, True, [False, False, True]),
        ([None, math.nan], 3, True, [False, False]),
        ([], 3, True, []),
    ],
)
def test_the_best_after_rounding_is_marked(
    values: list[float | None], digits: int, higher: bool, bold: list[bool]
) -> None:
    marked = best_marked(values, digits, higher)
    assert [mark for _, mark in marked] == bold
    missing = [value is None or math.isnan(value) for value in values]
    assert [text == "–" for text, _ in marked] == missing


NASTY = r"a|b_c & 5% #1 {x} $y$ ~^ \z <b>*`["
NASTY_TABLE = Table(NASTY, (NASTY,), ((NASTY, (((NASTY, False), ("0.5", True)),)),), "α – " + NASTY)


def test_markdown_keeps_its_columns_and_its_text() -> None:
    lines = NASTY_TABLE.markdown().splitlines()
    escaped = r"a\|b\_c & 5% #1 {x} $y$ ~^ \\z \<b>\*\`\["
    assert lines[0] == f"**{escaped}**"
    assert lines[4] == f"| {escaped} | {escaped} **0.5** |"
    assert lines[-1] == f"α – {escaped}"
    assert all(line.replace(r"\|", "").count("|") == 3 for line in lines[2:5])


def test_latex_escapes_everything_special() -> None:
    text = NASTY_TABLE.latex()
    escaped = (
        r"a|b\_c \& 5\% \#1 \{x\} \$y\$ \textasciitilde{}\textasciicircum{} "
        r"\textbackslash{}z \textless{}b\textgreater{}*`["
    )
    assert rf"    {escaped} & \shortstack{{{escaped}\\\textbf{{0.5}}}} \\" in text.splitlines()
    assert rf"  \caption{{{escaped}. $\alpha$ -- {escaped}}}" in text.splitlines()
    assert r"\caption{T.}" in Table("T", (), ()).latex()


def test_html_shows_the_text_and_nothing_of_it_is_markup(tmp_path: Path) -> None:
    class Reader(html.parser.HTMLParser):
        tags: set[str] = set()  # noqa: RUF012
        texts: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.tags.add(tag)

        def handle_data(self, data: str) -> None:
            self.texts.append(data)

    reader = Reader()
    write_formats({"nasty": NASTY_TABLE}, tmp_path)
    page = (tmp_path / "tables.html").read_text(encoding="utf-8")
    reader.feed(page[page.index("<main>") : page.index("</main>")])
    assert reader.texts.count(NASTY) == 4 and "0.5" in reader.texts
    assert reader.tags == {
        *("main", "section", "h2", "div", "table", "thead", "tbody", "tr", "th", "td", "b", "br", "p")
    }


def test_all_the_paper_s_tables_in_its_order() -> None:
    tables = paper_tables(ROWS)
    assert list(tables) == [
        *("auroc", "budget", "geores", "budget-auroc", "geores-auroc", "resources", "ram", "latency"),
        *("own-auroc", "all"),
    ]
    for table in tables.values():
        assert all(len(entries) == len(table.columns) for _, entries in table.rows)
    for name in ("auroc", "resources", "ram", "latency"):
        assert tables[name].columns == tuple(PRESETS[preset].title for preset in MAIN)
    assert tables["budget"].columns[:2] == (
        "Streaming Mahalanobis K=1000, m_c=256",
        "Streaming Mahalanobis K=1000, m_c=1024",
    )
    for name in ("geores", "geores-auroc"):
        assert tables[name].columns == tuple(PRESETS[preset].title for preset in GEORES)
    own = [name for name in PRESETS if name not in PAPER]
    assert tables["own-auroc"].columns == tuple(PRESETS[name].title for name in own) and "default" in own
    assert len(tables["all"].columns) == len(PRESETS)


def test_the_paper_s_rows_and_digits() -> None:
    tables = paper_tables(ROWS)
    names = {name: [row for row, _ in table.rows] for name, table in tables.items()}
    quality, times = ["Image AUROC", "Pixel AUROC"], "Per-image inference time (ms/image)"
    memory = ["Mean RAM (GB)", "Max RAM (GB)"]
    assert names["auroc"] == ["Bottle", "Pill", "Mean"] and names["ram"] == ["Bottle", "Pill", "Mean", "Max"]
    assert names["budget"] == [*quality, "Mean training time (s)", *memory, times]
    assert names["geores"] == [*quality, "Mean training time (s)", times, memory[1]]
    assert names["resources"] == ["Mean training time (s)", times, *memory]
    assert names["latency"] == ["Bottle", "Pill", "Image-weighted mean"]
    for name in ("auroc", "budget", "geores", "resources", "ram", "latency"):
        for row in names[name]:
            assert all(
                re.fullmatch(r"(\*?\(?\d+\.\d{3}\)?\*? ?)+", text) for text in cells(tables[name], row)
            )


def test_without_masks_there_are_no_pixel_rows() -> None:
    rows = [row | {"pixel_auroc": None, "pixel_aupro": None, "whole_pixel_auroc": None} for row in ROWS]
    for table in paper_tables(rows).values():
        assert not any("Pixel" in name for name, _ in table.rows)
        assert "(" not in "".join(text for name, _ in table.rows for text in cells(table, name))


def test_auroc_by_category_with_a_macro_average() -> None:
    rows = [
        made_up(dataset="pill", preset="mh", image_auroc=0.8, pixel_auroc=0.9),
        made_up(dataset="bottle", preset="mh", image_auroc=1.0, pixel_auroc=None, n_test=500),
        made_up(dataset="pill", preset="patchcore", image_auroc=0.8001, pixel_auroc=0.95),
        made_up(dataset="bottle", preset="patchcore", image_auroc=0.9, pixel_auroc=None),
    ]
    table = paper_tables(rows)["auroc"]
    assert table.columns == ("Original PatchCore", "Streaming Mahalanobis PatchCore")
    assert [name for name, _ in table.rows] == ["Bottle", "Pill", "Mean"]
    assert cells(table, "Bottle") == ["0.900", "*1.000*"]
    assert cells(table, "Pill") == ["*0.800* *(0.950)*", "*0.800* (0.900)"]
    assert cells(table, "Mean") == ["0.850 *(0.950)*", "*0.900* (0.900)"]


def test_a_configuration_that_failed_somewhere_has_no_mean() -> None:
    rows = [row for row in ROWS if (row["dataset"], row["preset"]) != ("pill", "mh")]
    tables = paper_tables(rows)
    column = tables["auroc"].columns.index(PRESETS["mh"].title)
    assert cells(tables["auroc"], "Pill")[column] == "–" and cells(tables["auroc"], "Mean")[column] == "–"
    assert cells(tables["resources"], "Max RAM (GB)")[column] == "–"
    assert cells(tables["budget"], "Image AUROC")[0] == "–"


def test_resources_as_the_paper_sums_them_up() -> None:
    rows = [
        made_up(dataset="a", n_test=10, ms_per_image=10.0, peak_rss=1_000_000_000, fit_seconds=1.0),
        made_up(dataset="b", n_test=30, ms_per_image=20.0, peak_rss=2_000_000_000, fit_seconds=2.0),
    ]
    rows = [row | {"ms_per_image_with_map": row["ms_per_image"] + 2} for row in rows]
    tables = paper_tables(rows)
    assert cells(tables["latency"], "Image-weighted mean") == ["*17.500*"]
    assert cells(tables["resources"], "Per-image inference time (ms/image)") == ["*17.500*"]
    assert cells(tables["all"], "Inference with the map (ms/image)") == ["*19.500*"]
    assert cells(tables["ram"], "Mean") == ["*1.500*"] and cells(tables["ram"], "Max") == ["*2.000*"]
    assert cells(tables["resources"], "Mean training time (s)") == ["*1.500*"]


def test_defects_found_and_false_alarms_are_shares_of_each_data_set() -> None:
    rows = [
        made_up(dataset="a", n_test=100, n_anomalous=50, misses=5, false_alarms=1),
        made_up(dataset="b", n_test=20, n_anomalous=10, misses=3, false_alarms=0),
    ]
    table = paper_tables(rows)["all"]
    assert cells(table, "Defects found (%)") == ["*80.0*"] and cells(table, "False alarms (%)") == ["*1.0*"]
    none = [row | {"misses": None, "false_alarms": None} for row in rows]
    assert "Defects found (%)" not in [name for name, _ in paper_tables(none)["all"].rows]


def test_calibration_has_a_line_of_its_own() -> None:
    rows = [
        made_up(preset="mh", fit_seconds=8.0, calibration_seconds=2.0),
        made_up(preset="mh-kmeans", fit_seconds=9.0, calibration_seconds=None),
    ]
    table = paper_tables(rows)["all"]
    assert cells(table, "Mean training time (s)") == ["*8.000*", "9.000"]
    assert cells(table, "Mean calibration time (s)") == ["*2.000*", "–"]


def test_whole_images_stand_beside_the_crop() -> None:
    table = paper_tables([made_up(pixel_auroc=0.91, whole_pixel_auroc=0.97)])["all"]
    assert cells(table, "Pixel AUROC") == ["*0.910*"]
    assert cells(table, "Pixel AUROC, whole images") == ["*0.970*"]


def test_notes_say_how_figures_are_taken_and_what_is_our_choice() -> None:
    tables = paper_tables(ROWS)
    for name in ("auroc", "budget-auroc", "geores-auroc", "all"):
        assert "those of the preprocessed image and mask" in tables[name].note
    for name in ("resources", "ram", "budget", "geores", "all"):
        assert "float16, which is our choice" in tables[name].note
    for name in ("resources", "budget", "geores", "all"):
        assert "Training time is without calibration" in tables[name].note
    assert "names of folders, which is our choice" in dataset_table([]).note


def test_only_in_the_studies_the_offline_reference_stands_apart() -> None:
    rows = [
        made_up(preset="patchcore", fit_seconds=1.0),
        made_up(preset="mh", fit_seconds=2.0),
        made_up(preset="mh-k5000-c256", fit_seconds=3.0),
    ]
    assert cells(paper_tables(rows)["budget"], "Mean training time (s)") == ["*2.000*", "3.000", "1.000"]
    best = [row | {"image_auroc": 0.9 - 0.1 * i, "pixel_auroc": 0.9 + 0.01 * i} for i, row in enumerate(rows)]
    assert cells(paper_tables(best)["budget-auroc"], "Mean") == [
        "*0.800* (0.910)",
        "0.700 *(0.920)*",
        "0.900 (0.900)",
    ]
    assert cells(paper_tables(best)["auroc"], "Mean") == ["*0.900* (0.900)", "0.800 *(0.910)*"]
    tables = paper_tables([made_up(preset="default", fit_seconds=2.0), rows[0]])
    assert cells(tables["resources"], "Mean training time (s)") == ["*1.000*"]
    assert cells(tables["all"], "Mean training time (s)") == ["2.000", "*1.000*"]


def test_a_study_without_its_configurations_is_left_out() -> None:
    assert "budget" not in paper_tables([made_up(preset="mh"), made_up(preset="patchcore")])
    assert paper_tables([]) == {}


def test_data_sets() -> None:
    line = {"dataset": "pill", "labels": "image", "train": 267, "test": 167, "anomalous": 141}
    assert cells(dataset_table([line]), "Pill") == ["image", "267", "167", "141"]


def test_tables_are_written_in_three_formats_with_a_figure(tmp_path: Path) -> None:
    unknown = made_up(preset="mh-kmeans", image_auroc=None)
    files = write_tables([*ROWS[:3], unknown], [], tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        *("tables.md", "tables.tex", "tables.html"),
        *("figures/pareto.png", "figures/pareto.svg"),
    ]
    assert all(path.stat().st_size > 100 for path in files)
    assert (tmp_path / "tables.html").read_text().count('<img src="data:image/svg+xml') == 1
    assert len(write_tables([], [], tmp_path)) == 3


def test_only_what_ran_everywhere_is_in_the_figure() -> None:
    rows = [row for row in ROWS if (row["dataset"], row["preset"]) != ("pill", "mh")]
    figure = auroc_and_memory(rows)
    assert figure is not None and len(figure.axes[0].collections) == len(PRESETS) - 1


def ladder_rows() -> list[dict[str, object]]:
    return [
        made_up(
            preset=name,
            n_train=n,
            n_available=2000,
            peak_rss=(n if name == "patchcore" else 450 if n < 2000 else 700) * 1_000_000,
        )
        for n, name in ladder_cells((300, 500, 750), 2000)
    ]


@pytest.mark.parametrize(("stream", "expected"), [(299, 300), (430, 500), (390, 300), (9000, 750)])
def test_n_star_is_the_size_closest_to_the_memory_of_the_stream_on_the_full_set(
    stream: int, expected: int
) -> None:
    offline = [made_up(preset="patchcore", n_train=n, n_available=2000, peak_rss=n) for n in (500, 300, 750)]
    part = made_up(preset="mh", n_train=750, n_available=2000, peak_rss=750)
    full = made_up(preset="mh", n_train=2000, n_available=2000, peak_rss=stream)
    assert closest_in_ram([part, *offline, full]) == expected
    assert closest_in_ram([part, *offline]) is None  # on a part of the images the stream says nothing


def test_without_both_sides_there_is_no_n_star() -> None:
    assert closest_in_ram([]) is None
    assert closest_in_ram([made_up(preset="patchcore")]) is None
    assert "n*" not in ladder_table([made_up(preset="patchcore")]).note


def test_the_stream_runs_once_on_the_full_set() -> None:
    assert ladder_cells((300, 500), 500) == [(n, name) for n in (300, 500) for name in LADDER]
    assert ladder_cells((300,), 500)[-1] == (500, STREAM)


def test_the_ladder_has_a_block_for_every_size() -> None:
    table = ladder_table(ladder_rows())
    assert len(table.rows) == 3 * len(LADDER) + 1 and len(table.columns) == 4
    assert table.rows[0][0] == "300 · Original PatchCore"
    assert cells(table, "300 · Original PatchCore")[1] == "*0.30*"
    assert cells(table, "500 · Original PatchCore")[1] == "0.50"
    assert cells(table, "500 · Streaming Mahalanobis PatchCore")[1] == "*0.45*"
    assert table.note.startswith("n* = 750")  # 700 MB of the full set, not 450 of a part
    assert cells(table, "2000 · Streaming Mahalanobis PatchCore")[1] == "*0.70*"


def test_the_ladder_is_written_with_its_plots(tmp_path: Path) -> None:
    files = write_ladder(ladder_rows(), tmp_path)
    figures = [f"figures/{name}-growth.{kind}" for name in ("ram", "auroc") for kind in ("png", "svg")]
    names = ["ladder.md", "ladder.tex", "ladder.html", *figures]
    assert [path.relative_to(tmp_path).as_posix() for path in files] == names
    assert (tmp_path / "ladder.html").read_text().count('<img src="data:image/svg+xml') == 2
    assert len(write_ladder([], tmp_path)) == 3


def test_the_plot_has_the_paper_s_two_series_and_what_was_asked_for() -> None:
    figure = ladder_figures(ladder_rows())["ram-growth"]
    assert len(figure.axes[0].lines) == len(PLOTTED) == 2
    further = [row | {"preset": "default"} for row in ladder_rows() if row["preset"] == "patchcore"]
    assert len(ladder_figures([*ladder_rows(), *further])["ram-growth"].axes[0].lines) == 3


def test_a_model_that_grows_stands_beside_one_fitted_anew() -> None:
    fitted = [
        made_up(preset=STREAM, n_train=n, image_auroc=0.9, peak_rss=2e9, fit_seconds=30.0) for n in (300, 500)
    ]
    grown = [
        made_up(n_train=n, image_auroc=0.89, peak_rss=1e9, fit_seconds=5.0, grown_in=steps)
        for steps, n in ((1, 300), (2, 500))
    ]
    table = growing_table([*grown, *fitted])
    assert table is not None and [name for name, _ in table.rows] == ["500"]
    assert cells(table, "500") == ["0.900", "0.890", "−0.010", "2.00", "1.00", "30.0", "5.0"]
    assert len(ladder_table([*grown, *fitted]).rows) == 2  # which is of fits alone
    assert growing_table(fitted) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_the_published_means_are_those_of_the_published_values(family: str) -> None:
    published = PUBLISHED[family]
    assert set(published["by_dataset"]) == set(published["summary"]) == set(PAPER)
    for preset, datasets in published["by_dataset"].items():
        summary = published["summary"][preset]
        assert len(datasets) == (15 if family == "mvtec" else 3)
        for name in ("image_auroc", "pixel_auroc"):
            values = [values[name] for values in datasets.values() if name in values]
            if values:  # rounded values have a mean that is off by as much
                assert sum(values) / len(values) == pytest.approx(summary[name], abs=0.0011)
        if preset in MAIN:
            assert max(values["ram_gb"] for values in datasets.values()) == summary["max_ram_gb"]


def test_the_published_ladder_is_whole() -> None:
    steps = [(row["n_train"], row["preset"]) for row in PUBLISHED["ladder"]]
    assert steps == [(n, name) for n in LADDER_SIZES for name in LADDER]


def test_published_and_measured_stand_side_by_side_where_they_match() -> None:
    rows = [
        made_up(dataset="bottle", preset="mh", image_auroc=0.99, pixel_auroc=0.98, ms_per_image=50.32),
        made_up(dataset="pill", preset="mh", image_auroc=0.946, pixel_auroc=None),
        made_up(dataset="pill", preset="default"),
        made_up(dataset="my_parts", preset="mh"),
    ]
    tables = reproduction_tables(rows)
    title = "Streaming Mahalanobis PatchCore"
    table = tables["reproduction"]
    assert [name for name, _ in table.rows] == [f"{title} · {of}" for of in ("bottle", "pill", "mean of 2")]
    assert cells(table, f"{title} · bottle") == ["1.000", "0.990", "−0.010", "0.984", "0.980", "−0.004"]
    assert cells(table, f"{title} · pill") == ["0.966", "0.946", "−0.020", "–", "–", "–"]
    assert cells(table, f"{title} · mean of 2")[:3] == ["0.983", "0.968", "−0.015"]
    assert cells(tables["reproduction-costs"], f"{title} · bottle")[3:] == ["46.320", "50.320", "+4.000"]
    assert "efficientnet_lite0" in table.note and "WideResNet-50-2" in table.note
    assert reproduction_tables(rows[2:]) == {}
