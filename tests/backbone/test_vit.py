"""Vision transformers against timm (see make_golden_vit.py) and against their definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import Floats, kept, pixels
from plain_vit import CASES, DINOV2_SMALL, SMALL, Case, Transformer, plain_vit, random_vit
from run_networks import relative_error, run_model, unrounded_descriptors
from safetensors.numpy import save_file
from test_weights import CONTENT, Hub, hub, load_in_new_process, path_on_hub  # noqa: F401 (a fixture)

from mhpatchcore import Config, Detector, backbone
from mhpatchcore.backbone import quantising, vit, weights
from mhpatchcore.backbone.building import ARCHITECTURES, build_graph
from mhpatchcore.backbone.graph import Architecture, Graph
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.errors import UserError, WeightsError

TOLERANCE = 1e-5


def architecture_of(shape: Transformer, layers: tuple[str, ...] = ("block0", "block2")) -> Architecture:
    built = vit.Shape(shape.width, shape.depth, shape.heads, shape.patch)
    return vit.architecture("small_vit", vit.Hub("small_vit", tag="none"), built, layers)


def layers_of(architecture: Architecture, state: dict[str, Floats], images: Floats) -> dict[str, Floats]:
    """All layers (N, C, h, w) of a batch (N, H, W, 3)."""
    size, graph = images.shape[1:3], Graph("vit")
    image = graph.normalised_image(*size, architecture.mean, architecture.std)
    maps = architecture.build(graph, state, image, size, ())
    outputs = {
        name: (layer.name, ("N", layer.channels, layer.height, layer.width)) for name, layer in maps.items()
    }
    return dict(zip(maps, run_model(graph.model(outputs), images), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_timm(case: Case) -> None:
    state = random_vit(case.transformer)
    small = case.transformer == DINOV2_SMALL
    architecture = ARCHITECTURES["dinov2_small"] if small else architecture_of(case.transformer)
    found = layers_of(architecture, state, pixels(case.height, case.width)[None])
    with np.load(case.file) as golden:
        for name in case.outputs:
            assert found[name][0].shape == tuple(golden[f"{name}.shape"])
            assert relative_error(kept(found[name]), golden[f"{name}.values"]) < TOLERANCE, name


@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("size", [(14, 14), (28, 154), (70, 70), (84, 70), (182, 98)])
def test_agrees_with_the_definition(size: tuple[int, int], heads: int) -> None:
    shape = replace(SMALL, heads=heads)
    state = random_vit(shape)
    images = np.stack([pixels(*size, seed) for seed in range(2)])
    found = layers_of(architecture_of(shape), state, images)
    for i, image in enumerate(images):
        expected = plain_vit(state, shape, image)
        assert list(found) == list(expected) == ["block0", "block1", "block2", "norm"]
        for name, layer in expected.items():
            assert found[name][i].shape == layer.shape == (48, size[0] // 14, size[1] // 14)
            assert relative_error(found[name][i], layer) < TOLERANCE, name


def test_every_tensor_matters() -> None:
    state, image = random_vit(SMALL), pixels(42, 56)[None]

    def changed_by(change: dict[str, Floats]) -> float:
        return float(
            np.abs(layers_of(architecture_of(SMALL), state | change, image)["norm"] - expected).max()
        )

    expected = layers_of(architecture_of(SMALL), state, image)["norm"]
    for name, tensor in state.items():
        noise = np.random.RandomState(1).standard_normal(tensor.shape).astype(np.float32)
        assert changed_by({name: tensor + noise}) > 1e-3, name
        if name.endswith("qkv.bias"):  # a bias of the keys shifts all affinities of a token alike
            noise[:48] = noise[96:] = 0
            assert changed_by({name: tensor + noise}) < 1e-4


@pytest.mark.parametrize("n_out", [1, 4, 9, 16, 37, 50])
def test_resampled_constants_stay_constant_and_the_own_grid_is_kept(n_out: int) -> None:
    matrix = vit.cubic_resampling(n_out, 37)
    assert matrix.shape == (n_out, 37)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    np.testing.assert_allclose(matrix[::-1, ::-1], matrix, atol=1e-12)
    if n_out == 37:
        np.testing.assert_array_equal(matrix, np.eye(37))


def test_neighbours_in_the_batch_and_threads_change_no_bit() -> None:
    model, _ = build_graph(architecture_of(SMALL), random_vit(SMALL), (98, 56), ("block0", "norm"), "concat")
    images = np.stack([pixels(98, 56, seed) for seed in range(3)])
    together = run_model(model, images, threads=2)
    for i, image in enumerate(images):
        alone = run_model(model, image[None], threads=1)
        assert all(np.array_equal(one[0], all_[i]) for one, all_ in zip(alone, together, strict=True))


def test_descriptors_are_local_means_of_the_layers() -> None:
    state, image = random_vit(SMALL), pixels(98, 56)[None]
    model, maps = build_graph(architecture_of(SMALL), state, (98, 56), ("block0", "norm"), "concat")
    assert [(layer.channels, layer.height, layer.width) for layer in maps] == [(48, 7, 4), (48, 7, 4)]
    layers = layers_of(architecture_of(SMALL), state, image)
    padded = [np.pad(layers[name][0], ((0, 0), (1, 1), (1, 1))) for name in ("block0", "norm")]
    windows = [np.lib.stride_tricks.sliding_window_view(layer, (3, 3), axis=(1, 2)) for layer in padded]
    expected = np.concatenate([window.mean(axis=(3, 4)) for window in windows]).transpose(1, 2, 0)
    assert relative_error(unrounded_descriptors(model, image)[0], expected) < TOLERANCE


def test_the_network_ends_with_the_last_layer_that_is_asked_for() -> None:
    sizes = [
        len(build_graph(architecture_of(SMALL), random_vit(SMALL), (28, 28), (layer,), "concat")[0])
        for layer in ("block0", "block1", "block2")
    ]
    block = 12 * 48**2 * 4
    assert np.diff(sizes) == pytest.approx([block, block], rel=0.15)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("dinov2_small", vit.Shape(384, 12, 6, 14)), ("dinov2_base", vit.Shape(768, 12, 12, 14))],
)
def test_the_published_shapes(name: str, shape: vit.Shape) -> None:
    architecture = ARCHITECTURES[name]
    assert architecture.build.args == (shape,)  # type: ignore[attr-defined]
    assert (architecture.layers, architecture.descriptor) == (("block7", "block11"), "concat")
    assert architecture.multiple == shape.patch


@pytest.mark.parametrize(
    ("size", "pool", "message"),
    [
        ((320, 320), 1, "multiples of 14 pixels, and 320 is none: use 308 or 322"),
        ((224, 640), 1, "and 640 is none: use 630 or 644"),
        (
            (322, 224),
            2,
            "multiples of 28 pixels where 2 × 2 patches are averaged, and 322 is none: use 308 or 336",
        ),
    ],
)
def test_other_sizes_are_refused_with_the_nearest(size: tuple[int, int], pool: int, message: str) -> None:
    """Before the weights are asked for, which are not here."""
    with pytest.raises(UserError, match=f"dinov2_small takes {message}" if pool == 2 else message) as caught:
        backbone.load("dinov2_small", height=size[0], width=size[1], pool=pool)
    assert "\n" not in str(caught.value)


def changed_weights(change: str) -> dict[str, Floats]:
    state = random_vit(SMALL)
    if change == "wider":
        return random_vit(replace(SMALL, width=96))
    if change == "larger patches":
        return random_vit(replace(SMALL, patch=16))
    if change == "deeper":
        return random_vit(replace(SMALL, depth=4))
    if change == "shallower":
        return random_vit(replace(SMALL, depth=2))
    if change == "register tokens":  # timm embeds no position of the class token then
        return state | {"reg_token": state["cls_token"], "pos_embed": state["pos_embed"][:, 1:]}
    del state["blocks.1.ls2.gamma"]
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("wider", "patches by 96 × 3 × 14 × 14 numbers where small_vit has 48 × 3 × 14 × 14"),
        ("larger patches", "patches by 48 × 3 × 16 × 16 numbers"),
        ("deeper", "no place for the weights' tensor 'blocks.3"),
        ("shallower", "no tensor 'blocks.2"),
        ("register tokens", "25 position embeddings"),
        ("no LayerScale", "no tensor 'blocks.1.ls2.gamma'"),
    ],
)
def test_weights_of_another_network_are_refused(change: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message) as caught:
        build_graph(architecture_of(SMALL), changed_weights(change), (56, 56), ("block0",), "concat")
    assert "\n" not in str(caught.value)


def test_tensors_of_the_training_alone_are_left_aside() -> None:
    """The authors' own files hold a mask token."""
    state = random_vit(SMALL)
    plain, _ = build_graph(architecture_of(SMALL), state, (56, 56), ("norm",), "concat")
    with_mask, _ = build_graph(
        architecture_of(SMALL), state | {"mask_token": state["cls_token"][0]}, (56, 56), ("norm",), "concat"
    )
    assert plain == with_mask


