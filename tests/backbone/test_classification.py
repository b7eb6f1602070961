"""With their classifiers on, the networks recognise photographs: every weight is in its place.

The photographs ship with scikit-learn and matplotlib: a dahlia, the tower of the Summer Palace in Beijing, and
Rear Admiral Grace Hopper in uniform.
"""

from __future__ import annotations

import matplotlib.cbook
import numpy as np
import pytest
from golden_cases import Floats
from PIL import Image
from run_networks import genuine_resnet18, run_network
from sklearn.datasets import load_sample_image

from mhpatchcore.backbone.building import load_weights

# ImageNet's names for what is in the pictures; it has no dahlia, and the daisy is of the same family
DAISY, PALACE, MILITARY_UNIFORM = 985, 698, 652


def photograph(name: str) -> Floats:
    """A batch of one, seen as ImageNet is evaluated: the middle 224/256 of the shorter side, at 224 pixels."""
    if name == "grace_hopper.jpg":
        try:
            with matplotlib.cbook.get_sample_data(name) as file:
                image = Image.open(file).convert("RGB")
        except FileNotFoundError:
            pytest.skip(f"this matplotlib comes without {name}")
    else:
        image = Image.fromarray(load_sample_image(name))
    half = min(image.size) * 224 / 256 / 2
    x, y = image.width / 2, image.height / 2
    view = image.resize((224, 224), Image.Resampling.BICUBIC, box=(x - half, y - half, x + half, y + half))
    return np.asarray(view, np.float32)[None]


def best(logits: Floats, n: int) -> list[int]:
    return np.argsort(-logits[0])[:n].tolist()


@pytest.mark.parametrize(
    ("name", "content", "among"),
    [("flower.jpg", DAISY, 1), ("china.jpg", PALACE, 1), ("grace_hopper.jpg", MILITARY_UNIFORM, 3)],
)
def test_lite0_recognises(name: str, content: int, among: int) -> None:
    state = load_weights("efficientnet_lite0").state
    assert content in best(run_network("efficientnet_lite0", state, photograph(name), "logits"), among)


@pytest.mark.parametrize(
    ("name", "content", "among"), [("china.jpg", PALACE, 2), ("grace_hopper.jpg", MILITARY_UNIFORM, 1)]
)
def test_resnet18_recognises(name: str, content: int, among: int) -> None:
    state = genuine_resnet18()
    assert content in best(run_network("resnet18", state, photograph(name), "logits"), among)
