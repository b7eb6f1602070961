"""A bundle proves what a machine computes: whole or not at all, and every damage is told in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, files_below, graphs, run, write_vials
from consumers import by_python
from small_detector import small_detector, vials, with_threshold

from mhpatchcore import Config, Detector
from mhpatchcore.backbone.building import sha256_of
from mhpatchcore.deploy.bundle import BundleError, verify_bundle, write_bundle
from mhpatchcore.errors import UserError

__all__ = ["graphs", "run"]  # fixtures

FILES = ["SHA256SUMS", "bundle.json", "consumer.py", "model.mhpc", "model.onnx", "selftest.png"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "part.mhpc"
    small_detector(sizes="96,160/2").save(path)
    return path


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "part"
    write_bundle(model, folder)
    return folder


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "part"))


def with_sums(folder: Path) -> None:
    """Checksums as if nothing had been changed."""
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = "".join(f"{sha256_of(folder / name)}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text(sums)


def change(folder: Path, **facts: Any) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    with_sums(folder)


def test_bundle_and_verify(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("bundle", model, "-o", tmp_path / "out" / "part")
    assert ran.code == 0 and "selftest.png scores" in ran.out
    assert files_below(tmp_path) == [f"out/part/{name}" for name in FILES]
    ran = run("verify", tmp_path / "out" / "part")
    assert ran.code == 0 and "mhpatchcore" in ran.out and "onnxruntime" in ran.out
    facts = json.loads(run("verify", tmp_path / "out" / "part", "--json").out)
    assert facts["same"] and [one["by"] for one in facts["computed"]] == ["mhpatchcore", "onnxruntime"]
    assert_one_line_error(run("bundle", model, "-o", tmp_path / "out" / "part"), 2, "there already")


def test_other_tools_can_use_it(whole: Path) -> None:
    """The consumer, and the checksums."""
    expected = json.loads((whole / "bundle.json").read_text())
    assert by_python(whole / "model.onnx", [whole / "selftest.png"])[0].score == pytest.approx(
        expected["score"], rel=1e-4
    )
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=whole, check=True)


def test_a_given_image_is_the_self_test(model: Path, tmp_path: Path) -> None:
    image = next(write_vials(tmp_path / "good", 1, first=20).iterdir())
    facts = write_bundle(model, tmp_path / "part", image)
    assert facts["score"] == small_detector(sizes="96,160/2").score(image).score
    assert {one.score for one in verify_bundle(tmp_path / "part")} == {facts["score"]}


@pytest.mark.parametrize("kind", [np.uint16, np.float32])
def test_deep_models_and_stacks(kind: type, tmp_path: Path) -> None:
    images = [(pixels[:, :, :2] * 50.0).astype(kind) for pixels in vials(0, 4)]
    Detector.fit(images, Config(sizes=64, K=100, augment="none")).save(tmp_path / "part.mhpc")
    facts = write_bundle(tmp_path / "part.mhpc", tmp_path / "part")
    assert facts["image"] == "selftest.tif" and len(verify_bundle(tmp_path / "part")) == 2


def test_a_model_without_threshold(tmp_path: Path) -> None:
    with_threshold(small_detector(), np.inf).save(tmp_path / "part.mhpc")
    write_bundle(tmp_path / "part.mhpc", tmp_path / "part")
    assert {one.verdict for one in verify_bundle(tmp_path / "part")} == {"no threshold"}


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no bundle": (lambda folder: (folder / "SHA256SUMS").unlink(), "not a bundle"),
    "a model is missing": (lambda folder: (folder / "model.mhpc").unlink(), "model.mhpc is missing"),
    "a byte of the model": (lambda folder: flip_a_byte(folder / "model.mhpc"), "model.mhpc is damaged"),
    "a byte of the export": (lambda folder: flip_a_byte(folder / "model.onnx"), "model.onnx is damaged"),
    "a byte of the image": (lambda folder: flip_a_byte(folder / "selftest.png"), "selftest.png is damaged"),
    "checksums": (lambda folder: (folder / "SHA256SUMS").write_text("x\n"), "SHA256SUMS is damaged"),
    "another score": (lambda folder: change(folder, score=1.0), "gives"),
    "another verdict": (lambda folder: change(folder, verdict="passed"), "calls"),
    "an image elsewhere": (lambda folder: change(folder, image="../x.png"), "bundle.json is damaged"),
    "no score": (lambda folder: change(folder, score="much"), "bundle.json is damaged"),
}


@pytest.mark.parametrize(("damage", "word"), DAMAGE.values(), ids=DAMAGE)
def test_whatever_is_wrong_is_one_line_with_its_own_exit_code(
    run: Run, bundle: Path, damage: Any, word: str
) -> None:
    damage(bundle)
    assert_one_line_error(run("verify", bundle), BundleError.exit_code, word)


def test_an_export_that_says_something_else_is_noticed(bundle: Path, model: Path, tmp_path: Path) -> None:
    """An export of another model, with checksums that fit."""
    small_detector().save(tmp_path / "other.mhpc")
    write_bundle(tmp_path / "other.mhpc", tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.onnx", bundle / "model.onnx")
    with_sums(bundle)
    with pytest.raises(BundleError, match="onnxruntime gives"):
        verify_bundle(bundle)


def test_nothing_is_left_of_a_bundle_that_fails(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write_bundle(model, tmp_path / "part", tmp_path / "no.png")
    assert not any(tmp_path.iterdir())
