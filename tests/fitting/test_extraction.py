"""The first pass: descriptors in the store, found again, made again where they are damaged; broken images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from same_model import assert_same_model
from small_detector import vials

from mhpatchcore import Config, Detector, Execution, UserError
from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone, aligned_rows
from mhpatchcore.backbone.stored import stored_maps
from mhpatchcore.config import CHOICES
from mhpatchcore.fitting import extraction as first_pass
from mhpatchcore.fitting.banking import moments_at
from mhpatchcore.fitting.extraction import Extraction
from mhpatchcore.fitting.fit import extracted
from mhpatchcore.inputs.loading import LoadedImage, load_image, load_views
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.metric.moments import Moments
from mhpatchcore.runtime.costs import Costs

SMALL = Config(augment="none", sizes=64, K=80, m_c=40, layers=("block2", "block4"), chunk_images=4)
N = 10


@pytest.fixture(scope="module")
def network() -> Backbone:
    return backbones.load(SMALL.backbone, height=64, width=64, layers=SMALL.layers, threads=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good").mkdir()
    for i, picture in enumerate(vials(0, N)):
        Image.fromarray(picture).save(tmp_path / "good" / f"{i:02d}.png")
    return tmp_path / "good"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The images that were decoded and described, not found in the store."""
    sources: list[object] = []

    def counted(source: ImageLike, *rest: Any) -> LoadedImage:
        sources.append(source)
        return load_image(source, *rest)

    monkeypatch.setattr(first_pass, "load_image", counted)
    return sources


def rows_of(network: Backbone, source: object) -> np.ndarray:
    return network.descriptors(load_views(source, SMALL.views)[0][0]).reshape(network.info.patches, -1)  # type: ignore[arg-type]


