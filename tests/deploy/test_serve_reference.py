"""The page of all requests, in a real browser. Skipped where there is no Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from services import running, write_model

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TOKEN = "0123456789abcdef"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_all_requests_are_described_to_who_knows_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    model = write_model(tmp_path / "vial.mhpc")
    with (
        running(model, "--token-file", tmp_path / "token") as service,
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page, complaints = browser.new_page(), list[str]()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{service.url}/reference.html")
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        shown = page.locator("details.request")
        playwright.expect(shown.first).to_be_visible(timeout=30_000)
        document = httpx.get(
            f"{service.url}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
        ).json()
        assert shown.count() == sum(map(len, document["paths"].values()))
        score = shown.filter(has_text="/v1/models/{name}/score")
        score.locator("summary").click()
        playwright.expect(score).to_contain_text("deadline_ms")
        playwright.expect(score).to_contain_text("SN-000417")  # an example
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert complaints == []
        browser.close()
