"""The recipe: refuses nonsense with a message that names the setting, and survives JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mhpatchcore.config import CHOICES, Config, Size
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.views import View


def test_json_round_trip() -> None:
    config = Config(
        layers=("a", "b"),
        shrinkage="oas",
        K=77,
        seed=3,
        resize=256,
        variance=None,
        sizes=(Size(64, 96), Size(224, 160, 2)),
    )
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_changes_make_a_new_config() -> None:
    config = Config()
    changed = config.with_changes(K=9, shrinkage="0.5")
    assert (changed.K, changed.shrinkage) == (9, 0.5)
    assert config == Config()


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown setting 'colour'; there are: .*shrinkage"):
        Config().with_changes(colour="red")


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_an_unknown_choice_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match=rf"unknown {name} 'x'; choose one of: {CHOICES[name][0]}"):
        Config().with_changes(**{name: "x"})
    for choice in CHOICES[name]:
        calibration = {} if name == "calibration" else {"calibration": "none"}
        assert getattr(Config().with_changes(**calibration, **{name: choice}), name) == choice


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sizes", 31),
        ("sizes", 2049),
        ("local", 0),
        ("local", 101),
        ("sigma", -1.0),
        ("sigma", float("nan")),
        ("seed", -1),
        ("calibration_images", 10**400),
        ("m_c", 0),
        ("chunk_images", -1),
        ("calibration_images", 0),
        ("neighbours", 1),
        ("K", 1),
        ("variance", 0.0),
        ("variance", 1.1),
        ("fraction", 0.0),
        ("fraction", 2.0),
        ("alpha", 0.0),
        ("false_alarm", 0.0),
        ("false_alarm", 1.0),
        ("shrinkage", "much"),
        ("components", 0),
        ("projection", 0),
        ("q", 0),
        ("resize", 0),
        ("resize", 447),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(UserError) as caught:
        Config().with_changes(**{name: value})
    assert name.removesuffix("s") in str(caught.value) or name in str(caught.value)
    assert str(value) in str(caught.value).replace(",", "") and "\n" not in str(caught.value)


def test_only_offline_greedy_takes_a_fraction() -> None:
    assert Config(constructor="offline-greedy", fraction=0.1).fraction == 0.1
    with pytest.raises(UserError, match="offline-greedy"):
        Config(constructor="tree", fraction=0.1)


def test_centroids_cannot_be_calibrated_across_images() -> None:
    with pytest.raises(UserError, match="held-out`, or none"):
        Config(constructor="kmeans")
    for calibration in ("held-out", "none"):
        assert Config(constructor="kmeans", calibration=calibration).calibration == calibration


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (96, [(96, 96, 1)]),
        (np.int64(96), [(96, 96, 1)]),
        ("96", [(96, 96, 1)]),
        ("64x96", [(64, 96, 1)]),
        ("64×96", [(64, 96, 1)]),
        ("96,128/2", [(96, 96, 1), (128, 128, 2)]),
        (" 96 , 64x128 ", [(96, 96, 1), (64, 128, 1)]),
        (Size(96, 64), [(96, 64, 1)]),
        ([96, "128"], [(96, 96, 1), (128, 128, 1)]),
        ([[96, 64], [96, 64, 2]], [(96, 64, 1), (96, 64, 2)]),
    ],
    ids=str,
)
def test_sizes_can_be_told_in_many_ways(given: object, sizes: list[tuple[int, int, int]]) -> None:
    config = Config().with_changes(sizes=given)
    assert [size[:3] for size in config.sizes] == sizes and not config.tiled
    assert all(type(side) is int for size in config.sizes for side in size[:3])
    assert config.views == tuple(View(height, width, None) for height, width, _ in sizes)
    assert Config().with_changes(sizes=",".join(map(str, config.sizes))) == config


@pytest.mark.parametrize(
    "given",
    [None, "", "big", "96x", "96,,128", "96,96", [], [[96]], [[96, 64, 3]], [True], 96.0, "9999999", "96/3",
     [96, 97, 98, 99, 100], {"height": 96}],
    ids=str,
)  # fmt: skip
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(UserError, match=r"size|averaged") as caught:
        Config().with_changes(sizes=given)
    assert "\n" not in str(caught.value)


def test_views_share_the_crop() -> None:
    assert Config(sizes="96x64", resize=110).views == (View(96, 64, 110),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("K", "a", "a whole number"),
        ("K", None, "a whole number"),
        ("K", 10.5, "a whole number"),
        ("K", True, "a whole number"),
        ("K", 10**12, "at most 10,000,000"),
        ("sigma", None, "a number"),
        ("sigma", 1e9, "at most"),
        ("sigma", 10**400, "a number"),
        ("shuffle", "no", "true or false"),
        ("shuffle", 0, "true or false"),
        ("score", 1, "a text"),
        ("layers", 4, "texts such as"),
        ("layers", [1], "texts such as"),
        ("shrinkage", None, "a text or a number"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(UserError, match=rf"{name} must be .*{words}"):
        Config(**{name: value})  # type: ignore[arg-type]


def test_numbers_of_numpy_become_python_s() -> None:
    config = Config(K=np.int64(50), sigma=np.float32(2), shuffle=False, layers="a, b")  # type: ignore[arg-type]
    assert json.loads(json.dumps(config.to_json()))["K"] == 50
    assert (type(config.K), type(config.sigma), config.layers) == (int, float, ("a", "b"))