@pytest.mark.parametrize(
    ("name", "on_hub"),
    [
        ("dinov2_small", "vit_small_patch14_dinov2.lvd142m"),
        ("dinov2_base", "vit_base_patch14_dinov2.lvd142m"),
    ],
)
def test_weights_come_from_the_hub(name: str, on_hub: str, hub: Hub, tmp_path: Path) -> None:  # noqa: F811
    hub.files[path_on_hub(on_hub)] = CONTENT
    loaded = load_in_new_process(hub.url, tmp_path, name, "")
    assert (loaded["source"], loaded["names"]) == (f"hub timm/{on_hub}", ["conv1.weight"])


@pytest.fixture
def small_vit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small transformer that is known by name, and a file with weights for it."""
    monkeypatch.setitem(weights.ARCHITECTURES, "small_vit", architecture_of(SMALL))
    path = tmp_path / "small_vit.safetensors"
    save_file(random_vit(SMALL), path)
    return path


def fitted(images: list[Any], weights: Path, **settings: Any) -> Detector:
    config = Config(backbone="small_vit", K=50).with_changes(**settings)
    return Detector.fit(images, config, weights=weights)


def test_a_fit_at_two_scales(small_vit: Path, tmp_path: Path) -> None:
    images = [vial_image(seed, pixels=64)[0] for seed in range(6)]
    detector = fitted(images[:5], small_vit, sizes="56, 112/2")
    assert [scale.backbone.info.grid for scale in detector.scales] == [(4, 4), (4, 4)]
    detector.save(tmp_path / "part.mhpc")
    again = Detector.load(tmp_path / "part.mhpc")
    assert again.score(images[5]).score == detector.score(images[5]).score > 0


def test_views_in_the_aspect_of_the_images_are_multiples_too(small_vit: Path) -> None:
    images = [pixels(60, 150, seed) for seed in range(4)]
    detector = fitted(images, small_vit, sizes="112, 112/2")
    assert [size[:2] for size in detector.config.sizes] == [(70, 182), (84, 168)]


def test_transformers_are_not_quantised(small_vit: Path) -> None:
    images = [pixels(60, 60, seed) for seed in range(3)]
    network = backbone.load("small_vit", weights=small_vit, height=56, width=56)
    assert not quantising.gains(network.graph)
    with pytest.raises(UserError, match=r"few convolutions to quantise: use `precision=fp32`"):
        fitted(images, small_vit, sizes=56, precision="int8")


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (np.nan, "small_vit gives numbers that are not finite"),
        (0.0, "gives the same numbers for every image in its layer block0"),
    ],
)
def test_weights_that_make_no_sense_are_named_before_the_work(
    scale: float, message: str, small_vit: Path
) -> None:
    state = random_vit(SMALL)
    state["patch_embed.proj.weight"] *= np.float32(scale)
    save_file(state, small_vit)
    images = [pixels(60, 60, seed) for seed in range(3)]
    with pytest.raises(WeightsError, match=message) as caught:
        fitted([*images, Path("is not read")], small_vit, sizes=56)
    assert "\n" not in str(caught.value)
