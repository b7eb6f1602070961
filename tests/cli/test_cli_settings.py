"""The settings of a model as options: all of them there, each of its kind, shares in percent."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from cli_runs import SMALL, Run, assert_one_line_error, graphs, run, write_vials
from small_detector import small_detector

from mhpatchcore import Config, Detector, Study
from mhpatchcore.cli.fit import fit
from mhpatchcore.cli.options import share_parser
from mhpatchcore.config import parse_sizes
from mhpatchcore.errors import UserError

__all__ = ["graphs", "run"]  # fixtures


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the fit was asked to do, which is not done."""
    arguments: dict[str, Any] = {}
    detector = small_detector()

    def study(images: Any, config: Config, checks: Any, **others: Any) -> Study:
        arguments.update(images=images, config=config, checks=checks, **others)
        return Study(detector, (), None)

    monkeypatch.setattr(Detector, "study", study)
    return arguments


def test_every_setting_has_an_option() -> None:
    settings = {field.name for field in fields(Config)}
    assert settings <= set(inspect.signature(fit).parameters)
    assert "config" not in inspect.signature(fit).parameters


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        ((), {}),
        (("--size", "224x640"), {"sizes": ((224, 640),)}),
        (("--size", "224,448"), {"sizes": ((224, 224), (448, 448))}),
        (("--rows", "300"), {"K": 300}),
        (("-K", "300", "--local-rows", "64"), {"K": 300, "m_c": 64}),
        (("--local", "1"), {"local": 1}),
        (("--no-shuffle",), {"shuffle": False}),
        (("--shuffle",), {"shuffle": True}),
        (("--layers", "block2, block4"), {"layers": ("block2", "block4")}),
        (("--shrinkage", "oas"), {"shrinkage": "oas"}),
        (("--shrinkage", "0.5"), {"shrinkage": 0.5}),
        (("--sigma", "2", "--seed", "7"), {"sigma": 2.0, "seed": 7}),
        (("--start", "farthest"), {"start": "farthest"}),
        (("--resize", "512"), {"resize": 512}),
        (("--resize", "none", "--components", "7"), {"resize": None, "components": 7}),
        (("--false-alarm", "2%"), {"false_alarm": 0.02}),
        (("--false-alarm", "0.02"), {"false_alarm": 0.02}),
        (("--variance", "95%", "--alpha", "80 %"), {"variance": 0.95, "alpha": 0.8}),
        (
            ("--constructor", "offline-greedy", "--fraction", "10%"),
            {"constructor": "offline-greedy", "fraction": 0.1},
        ),
    ],
)
def test_options_become_settings(
    run: Run, asked: dict[str, Any], tmp_path: Path, flags: tuple[str, ...], changes: dict[str, Any]
) -> None:
    ran = run("fit", tmp_path, "-o", tmp_path / "part.mhpc", *flags)
    assert ran.code == 0, ran.err
    if "sizes" in changes:
        changes = changes | {"sizes": parse_sizes(list(changes["sizes"]))}
    assert asked["config"] == Config(**changes)


def test_none_takes_a_preset_s_value_back(run: Run, asked: dict[str, Any], tmp_path: Path) -> None:
    settings = tmp_path / "exact.toml"
    settings.write_text('projection = "none"\n')
    chosen = ("--preset", "patchcore", "--resize", "none", "--settings", settings)
    assert run("fit", tmp_path, "-o", tmp_path / "part.mhpc", *chosen).code == 0
    assert (asked["config"].resize, asked["config"].projection) == (None, None)
    refused = run("fit", tmp_path, "-o", tmp_path / "part.mhpc", "--resize", "all")
    assert_one_line_error(refused, 2, "--resize", "none")


@pytest.mark.parametrize(("told", "excluded"), [("3", 3), ("5%", 0.05), ("0.05", 0.05)])
def test_suspicious_images_are_excluded_by_number_or_share(
    run: Run, asked: dict[str, Any], tmp_path: Path, told: str, excluded: float
) -> None:
    assert run("fit", tmp_path, "-o", tmp_path / "part.mhpc", "--exclude-suspicious", told).code == 0
    assert asked["checks"].exclude == excluded and type(asked["checks"].exclude) is type(excluded)


def test_shares_in_other_commands(run: Run, tmp_path: Path) -> None:
    model, folder = tmp_path / "part.mhpc", write_vials(tmp_path / "new", 3, first=20)
    small_detector().save(model)
    assert "about 30% of good parts" in run("calibrate", model, "--false-alarm", "30%").out
    ran = run("monitor", model, folder, "--significance", "1%")
    assert ran.code == 0, ran.err
    assert_one_line_error(run("monitor", model, folder, "--significance", "often"), 2, "--significance", "5%")
    assert_one_line_error(run("calibrate", model, "--false-alarm", "1 in 100"), 2, "--false-alarm", "5%")


def test_what_is_no_share_names_its_option() -> None:
    parse = share_parser("--alpha")
    assert (parse("90%"), parse(" 0.9 "), parse("12.5 %")) == (0.9, 0.9, 0.125)
    for text in ("", "%", "ninety", "9%9"):
        with pytest.raises(UserError, match=r"--alpha takes a share such as 5% or 0\.05"):
            parse(text)


def test_two_scales(run: Run, tmp_path: Path) -> None:
    folder, model = write_vials(tmp_path / "good", 4), tmp_path / "part.mhpc"
    ran = run("fit", folder, "-o", model, *SMALL, "--size", "64,96")
    assert ran.code == 0, ran.err
    assert "dimensions at 64, " in ran.out and "dimensions at 96" in ran.out
    assert [str(size) for size in Detector.load(model).config.sizes] == ["64", "96"]
    told = run("info", model).out
    assert told.count("  view  ") == 2 and "96 × 96" in told
    assert run("score", model, folder).code == 0
