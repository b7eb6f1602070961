"""Vision transformers against timm (see make_golden_vit.py) and against their definition."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import Floats, kept, pixels
from plain_vit import CASES, SMALL, Case, Transformer, plain_vit, random_vit
from run_networks import relative_error, run_model, unrounded_descriptors
from safetensors.numpy import save_file
from test_weights import CONTENT, Hub, hub, load_in_new_process, path_on_hub  # noqa: F401 (a fixture)

from mhpatchcore import Config, Detector, backbone
from mhpatchcore.backbone import building, quantising, vit
from mhpatchcore.backbone.building import ARCHITECTURES, build_graph
from mhpatchcore.backbone.graph import Architecture, Graph
from mhpatchcore.demo.dataset import vial_image
from mhpatchcore.errors import UserError, WeightsError

TOLERANCE = 1e-5


def architecture_of(shape: Transformer, layers: tuple[str, ...] = ("block0", "block2")) -> Architecture:
    return vit.architecture("small_vit", vit.Hub("small_vit", tag="none"), shape_of(shape), layers)


def shape_of(shape: Transformer) -> vit.Shape:
    return vit.Shape(shape.width, shape.depth, shape.heads, shape.patch, shape.registers)


def layers_of(transformer: Transformer, state: dict[str, Floats], images: Floats) -> dict[str, Floats]:
    """Of a batch (N, H, W, 3): all layers (N, C, h, w), "unit block0" …, and the tokens that they are made of."""
    size, graph, shape = images.shape[1:3], Graph("vit"), shape_of(transformer)
    architecture = architecture_of(transformer)
    image = graph.normalised_image(*size, architecture.mean, architecture.std)
    built = architecture.build(graph, state, image, size, ())
    maps = {f"unit {name}": layer for name, layer in built.items()}
    grid = (size[0] // shape.patch, size[1] // shape.patch)
    for index, tokens in enumerate(vit.blocks(shape, graph, state, image, grid)):
        maps[f"block{index}"] = vit.patch_map(shape, graph, tokens, grid)
    normed = graph.layer_norm(tokens, state, "norm", vit.EPS)
    maps["norm"] = vit.patch_map(shape, graph, normed, grid)
    outputs = {
        name: (layer.name, ("N", layer.channels, layer.height, layer.width)) for name, layer in maps.items()
    }
    return dict(zip(maps, run_model(graph.model(outputs), images), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_timm(case: Case) -> None:
    found = layers_of(case.transformer, random_vit(case.transformer), pixels(case.height, case.width)[None])
    with np.load(case.file) as golden:
        for name in case.outputs:
            assert found[name][0].shape == tuple(golden[f"{name}.shape"])
            assert relative_error(kept(found[name]), golden[f"{name}.values"]) < TOLERANCE, name


@pytest.mark.parametrize(("heads", "registers"), [(1, 0), (4, 0), (6, 0), (4, 4)])
@pytest.mark.parametrize("size", [(14, 14), (28, 154), (70, 70), (84, 70), (182, 98)])
def test_agrees_with_the_definition(size: tuple[int, int], heads: int, registers: int) -> None:
    shape = replace(SMALL, heads=heads, registers=registers)
    state = random_vit(shape)
    images = np.stack([pixels(*size, seed) for seed in range(2)])
    found = layers_of(shape, state, images)
    for i, image in enumerate(images):
        expected = plain_vit(state, shape, image)
        blocks = ["block0", "block1", "block2"]
        assert (
            sorted(found) == sorted(expected) == sorted([*blocks, *(f"unit {one}" for one in blocks), "norm"])
        )
        for name, layer in expected.items():
            assert found[name][i].shape == layer.shape == (48, size[0] // 14, size[1] // 14)
            assert relative_error(found[name][i], layer) < TOLERANCE, name


def test_every_tensor_matters() -> None:
    state, image = random_vit(SMALL), pixels(42, 56)[None]

    def changed_by(change: dict[str, Floats]) -> float:
        return float(np.abs(layers_of(SMALL, state | change, image)["unit block2"] - expected).max())

    expected = layers_of(SMALL, state, image)["unit block2"]
    for name, tensor in state.items():
        noise = np.random.RandomState(1).standard_normal(tensor.shape).astype(np.float32)
        assert changed_by({name: tensor + noise}) > 1e-4, name
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
    model, _ = build_graph(
        architecture_of(SMALL), random_vit(SMALL), (98, 56), ("block0", "block2"), "concat"
    )
    images = np.stack([pixels(98, 56, seed) for seed in range(3)])
    together = run_model(model, images, threads=2)
    for i, image in enumerate(images):
        alone = run_model(model, image[None], threads=1)
        assert all(np.array_equal(one[0], all_[i]) for one, all_ in zip(alone, together, strict=True))


def test_descriptors_are_local_means_of_the_layers() -> None:
    state, image = random_vit(SMALL), pixels(98, 56)[None]
    model, maps = build_graph(architecture_of(SMALL), state, (98, 56), ("block0", "block2"), "concat")
    assert maps == ((48, 7, 4), (48, 7, 4))
    layers = layers_of(SMALL, state, image)
    padded = [np.pad(layers[f"unit {name}"][0], ((0, 0), (1, 1), (1, 1))) for name in ("block0", "block2")]
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
    [
        ("dinov2_small", vit.Shape(384, 12, 6, 14)),
        ("dinov2_base", vit.Shape(768, 12, 12, 14)),
        ("dinov2_small_reg4", vit.Shape(384, 12, 6, 14, registers=4)),
        ("dinov2_base_reg4", vit.Shape(768, 12, 12, 14, registers=4)),
    ],
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
    if change == "register tokens":
        return random_vit(replace(SMALL, registers=4))
    del state["blocks.1.ls2.gamma"]
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("wider", "patch_embed.proj.weight' is of 96 × 3 × 14 × 14 where small_vit has 48 × 3 × 14 × 14"),
        ("larger patches", "is of 48 × 3 × 16 × 16 where"),
        ("deeper", "no place for the weights' tensor 'blocks.3"),
        ("shallower", "no tensor 'blocks.2"),
        ("register tokens", "position embeddings of 24 patches"),
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
    plain, _ = build_graph(architecture_of(SMALL), state, (56, 56), ("block2",), "concat")
    with_mask, _ = build_graph(
        architecture_of(SMALL), state | {"mask_token": state["cls_token"][0]}, (56, 56), ("block2",), "concat"
    )
    assert plain == with_mask


@pytest.mark.parametrize(
    ("name", "on_hub"),
    [
        ("dinov2_base", "vit_base_patch14_dinov2.lvd142m"),
        ("dinov2_small_reg4", "vit_small_patch14_reg4_dinov2.lvd142m"),
        ("dinov2_base_reg4", "vit_base_patch14_reg4_dinov2.lvd142m"),
    ],
)
def test_weights_come_from_the_hub(name: str, on_hub: str, hub: Hub, tmp_path: Path) -> None:  # noqa: F811
    hub.files[path_on_hub(on_hub)] = CONTENT
    loaded = load_in_new_process(hub.url, tmp_path, name, "")
    assert (loaded["source"], loaded["names"]) == (f"hub timm/{on_hub}", ["conv1.weight"])


def test_the_published_small_network_is_pinned_by_size_and_hash(hub: Hub, tmp_path: Path) -> None:  # noqa: F811
    hub.files[path_on_hub("vit_small_patch14_dinov2.lvd142m")] = CONTENT
    answer = load_in_new_process(hub.url, tmp_path, "dinov2_small", "")
    assert "expected 04d27f34…e20081 of 88240510 bytes" in str(answer["error"])


@pytest.mark.parametrize(
    ("sha256", "size", "fits"),
    [
        ("04d27f34" + 50 * "0" + "e20081", 5, True),
        ("04d27f34" + 50 * "0" + "e20082", 5, False),
        ("04d27f35" + 50 * "0" + "e20081", 5, False),
        ("04d27f34" + 50 * "0" + "e20081", 6, False),
    ],
)
def test_a_pin_may_be_the_ends_of_a_hash_and_a_size(
    sha256: str, size: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(building.SIZES, "dinov2_small.lvd142m", 5)
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(size))
    with nullcontext() if fits else pytest.raises(WeightsError, match="weights=FILE"):
        building._check_pin("dinov2_small.lvd142m", sha256, path)


def with_huge_channels(state: dict[str, Floats]) -> dict[str, Floats]:
    """The same network, but three channels of every block are larger than all others together, as in DINOv2."""
    state["patch_embed.proj.weight"][[3, 17, 40]] *= 60
    state["norm.weight"][[3, 17, 40]] *= 4
    return state


def test_a_few_huge_channels_do_not_decide_what_is_kept(small_vit: Path) -> None:
    save_file(with_huge_channels(random_vit(SMALL)), small_vit)
    images = [vial_image(seed, pixels=112)[0] for seed in range(8)]
    new = [vial_image(seed, pixels=112)[0] for seed in range(8, 10)]
    detector = fitted(images, small_vit, sizes=112)
    assert detector.config.reduction == "correlation"
    by_covariance = fitted(images, small_vit, sizes=112, reduction="pca")
    kept, few = (one.scales[0].whitening.k for one in (detector, by_covariance))
    assert kept > 20 > 5 > few
    assert detector.updated(new).config.reduction == "correlation"


@pytest.fixture
def small_vit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small transformer that is known by name, and a file with weights for it."""
    monkeypatch.setitem(building.ARCHITECTURES, "small_vit", architecture_of(SMALL))
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
