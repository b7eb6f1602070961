"""Images and models elsewhere: S3 and HTTP servers on this machine, shards, lists, and what goes wrong on the way."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Run, assert_one_line_error, graphs, run, write_vials  # noqa: F401 (fixtures)
from forging import forged, setting
from remote_places import BUCKET, WebServer, s3_server, upload, web_server
from small_detector import small_detector

from mhpatchcore import Config, Detector
from mhpatchcore.errors import ImageError, ModelFileError, UserError
from mhpatchcore.inputs.decode import size_of
from mhpatchcore.inputs.files import fetch_file, open_bytes
from mhpatchcore.inputs.loading import load_pixels
from mhpatchcore.inputs.places import is_there
from mhpatchcore.inputs.sources import content_hash, gather, list_images, single_image
from mhpatchcore.model.file import to_bytes
from mhpatchcore.runtime import urls
from mhpatchcore.runtime.files import write_text
from mhpatchcore.runtime.urls import read_url

SMALL = ("--augment", "none", "--size", "96", "-K", "200", "--local-rows", "64", "-q")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vials(tmp_path_factory.mktemp("line") / "parts", 6)


@pytest.fixture(scope="module")
def shards(parts: Path) -> Path:
    """Two shards in the layout of WebDataset, a zip of all, and a list."""
    folder = parts.parent / "shards"
    folder.mkdir()
    images = sorted(parts.glob("*.png"))
    for number, some in enumerate((images[:3], images[3:])):
        with tarfile.open(folder / f"shard-{number:03d}.tar", "w") as archive:
            for image in some:
                label = image.with_suffix(".cls")
                label.write_text("0")
                archive.add(image, image.name)
                archive.add(label, label.name)
                label.unlink()
    with zipfile.ZipFile(folder / "parts.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for image in images:
            packed.write(image, image.name)
    (folder / "list.txt").write_text("".join(f"../parts/{image.name}\n" for image in images))
    return folder


@pytest.fixture(scope="module")
def s3(parts: Path, shards: Path) -> Iterator[str]:
    with s3_server() as address:
        upload(parts.parent, BUCKET)
        yield address


@pytest.fixture(scope="module")
def web_of_all(parts: Path, shards: Path) -> Iterator[WebServer]:
    with web_server(parts.parent) as server:
        yield server


@pytest.fixture
def web(web_of_all: WebServer, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    monkeypatch.setattr(urls, "WAITS", (0.0, 0.0))
    web_of_all.failures, web_of_all.status, web_of_all.parts = 0, 200, True
    web_of_all.asked.clear()
    return web_of_all


@pytest.mark.parametrize(
    "source",
    [
        "parts",
        "parts/",
        "parts/*.png",
        "shards/shard-{000..001}.tar",
        "shards/shard-*.tar",
        "shards/parts.zip",
        "shards/list.txt",
    ],
)
def test_a_bucket_is_like_a_folder(s3: str, parts: Path, source: str) -> None:
    there, here = gather(f"{BUCKET}/{source}"), gather(parts)
    assert [Path(name).name for name in there.names] == list(here.names)
    assert all(str(image).startswith(f"{BUCKET}/") for image in there.images)
    assert there.source.startswith(f"{BUCKET}/")
    assert list(map(content_hash, there.images)) == list(map(content_hash, here.images))
    assert gather(Path(f"{BUCKET}/{source}")).names == there.names  # where a path has lost a slash
    name = there.images[2]
    assert single_image(str(name)) == name and not is_there(str(name))
    assert np.array_equal(load_pixels(str(name)), load_pixels(here.images[2]))
    assert size_of(str(name)) == size_of(here.images[2])
    assert pickle.loads(pickle.dumps(name)) == name


def test_local_shards_are_read_by_the_same_pattern(shards: Path, parts: Path) -> None:
    found = gather(shards / "shard-{000..001}.tar")
    assert found.names[0] == "shard-000.tar/000.png" and len(found.names) == 6
    assert list(map(content_hash, found.images)) == list(map(content_hash, list_images(parts)))


def test_a_model_fitted_there_is_the_model_fitted_here(s3: str, parts: Path, tmp_path: Path) -> None:
    config = Config(sizes=96, K=100)
    here, there = (Detector.fit(where, config) for where in (parts, f"{BUCKET}/parts"))
    assert there.history[0].source == f"{BUCKET}/parts" and there.model.images == here.model.images
    there.save(f"{BUCKET}/models/part.mhpc")
    loaded = Detector.load(f"{BUCKET}/models/part.mhpc")
    assert np.array_equal(loaded.model.scales[0].raw, here.model.scales[0].raw)
    assert loaded.threshold == here.threshold
    result = loaded.score(f"{BUCKET}/shards/shard-001.tar/004.png")
    assert result.path == f"{BUCKET}/shards/shard-001.tar/004.png"
    assert result.score == here.score(parts / "004.png").score
    with pytest.raises(ModelFileError, match=rf"there is nothing at {BUCKET}/models/other.mhpc"):
        Detector.load(f"{BUCKET}/models/other.mhpc")
    with pytest.raises(
        ModelFileError, match=rf"{BUCKET}/parts/000.png is damaged, truncated or not a model file"
    ):
        Detector.load(f"{BUCKET}/parts/000.png")


def test_the_commands_take_urls(run: Run, s3: str) -> None:  # noqa: F811
    model = f"{BUCKET}/models/cli.mhpc"
    fitted = run("fit", f"{BUCKET}/shards/shard-{{000..001}}.tar", "-o", model, *SMALL)
    assert fitted.code == 0 and f"{model}: learnt from 6 images" in fitted.out, fitted.err
    stored = run("fit", f"{BUCKET}/parts", "-o", model, *SMALL, "--store", f"{BUCKET}/store")
    assert_one_line_error(stored, 2, f"{BUCKET}/store", "--store")
    scored = run("score", model, f"{BUCKET}/parts", "--heatmaps", f"{BUCKET}/heat", "--csv", "-", "-q")
    assert scored.code == 0 and f"{BUCKET}/parts/005.png" in scored.out, scored.err
    assert read_url(f"{BUCKET}/heat/005.png").startswith(b"\x89PNG")
    assert run("info", model).code == 0
    assert_one_line_error(run("score", model, f"{BUCKET}/nowhere", "-q"), 2, f"{BUCKET}/nowhere", "check")
    assert_one_line_error(run("score", model, f"{BUCKET}/shards", "-q"), 2, f"{BUCKET}/shards/*.zip")
    assert_one_line_error(run("score", model, f"{BUCKET}/line.mp4", "-q"), 2, "copy s3://line/line.mp4")
    assert_one_line_error(run("fit", f"{BUCKET}/parts", "-o", "http://host/a.mhpc"), 2, "can only be read")
    missing = run("score", model, f"{BUCKET}/parts/9.png", "-q")
    assert missing.code == 3 and f"there is nothing at {BUCKET}/parts/9.png" in missing.err


def test_an_object_is_asked_for_once(web: WebServer, parts: Path) -> None:
    detector, name = small_detector(), f"{web.url}/parts/003.png"
    assert detector.score(name).score == detector.score(parts / "003.png").score
    assert web.asked["/parts/003.png"] == 1
    once = fetch_file(name)
    assert content_hash(once) == content_hash(parts / "003.png") and fetch_file(once) is once
    assert np.array_equal(load_pixels(once), load_pixels(parts / "003.png"))
    assert web.asked["/parts/003.png"] == 2


def test_a_member_is_one_request_once_the_table_is_known(web: WebServer, shards: Path) -> None:
    names = list_images(f"{web.url}/shards/parts.zip")
    web.asked.clear()
    with open_bytes(str(names[1])), open_bytes(names[2]):  # type: ignore[arg-type]
        pass
    read = web.asked["/shards/parts.zip"]
    assert read <= 2
    pickled = pickle.loads(pickle.dumps(names[3]))
    assert content_hash(pickled) == content_hash(f"{shards}/parts.zip/003.png")
    assert web.asked["/shards/parts.zip"] == read + 1


def test_a_list_of_urls_and_queries(web: WebServer, tmp_path: Path, parts: Path) -> None:
    entries = [f"{web.url}/parts/000.png?size=full", f"{web.url}/parts/001.png", str(parts / "002.png")]
    write_text(tmp_path / "list.csv", "image\n" + "\n".join(entries) + "\n")
    found = gather(tmp_path / "list.csv", as_given=True)
    assert found.images == (*entries[:2], parts / "002.png") and found.source == "several places"
    assert list(map(content_hash, found.images)) == list(map(content_hash, list_images(parts)[:3]))
    assert len(list_images(f"{web.url}/shards/list.txt")) == 6


def test_what_breaks_off_is_asked_for_again(web: WebServer, parts: Path) -> None:
    web.failures = 2
    assert content_hash(f"{web.url}/parts/001.png") == content_hash(parts / "001.png")
    assert web.asked["/parts/001.png"] == 3
    web.failures = 3
    with pytest.raises(ImageError, match=rf"cannot read {web.url}/parts/001.png: .*tried 3 times.*network"):
        content_hash(f"{web.url}/parts/001.png")


def test_what_is_refused_is_told_at_once(web: WebServer) -> None:
    with pytest.raises(ImageError, match=rf"there is nothing at {web.url}/parts/9.png"):
        content_hash(f"{web.url}/parts/9.png")
    web.asked.clear()
    web.status = 403
    with pytest.raises(ImageError, match=rf"cannot read {web.url}/parts/1.png: no permission .*credentials"):
        content_hash(f"{web.url}/parts/1.png")
    assert web.asked.total() == 1
    web.status, web.parts = 200, False
    with pytest.raises(UserError, match=r"parts.zip\S* gives no parts of files: copy it to this machine"):
        list_images(f"{web.url}/shards/parts.zip?fresh=1.zip")
    with pytest.raises(UserError, match=r"cannot read http://127.0.0.1:9/1.png: .*check the address"):
        content_hash("http://127.0.0.1:9/1.png")


def test_without_credentials_or_permission(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    async def denied(*_: object, **__: object) -> None:
        raise PermissionError("Forbidden")

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", denied)
    s3fs.S3FileSystem.clear_instance_cache()  # they hold what they were made with
    with pytest.raises(ImageError, match=rf"cannot read {BUCKET}/parts/000.png: no permission \(Forbidden\)"):
        content_hash(f"{BUCKET}/parts/000.png")
    monkeypatch.undo()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(ImageError, match=rf"{BUCKET}/parts/000.png: no permission .*credentials"):
            content_hash(f"{BUCKET}/parts/000.png")
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def test_a_model_contacts_nobody(web: WebServer, parts: Path, tmp_path: Path) -> None:
    """Whatever URLs a model file names: as the place of its training images, or as a region of interest."""
    before = web.contacts
    content = to_bytes(Detector.fit(parts, Config(sizes=96, K=100)).model)
    (tmp_path / "a.mhpc").write_bytes(forged(content, setting("history", 0, "source", to=f"{web.url}/parts")))
    evidence = Detector.load(tmp_path / "a.mhpc").explain(str(parts / "000.png"))
    assert all(patch.file is None for place in evidence.places for patch in place.nearest)
    for roi in (f"{web.url}/parts/000.png", [f"{web.url}/parts/000.png"]):
        (tmp_path / "b.mhpc").write_bytes(forged(content, setting("config", "roi", to=roi)))
        with pytest.raises(ModelFileError, match=r"roi is not of its kind"):
            Detector.load(tmp_path / "b.mhpc")
    source = {"source": f"{web.url}/parts"}
    (tmp_path / "c.mhpc").write_bytes(forged(content, setting("config", "roi", to=source)))
    with pytest.raises(UserError):
        Detector.load(tmp_path / "c.mhpc").score(str(parts / "000.png"))
    assert web.contacts == before


def test_local_paths_need_no_fsspec(parts: Path, tmp_path: Path) -> None:
    """And a URL without it gets one line that names the extra."""
    (tmp_path / "fsspec.py").write_text("raise ModuleNotFoundError('No module named fsspec', name='fsspec')")
    code = (
        "from mhpatchcore.inputs.sources import content_hash, list_images\n"
        f"assert len(set(map(content_hash, list_images({str(parts)!r})))) == 6\n"
        "try:\n    content_hash('s3://line/1.png')\nexcept Exception as error:\n    print(error)\n"
    )
    with pytest.raises(UserError, match=r"gs://line/1.png takes gcsfs: pip install gcsfs"):
        content_hash("gs://line/1.png")
    places = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": places}
    )
    assert done.stdout == "s3://line/1.png takes fsspec: pip install 'mhpatchcore[remote]'\n", done.stderr


def test_a_range_is_written_from_small_to_large() -> None:
    with pytest.raises(UserError, match=r"shard-\{9..0\}.tar has no such range"):
        list_images("s3://line/shard-{9..0}.tar")
