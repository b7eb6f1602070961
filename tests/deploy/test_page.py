"""The page in a real browser against a real service: images go in, verdicts come out, the loop closes.

Skipped where there is no Chromium (`scripts/install-debian-packages.sh` installs it).
"""

from __future__ import annotations

import csv
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import (
    PIXELS,
    Service,
    all_images,
    axe,
    browser,
    drop,
    fitted,
    images,
    needs_chromium,
    opened,
    parts,
    playwright,
)
from services import png, running

from mhpatchcore.demo.dataset import vial_image

__all__ = ["browser", "fitted", "images"]  # fixtures
pytestmark = needs_chromium
LONG = "SN-" + 1900 * "W"  # what somebody calls himself, or a part, of which 200 letters are taken


@pytest.fixture(scope="module")
def url(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One service with a model for each test."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("intake", "strip", "loop", "light", "dark"):
        shutil.copy(fitted, folder / f"{name}.mhpc")
    with running(folder) as service:
        yield service.url


def test_images_go_in_and_verdicts_come_out(browser: Any, url: str, images: Path) -> None:
    service = Service(url, "intake")
    expect, page = playwright.expect, opened(browser, service)
    expect(page.get_by_role("heading", name="Show it a part")).to_be_visible()
    drop(page, images / "bad-46.png")
    expect(page.locator("#verdict-word")).to_have_text("Rejected")
    told = service.parts()[0]
    assert told["verdict"] == "rejected" and f"{told['score']:.3g}"[:3] in page.inner_text("#gauge")
    assert f"{told['score'] / told['threshold']:.2f} × the threshold" == page.inner_text("#verdict-times")
    assert "1 place" in page.inner_text("#meaning") or "places" in page.inner_text("#meaning")

    # the picture, the heat and the outlines lie over each other, and the slider moves the heat
    for layer in ("image", "heat", "outline"):
        expect(page.locator(f"#layer-{layer}:not(.coming)")).to_have_js_property("naturalWidth", PIXELS)
    page.locator("#heat").fill("0")
    expect(page.locator("#layer-heat")).to_have_css("opacity", "0")
    page.locator("#heat").fill("100")
    expect(page.locator("#layer-heat")).to_have_css("opacity", "1")
    page.locator("#outlines").uncheck()
    expect(page.locator("#layer-outline")).to_be_hidden()

    page.keyboard.press("z")
    expect(page.locator("#canvas")).to_have_css("transform", "matrix(3, 0, 0, 3, 0, 0)")
    page.locator("#layers").click()
    expect(page.locator("#zoom")).to_have_attribute("aria-pressed", "false")

    # what it was compared with
    crops = page.locator("#places .place").first.locator("img")
    expect(crops).to_have_count(4)
    expect(crops.nth(1)).to_have_js_property("complete", True)
    assert crops.nth(1).evaluate("one => one.naturalWidth") > 50

    # pasted, picked, and a whole folder
    drop(page, images / "good-40.png", kind="paste")
    parts(page, 2)
    page.set_input_files("#pick-files", [images / "good-41.png"])
    parts(page, 3)
    page.set_input_files("#pick-folder", images)
    parts(page, 3 + len(all_images(images)))
    assert "0 of" not in page.inner_text("#strip")

    # what is no image, and what cannot be read, is told by name
    page.set_input_files("#pick-files", [{"name": "torn.png", "mimeType": "image/png", "buffer": b"torn"}])
    expect(page.locator(".toast").last).to_contain_text("torn.png")
    page.complaints = [one for one in page.complaints if "422" not in one]
    page.set_input_files("#pick-files", [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"no"}])
    expect(page.locator(".toast").last).to_contain_text("no image")
    assert page.complaints == []
    page.context.close()


