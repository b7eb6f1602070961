"""The recipe: refuses nonsense with a message that names the setting, and survives JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mhpatchcore.config import CHOICES, Config
from mhpatchcore.errors import UserError
from mhpatchcore.inputs.images import Preprocessing


def test_json_round_trip() -> None:
    config = Config(layers=("a", "b"), shrinkage="oas", K=77, seed=3, resize=256, variance=None)
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
        assert getattr(Config().with_changes(**{name: choice}), name) == choice


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", 0),
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
        ("resize", 223),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(UserError) as caught:
        Config().with_changes(**{name: value})
    assert name in str(caught.value) and str(value) in str(caught.value)


def test_only_offline_greedy_takes_a_fraction() -> None:
    assert Config(constructor="offline-greedy", fraction=0.1).fraction == 0.1
    with pytest.raises(UserError, match="offline-greedy"):
        Config(constructor="tree", fraction=0.1)


def test_preprocessing_is_square() -> None:
    assert Config(size=96, resize=110).preprocessing == Preprocessing(96, 96, 110)


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
        ("shuffle", "no", "true or false"),
        ("shuffle", 0, "true or false"),
        ("score", 1, "a text"),
        ("layers", "block4", "a list of texts"),
        ("layers", [1], "a list of texts"),
        ("shrinkage", None, "a text or a number"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(UserError, match=rf"{name} must be .*{words}"):
        Config(**{name: value})  # type: ignore[arg-type]


def test_numbers_of_numpy_become_python_s() -> None:
    config = Config(K=np.int64(50), sigma=np.float32(2), shuffle=False, layers=["a"])  # type: ignore[arg-type]
    assert json.loads(json.dumps(config.to_json()))["K"] == 50
    assert (type(config.K), type(config.sigma), config.layers) == (int, float, ("a",))
