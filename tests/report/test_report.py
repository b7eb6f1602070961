"""The page: self-contained, safe with any file name, bounded in pictures, true to the evaluation."""

from __future__ import annotations

import json
import re
import shutil
import weakref
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_detector import PIXELS, small_detector, with_threshold
from typer.testing import CliRunner

from mhpatchcore import Config, Detector
from mhpatchcore.cli.app import app
from mhpatchcore.demo.dataset import vial_image, write_demo_dataset
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.evaluation.evaluate import Judged, evaluate
from mhpatchcore.inputs.datasets import Dataset, Sample, load_dataset
from mhpatchcore.report import drawing
from mhpatchcore.report import evaluation as report
from mhpatchcore.report import page as pictures
from mhpatchcore.report.drawing import heat_layer, overlay
from mhpatchcore.report.evaluation import (
    ELSEWHERE,
    FALSE_ALARM,
    FOUND,
    MISSED,
    NOT_JUDGED,
    PASSED,
    REJECTED,
    SECTIONS,
    Gallery,
    verdict_of,
    write_report,
)
from mhpatchcore.report.page import breakable
from mhpatchcore.runtime.texts import number


@pytest.fixture(scope="module")
def vials(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("report") / "vials"
    return load_dataset(write_demo_dataset(root, train=2, good=6, per_defect=3, pixels=PIXELS))


@pytest.fixture(scope="module")
def median_detector(vials: Dataset) -> Detector:
    """A detector with false alarms and misses, since its threshold is the median score."""
    scores = [judged.score for judged in evaluate(small_detector(), vials).images]
    return with_threshold(small_detector(), float(np.median(scores)))


class Page(HTMLParser):
    """Every tag with its attributes, and the text outside of styles and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_page_needs_nothing_from_elsewhere(vials: Dataset, median_detector: Detector, tmp_path: Path) -> None:
    write_report(median_detector, vials, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", html)
    page = Page(html)
    assert not page.all("link") and not any("src" in attributes for attributes in page.all("script"))
    for name, attributes in page.tags:
        for target in (attributes.get("src"), attributes.get("href")):
            assert target is None or target.startswith(("data:image/", "#")), f"<{name}> asks for {target}"
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"] for _, a in page.tags if a.get("href", "").startswith("#")}
    assert targets <= {f"#{name}" for name in ids}
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in page.all("svg"))


def test_page_tells_what_was_evaluated(vials: Dataset, median_detector: Detector, tmp_path: Path) -> None:
    evaluation = write_report(median_detector, vials, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    text = Page(html).text
    for sample in vials.test:
        assert f"{sample.kind}/{sample.path.name}" in text
    rejected = f"{len(evaluation.rejected)} of 12 defects rejected ({evaluation.found} found where they are)"
    assert f"{rejected}, {len(evaluation.false_alarms)} of 6 good parts rejected" in text
    assert "Tested on 6 good and 12 defective images that the model has not learnt from." in text
    assert f"{evaluation.image.auroc:.3f}" in text
    assert evaluation.pixel is not None and f"{evaluation.pixel.aupro:.3f}" in text
    info = median_detector.scales[0].backbone.info
    for fact in (info.name, info.weights_sha256, "peak RSS", "always-full"):
        assert fact in text
    assert (
        html.count("<tr>") == len(vials.test) + 5 + 1 + 3 + 3
    )  # images, kinds, a phase, three headers, choices


def test_names_cannot_smuggle_in_markup(tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "vials", train=1, good=2, per_defect=1, pixels=PIXELS)
    shutil.move(root / "test" / "scratch", root / "test" / "<b>bent&")
    evil = '"><script>alert(1)<.png'
    (root / "test" / "<b>bent&" / "000.png").rename(root / "test" / "<b>bent&" / evil)
    dataset = replace(load_dataset(root), name="<script>alert(2)", problems=("<script>alert(3)",))
    write_report(small_detector(), dataset, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html and "<b>bent" not in html
    assert html.count("<script>") == 1
    assert evil in unescape(html) and evil in Page(html).text


def test_gallery_is_capped_and_shows_the_worst_first(
    vials: Dataset, median_detector: Detector, tmp_path: Path
) -> None:
    evaluation = write_report(median_detector, vials, tmp_path / "report.html", max_gallery=12)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'<strong class="name">(.*?)</strong>', html.replace("<wbr>", ""))
    assert 0 < len(shown) <= 12
    worst = [*evaluation.false_alarms[:3], *evaluation.misses[:3]]
    assert shown[: len(worst)] == [f"{judged.kind}/{judged.path.name}" for judged in worst]
    write_report(median_detector, vials, tmp_path / "none.html", max_gallery=0)
    assert "<article" not in (tmp_path / "none.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("limit", [0, 1, 7, 24, 48])
@pytest.mark.parametrize("n_kinds", [1, 5, 60])
def test_gallery_holds_few_pictures_whatever_comes(
    monkeypatch: pytest.MonkeyPatch, limit: int, n_kinds: int
) -> None:
    alive: list[weakref.ref[pictures.Picture]] = []

    def picture_of(sample: Sample, result: object) -> pictures.Picture:
        picture = pictures.Picture(1, 1, b"")
        alive.append(weakref.ref(picture))
        return picture

    monkeypatch.setattr(report, "picture_of", picture_of)
    monkeypatch.setattr(drawing, "outline_note", lambda result: "")
    kinds = [f"kind {i}" for i in range(n_kinds)]
    gallery = Gallery(kinds, limit)
    rng = np.random.default_rng(0)
    offered = []
    for i in range(2000):
        bad, flagged, located, score = (
            rng.random() < 0.5,
            rng.random() < 0.5,
            rng.random() < 0.5,
            rng.random(),
        )
        sample = Sample(Path(f"{i}.png"), str(rng.choice(kinds)) if bad else "good", bad)
        judged = Judged(sample.path, sample.kind, bad, score, flagged, 0.5, located if bad else None)
        offered.append(judged)
        gallery.offer(sample, SimpleNamespace(score=score, p_value=0.5), judged)  # type: ignore[arg-type]
        assert sum(reference() is not None for reference in alive) <= 2 * limit + 1
    items = gallery.items()
    assert len(items) <= limit
    verdicts = [item.verdict for item in items]
    assert verdicts == sorted(verdicts, key=list(SECTIONS).index)

    def scores(verdict: str, falling: bool) -> list[float]:
        return sorted((one.score for one in offered if verdict_of(one) == verdict), reverse=falling)

    for verdict, falling, room in (
        (FALSE_ALARM, True, limit // 4),
        (MISSED, False, limit // 4),
        (ELSEWHERE, True, limit // 6),
    ):
        assert [item.judged.score for item in items if item.verdict == verdict] == scores(verdict, falling)[
            :room
        ]
    if limit == 48:
        assert {item.judged.kind for item in items if item.verdict == FOUND} <= set(kinds)
        assert PASSED in verdicts or n_kinds == 60


@pytest.mark.parametrize(
    ("bad", "flagged", "located", "verdict"),
    [
        (False, True, None, FALSE_ALARM),
        (False, False, None, PASSED),
        (True, False, True, MISSED),
        (True, True, True, FOUND),
        (True, True, False, ELSEWHERE),
        (True, True, None, REJECTED),
        (True, None, None, NOT_JUDGED),
        (False, None, None, NOT_JUDGED),
    ],
)
def test_verdicts(bad: bool, flagged: bool | None, located: bool | None, verdict: str) -> None:
    assert verdict_of(Judged(Path("1.png"), "kind", bad, 1.0, flagged, 0.5, located)) == verdict


def test_a_defect_rejected_for_something_elsewhere_is_not_called_found(
    vials: Dataset, median_detector: Detector
) -> None:
    evaluation = evaluate(median_detector, vials)
    elsewhere = tuple(replace(j, located=False if j.is_anomalous else None) for j in evaluation.images)
    html = report.render(median_detector, replace(evaluation, images=elsewhere), [], {})
    assert "(0 found where they are)" in html and 'class="badge found"' not in html
    assert html.count('class="badge rejected-elsewhere"') == len(evaluation.rejected) > 0


def test_the_page_names_what_was_left_out(vials: Dataset, tmp_path: Path) -> None:
    learnt = [sample.path for sample in vials.test if not sample.is_anomalous][:4]
    detector = Detector.fit(learnt, Config(sizes=96, K=100, augment="none"))
    write_report(detector, vials, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert (
        "Tested on 2 good and 12 defective images" in page.text and "4 that it has learnt from" in page.text
    )
    listed = page.text.split("so they cannot test it.")[1]
    assert all(f"good/{path.name}" in listed for path in learnt)
    assert "#left-out" in {link.get("href") for link in page.all("a")}


def test_every_section_of_a_page_is_in_its_menu(vials: Dataset, tmp_path: Path) -> None:
    write_report(small_detector(), vials, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    sections = [f"#{section['id']}" for section in page.all("section")]
    menu = [link["href"] for link in page.all("a") if link["href"] in sections]
    assert menu == sections and len(sections) >= 6


def test_both_thresholds_are_explained_where_they_stand(vials: Dataset, tmp_path: Path) -> None:
    write_report(small_detector(), vials, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert pictures.IMAGE_THRESHOLD in text and pictures.PIXEL_THRESHOLD in text
    assert "There are two thresholds." in text


def test_words_of_a_table_are_broken_at_marks_only() -> None:
    assert breakable("a_b/c-d.png") == "a_<wbr>b/<wbr>c-<wbr>d.png"
    assert breakable("<b>/") == "&lt;b&gt;/<wbr>"
    css = (Path(report.__file__).parent / "page.css.j2").read_text()
    (cells,) = re.findall(r"^th, td \{.*\}$", css, re.MULTILINE)[:1]
    assert "overflow-wrap: break-word" in cells  # with "anywhere" a column may be as narrow as a letter


def test_cropped_models_tell_both_kinds_of_pixel_figures(vials: Dataset) -> None:
    told = {tile.label: tile.value for tile in report.tiles(evaluate(small_detector(resize=128), vials))}
    assert {"Pixel AUROC", "Whole-image pixel AUROC"} <= set(told)
    assert "Whole-image AUPRO" not in {tile.label for tile in report.tiles(evaluate(small_detector(), vials))}


def test_defects_found_stand_beside_the_auroc(vials: Dataset) -> None:
    evaluation = evaluate(small_detector(), vials)
    tile = report.tiles(evaluation)[1]
    assert tile.label == "Defects found" and tile.value == pictures.percent(evaluation.found_share)
    rate = pictures.percent(evaluation.stated_rate or 0)
    assert tile.note == f"{len(evaluation.rejected)} of 12, at a stated {rate} of false alarms"
    by_hand = replace(evaluation, choices=())
    assert report.tiles(by_hand)[1].note.endswith("at a threshold set by hand")
    not_judged = report.tiles(evaluate(with_threshold(small_detector(), np.inf), vials))
    assert "Defects found" not in {tile.label for tile in not_judged}


def test_image_level_set_without_threshold(vials: Dataset, tmp_path: Path) -> None:
    unmasked = replace(vials, test=tuple(replace(sample, mask=None) for sample in vials.test))
    write_report(with_threshold(small_detector(), np.inf), unmasked, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "AUPRO" not in html and "There are no masks" in html
    assert "has no threshold" in html and "inf" not in Page(html).text.split()
    assert (
        "12 defects and 6 good parts scored, none of them judged" in html and "missed" not in Page(html).text
    )
    assert "outline truth" not in html and "ground truth" not in html


def test_good_images_alone(vials: Dataset, tmp_path: Path) -> None:
    good = replace(vials, test=tuple(sample for sample in vials.test if not sample.is_anomalous))
    write_report(small_detector(), good, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "of 6 good parts rejected" in html and "ROC curve" not in html
    assert "nan" not in Page(html).text.split()


def test_a_place_that_cannot_be_written_is_known_before_the_work(vials: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done: list[int] = []
    with pytest.raises(UserError, match="cannot write"):
        write_report(
            small_detector(), vials, tmp_path / "file" / "report.html", progress=lambda *a: done.append(a[1])
        )
    assert not done


def test_nothing_is_left_of_a_page_that_failed(vials: Dataset, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    spoilt = replace(vials, test=(*vials.test, Sample(tmp_path / "broken.png", "good", False)))
    with pytest.raises(ImageError):
        write_report(small_detector(), spoilt, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.png"]


def test_heat_layer_over_a_picture_is_the_overlay() -> None:
    pixels, _ = vial_image(0, pixels=PIXELS)
    heat = np.linspace(0, 3, PIXELS * PIXELS, dtype=np.float32).reshape(PIXELS, PIXELS)
    layer = heat_layer(heat, 1.0).astype(np.float64)
    opacity = layer[:, :, 3:] / 255
    blended = pixels * (1 - opacity) + layer[:, :, :3] * opacity
    assert np.abs(blended - overlay(pixels, heat, 1.0)).max() <= 3
    assert (layer[heat < 0.5, 3] == 0).all()


def test_outlines() -> None:
    square = np.zeros((4, 4), np.float32)
    square[:2, :2] = 1
    path = pictures.outline_path(square, 0.5, 40, 80)
    numbers = np.array(re.findall(r"[\d.]+", path), float).reshape(-1, 2)
    assert path.startswith("M") and path.endswith("Z") and path.count("M") == 1
    assert numbers.min() == 0 and numbers.max(axis=0).tolist() == [40, 20]
    assert pictures.outline_path(square, np.inf, 40, 80) == ""
    assert pictures.outline_path(np.zeros((4, 4), np.float32), 0.5, 40, 80) == ""


def test_a_thin_scratch_survives_pooling() -> None:
    mask = np.zeros((1500, 1100), bool)
    mask[:, 700] = True
    pooled = report._pooled(mask, 512)
    assert pooled.shape == (500, 367) and pooled.any(axis=1).all() and pooled.sum() == 500


def test_large_images_are_reduced(tmp_path: Path) -> None:
    from PIL import Image

    picture, mask = vial_image(0, "scratch", pixels=PIXELS)
    large = tmp_path / "large.png"
    Image.fromarray(picture).resize((3000, 1500)).save(large)
    Image.fromarray(mask).resize((3000, 1500)).save(tmp_path / "mask.png")
    sample = Sample(large, "scratch", True, tmp_path / "mask.png")
    made = report.picture_of(sample, small_detector().score(large))
    assert (made.width, made.height) == (3000, 1500)
    (tmp_path / "photo.jpg").write_bytes(made.photo)
    with Image.open(tmp_path / "photo.jpg") as photo:
        assert photo.size == (1024, 512)
    assert made.truth.startswith("M")
    assert sum(map(len, (made.photo, made.heat, made.predicted, made.truth))) < 300_000


def test_wording_of_shares_and_promises(vials: Dataset) -> None:
    assert [pictures.percent(share) for share in (0, 0.0049, 0.1, 0.999)] == [
        "0 %",
        "0.49 %",
        "10 %",
        "99.9 %",
    ]
    assert number(nan) == "–" and number(None) == "–" and number(1e-8) == "1e-08"
    detector = small_detector()
    told = report.promise(evaluate(detector, vials), detector)
    assert "set from 8 good images" in told and "about 3 % of good parts, 0 % to" in told
    assert "in nine of ten cases" in told


def test_command(vials: Dataset, tmp_path: Path) -> None:
    model, root = tmp_path / "vials.mhpc", str(vials.test[0].path.parents[2])
    small_detector().save(model)
    runner = CliRunner()
    told = runner.invoke(app, ["evaluate", str(model), root, "--report", str(tmp_path / "r.html"), "-q"])
    assert told.exit_code == 0, told.output
    assert "bad rejected" in told.stdout and "found where they are" in told.stdout
    assert "by pixel" in told.stdout and "r.html" in told.stdout
    assert (tmp_path / "r.html").stat().st_size > 50_000
    told = runner.invoke(app, ["evaluate", str(model), root, "--json", "-q"])
    facts = json.loads(told.stdout)
    expected = evaluate(small_detector(), vials).summary()
    assert facts["image_auroc"] == pytest.approx(expected["image_auroc"])
    assert facts["report"] is None and facts["problems"] == []


def test_command_says_null_where_there_is_no_number(tmp_path: Path) -> None:
    root = write_demo_dataset(tmp_path / "vials", train=1, good=2, per_defect=0, pixels=PIXELS)
    small_detector().save(tmp_path / "vials.mhpc")
    told = CliRunner().invoke(app, ["evaluate", str(tmp_path / "vials.mhpc"), str(root), "--json", "-q"])
    facts = json.loads(told.stdout, parse_constant=pytest.fail)
    assert facts["image_auroc"] is None and facts["image_n_normal"] == 2


def test_the_command_asks_what_folders_hold_and_leaves_learnt_images_out(tmp_path: Path) -> None:
    vials = write_demo_dataset(tmp_path / "vials", train=6, good=3, per_defect=1, pixels=PIXELS)
    parts = tmp_path / "parts"
    shutil.copytree(vials / "train" / "good", parts / "good")
    shutil.copytree(vials / "test" / "good", parts / "fresh")
    shutil.copytree(vials / "test" / "scratch", parts / "scratch")
    model = tmp_path / "part.mhpc"
    Detector.fit(parts / "good", Config(sizes=96, K=100, augment="none")).save(model)
    runner = CliRunner()

    def evaluated(*flags: str) -> Any:
        return runner.invoke(app, ["evaluate", str(model), str(parts), "--json", "-q", *flags])

    asked = evaluated()
    assert isinstance(asked.exception, UserError) and "fresh good or defective" in str(asked.exception)
    facts = json.loads(evaluated("--good", "fresh").stdout)
    assert (facts["image_n_normal"], facts["image_n_anomalous"]) == (3, 1)
    assert len(facts["left_out"]) == 6 and facts["problems"][0].startswith("6 test images left out")
    shutil.rmtree(parts / "fresh")
    refused = evaluated()
    assert isinstance(refused.exception, UserError) and "learnt from all 6 good" in str(refused.exception)
