"""Outputs appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mhpatchcore.errors import UserError
from mhpatchcore.runtime.files import atomic_folder, atomic_path, remove_abandoned, write_text


def test_a_success_replaces_the_target(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "a.txt"
    write_text(target, "one")
    write_text(target, "två")
    assert target.read_text(encoding="utf-8") == "två"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_target_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    with atomic_path(target) as path:
        path.write_bytes(b"x")
        assert path.parent == tmp_path and path.suffix == ".bin"
        assert not target.exists()
    assert target.read_bytes() == b"x"


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "x")
        mode = stat.S_IMODE((tmp_path / "a.txt").stat().st_mode)
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert mode == 0o666 & ~umask


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/a\.txt"):
        write_text(tmp_path / "file" / "a.txt", "x")


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "there" / "real.txt").read_text() == "new"


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: it is not a file that can be replaced"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_the_pipe_is_named_as_it_was_given(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    (tmp_path / "out.csv").symlink_to(f"/proc/self/fd/{writing}")
    with pytest.raises(UserError, match=r"out\.csv: it is not a file that can be replaced"):
        write_text(tmp_path / "out.csv", "x")
    os.close(reading)
    os.close(writing)


def test_names_that_are_no_text_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", os.fsdecode(b"caf\xe9.png"))
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == r"caf\udce9.png"


def test_a_full_disk_is_told_by_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"cannot write .*/bundle: No space left"),
        atomic_folder(tmp_path / "bundle") as place,
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "part.mhpc", None, str(place / "part.mhpc"))
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "bundle"):
        (tmp_path / "gone.mhpc").read_bytes()
    assert not list(tmp_path.iterdir())


def test_an_error_about_another_file_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"), atomic_path(tmp_path / "a.txt"):
        (tmp_path / "missing").read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*a\.txt"):
        write_text(tmp_path / "a.txt", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "a" / "out") as folder:
        (folder / "one").write_text("1")
        raise RuntimeError
    assert not any((tmp_path / "a").iterdir())
    with atomic_folder(tmp_path / "a" / "out") as folder:
        (folder / "one").write_text("1")
        assert not (tmp_path / "a" / "out").exists()
    assert (tmp_path / "a" / "out" / "one").read_text() == "1"
    with pytest.raises(UserError, match="there already"), atomic_folder(tmp_path / "a" / "out"):
        pass
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    write_text(target, "new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_whose_folder_it_is(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12346)
    write_text(theirs / "new" / "a.txt", "1")
    write_text(tmp_path / "b.txt", "1")
    os.chown(tmp_path / "b.txt", 12347, 12348)
    write_text(tmp_path / "b.txt", "2")
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")}
    assert owners["new"] == owners["a.txt"] == (12345, 12346) and owners["b.txt"] == (12347, 12348)


def test_only_what_nobody_writes_is_abandoned(tmp_path: Path) -> None:
    code = (
        "import sys; from mhpatchcore.runtime.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as path:\n    print(path, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "part.mhpc")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    temporary = Path(writer.stdout.readline().strip())
    (tmp_path / ".hidden").touch()
    remove_abandoned(tmp_path)
    assert temporary.exists()
    writer.kill()
    writer.communicate()
    assert temporary.exists()
    remove_abandoned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".hidden"]
