"""`mhpatchcore fit`: settings, what is printed, and everything that can be wrong with what it is given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_runs import SMALL, Run, assert_one_line_error, files_below, graphs, run, write_vials
from PIL import Image
from safetensors.numpy import save_file

from mhpatchcore import Detector
from mhpatchcore.presets import PRESETS

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("fit") / "good", 4)


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No work may begin."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the fit has begun")

    monkeypatch.setattr(Detector, "study", begun)


def test_what_is_printed(run: Run, good: Path, tmp_path: Path) -> None:
    model = tmp_path / "new" / "part.mhpc"
    ran = run("fit", good, "-o", model, *SMALL)
    assert (ran.code, ran.err) == (0, "")
    assert f"{model}: learnt from 4 images" in ran.out
    assert "200 rows" in ran.out and f"mhpatchcore score {model}" in ran.out
    assert "about 3% of good parts" in ran.out and "good parts rejected" in ran.out
    assert files_below(tmp_path) == ["new/part.mhpc"]
    assert len(Detector.load(model).model.images) == 4


def test_copies_are_told_with_what_they_cost(run: Run, good: Path, tmp_path: Path) -> None:
    model = tmp_path / "part.mhpc"
    ran = run("fit", good, "-o", model, *SMALL, "--augment", "flips")
    assert (
        "copies     flips: each image is learnt in 8 views, which takes as long as 8 times the images"
        in ran.out
    )
    assert json.loads(run("info", model, "--json").out)["augment"] == "flips"
    assert "copies     flips" in run("info", model).out


def test_one_image_gives_a_model_without_a_threshold(run: Run, good: Path, tmp_path: Path) -> None:
    ran = run("fit", good / "000.png", "-o", tmp_path / "part.mhpc", *SMALL)
    assert "learnt from 1 image in" in ran.out
    assert "threshold  none" in ran.out
    (line,) = ran.err.splitlines()
    assert "has no threshold" in line and "a single image" in line
    cure = f"mhpatchcore calibrate {tmp_path / 'part.mhpc'} --with IMAGES -o {tmp_path / 'part.mhpc'}"
    assert cure in line
    facts = run("fit", good / "000.png", "-o", tmp_path / "part.mhpc", *SMALL, "--json").out
    assert json.loads(facts)["threshold"] is None


def test_several_images_without_calibration_are_told_apart_from_one(
    run: Run, good: Path, tmp_path: Path
) -> None:
    ran = run("fit", good, "-o", tmp_path / "part.mhpc", *SMALL, "--calibration", "none")
    assert ran.code == 0 and "it was not calibrated" in ran.err


def test_a_fit_that_is_told_to_end_leaves_nothing_behind(good: Path, tmp_path: Path, graphs: Path) -> None:
    """Descriptors of many images are gigabytes, and `kill`, systemd and containers send this signal."""
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "mhpatchcore", "fit", good, "-o", tmp_path / "part.mhpc", "-K", "20000"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "MHPATCHCORE_CACHE": str(graphs)}
    with subprocess.Popen(list(map(str, command)), env=environment, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while not any((tmp_path / "tmp").iterdir()):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
        assert process.stderr is not None and b"Traceback" not in process.stderr.read()
    assert files_below(tmp_path) == [] and not any((tmp_path / "tmp").iterdir())


def test_copies_of_one_part_are_told_as_such(run: Run, good: Path, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / "copies").mkdir(exist_ok=True)
        (tmp_path / "copies" / f"{i}.png").write_bytes((good / "000.png").read_bytes())
    ran = run("fit", tmp_path / "copies", "-o", tmp_path / "part.mhpc", *SMALL)
    assert ran.code == 0 and "its images are near-duplicates of each other" in ran.err
    assert "next: mhpatchcore score" not in ran.out  # it would judge nothing


def test_flags_win_over_the_file_and_the_file_over_the_preset(run: Run, good: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'K = 120\nshrinkage = 0.5\nsizes = "96"\nlayers = ["block4"]\nsigma = 2\nvariance = "95%"\n'
    )
    model = tmp_path / "part.mhpc"
    chosen = ("--preset", "mh", "--settings", settings, "-K", 100, "--resize", 96)
    assert run("fit", good, "-o", model, *chosen).code == 0
    expected = PRESETS["mh"].config.with_changes(
        K=100,
        shrinkage=0.5,
        sizes=96,
        layers=("block4",),
        sigma=2,
        resize=96,
        descriptor="concat",
        variance=0.95,
    )
    config = Detector.load(model).config
    assert config == expected.with_changes(window=config.window) and config.window.depth == "8-bit"


def test_a_store_is_kept_and_used_again(run: Run, good: Path, tmp_path: Path) -> None:
    fit = ("fit", good, *SMALL, "--store", tmp_path / "store")
    assert run(*fit, "-o", tmp_path / "one.mhpc").code == 0
    entries = files_below(tmp_path / "store")
    assert any((tmp_path / "store" / path).stat().st_size > 10_000 for path in entries)
    assert run(*fit, "-o", tmp_path / "two.mhpc").code == 0
    one, two = (Detector.load(tmp_path / name) for name in ("one.mhpc", "two.mhpc"))
    assert np.array_equal(one.scales[0].raw, two.scales[0].raw) and one.threshold == two.threshold
    assert entries == files_below(tmp_path / "store")


def test_a_broken_image_is_named_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "good", 3)
    (folder / "bad.png").write_bytes(b"no picture")
    ran = run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL)
    assert_one_line_error(ran, 3, "bad.png")
    assert "part.mhpc" not in " ".join(files_below(tmp_path))


def test_broken_images_can_be_skipped(run: Run, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "good", 3)
    (folder / "bad\nname.png").write_bytes((folder / "000.png").read_bytes()[:200])
    ran = run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL, "--skip-broken", "--json")
    assert ran.code == 0
    assert ran.err.startswith("warning: skipped: ") and "name.png" in ran.err
    assert ran.err.count("\n") == 1
    facts = json.loads(ran.out)
    assert facts["images"] == 3 and len(facts["warnings"]) == 1 and "name.png" in facts["warnings"][0]


def test_outputs_do_not_take_the_place_of_anything_else(run: Run, good: Path, tmp_path: Path) -> None:
    image = good / "000.png"
    before = image.read_bytes()
    twice = ("-o", tmp_path / "part.mhpc", "--report", tmp_path / "." / "part.mhpc")
    assert_one_line_error(run("fit", good, *twice), 2, "part.mhpc is given twice", "fit.html")
    assert_one_line_error(run("fit", good, "-o", image), 2, "000.png has the name of an image", "part.mhpc")
    assert image.read_bytes() == before and not (tmp_path / "part.mhpc").exists()


def test_nothing_but_broken_images(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    ran = run("fit", tmp_path, "-o", tmp_path / "part.mhpc", *SMALL, "--skip-broken")
    assert ran.code == 3 and "error: none of the images could be read" in ran.err


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_images_is_named(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert_one_line_error(run("fit", tmp_path / name, "-o", tmp_path / "part.mhpc"), 2, name)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--backbone", "resnext"), ("resnext", "efficientnet_lite0", "wide_resnet50_2", ".onnx")),
        (("--preset", "best"), ("best", "mh-kmeans", "geores-k5000")),
        (("--size", "0"), ("size", "32 to 2048")),
        (("--size", "9000"), ("size", "32 to 2048")),
        (("--size", "big"), ("size", "224x640", "'big'")),
        (("--size", "96,96"), ("sizes", "different")),
        (("--local", "0"), ("local", "at least 1")),
        (("--seed", "-1"), ("seed", "at least 0")),
        (("--sigma", "nan"), ("sigma",)),
        (("--variance", "2"), ("variance", "between 0 and 1")),
        (("--variance", "many"), ("--variance", "5% or 0.05", "'many'")),
        (("--false-alarm", "0"), ("false_alarm",)),
        (("--false-alarm", "5"), ("false_alarm", "between 0 and 1", "5%")),
        (("--exclude-suspicious", "some"), ("--exclude-suspicious", "5%", "'some'")),
        (("--shrinkage", "lots"), ("lots", "ledoit-wolf")),
        (("--constructor", "tower"), ("tower", "always-full")),
        (("--metric", "manhattan"), ("manhattan", "mahalanobis")),
        (("--layers", "block99"), ("block99", "block15")),
        (("--descriptor", "sift"), ("sift", "concat")),
        (("--fraction", "0.1"), ("fraction", "offline-greedy")),
        (("--backbone", "net.onnx"), ("net.onnx",)),
    ],
)
def test_wrong_settings_are_named(
    run: Run, good: Path, tmp_path: Path, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = run("fit", good, "-o", tmp_path / "part.mhpc", *flags)
    assert_one_line_error(ran, 5 if "net.onnx" in flags else 2, *words)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(("flag", "value"), [("-K", "many"), ("--workers", "0"), ("--batch", "-1")])
def test_values_of_the_wrong_kind_are_wrong_usage(
    run: Run, good: Path, tmp_path: Path, flag: str, value: str
) -> None:
    ran = run("fit", good, "-o", tmp_path / "part.mhpc", flag, value)
    assert ran.code == 2 and "Invalid value for" in ran.help and flag in ran.help


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 3", ("unknown setting 'colour'", "constructor")),
        ('K = "many"', ("K must be a whole number", "'many'")),
        ("K = 10.5", ("K must be a whole number",)),
        ("resize = true", ("resize must be a whole number",)),
        ('sigma = "wide"', ("sigma must be a number",)),
        ("score = 1", ("score must be a text",)),
        ("shrinkage = [1]", ("shrinkage must be a text or a number",)),
        ("layers = 4", ("layers must be texts",)),
        ('shuffle = "no"', ("shuffle must be true or false",)),
        ("K = true", ("K must be a whole number",)),
        ('alpha = "most"', ("alpha must be a share", "'most'")),
        ("K = ", ("not TOML", "K = 1000")),
        (None, ("cannot read settings", "No such file")),
    ],
)
def test_wrong_settings_in_a_file_are_named(
    run: Run, unused: None, tmp_path: Path, text: str | None, words: tuple[str, ...]
) -> None:
    settings = tmp_path / "settings.toml"
    if text is not None:
        settings.write_text(text)
    ran = run("fit", tmp_path, "-o", tmp_path / "part.mhpc", "--settings", settings)
    assert_one_line_error(ran, 2, *words)


def test_wrong_weights(run: Run, good: Path, tmp_path: Path) -> None:
    foreign, damaged = tmp_path / "foreign.safetensors", tmp_path / "damaged.pth"
    save_file({"conv1.weight": np.ones((4, 3, 3, 3), np.float32)}, foreign)
    damaged.write_bytes(b"PK\x03\x04 and no more")
    for weights in (foreign, damaged, tmp_path / "missing.pth"):
        ran = run("fit", good, "-o", tmp_path / "part.mhpc", "--backbone", "resnet18", "--weights", weights)
        assert_one_line_error(ran, 5)
    assert files_below(tmp_path) == ["damaged.pth", "foreign.safetensors"]


@pytest.mark.parametrize("place", ["folder", "file/part.mhpc", "file/new/part.mhpc"])
def test_an_impossible_place_is_refused_before_the_work(
    run: Run, unused: None, tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    ran = run("fit", tmp_path, "-o", tmp_path / place)
    assert_one_line_error(ran, 2, f"cannot write {tmp_path / place}")
    assert files_below(tmp_path) == ["file"]


def data_set(root: Path) -> Path:
    write_vials(root / "train" / "good", 4)
    write_vials(root / "test" / "good", 1, first=10)
    write_vials(root / "test" / "cut", 2, first=20)
    write_vials(root / "ground_truth" / "cut", 2, first=30)
    return root


def test_the_root_of_a_data_set_is_learnt_like_its_training_images(run: Run, tmp_path: Path) -> None:
    root = data_set(tmp_path / "vial")
    ran = run("fit", root, "-o", tmp_path / "root.mhpc", *SMALL)
    (line,) = ran.err.splitlines()
    assert ran.code == 0 and "learnt from 4 images" in ran.out
    assert line.startswith(f"warning: {root} is a whole data set: ") and "4 of 9 images" in line
    assert run("fit", root / "train" / "good", "-o", tmp_path / "good.mhpc", *SMALL).err == ""
    one, other = (Detector.load(tmp_path / name) for name in ("root.mhpc", "good.mhpc"))
    assert one.model.images == other.model.images and one.threshold == other.threshold
    assert one.history[0].source == other.history[0].source == str(root / "train" / "good")


def test_folders_that_sound_like_defects_are_refused_before_the_work(run: Run, tmp_path: Path) -> None:
    root, model = data_set(tmp_path / "vial"), tmp_path / "part.mhpc"
    ran = run("fit", root / "test", "-o", model)
    assert_one_line_error(ran, 2, f"cut in {root}/test does not sound", f"({root}/test/good)", "--all-good")
    assert "all_good" not in ran.err and not model.exists()
    ran = run("fit", root / "test", "-o", model, *SMALL, "--all-good")
    assert (ran.code, ran.err) == (0, "") and "learnt from 3 images" in ran.out


def test_what_is_odd_is_warned_of_and_files_that_are_no_images_are_counted(run: Run, tmp_path: Path) -> None:
    folder = write_vials(tmp_path / "parts", 4)
    Image.open(folder / "000.png").convert("L").resize((64, 40)).save(folder / "odd.png")
    (folder / "notes.txt").write_text("no image")
    (folder / "drawing.svg").write_text("no image that is read")
    ran = run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL, "--roi", "0,0,60,60", "--json")
    gray, shape, beyond = json.loads(ran.out)["warnings"]
    assert "is gray" in gray and "another shape" in shape and "beyond 1 of 5 images" in beyond
    assert all(f"warning: {line}" in ran.err for line in (gray, shape, beyond))
    assert json.loads(ran.out)["passed_over"] == {".svg": 1, ".txt": 1}
    printed = run("fit", folder, "-o", tmp_path / "part.mhpc", *SMALL).out
    assert "files that are not images: 1 .svg, 1 .txt" in printed
