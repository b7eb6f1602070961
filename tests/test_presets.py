"""The presets are the rows of the paper's configuration table, with its numbers, and every one of them works."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from cli_runs import graphs
from small_detector import PIXELS

from mhpatchcore import Config, Detector
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.errors import UserError
from mhpatchcore.experiments.ladder import LADDER
from mhpatchcore.experiments.tables import BUDGET, GEORES, MAIN
from mhpatchcore.presets import LADDER_SIZES, MH, PRESETS, preset

__all__ = ["graphs"]  # a fixture

# name: constructor, metric, K, m_c, score
STREAMING = {
    "streaming-euclidean": ("tree", "euclidean", 1000, 256, "reweighted"),
    "mh": ("tree", "mahalanobis", 1000, 256, "reweighted"),
    "mh-kmeans": ("kmeans", "mahalanobis", 1000, 256, "reweighted"),
    "mh-k1000-c1024": ("tree", "mahalanobis", 1000, 1024, "reweighted"),
    "mh-k5000-c256": ("tree", "mahalanobis", 5000, 256, "reweighted"),
    "mh-k5000-c1024": ("tree", "mahalanobis", 5000, 1024, "reweighted"),
    "mh-k5000-c4096": ("tree", "mahalanobis", 5000, 4096, "reweighted"),
    "geores-k1000": ("geores", "mahalanobis", 1000, 256, "reweighted"),
    "geores-k2000": ("geores", "mahalanobis", 2000, 256, "reweighted"),
    "geores-k5000": ("geores", "mahalanobis", 5000, 4096, "reweighted"),
}
PAPER = ("patchcore", *STREAMING)


def test_all_rows_of_the_paper_are_there_and_no_others_are_called_the_paper_s() -> None:
    assert {*MAIN, *BUDGET, *GEORES} == set(PAPER)
    assert {*PAPER, "default"} <= set(PRESETS) and set(LADDER) <= set(PRESETS)
    assert LADDER_SIZES == (300, 500, 750, 1000, 1500, 2000)


@pytest.mark.parametrize("name", STREAMING)
def test_the_paper_s_numbers(name: str) -> None:
    config = preset(name).config
    found = (config.constructor, config.metric, config.K, config.m_c, config.score)
    assert found == STREAMING[name]
    assert (config.reduction, config.variance, config.components) == ("pca", 0.99, None)
    assert config.fraction is None and config.q is None
    if config.metric == "mahalanobis":
        assert config.shrinkage == 0.07


def test_the_paper_s_rows_depend_on_no_default() -> None:
    assert {*MH, "backbone", "tag", "layers"} == {field.name for field in fields(Config)}


@pytest.mark.parametrize("name", PAPER)
def test_what_all_of_the_paper_s_configurations_share(name: str) -> None:
    config = preset(name).config
    assert (config.resize, config.size, config.sigma) == (256, 224, 4.0)
    assert (config.neighbours, config.reach, config.parts) == (9, 0.0, 1)


def test_the_tail_s_share() -> None:
    shares = {name: preset(name).config.alpha for name in STREAMING if name.startswith("geores")}
    assert shares == {"geores-k1000": 0.95, "geores-k2000": 0.9, "geores-k5000": 0.9}


def test_original_patchcore() -> None:
    config = preset("patchcore").config
    assert (config.constructor, config.fraction) == ("offline-greedy", 0.1)
    assert (config.metric, config.reduction, config.score) == ("euclidean", "none", "max")
    assert config.projection is None


def test_the_default_is_what_fit_does_without_flags() -> None:
    assert preset("default").config == Config()


def test_presets_can_be_printed() -> None:
    for name, entry in PRESETS.items():
        assert entry.name == name and entry.title and entry.role
        assert Config.from_json(json.loads(json.dumps(entry.config.to_json()))) == entry.config
    assert len({entry.title for entry in PRESETS.values()}) == len(PRESETS)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'best'.* mh-k5000-c4096"):
        preset("best")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_and_scores(name: str, graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MHPATCHCORE_CACHE", str(graphs))
    normals = [vial_image(seed, pixels=PIXELS)[0] for seed in range(3)]
    config = preset(name).config
    resize = None if config.resize is None else 96
    detector = Detector.fit(normals, config.with_changes(size=96, resize=resize))
    assert 0 < len(detector.bank_raw) <= config.K
    assert detector.score(normals[0]).score >= 0