def test_the_strip_filters_sorts_follows_and_exports(browser: Any, url: str, images: Path) -> None:
    service = Service(url, "strip")
    expect, page = playwright.expect, opened(browser, service)
    for file in all_images(images):  # what others send is seen live
        service.score(file)
    rows = parts(page, 9)
    expect(rows.first).to_have_attribute("aria-selected", "true")  # it follows
    names = rows.locator(".part-name")
    assert names.first.inner_text() == "good-45.png"
    page.locator("#sort").select_option("highest")
    expect(names.first).to_contain_text("bad-")
    scores = [float(text) for text in rows.locator(".part-score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    page.get_by_role("button", name="Rejected").click()
    rejected = [one for one in service.parts() if one["verdict"] == "rejected"]
    parts(page, len(rejected))
    with page.expect_download() as download:
        page.locator("#csv").click()
    lines = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    assert sorted(line["id"] for line in lines) == sorted(one["id"] for one in rejected)
    assert {line["verdict"] for line in lines} == {"rejected"} and float(lines[0]["score"]) > 0
    assert download.value.suggested_filename.startswith("strip-")

    # keys: the next, the one before, labels, help
    page.get_by_role("button", name="All").click()
    page.locator("#sort").select_option("newest")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("g")
    expect(page.locator("#label-good")).to_have_attribute("aria-pressed", "true")
    expect(rows.nth(1).locator(".part-label")).to_have_text("good")
    page.keyboard.press("d")
    expect(page.locator("#label-defect")).to_have_attribute("aria-pressed", "true")
    (kept,) = service.inbox()
    assert (kept["label"], kept["name"]) == ("defect", names.nth(1).inner_text())
    page.keyboard.press("u")  # the correction, then the label
    expect(page.locator("#label-good")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("u")
    expect(page.locator("#label-good")).to_have_attribute("aria-pressed", "false")
    assert service.inbox() == []
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("label it as a good part")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.complaints == []
    page.context.close()


def test_the_loop_closes_and_goes_back(browser: Any, url: str, images: Path) -> None:
    service = Service(url, "loop")
    expect, page = playwright.expect, opened(browser, service)
    first = service.sha256
    page.locator("#you").click()
    page.locator("#who").fill("Ada")
    page.keyboard.press("Enter")
    expect(page.locator("#you")).to_have_text("Ada")
    page.set_input_files("#pick-files", all_images(images))
    rows = parts(page, 9)
    expect(page.locator("#progress")).to_be_hidden()
    for name, key in (("good-40.png", "g"), ("good-41.png", "g"), ("bad-46.png", "d")):
        rows.filter(has_text=name).click()
        page.locator("#note").fill(f"note on {name}")
        page.locator("#note").blur()
        page.keyboard.press(key)
        expect(rows.filter(has_text=name).locator(".part-label")).not_to_be_empty()
    assert {(one["name"], one["who"]) for one in service.inbox()} == {
        ("good-40.png", "Ada"),
        ("good-41.png", "Ada"),
        ("bad-46.png", "Ada"),
    }

    # a preview that is discarded changes nothing
    page.keyboard.press("2")
    page.locator("#learn-go").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Accept")).to_be_visible()
    expect(dialog.locator("tbody tr")).to_have_count(3)
    expect(dialog).to_contain_text("1 → 1")  # the defect is still caught
    dialog.get_by_role("button", name="Discard").click()
    expect(dialog).to_have_count(0)
    assert service.sha256 == first and len(service.facts("/versions")["versions"]) == 1

    # one that is accepted is in use at once, and the model knows who did it
    page.locator("#learn-go").click()
    dialog.get_by_role("button", name="Accept").click()
    expect(page.locator(".toast").last).to_contain_text("in use")
    second = service.sha256
    details = service.facts()
    assert second != first and details["images_learnt"] == 16 and details["history"][-1]["who"] == "Ada"
    expect(page.locator("#learn-go")).to_be_disabled()
    expect(page.locator(".labelled-part .tag", has_text="learnt")).to_have_count(2)

    # another threshold, by the slider
    page.keyboard.press("3")
    slider = page.locator("#rate-slider")
    expect(page.locator("#rate-set")).to_be_disabled()
    # beside it the usual rates, the one in use, and what each finds of the labelled defect
    expect(page.locator("#choices tbody tr")).to_have_count(len(service.facts("/choices")))
    expect(page.locator("#choices tr.in-use")).to_have_count(1)
    expect(page.locator("#choices tr.in-use")).to_contain_text("1 of 1")
    slider.focus()
    for _ in range(2):
        slider.press("ArrowRight")
    wanted = slider.get_attribute("aria-valuetext")
    expect(page.locator("#rate-told")).to_contain_text(wanted.split(",")[0])
    page.locator("#rate-set").click()
    dialog.get_by_role("button", name="Accept").click()
    expect(page.locator(".versions li")).to_have_count(3)
    third = service.sha256
    assert service.facts()["threshold"] < details["threshold"]
    assert len({first, second, third}) == 3

    # and back to the very first, byte for byte, but not without being asked
    back = page.locator(".versions li").last.get_by_role("button", name="Go back")
    back.click()
    expect(dialog.locator("tbody tr")).to_have_count(3)  # what it would do to every labelled part
    dialog.get_by_role("button", name="Discard").click()
    expect(dialog).to_have_count(0)
    assert service.sha256 == third
    back.click()
    dialog.get_by_role("button", name="Accept").click()
    expect(page.locator(".versions li.in-use")).to_contain_text(first[:8])
    assert service.sha256 == first
    changes = service.facts("/versions")["changes"]
    assert (changes[0]["what"], changes[0]["who"]) == ("undo", "Ada")
    assert not any(one["learnt"] for one in service.inbox())
    assert page.complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out_and_nothing_overlaps(browser: Any, url: str, images: Path, scheme: str) -> None:
    service = Service(url, scheme)
    for file in all_images(images)[:5]:
        service.score(file, part=LONG[:200])
    service.label(service.parts()[1]["id"], "good", who=LONG, note=LONG)
    for wide, tall in ((1400, 900), (390, 844)):
        page = opened(browser, service, wide, tall, scheme)
        parts(page, 5).first.click()
        page.keyboard.press("d" if wide > 1000 else "g")
        playwright.expect(page.locator("#strip .part-label").first).not_to_be_empty()
        playwright.expect(page.locator("#places img").first).to_be_visible()
        for view in ("inspect", "learn", "model", "help"):
            page.locator(f"[data-view={view}], #{view}").first.click()
            if wide > 1000 or scheme == "light":  # a narrow page has other shapes, not other colours
                page.wait_for_timeout(300)  # until what fades in is there: axe looks at colours
                check_accessible(page, f"{view} {wide} {scheme}")
            overflow = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, f"{view} is wider than {wide} px by {overflow}"
        assert page.complaints == []
        page.context.close()


def check_accessible(page: Any, where: str) -> None:
    found = axe.Axe().run(page)["violations"]
    told = [(one["id"], one["nodes"][0]["html"][:160], one["nodes"][0]["failureSummary"]) for one in found]
    assert told == [], where


def test_a_token_is_asked_for_and_kept(browser: Any, fitted: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-of-enough-letters")
    secret.chmod(0o600)
    model = Path(shutil.copy(fitted, tmp_path / "vial.mhpc"))
    with running(model, "--token-file", secret) as service:
        context = browser.new_context()
        page = context.new_page()
        page.goto(service.url)
        field = page.get_by_role("textbox", name="Token")
        field.fill("wrong")
        page.keyboard.press("Enter")
        playwright.expect(page.get_by_role("dialog")).to_contain_text("not the right one")
        field.fill("a-token-of-enough-letters")
        page.keyboard.press("Enter")
        page.locator("html[data-ready]").wait_for(state="attached")
        playwright.expect(page.locator("#model-picker")).to_have_value("vial")
        page.set_input_files(
            "#pick-files",
            [{"name": "1.png", "mimeType": "image/png", "buffer": png(vial_image(50, pixels=PIXELS)[0])}],
        )
        playwright.expect(page.locator("#layer-image:not(.coming)")).to_have_js_property(
            "naturalWidth", PIXELS
        )
        page.reload()
        page.locator("html[data-ready]").wait_for(state="attached")
        playwright.expect(page.get_by_role("dialog")).to_have_count(0)
        context.close()


def test_the_bundle_needs_no_build_no_network_and_no_inline_script(url: str) -> None:
    with urllib.request.urlopen(url, timeout=10) as answer:
        html, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert '<script type="module" src=' in html and " on" + "click=" not in html and "style=" not in html
    from mhpatchcore import deploy

    folder = Path(str(deploy.__file__)).parent / "page"
    files = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    elsewhere = [name for name, text in files.items() if "https://" in text or "//cdn" in text]
    assert elsewhere == [] and sum(map(len, files.values())) < 150_000
    assert not any("eval(" in text or "innerHTML" in text for text in files.values())
