"""A folder with which a machine can check that it computes what the model's maker computed.

    model.mhpc     the model           bundle.json    the expected score and verdict of the self-test image
    model.onnx     its export          consumer.py    a program that needs nothing but onnxruntime
    selftest.png   an image            SHA256SUMS     checksums, also for `sha256sum -c`

Checksums tell damage. They are not a signature: anyone who can change the folder can change them too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mhpatchcore import __version__
from mhpatchcore.backbone.building import sha256_of
from mhpatchcore.backbone.session import current_device, make_session
from mhpatchcore.deploy.export import VERDICTS, export_onnx
from mhpatchcore.detector import Detector
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.inputs.decode import decoded
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.window import Window
from mhpatchcore.runtime.arrays import Array
from mhpatchcore.runtime.files import atomic_folder

MODEL, ONNX, CONSUMER, FACTS, SUMS = "model.mhpc", "model.onnx", "consumer.py", "bundle.json", "SHA256SUMS"
SELF_TESTS = ("selftest.png", "selftest.tif")
SAMPLES = Path(__file__).parent / "samples"
TOLERANCE = 1e-4
DEVICE_TOLERANCE = 5e-2  # on another device than the CPU: OpenVINO was up to 3.6 % apart, with equal verdicts
MADE_UP = (300, 400)  # height and width of an image that nobody gave


class BundleError(UserError):
    """A bundle is not whole, or this machine does not compute what it should."""

    exit_code = 8


class Verdict(NamedTuple):
    """What one way of computing says of the self-test image, and how far apart its score is from what is expected."""

    by: str
    score: float
    verdict: str
    apart: float


def write_bundle(model: Path, folder: Path, image: Path | None = None) -> dict[str, Any]:
    """Write the bundle of a model file, whole or not at all; gives its facts. Without an image one is made up."""
    detector = Detector.load(model)
    with atomic_folder(folder) as place:
        shutil.copyfile(model, place / MODEL)
        export_onnx(detector.model, place / ONNX, sha256_of(model))
        shutil.copyfile(SAMPLES / CONSUMER, place / CONSUMER)
        name = _write_image(place, detector.config.views[0].window, image)
        result = detector.score(place / name)
        facts = {"mhpatchcore": __version__, "image": name, "score": result.score}
        facts |= {"verdict": result.verdict, "tolerance": TOLERANCE}
        (place / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        names = (MODEL, ONNX, CONSUMER, name, FACTS)
        sums = "".join(f"{sha256_of(place / one)}  {one}\n" for one in names)
        (place / SUMS).write_text(sums, encoding="utf-8")
        verify_bundle(place)  # what cannot be verified here cannot be verified anywhere
    return facts


def verify_bundle(folder: Path) -> list[Verdict]:
    """Compute the self-test image's score by the model and by its export; BundleError where either is not as told."""
    _check_sums(folder)
    expected = _facts(folder)
    image, found = folder / expected["image"], []
    tolerance = TOLERANCE if current_device() == "cpu" else DEVICE_TOLERANCE
    for by, (score, verdict) in _computed(folder, image):
        apart = abs(score / expected["score"] - 1) if expected["score"] else abs(score)
        if not isclose(score, expected["score"], rel_tol=tolerance, abs_tol=1e-9):
            raise BundleError(
                f"{by} gives {image} the score {score:.6g} on this machine, and not {expected['score']:.6g}: "
                "update onnxruntime here, or make the bundle with the version that is used here"
            )
        if verdict != expected["verdict"]:
            raise BundleError(f"{by} calls {image} {verdict} on this machine, and not {expected['verdict']}")
        found.append(Verdict(by, score, verdict, apart))
    return found


def onnx_input(image: ImageLike, window: Window) -> Array:
    """An image as the exported file takes it, (1, H, W, C)."""
    values = np.asarray(decoded(image).values)
    values = values[:, :, None] if values.ndim == 2 else values
    pixels = values[None, :, :, : window.frames] if window.frames > 1 else values[None]
    return np.ascontiguousarray(pixels, np.float32 if window.depth == "float" else None)


def _computed(folder: Path, image: Path) -> Iterator[tuple[str, tuple[float, str]]]:
    detector = Detector.load(folder / MODEL)
    result = detector.score(image)
    yield "mhpatchcore", (result.score, result.verdict)
    session = make_session((folder / ONNX).read_bytes())
    pixels = onnx_input(image, detector.config.views[0].window)
    score, verdict = session.run(["score", "verdict"], {"image": pixels})
    yield "onnxruntime", (float(score[0]), VERDICTS[int(verdict[0])])


def _check_sums(folder: Path) -> None:
    """Refuse a folder with a file that is missing or damaged."""
    if not (folder / SUMS).is_file():
        raise BundleError(f"{folder} is not a bundle: it has no {SUMS}; `mhpatchcore bundle` makes one")
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        sums = {}
    if not {MODEL, ONNX, CONSUMER, FACTS} <= sums.keys() or any("/" in name for name in sums):
        raise BundleError(f"{folder / SUMS} is damaged: copy the bundle again")
    for name, sha256 in sorted(sums.items()):
        if not (folder / name).is_file():
            raise BundleError(f"{folder / name} is missing: copy the bundle again")
        if sha256_of(folder / name) != sha256:
            raise BundleError(f"{folder / name} is damaged (its checksum is another): copy the bundle again")


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = dict(json.loads((folder / FACTS).read_text(encoding="utf-8")))
        if facts["image"] not in SELF_TESTS or facts["verdict"] not in VERDICTS.values():
            raise ValueError("its image or verdict is unknown")
        return facts | {"score": float(facts["score"])}
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{folder / FACTS} is damaged ({in_one_line(error)}): copy the bundle again"
        ) from error


def _write_image(folder: Path, window: Window, image: Path | None) -> str:
    """The given image, or one that is made up, without loss in a form that the model takes; gives its name."""
    name = SELF_TESTS[0] if window.depth in ("", "8-bit") and window.frames == 1 else SELF_TESTS[1]
    pixels = _made_up(window) if image is None else onnx_input(image, window)
    if image is not None:
        window.check(decoded(image), str(image))
    frames = [pixels[0]] if name == SELF_TESTS[0] else [pixels[0, :, :, i] for i in range(pixels.shape[3])]
    if window.frames == 1 and len(frames) == 3:
        raise UserError(
            f"{image} is deep and in colour, which cannot be written into a bundle: leave it out, and one is made up"
        )
    first, *others = (
        Image.fromarray(frame[:, :, 0] if frame.shape[2:] == (1,) else frame) for frame in frames
    )
    more: dict[str, Any] = {"save_all": True, "append_images": others} if others else {}
    first.save(folder / name, **more)
    return name


def _made_up(window: Window) -> Array:
    """Waves and noise over the whole range of values, (1, H, W, C)."""
    (height, width), plain = MADE_UP, window.depth in ("", "8-bit") and window.frames == 1
    channels = 3 if plain else window.frames
    y, x, c = np.ogrid[:height, :width, :channels]
    waves = 0.5 + 0.25 * np.sin(y * (0.02 + 0.01 * c)) + 0.25 * np.sin(x * 0.03 + c)
    noise = np.random.default_rng(0).uniform(-0.05, 0.05, (height, width, channels))
    values = window.low + (window.high - window.low) * np.clip(waves + noise, 0, 1)
    kind: type = {"16-bit": np.uint16, "float": np.float32}.get(window.depth, np.uint8)
    return values[None].astype(kind)
