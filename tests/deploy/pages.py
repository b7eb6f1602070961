"""A page of a real service in a real browser, and images to show it."""

from __future__ import annotations

import base64
import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import png

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import vial_image

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_core_python.sync_playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
PIXELS = 96
PATIENCE = 30_000  # milliseconds, on a machine that does other things too
DROP = """([kind, files]) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type: "image/png" }));
  }
  if (kind === "paste") dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
  else for (const event of ["dragenter", "dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(event, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


@dataclass(frozen=True)
class Service:
    """A running service, one of its models, and ways to ask it."""

    url: str
    model: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.load(answer)

    def facts(self, of: str = "") -> Any:
        return self.get(f"/v1/models/{self.model}{of}")

    def parts(self) -> Any:
        return self.get(f"/v1/parts?model={self.model}")

    def inbox(self) -> Any:
        return self.get(f"/v1/inbox?model={self.model}")

    def score(self, file: Path, **query: str) -> None:
        asked = urllib.parse.urlencode({"name": file.name} | query)
        address = f"{self.url}/v1/models/{self.model}/score?{asked}"
        request = urllib.request.Request(address, file.read_bytes(), {"Content-Type": "image/png"})
        urllib.request.urlopen(request, timeout=30).close()

    def label(self, id_: str, label: str, **said: str) -> None:
        body = json.dumps({"id": id_, "label": label} | said).encode()
        request = urllib.request.Request(f"{self.url}/v1/inbox", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()

    @property
    def sha256(self) -> str:
        return str(self.facts()["sha256"])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good parts that the model does not know, and parts with a defect nobody can miss."""
    folder = tmp_path_factory.mktemp("images")
    for seed in range(40, 46):
        (folder / f"good-{seed}.png").write_bytes(png(vial_image(seed, pixels=PIXELS)[0]))
    for seed in range(46, 49):
        pixels = vial_image(seed, pixels=PIXELS)[0].copy()
        pixels[40:60, 40:60] = np.random.default_rng(seed).integers(0, 256, (20, 20, 3))
        (folder / f"bad-{seed}.png").write_bytes(png(pixels))
    return folder


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file; the training images stay where they were, so that evidence finds them."""
    folder = tmp_path_factory.mktemp("normals")
    for seed in range(14):
        (folder / f"{seed:02d}.png").write_bytes(png(vial_image(seed, pixels=PIXELS)[0]))
    model = tmp_path_factory.mktemp("fitted") / "vial.mhpc"
    Detector.fit(folder, Config(sizes=96, K=300, false_alarm=0.1, augment="none")).save(model)
    return model


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield one
        one.close()


def opened(browser: Any, service: Service, wide: int = 1400, tall: int = 900, scheme: str = "light") -> Any:
    """A page with a model; `complaints` are those of the browser, and all that would leave the machine."""
    context = browser.new_context(viewport={"width": wide, "height": tall}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda one: one.type == "error" and page.complaints.append(one.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    here = (service.url, "blob:", "data:")
    page.on("request", lambda one: one.url.startswith(here) or page.complaints.append(one.url))
    page.goto(service.url)
    page.locator("html[data-ready]").wait_for(state="attached")
    page.locator("#model-picker").select_option(service.model)
    return page


def drop(page: Any, *files: Path, kind: str = "drop") -> None:
    page.evaluate(DROP, [kind, [[one.name, base64.b64encode(one.read_bytes()).decode()] for one in files]])


def parts(page: Any, n: int) -> Any:
    """The strip, once it has n parts."""
    rows = page.locator("#strip .part")
    playwright.expect(rows).to_have_count(n)
    return rows


def all_images(images: Path) -> list[Path]:
    return sorted(images.iterdir())
