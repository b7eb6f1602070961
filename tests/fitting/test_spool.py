"""The spool gives back what was put in, from any thread, and leaves nothing on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mhpatchcore.errors import UserError
from mhpatchcore.fitting.spool import Spool


def arrays(dtype: str, sizes: tuple[int, ...] = (5, 1, 0, 300)) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, 7)).astype(dtype) for n in sizes]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_goes_in_comes_out(tmp_path: Path, dtype: str) -> None:
    spool = Spool(7, dtype, tmp_path)
    for rows in arrays(dtype):
        spool.append(rows)
    for index in (3, 0, 2, 1, 3):
        back = spool.read(index)
        assert back.dtype == np.dtype(dtype)
        assert np.array_equal(back, arrays(dtype)[index]) and back.shape == arrays(dtype)[index].shape
    assert (len(spool), spool.bytes) == (4, 306 * 7 * np.dtype(dtype).itemsize)
    spool.close()


def test_wider_rows_are_rounded_to_the_type_and_views_are_fine() -> None:
    spool = Spool(3, "float16")
    wide = np.random.default_rng(1).normal(size=(4, 12))
    spool.append(wide[:, ::4])
    assert np.array_equal(spool.read(0), wide[:, ::4].astype(np.float16))
    spool.close()


def test_threads_read_while_more_is_written() -> None:
    spool, rows = Spool(7, "float32"), arrays("float32", sizes=(50,) * 60)
    with ThreadPoolExecutor(4) as pool:
        reads = []
        for index, piece in enumerate(rows):
            spool.append(piece)
            reads += [(old, pool.submit(spool.read, old)) for old in range(0, index + 1, 7)]
        assert all(np.array_equal(future.result(), rows[old]) for old, future in reads)
    spool.close()


def test_the_file_has_no_name(tmp_path: Path) -> None:
    spool = Spool(7, "float32", tmp_path)
    spool.append(arrays("float32")[0])
    assert list(tmp_path.iterdir()) == []
    spool.close()


def test_too_little_space_is_said_beforehand(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"GB free: .*--spool-dir.*--spool none"):
        Spool(1024, "float32", tmp_path, expected_rows=10**15)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        Spool(7, "float32", tmp_path / "nowhere")


def test_a_full_disk_says_what_to_do() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    spool = Spool(7, "float32")
    spool._file.close()
    with full.open("wb", buffering=0) as spool._file, pytest.raises(UserError, match="--spool none"):
        spool.append(arrays("float32")[0])


def test_a_spool_that_was_cut_off_is_not_read_as_zeros(tmp_path: Path) -> None:
    spool = Spool(7, "float32", tmp_path)
    for rows in arrays("float32"):
        spool.append(rows)
    spool._file.truncate(spool.bytes - 4)
    with pytest.raises(UserError, match="--spool-dir"):
        spool.read(len(spool) - 1)
    spool.close()
