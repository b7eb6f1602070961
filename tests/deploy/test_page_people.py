"""The page among people, faults and time: labels meet their part, silence is seen, two do not collide."""

from __future__ import annotations

import shutil
import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import Service, browser, drop, fitted, images, needs_chromium, opened, parts, playwright
from services import free_port, running
from small_detector import with_threshold

from mhpatchcore import Detector

__all__ = ["browser", "fitted", "images"]  # fixtures
pytestmark = needs_chromium

# a key at the very moment in which the page shows a part of this name, before anybody can have looked at it
PRESS_WHEN_IT_COMES = """([name, key]) => {
  const caption = document.getElementById("caption");
  new MutationObserver((_, observer) => {
    if (!caption.textContent.includes(name)) return;
    observer.disconnect();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  }).observe(caption, { childList: true });
}"""
LOOK = 900  # milliseconds, more than a part must have been there to be labelled


@pytest.fixture(scope="module")
def models(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model for each test."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("labels", "keys", "trial", "torn", "swap", "people"):
        shutil.copy(fitted, folder / f"{name}.mhpc")
    return folder


@pytest.fixture(scope="module")
def url(models: Path) -> Iterator[str]:
    with running(models) as service:
        yield service.url


def shown(page: Any, name: str) -> None:
    """Wait until the page shows a part, and its picture."""
    playwright.expect(page.locator("#caption")).to_contain_text(name)
    playwright.expect(page.locator("#layer-image:not(.coming)")).to_be_visible()


def said(service: Service) -> list[tuple[str, str]]:
    return [(one["name"], one["label"]) for one in service.inbox()]


def test_a_label_is_for_the_part_that_somebody_looked_at(browser: Any, url: str, images: Path) -> None:
    service = Service(url, "labels")
    expect, page = playwright.expect, opened(browser, service)
    service.score(images / "good-40.png")
    shown(page, "good-40.png")

    # the line goes on at the moment of the key: neither part is labelled, and the page stays
    page.evaluate(PRESS_WHEN_IT_COMES, ["bad-46.png", "g"])
    service.score(images / "bad-46.png")
    expect(page.locator("#said")).to_contain_text("Nothing was labelled: bad-46.png had only just come")
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
    service.score(images / "good-41.png")
    parts(page, 3)
    expect(page.locator("#held")).to_contain_text("1 newer part")
    page.wait_for_timeout(2000)
    shown(page, "bad-46.png")
    assert said(service) == []

    # the one that was meant is one click away; who has asked for a part need not wait
    page.get_by_role("button", name="The one before").click()
    shown(page, "good-40.png")
    page.keyboard.press("g")
    expect(page.locator("#said")).to_contain_text("good-40.png is a good part")
    assert said(service) == [("good-40.png", "good")]

    # what has been looked at is labelled, although the next one comes at the same time
    page.locator("#held-follow").click()
    shown(page, "good-41.png")
    page.wait_for_timeout(LOOK)
    page.keyboard.press("d")
    service.score(images / "bad-47.png")
    expect(page.locator("#said")).to_contain_text("good-41.png is a defect")
    parts(page, 4)
    assert said(service) == [("good-41.png", "defect"), ("good-40.png", "good")]
    assert page.complaints == []
    page.context.close()


@pytest.mark.parametrize("touch", ["key", "press", "wheel"])
def test_a_touch_stops_the_line_on_the_page(browser: Any, url: str, images: Path, touch: str) -> None:
    service = Service(url, "keys")
    page = opened(browser, service)
    service.score(images / "good-40.png")
    shown(page, "good-40.png")
    playwright.expect(page.locator("#follow")).to_have_attribute("aria-pressed", "true")
    if touch == "key":
        page.keyboard.press("h")
    elif touch == "press":
        page.locator("#meaning").click()
    else:
        page.locator("#strip").hover()
        page.mouse.wheel(0, 10)
    playwright.expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("f")
    playwright.expect(page.locator("#follow")).to_have_attribute("aria-pressed", "true")
    page.context.close()


def test_a_key_that_bounces_or_is_held_says_it_once_and_undo_takes_it_back(
    browser: Any,
    url: str,
    images: Path,
) -> None:
    service = Service(url, "keys")
    expect, page = playwright.expect, opened(browser, service)
    sent: list[str] = []
    page.on("request", lambda one: "/v1/inbox" in one.url and one.method != "GET" and sent.append(one.method))
    service.score(images / "good-42.png")
    shown(page, "good-42.png")
    page.wait_for_timeout(LOOK)
    page.locator("#note").fill("a reflection")
    page.locator("#note").blur()
    page.keyboard.down("g")
    page.keyboard.down("g")  # held: the browser repeats it
    page.keyboard.up("g")
    page.keyboard.press("g")
    expect(page.locator("#label-good")).to_have_attribute("aria-pressed", "true")
    page.wait_for_timeout(600)
    page.keyboard.press("g")  # long after: still no reason to forget it
    page.locator("#label-good").click()
    page.wait_for_timeout(300)
    assert sent == ["POST"]
    (kept,) = service.inbox()
    assert (kept["label"], kept["note"]) == ("good", "a reflection")

    page.locator("#undo-label").click()
    expect(page.locator("#label-good")).to_have_attribute("aria-pressed", "false")
    assert service.inbox() == [] and sent == ["POST", "DELETE"]
    page.keyboard.press("u")
    expect(page.locator(".toast").last).to_contain_text("no label to take back")
    assert page.complaints == []
    page.context.close()


def test_what_is_dropped_is_a_trial_and_what_the_line_sends_is_not(
    browser: Any,
    url: str,
    images: Path,
) -> None:
    service = Service(url, "trial")
    page = opened(browser, service)
    service.score(images / "good-40.png")
    rows = parts(page, 1)
    with page.expect_request(lambda one: "/score?" in one.url and "trial=true" in one.url):
        drop(page, images / "bad-46.png")
    shown(page, "bad-46.png")
    playwright.expect(rows.first.locator(".part-trial")).to_have_text("trial")
    playwright.expect(rows.last.locator(".part-trial")).to_be_empty()
    playwright.expect(page.locator("#facts")).to_contain_text("counts neither")
    facts = service.facts()
    assert (facts["trials"], facts["observed_parts"]) == (1, 1)
    page.context.close()


def test_a_part_that_cannot_be_judged_is_rejected_with_its_reason(
    browser: Any, url: str, images: Path, tmp_path: Path
) -> None:
    service = Service(url, "torn")
    expect, page = playwright.expect, opened(browser, service)
    service.score(images / "good-40.png")
    expect(page.locator("#verdict-word")).to_have_text("Passed")
    torn = tmp_path / "torn.png"
    torn.write_bytes((images / "good-40.png").read_bytes()[:200])
    with pytest.raises(urllib.error.HTTPError, match="422"):
        service.score(torn)
    expect(page.locator("#verdict-word")).to_have_text("Rejected")
    expect(page.locator("#meaning")).to_contain_text("torn.png")
    row = parts(page, 2).first
    expect(row).to_contain_text("Rejected")
    expect(row.locator(".part-reason")).to_contain_text("torn.png")
    expect(page.locator("#labelling")).to_be_hidden()
    for key in ("g", "z", "h"):  # there is nothing to label, or to look at
        page.keyboard.press(key)
    page.locator("#sort").select_option("highest")
    expect(parts(page, 2).first.locator(".part-reason")).to_have_count(1)
    page.get_by_role("button", name="Rejected").click()
    parts(page, 1)
    drop(page, torn)  # one's own is told so, too
    expect(parts(page, 2).first.locator(".part-trial")).to_have_text("trial")
    assert service.inbox() == [] and page.locator("#layers.zoomed").count() == 0
    assert [one for one in page.complaints if "422" not in one] == []
    page.context.close()


def test_a_service_that_hangs_or_dies_leaves_no_verdict_standing(
    browser: Any,
    fitted: Path,
    images: Path,
    tmp_path: Path,
) -> None:
    model, port = Path(shutil.copy(fitted, tmp_path / "vial.mhpc")), free_port()
    expect = playwright.expect
    with running(model, port=port) as process:
        page = opened(browser, Service(process.url, "vial"))
        Service(process.url, "vial").score(images / "good-40.png")
        expect(page.locator("#verdict-word")).to_have_text("Passed")

        process.process.send_signal(signal.SIGSTOP)  # the connection stays, and nothing comes
        expect(page.locator("#silent")).to_contain_text("No answer since")
        expect(page.locator("#verdict-word")).to_have_text("No answer")
        process.process.send_signal(signal.SIGCONT)
        expect(page.locator("#silent")).to_be_hidden()
        expect(page.locator("#verdict-word")).to_have_text("Passed")

        process.end(signal.SIGKILL)
        expect(page.locator("#silent")).to_contain_text("No answer since")
        expect(page.locator("#verdict")).to_have_attribute("data-kind", "none")
        expect(page.locator("#verdict-times")).to_contain_text("Before that: passed")
        tall = page.locator("#silent-word").evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        word = page.locator("#verdict-word").evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        assert tall >= word > 24
    with running(model, port=port) as process:
        expect(page.locator("#silent")).to_be_hidden()
        Service(process.url, "vial").score(images / "bad-46.png")
        expect(page.locator("#verdict-word")).to_have_text("Rejected")
        # a part from before is in the record, its picture is not; that is said quietly
        later = opened(browser, Service(process.url, "vial"))
        parts(later, 2).last.click()
        expect(later.locator("#verdict-word")).to_have_text("Passed")
        expect(later.locator("#no-picture")).to_have_text("No picture of this part is kept.")
        assert later.locator(".toast").count() == 0
        later.context.close()
    page.context.close()


def test_a_damaged_inbox_is_told_and_hides_no_verdict(
    browser: Any, fitted: Path, images: Path, tmp_path: Path
) -> None:
    (tmp_path / "inbox.sqlite").write_bytes(b"no database" * 100)
    with running(shutil.copy(fitted, tmp_path / "vial.mhpc")) as process:
        service = Service(process.url, "vial")
        service.score(images / "good-40.png")
        page = opened(browser, service)
        playwright.expect(page.locator("#verdict-word")).to_have_text("Passed")
        playwright.expect(page.locator(".toast")).to_contain_text("cannot use the inbox")
        page.context.close()


def test_a_model_that_turns_the_verdicts_is_told(browser: Any, url: str, models: Path, images: Path) -> None:
    service = Service(url, "swap")
    page = opened(browser, service)
    for seed in range(40, 46):
        service.score(images / f"good-{seed}.png")
    path = models / "swap.mhpc"
    with_threshold(Detector.load(path), 1e-3).save(path)  # it rejects everything
    playwright.expect(page.locator(".toast").last).to_contain_text("Is it the right one?")
    page.keyboard.press("3")
    playwright.expect(page.locator("#view-model .banner").first).to_contain_text("of the last 6 parts")
    page.context.close()


def test_two_people_who_preview_are_told_of_each_other(browser: Any, url: str, images: Path) -> None:
    service = Service(url, "people")
    expect = playwright.expect
    ada, bob = opened(browser, service), opened(browser, service)
    service.score(images / "good-40.png")
    parts(ada, 1).first.click()
    ada.keyboard.press("g")
    expect(ada.locator("#label-good")).to_have_attribute("aria-pressed", "true")
    waiting: list[Any] = []
    ada.route("**/v1/jobs/*", lambda route: waiting.append(route))  # a slow network
    for page in (ada, bob):  # his page learns of her label when he looks
        page.keyboard.press("2")
        page.locator("#learn-go").click()
    expect(bob.get_by_role("button", name="Accept")).to_be_visible()
    for route in waiting:
        route.continue_()
    ada.unroute("**/v1/jobs/*")
    ended = ada.get_by_text("Somebody else has asked for a change")
    expect(ended.or_(ada.get_by_role("button", name="Accept"))).to_be_visible()
    expect(ada.get_by_text("Cannot")).to_have_count(0)

    # she asks again and accepts; his preview is of a model that is no longer there, and his dialog says so
    if ada.get_by_role("dialog").count() == 0:
        ada.locator("#learn-go").click()
    ada.get_by_role("button", name="Accept").click()
    expect(ada.locator(".toast").last).to_contain_text("in use")
    bob.get_by_role("button", name="Accept").click()
    expect(bob.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    bob.get_by_role("button", name="Discard").click()
    expect(bob.get_by_role("dialog")).to_have_count(0)
    assert service.facts()["images_learnt"] == 15 and len(service.facts("/versions")["versions"]) == 2
    for page in (ada, bob):
        assert [one for one in page.complaints if "409" not in one] == []
        page.context.close()
