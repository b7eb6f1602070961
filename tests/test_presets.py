"""The presets are the rows of the paper's configuration table, with its numbers, and every one of them works."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import pytest
from small_detector import vials

from mhpatchcore import Config, Detector
from mhpatchcore.backbone.building import PINNED
from mhpatchcore.errors import UserError
from mhpatchcore.experiments.ladder import LADDER
from mhpatchcore.experiments.tables import BUDGET, GEORES, MAIN
from mhpatchcore.presets import LADDER_SIZES, OPEN_NETWORK, PAPER, PRESETS, preset

# name: constructor, metric, K, m_c, score; m_c of GeoReS is the authors' release's, since the paper does not tell it
STREAMING = {
    "streaming-euclidean": ("tree", "euclidean", 1000, 256, "reweighted"),
    "mh": ("tree", "mahalanobis", 1000, 256, "reweighted"),
    "mh-kmeans": ("kmeans", "mahalanobis", 1000, 256, "reweighted"),
    "mh-k1000-c1024": ("tree", "mahalanobis", 1000, 1024, "reweighted"),
    "mh-k5000-c256": ("tree", "mahalanobis", 5000, 256, "reweighted"),
    "mh-k5000-c1024": ("tree", "mahalanobis", 5000, 1024, "reweighted"),
    "mh-k5000-c4096": ("tree", "mahalanobis", 5000, 4096, "reweighted"),
    "geores-k1000": ("geores", "mahalanobis", 1000, 1024, "reweighted"),
    "geores-k2000": ("geores", "mahalanobis", 2000, 1024, "reweighted"),
    "geores-k5000": ("geores", "mahalanobis", 5000, 4096, "reweighted"),
}
NETWORK = {"backbone", "tag", "layers"}
LEFT_OPEN = ("patchcore", *STREAMING)
WITH_NETWORK = (*LEFT_OPEN, "paper")


def unnamed(name: str, config: type = Config) -> set[str]:
    """The settings that a preset takes from the default."""
    return {field.name for field in fields(config)} - set(preset(name).changes)


def test_all_rows_of_the_paper_are_there_and_no_others_are_called_the_paper_s() -> None:
    assert {*MAIN, *BUDGET, *GEORES} == set(PAPER) == set(LEFT_OPEN) and len(PAPER) == 11
    assert {*WITH_NETWORK, "default"} <= set(PRESETS) and set(LADDER) == {"patchcore", "mh", "geores-k2000"}
    assert LADDER_SIZES == (300, 500, 750, 1000, 1500, 2000)


@pytest.mark.parametrize("name", STREAMING)
def test_the_paper_s_numbers(name: str) -> None:
    config = preset(name).config
    found = (config.constructor, config.metric, config.K, config.m_c, config.score)
    assert found == STREAMING[name]
    assert (config.reduction, config.variance, config.components) == ("pca", 0.99, None)
    assert config.fraction is None and config.projection is None
    if config.metric == "mahalanobis":
        assert config.shrinkage == 0.07


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_the_paper_s_rows_depend_on_no_default(name: str) -> None:
    assert unnamed(name) == (set() if name == "paper" else NETWORK)


def test_a_new_setting_must_be_named() -> None:
    @dataclass(frozen=True)
    class Later(Config):
        further: int = 7

    assert unnamed("paper", Later) == {"further"}


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_a_preset_says_which_network_it_takes(name: str) -> None:
    role = preset(name).role
    assert ("network is left open" in role) == (name in LEFT_OPEN)
    assert (name in OPEN_NETWORK) == (name in LEFT_OPEN)


def test_the_paper_s_canonical_run() -> None:
    config = preset("paper").config
    assert (config.backbone, config.tag, config.layers) == (
        "wide_resnet50_2",
        "tv2_in1k",
        ("layer2", "layer3"),
    )
    network = {"backbone": config.backbone, "tag": config.tag, "layers": config.layers}
    assert config == preset("mh").config.with_changes(**network)
    is_pinned = "wide_resnet50_2.tv2_in1k" in PINNED
    assert is_pinned != ("not pinned" in preset("paper").role)


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_what_all_of_the_paper_s_configurations_share(name: str) -> None:
    config = preset(name).config
    (size,) = config.sizes
    assert (config.resize, size.height, size.width, size.pool, config.sigma) == (256, 224, 224, 1, 4.0)
    assert (config.neighbours, config.local, config.shuffle) == (9, 1, False)
    # the authors' release: batches of 16 images, seeds told on the command line
    assert (config.chunk_images, config.seed, config.floor) == (16, 0, 1e-8)


@pytest.mark.parametrize("name", STREAMING)
def test_k_center_starts_as_in_the_authors_release(name: str) -> None:
    assert preset(name).config.start == "farthest"


def test_the_tail_s_share_and_candidates() -> None:
    tails = {name: preset(name).config for name in STREAMING if name.startswith("geores")}
    assert {name: config.alpha for name, config in tails.items()} == {
        "geores-k1000": 0.95,
        "geores-k2000": 0.9,
        "geores-k5000": 0.9,
    }
    assert all(config.q == config.K for config in tails.values())


def test_original_patchcore() -> None:
    config = preset("patchcore").config
    assert (config.constructor, config.fraction) == ("offline-greedy", 0.1)
    assert (config.metric, config.reduction, config.score) == ("euclidean", "none", "max")
    assert (config.projection, config.start) == (128, "random")


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


def small(name: str) -> Config:
    """A preset at a small size, with the embedded network."""
    config = preset(name).config
    resize = None if config.resize is None else 96
    network = {"backbone": "efficientnet_lite0", "tag": "", "layers": ()}
    return config.with_changes(sizes=96, resize=resize, **network)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_and_scores(name: str) -> None:
    normals = vials(0, 3)
    detector = Detector.fit(normals, small(name))
    assert 0 < detector.model.rows <= detector.config.K
    assert detector.score(normals[0]).score >= 0


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_the_paper_s_configurations_learn_from_all_images(name: str) -> None:
    assert Detector.fit(vials(0, 5), small(name)).model.n_learnt == 5
