"""The resize in the graph gives Pillow's pixels: the same bytes, or floats to their last bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mhpatchcore.backbone.graph import FLOAT, Graph
from mhpatchcore.backbone.session import make_session
from mhpatchcore.deploy.pillow_resize import UINT8, resized
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.views import View

VIEWS = (View(64, 96), View(33, 70), View(160, 160))
CROPS = (View(224, 224, 256), View(96, 64, 128))


@cache
def resizing(views: tuple[View, ...], exact: bool = True) -> Any:
    """A session of which the outputs are the views of an image."""
    graph = Graph("resize")
    image = graph.input("image", (1, "height", "width", "channels"), UINT8 if exact else FLOAT)
    seen = resized(graph, image, views, exact)
    outputs = {
        f"view{i}": (name, (1, view.height, view.width, "channels"))
        for i, (name, view) in enumerate(zip(seen, views, strict=True))
    }
    return make_session(graph.model(outputs), 1)


def noise(seed: int, *shape: int) -> np.ndarray:
    """Pixels that are as hard as can be: any, or black and white alone."""
    rng = np.random.default_rng(seed)
    any_values = rng.integers(0, 256, shape, dtype=np.uint8)
    return any_values if seed % 2 else (any_values & 128) // 128 * np.uint8(255)


def assert_same_pixels(views: tuple[View, ...], pixels: np.ndarray) -> None:
    found = resizing(views).run(None, {"image": pixels[None]})
    plain = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    for one, (truth, _) in zip(found, load_views(plain, views), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_array_equal(np.broadcast_to(one[0], truth.shape), truth)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from((1, 3)), st.integers(0, 1000))
def test_every_pixel_is_pillows(height: int, width: int, channels: int, seed: int) -> None:
    assert_same_pixels(VIEWS, noise(seed, height, width, channels))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 600), st.integers(1, 600), st.sampled_from((1, 3)), st.integers(0, 1000))
def test_and_in_the_middle_of_an_image(height: int, width: int, channels: int, seed: int) -> None:
    assert_same_pixels(CROPS, noise(seed, height, width, channels))


@pytest.mark.parametrize(
    "size",
    [(1, 1), (1, 999), (999, 1), (64, 96), (160, 160), (128, 192), (2000, 31), (1500, 1999), (9000, 40)],
)
def test_at_the_ends(size: tuple[int, int]) -> None:
    """One pixel, the view's own size, twice that, tall, wide, large."""
    assert_same_pixels(VIEWS, noise(1, *size, 3))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 1000))
def test_floats_are_pillows_too(height: int, width: int, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)
    found = resizing(VIEWS, exact=False).run(None, {"image": values[None, :, :, None]})
    for one, view in zip(found, VIEWS, strict=True):
        truth = np.asarray(
            Image.fromarray(values).resize((view.width, view.height), Image.Resampling.BILINEAR)
        )
        np.testing.assert_allclose(one[0, :, :, 0], truth, rtol=1e-6, atol=1e-5)


def test_openvino_which_has_no_long_numbers_gives_the_same_pixels() -> None:
    openvino = pytest.importorskip("openvino")
    graph = Graph("resize")
    seen = resized(graph, graph.input("image", (1, "height", "width", "channels"), UINT8), VIEWS[:1], True)
    content = graph.model({"view": (seen[0], (1, 64, 96, "channels"))})
    core = openvino.Core()
    model = core.compile_model(core.read_model(content), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for seed, shape in enumerate(((300, 400, 3), (50, 31, 1), (1, 1, 1), (997, 1201, 3), (41, 64, 3))):
        pixels = noise(seed, *shape)
        plain = pixels[:, :, 0] if shape[2] == 1 else pixels
        truth = load_views(plain, VIEWS[:1])[0][0]
        np.testing.assert_array_equal(np.broadcast_to(model(pixels[None])[0][0], truth.shape), truth)