def test_the_store_holds_what_the_network_says_of_every_image(folder: Path, network: Backbone) -> None:
    images = sorted(folder.iterdir())
    with extracted(images, [network], SMALL, Execution(batch=3)) as extraction:
        assert [one.image for one in extraction.learnt] == list(range(N)) and extraction.held_out == ()
        for one in extraction.learnt:
            layers = stored_maps(extraction.store, one.scales[0][0])
            assert [layer.shape for layer in layers] == list(network.info.maps)
            assert np.array_equal(aligned_rows(layers), rows_of(network, images[one.image]))
        place = extraction.store.folder
        (moments,) = moments_at(extraction, 0)
    assert not place.exists()
    whole = Moments.of(np.concatenate([rows_of(network, image) for image in images]))
    assert moments.n == whole.n and np.allclose(moments.covariance, whole.covariance, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_chunks_run_in_batches(
    folder: Path, network: Backbone, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    sizes: list[int] = []
    call = Backbone.__call__

    def counted(network: Backbone, images: np.ndarray) -> list[np.ndarray]:
        sizes.append(len(images))
        return call(network, images)

    monkeypatch.setattr(Backbone, "__call__", counted)
    with extracted(sorted(folder.iterdir()), [network], SMALL, Execution(workers=1, batch=batch)):
        pass
    assert sum(sizes) == N and max(sizes) == min(batch, SMALL.chunk_images)


def test_a_named_store_is_used_again(folder: Path, tmp_path: Path, made: list[object]) -> None:
    execution = Execution(store=tmp_path / "store")
    first = Detector.fit(folder, SMALL, execution=execution)
    assert len(made) == N
    again = Detector.fit(folder, SMALL.with_changes(K=50), execution=execution)
    assert len(made) == N and again.model.rows == 50
    assert_same_model(Detector.fit(folder, SMALL, execution=execution), first)
    assert len(made) == N
    (folder / "10.png").write_bytes((folder / "00.png").read_bytes())
    Detector.fit(folder, SMALL, execution=execution)
    assert len(made) == N  # a picture is known by its content
    (folder / "03.png").unlink()
    Image.fromarray(vials(50, 1)[0]).save(folder / "00b.png")
    Detector.fit(folder, SMALL, execution=execution)
    assert len(made) == N + 1  # whatever has moved


@pytest.mark.parametrize("setting", [{"sizes": 72}, {"resize": 80}, {"layers": ("block2",)}])
def test_whatever_changes_descriptors_makes_them_again(
    folder: Path, tmp_path: Path, made: list[object], setting: dict[str, object]
) -> None:
    execution = Execution(store=tmp_path / "store")
    Detector.fit(folder, SMALL, execution=execution)
    Detector.fit(folder, SMALL.with_changes(**setting), execution=execution)
    assert len(made) == 2 * N


@pytest.mark.parametrize("where", ["header", "numbers", "cut off"])
def test_a_damaged_entry_is_noticed_and_made_again(
    folder: Path, tmp_path: Path, made: list[object], where: str
) -> None:
    execution = Execution(store=tmp_path / "store")
    first = Detector.fit(folder, SMALL, execution=execution)
    (entry, *_) = sorted((tmp_path / "store" / "image").rglob("*.entry"))
    content = bytearray(entry.read_bytes())
    if where == "cut off":
        del content[-100:]
    else:
        content[50 if where == "header" else -50] ^= 4
    entry.write_bytes(content)
    again = Detector.fit(folder, SMALL, execution=execution)
    assert_same_model(again, first)
    assert len(made) == N + 1
    assert entry.read_bytes() != content


def test_what_was_stored_is_told(folder: Path, tmp_path: Path) -> None:
    for images in (N, 0):  # the second time there is nothing to store
        telemetry = Costs()
        Detector.fit(folder, SMALL, execution=Execution(store=tmp_path / "store", telemetry=telemetry))
        extract = telemetry.phases[0]
        assert extract.name == "extract" and extract.items == N
        least = images * sum(c * h * w * 2 for c, h, w in ((24, 16, 16), (40, 8, 8)))
        assert least <= extract.bytes_stored <= least + 2_000 * images


def torn(folder: Path, *numbers: int) -> list[Path]:
    """The folder's images, some of them torn."""
    for i in numbers:
        (folder / f"{i:02d}.png").write_bytes(b"torn" + bytes([i]))
    return sorted(folder.iterdir())


@pytest.mark.parametrize("constructor", CHOICES["constructor"])
def test_broken_images_can_be_left_out(folder: Path, constructor: str) -> None:
    # two in a row and one alone, so that one chunk has no image left and one has a single one
    paths = torn(folder, 4, 5, 7)
    warnings: list[str] = []
    calibration = "none" if constructor == "kmeans" else "cross-image"
    config = SMALL.with_changes(constructor=constructor, chunk_images=2, calibration=calibration)
    detector = Detector.fit(paths, config, execution=Execution(skip_broken=True, warn=warnings.append))
    skipped = sorted(one.partition(f"{folder.name}/")[2][:6] for one in warnings if "skipped" in one)
    assert skipped == ["04.png", "05.png", "07.png"]
    assert not {4, 5, 7} & set(detector.scales[0].origin[:, 0].tolist())
    assert detector.model.n_learnt == 7 and len(detector.model.images) == N
    assert [i for i, hash_ in enumerate(detector.model.hashes) if not hash_] == [4, 5, 7]


def test_a_broken_image_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match=r"04\.png"):
        Detector.fit(torn(folder, 4), SMALL)


def test_a_store_does_not_hide_broken_images(folder: Path, tmp_path: Path) -> None:
    paths, warnings = torn(folder, 4), list[str]()
    careful = Execution(store=tmp_path / "store", skip_broken=True, warn=warnings.append)
    first, second = (Detector.fit(paths, SMALL, execution=careful) for _ in range(2))
    assert_same_model(first, second)
    assert sum("04.png" in warning for warning in warnings) == 2
    with pytest.raises(UserError, match=r"04\.png"):
        Detector.fit(paths, SMALL, execution=Execution(store=tmp_path / "store"))


def test_a_missing_file_is_a_broken_one(folder: Path) -> None:
    paths = [*sorted(folder.iterdir()), folder / "gone.png"]
    with pytest.raises(UserError, match=r"there is no image .*gone\.png"):
        Detector.fit(paths, SMALL)
    detector = Detector.fit(paths, SMALL, execution=Execution(skip_broken=True))
    assert detector.model.n_learnt == N


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"torn")
    with pytest.raises(UserError, match="none of the images could be read"):
        Detector.fit(tmp_path, SMALL, execution=Execution(skip_broken=True))


def numbered(extraction: Extraction) -> list[tuple[int, np.ndarray]]:
    rows = [stored_maps(extraction.store, one.scales[0][0])[0] for one in extraction.learnt]
    return [(one.image, row) for one, row in zip(extraction.learnt, rows, strict=True)]


def test_without_some_images_the_others_are_numbered_as_if_those_had_never_been(
    folder: Path, network: Backbone
) -> None:
    paths, left_out = torn(folder, 1, 6), {2, 7}
    careful = Execution(skip_broken=True)
    rest = [path for i, path in enumerate(paths) if i not in left_out]
    with (
        extracted(paths, [network], SMALL, careful) as whole,
        extracted(rest, [network], SMALL, careful) as few,
    ):
        trimmed = whole.without(left_out)
        for (ours, row), (theirs, same) in zip(numbered(trimmed), numbered(few), strict=True):
            assert ours == theirs and np.array_equal(row, same)
        hashes = ([(image.image, image.sha256) for image in one.images] for one in (trimmed, few))
        assert next(hashes) == next(hashes)
        for one, other in zip(moments_at(trimmed, 0), moments_at(few, 0), strict=True):
            assert one.n == other.n and np.allclose(one.M2, other.M2, rtol=1e-9)
