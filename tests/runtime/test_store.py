"""The store: what goes in comes out, damage is noticed, entries are whole or not there, temporary ones go."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.fitting.storekeeping import PREFIX, opened_store
from mhpatchcore.runtime import store as stores
from mhpatchcore.runtime.store import DamagedEntryError, Store, entry_key


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "halves": rng.normal(size=(5, 7)).astype(np.float16),
        "doubles": rng.normal(size=3),
        "counts": np.arange(4, dtype=np.int32).reshape(2, 2),
        "nothing": np.empty((0, 7), np.float32),
        "bytes": np.frombuffer(b"graph", np.uint8),
        "view": rng.normal(size=(4, 12))[:, ::4],
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary stores."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path


def test_what_goes_in_comes_out(store: Store) -> None:
    size = store.put("key", arrays())
    assert size == store.path("key").stat().st_size
    found = store.get("key")
    assert list(found) == list(arrays())
    for name, array in arrays().items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.array_equal(found[name], array)


def test_some_arrays_are_read_without_the_others(store: Store) -> None:
    store.put("key", arrays())
    assert list(store.get("key", ["counts", "halves"])) == ["counts", "halves"]
    damage(store, "key", -1)  # in the last array alone
    assert np.array_equal(store.get("key", ["counts"])["counts"], arrays()["counts"])
    with pytest.raises(DamagedEntryError):
        store.get("key")


def test_an_entry_is_there_or_not(store: Store) -> None:
    assert store.found("key") is None
    with pytest.raises(DamagedEntryError, match=r"entry key of the store in .*No such file"):
        store.get("key")
    store.put("key", arrays())
    assert store.found("key") is not None
    with pytest.raises(DamagedEntryError, match="unknown"):
        store.get("key", ["unknown"])


def damage(store: Store, key: str, position: int, bits: int = 1) -> None:
    path = store.path(key)
    content = bytearray(path.read_bytes())
    content[position] ^= bits
    path.write_bytes(content)


@pytest.mark.parametrize("bit", [0, 1, 4])
def test_any_flipped_bit_is_noticed(store: Store, bit: int) -> None:
    store.put("whole", arrays())
    content = store.path("whole").read_bytes()
    store.put("key", arrays())
    for position in range(bit % 3, len(content), 3):
        store.path("key").write_bytes(content)
        damage(store, "key", position, 1 << bit)
        try:
            found = store.get("key", list(arrays()))
        except DamagedEntryError as error:
            assert "\n" not in str(error) and str(store.folder) in str(error)
        else:  # such as a space of the header that became a line break
            assert all(np.array_equal(found[name], array) for name, array in arrays().items())
            assert position < len(content) - sum(array.nbytes for array in arrays().values())


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_an_entry_that_was_cut_off_is_noticed(store: Store, share: float) -> None:
    store.put("key", arrays())
    path = store.path("key")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DamagedEntryError):
        store.get("key")


def test_a_put_replaces_the_entry_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("key", {"x": np.zeros(3)})
    before = store.path("key").read_bytes()

    class Full:
        """A file on a disk that is full after a few bytes."""

        def __init__(self, handle: int, mode: str) -> None:
            self.file = os.fdopen(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, piece: bytes) -> None:
            if self.file.tell() > 8:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(piece)

    monkeypatch.setattr(stores.os, "fdopen", _keeping(os.fdopen, Full))
    with pytest.raises(UserError, match=r"cannot be written: No space left on device; make room") as caught:
        store.put("key", {"x": np.ones(300)})
    assert "\n" not in str(caught.value)
    assert store.path("key").read_bytes() == before
    assert [path.name for path in files_below(store.folder)] == ["key.entry"]


def _keeping(real: object, fake: type) -> object:
    """`fake`, whose own use of the real function goes through."""
    calls: list[int] = []

    def opened(handle: int, mode: str) -> object:
        if calls:
            calls.clear()
            return real(handle, mode)  # type: ignore[operator]
        calls.append(1)
        return fake(handle, mode)

    return opened


def test_readers_and_writers_of_one_entry_never_meet_halfway(store: Store) -> None:
    big = [np.full(50_000, i, np.float32) for i in range(4)]
    store.put("key", {"x": big[0]})
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            x = store.get("key")["x"]
            assert (x == x[0]).all()

    with ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(read) for _ in range(3)]
        for i in range(60):
            store.put("key", {"x": big[i % 4]})
        done.set()
        for future in reads:
            future.result()
    assert [path.name for path in files_below(store.folder)] == ["key.entry"]


def test_a_store_is_known_by_its_folder(store: Store) -> None:
    store.put("key", arrays())
    there = pickle.loads(pickle.dumps(store))
    assert there == store and hash(there) == hash(store)
    assert np.array_equal(there.get("key")["doubles"], arrays()["doubles"])


def test_keys_tell_contents_apart() -> None:
    parts = [("a", 1), ("a", "1"), ("a", [1]), ("a",), ("b", 1), (["a", 1],)]
    keys = [entry_key(*one) for one in parts]
    assert len(set(keys)) == len(parts)
    assert keys == [entry_key(*one) for one in parts]


def test_a_temporary_store_goes_with_its_block(temporary: Path) -> None:
    with opened_store(None) as store:
        store.put("key", arrays())
        assert store.folder.parent == temporary and store.folder.name.startswith(PREFIX)
    assert list(temporary.iterdir()) == []
    with pytest.raises(ZeroDivisionError), opened_store(None) as store:
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


def test_a_named_store_stays(tmp_path: Path) -> None:
    with opened_store(tmp_path / "new" / "store") as store:
        store.put("key", arrays())
    with opened_store(str(tmp_path / "new" / "store")) as again:
        assert again.found("key") is not None


def test_stores_that_were_abandoned_are_removed_and_those_in_use_are_not(temporary: Path) -> None:
    script = "import os, signal; from mhpatchcore.fitting.storekeeping import opened_store\n"
    script += "with opened_store(None) as store: os.kill(os.getpid(), signal.SIGKILL)"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run([sys.executable, "-c", script], check=False, env=environment)
    assert killed.returncode < 0
    (left,) = temporary.iterdir()
    (temporary / "other").mkdir()
    with opened_store(None) as first:
        assert not left.exists()
        with opened_store(None) as second:
            assert first.folder.is_dir() and second.folder.is_dir() and first != second
        assert first.folder.is_dir()
    assert [path.name for path in temporary.iterdir()] == ["other"]


def test_stores_opened_together_do_not_remove_each_other(temporary: Path) -> None:
    ready = threading.Barrier(8)

    def use(_: int) -> None:
        ready.wait()
        for _ in range(15):
            with opened_store(None) as store:
                store.put("key", {"x": np.zeros(3)})
                store.get("key")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert list(temporary.iterdir()) == []


def test_too_little_room_is_said_beforehand(temporary: Path) -> None:
    for folder in (None, temporary / "named"):
        with (
            pytest.raises(UserError, match=r"needs 1000000 GB in .* free: .*store=FOLDER") as caught,
            opened_store(folder, expected_bytes=10**15),
        ):
            raise AssertionError
        assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"cannot be kept in .*file"),
        opened_store(tmp_path / "file" / "store"),
    ):
        raise AssertionError
    with pytest.raises(UserError, match=r"store in .*gone cannot be written"):
        Store(tmp_path / "gone").put("kind/key", arrays())
    with pytest.raises(UserError, match=r"a folder on a disk.*, not s3://bucket/store: name another"):
        Execution(store="s3://bucket/store")
