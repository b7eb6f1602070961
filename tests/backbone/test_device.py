"""The device that networks run on: which ones there are, refusals, and what a model remembers of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
from small_detector import small_detector, vials

from mhpatchcore import Detector, UserError, use_device
from mhpatchcore.backbone.session import DEVICES, VARIABLE, current_device, providers

INSTALLED = set(onnxruntime.get_available_providers())
ABSENT = [name for name, device in DEVICES.items() if device.provider not in INSTALLED]


@pytest.fixture(autouse=True)
def cpu_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cpu")  # which brings back what was before


@pytest.mark.parametrize("name", ABSENT)
def test_a_device_that_is_not_there_names_what_to_install(name: str) -> None:
    with pytest.raises(
        UserError, match=f"the device {name} is not installed: put {DEVICES[name].package}"
    ) as refused:
        use_device(name)
    assert "\n" not in str(refused.value) and current_device() == "cpu"


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(UserError, match="unknown device 'gpu'; choose one of: auto, coreml, cpu, cuda"):
        use_device("gpu")


def test_auto_takes_the_first_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, expected in (
        (["cpu"], "cpu"),
        (["openvino", "cpu"], "openvino"),
        (["cuda", "openvino"], "cuda"),
    ):
        names = [DEVICES[name].provider for name in installed]
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda names=names: names)
        assert use_device("auto") == expected == os.environ[VARIABLE]


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_is_followed_by_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [DEVICES[name].provider])
    use_device(name)
    chosen = [one if isinstance(one, str) else one[0] for one in providers(2)]
    assert chosen[0] == DEVICES[name].provider and chosen[-1] == "CPUExecutionProvider"


def test_a_model_remembers_the_device_it_was_made_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mhpatchcore.model import history

    monkeypatch.setattr(history, "current_device", lambda: "openvino")
    Detector.fit(vials(0, 3), sizes=64, K=20).save(tmp_path / "part.mhpc")
    assert [event.device for event in Detector.load(tmp_path / "part.mhpc").history] == ["openvino"]


@pytest.mark.skipif("OpenVINOExecutionProvider" not in INSTALLED, reason="takes onnxruntime-openvino")
def test_openvino_gives_the_same_verdicts(tmp_path: Path) -> None:
    detector, images = small_detector(), vials(50, 6)
    expected = [(result.score, result.verdict) for result in detector.score_many(images)]
    detector.save(tmp_path / "part.mhpc")
    use_device("openvino")
    other = Detector.load(tmp_path / "part.mhpc")
    for (score, verdict), result in zip(expected, other.score_many(images), strict=True):
        assert result.verdict == verdict and result.score == pytest.approx(score, rel=1e-3)


@pytest.mark.skipif(not ABSENT, reason="every device is here")
def test_the_command_line_refuses_in_one_line() -> None:
    command = [sys.executable, "-m", "mhpatchcore", "score", "part.mhpc", "x.png", "--device", ABSENT[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and done.stderr.startswith(f"error: the device {ABSENT[0]} is not installed")
    assert done.stderr.count("\n") == 1
