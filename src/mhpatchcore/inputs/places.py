"""The images at a path or URL: in a folder, an archive, a list or a video, by a pattern, or the image itself."""

from __future__ import annotations

import csv
import glob
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from mhpatchcore.errors import ImageWarning, UserError
from mhpatchcore.inputs.archives import MemberName, has_archive_suffix, is_archive, members_of
from mhpatchcore.inputs.files import (
    FetchedFile,
    check_frames,
    folder_of,
    frames_of,
    is_file,
    is_pattern,
    matched,
    ranged,
    stack_name,
)
from mhpatchcore.inputs.sequences import VIDEOS, is_frame, is_video, video_frames
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import READ_ONLY, files_below, join_url, read_url, url_of

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"),
    *(".gif", ".jp2", ".avif"),
)
# images in these formats are reported as left out, so that nobody believes they were read
UNREAD_SUFFIXES = (
    *(
        ".heic",
        ".heif",
        ".jxl",
        ".jxr",
        ".j2k",
        ".jpx",
        ".exr",
        ".hdr",
        ".psd",
        ".svg",
        ".tga",
        ".pbm",
        ".pnm",
    ),
    *(".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".dcm"),
)
NAMED = 3
LISTS = (".txt", ".csv")
COLUMNS = ("image", "path", "file", "filename")  # of a CSV file, any of which may hold the paths
TABLES_AT_ONCE = 8  # of archives elsewhere: waiting for an answer takes no core

Found = tuple[str | Path, Path]  # an image, and the folder or archive that it was found in


def images_below(folder: Path, passed_over: list[str] | None = None) -> list[Path]:
    """Image files in a folder and its subfolders, sorted, without hidden ones; others are added to `passed_over`.

    Links to folders are followed after all real folders, and no folder is read twice. A broken link counts as an
    image: whoever reads it reports that.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read folder {error.filename}: {error.strerror}; change that or move it away")

    found: list[Path] = []
    others: list[str] = []
    seen: set[str] = set()
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        for place, folders, names in os.walk(waiting.pop(0), onerror=refuse):
            real = os.path.realpath(place)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and real not in seen)
            waiting += [path for path in (Path(place, name) for name in folders) if path.is_symlink()]
            if real in seen:
                continue
            seen.add(real)
            files = [Path(place, name) for name in names if not name.startswith(".")]
            found += [path for path in files if path.suffix.lower() in SUFFIXES and _is_file(path)]
            others += [str(path) for path in files if path.suffix.lower() not in SUFFIXES]
    _pass_over(folder, others, passed_over)
    return sorted(found)


def images_below_url(url: str, passed_over: list[str] | None = None) -> list[str]:
    """Image files under a URL, sorted, without hidden ones; others are added to `passed_over`."""
    files = [
        one
        for one in files_below(url)
        if not any(part.startswith(".") for part in one[len(url) :].split("/"))
    ]
    images = [one for one in files if has_suffix(one, SUFFIXES)]
    _pass_over(url, [one for one in files if not has_suffix(one, SUFFIXES)], passed_over)
    if not images:
        packed = [one for one in files if has_suffix(one, (".tar", ".zip"))]
        cure = f"; name the archives: {url.rstrip('/')}/*{Path(packed[0]).suffix}" if packed else ""
        raise UserError(
            f"no images in {url} (looked for {', '.join(SUFFIXES)}, also in its subfolders){cure}"
            if files
            else f"there is nothing at {url}; check the address"
        )
    return images


def has_suffix(name: str | Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a file's name, or a URL's without its query, ends so.

    >>> has_suffix("http://camera/part.JPG?size=full", SUFFIXES)
    True
    """
    return Path(str(name).partition("?")[0]).suffix.lower() in suffixes


def _is_file(path: Path) -> bool:
    return path.is_file() or (path.is_symlink() and not path.exists())


def _pass_over(place: str | Path, files: list[str], passed_over: list[str] | None) -> None:
    """Record files that are not images, and warn of images in formats that are not read."""
    if passed_over is not None:
        passed_over += sorted(files)
    unread = [one for one in files if has_suffix(one, UNREAD_SUFFIXES)]
    if unread:
        some = ", ".join(sorted(unread)[:NAMED]) + ", …" * (len(unread) > NAMED)
        warnings.warn(
            f"left out of {place}: {len(unread)} in formats that are not read ({some}); save as PNG, TIFF or JPEG",
            ImageWarning,
            stacklevel=3,
        )


def stacked(*places: str | Path) -> list[str]:
    """The names of the stacks in two or three places (folders, archives, patterns), whose frames are matched by name.

    `Detector.fit(stacked("cam0/*.png", "cam1/*.png"))` learns from cam0/1.png with cam1/1.png, and so on.

    Parameters
    ----------
    *places
        Two or three folders, archives or patterns.
    """
    check_frames(len(places))
    folders = [folder_of(str(place)) for place in places]
    names = matched(list(map(str, places)), lambda place: [str(image) for image, _ in images_in(place, [])])
    return [stack_name(folders, name) for name in names]


def may_exist(path: str | Path) -> bool:
    """Whether there is anything at a path, or may be if it is a pattern or a URL."""
    frames = frames_of(path)
    if frames:
        return all(map(may_exist, frames))
    return url_of(path) is not None or Path(path).exists() or is_pattern(path) or is_there(path)


def is_there(name: str | Path) -> bool:
    """Whether an image of this name is on this machine: a file, a member of an archive, a stack, a frame of a video."""
    return all(map(is_file, frames_of(name) or [name])) or is_frame(name)


def is_single(path: str | Path) -> bool:
    """Whether a path stands for one image, and not for a folder, a pattern, an archive, a list or a video."""
    _check_name(path)
    frames = frames_of(path)
    if frames:
        return all(map(is_single, frames))
    return not any(is_several(path) for is_several in (_is_folder, is_pattern, is_archive, is_list, is_video))


def images_in(path: str | Path, passed_over: list[str]) -> Iterator[Found]:
    """The images at a path, where there has to be something; other files there are added to `passed_over`."""
    _check_name(path)
    if not may_exist(path):
        raise UserError(f"there is no file or folder {path}; check the path")
    yield from images_at(path, passed_over)


def images_at(path: str | Path, passed_over: list[str]) -> Iterator[Found]:
    """The images at a path. A path with nothing there is passed on: whoever reads it reports that.

    What a URL stands for is judged by its looks, so that a list of a million of them does not cost as many requests.
    """
    _check_name(path)
    url = url_of(path)
    if isinstance(path, FetchedFile | MemberName):  # it was found before
        yield path, absolute(path).parent
    elif frames_of(path) and not is_single(path):
        yield from ((name, absolute(name).parent) for name in stacked(*frames_of(path)))
    elif _is_folder(path):
        images = images_below_url(url, passed_over) if url else images_below(Path(path), passed_over)
        if not images:
            raise UserError(f"no images in {path} (looked for {', '.join(SUFFIXES)}, also in its subfolders)")
        yield from ((image, absolute(path)) for image in images)
    elif is_pattern(path):
        matches = _matching(url or str(path))
        if not matches:
            raise UserError(f"no images match {url or path}; check the pattern")
        yield from ((image, absolute(image).parent) for image in matches)
    elif is_archive(path):
        yield from ((name, absolute(path)) for name in _members(path, passed_over))
    elif is_video(path):
        yield from ((name, absolute(path)) for name in video_frames(path))
    elif is_list(path):
        for entry in listed_paths(path):
            if not may_exist(entry) or is_list(entry):
                raise UserError(f"list {url or path}: there is no image {entry}; correct the line")
            yield from images_at(entry, passed_over)
    elif url and has_suffix(url, VIDEOS):
        raise UserError(f"videos are read on this machine only: copy {url}")
    else:
        yield url or path, absolute(path).parent


def absolute(path: str | Path) -> Path:
    """Absolute, without . and .. but through the links it names; a URL stays."""
    if url_of(path) is not None:
        return Path(path)
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps ..)


def is_list(path: str | Path) -> bool:
    return Path(path).suffix.lower() in LISTS and (url_of(path) is not None or Path(path).is_file())


def listed_paths(path: str | Path) -> list[str | Path]:
    """The paths and URLs in a list; relative ones start from the folder of the list.

    A text file has one on each line. A CSV file has them in its column "image" ("path", "file" or "filename" will do),
    as `score --csv` writes it.
    """
    url = url_of(path)
    place = url or str(path)
    try:
        content = read_url(url) if url else Path(path).read_bytes()
        text = content.decode("utf-8-sig")
        is_table = Path(path).suffix.lower() == ".csv"
        lines = _column(text.splitlines(), place) if is_table else text.split("\n")
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read list {place}: {error}; it wants one path per line") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise UserError(f"list {place} names no images: write one path per line")
    return [url_of(name) or (join_url(url, name) if url else Path(place).parent / name) for name in names]


def _column(lines: list[str], place: str) -> list[str]:
    rows = csv.DictReader(lines)
    found = [name for name in COLUMNS if name in (rows.fieldnames or ())]
    if not found:
        raise UserError(
            f"list {place} has no column of paths: its first line must name one of the columns {', '.join(COLUMNS)}"
        )
    return [row[found[0]] or "" for row in rows]


def _matching(pattern: str) -> list[str | Path]:
    """The images that a pattern stands for: files, those in folders, those in archives."""
    found: list[str | Path] = []
    for one in ranged(pattern):
        if not is_pattern(one):
            found.append(one if url_of(one) else Path(one))
        elif url_of(one):
            found += files_below(one, pattern=True)
        else:
            found += sorted(map(Path, glob.glob(one, recursive=True)))  # noqa: PTH207 (absolute ones too)
    elsewhere = url_of(pattern) is not None
    images = [one for one in found if has_suffix(one, SUFFIXES) and (elsewhere or Path(one).is_file())]
    images += [image for one in found if Path(one).is_dir() for image in images_below(Path(one))]
    archives = [one for one in found if is_archive(one)]
    tables = ordered_map(lambda archive: _members(archive, []), archives, TABLES_AT_ONCE)
    images += [name for some in tables for name in some]
    return list(dict.fromkeys(images))


def _members(archive: str | Path, passed_over: list[str]) -> list[MemberName]:
    everything = members_of(archive)
    members = [name for name in everything if has_suffix(name, SUFFIXES)]
    passed_over += [str(name) for name in everything if not has_suffix(name, SUFFIXES)]
    if not members:
        raise UserError(f"no images in {archive} (looked for {', '.join(SUFFIXES)})")
    return members


def _is_folder(path: str | Path) -> bool:
    """Whether it is a folder; of a URL, whether it looks like one."""
    url = url_of(path)
    if url is None:
        return Path(path).is_dir()
    named = (*SUFFIXES, *UNREAD_SUFFIXES, *LISTS, *VIDEOS)
    return not (url.startswith(READ_ONLY) or has_suffix(url, named) or has_archive_suffix(url))


def _check_name(path: str | Path) -> None:
    """Refuse what would be taken for the folder that the program runs in."""
    if path == "":
        raise UserError(
            "the path of the images is empty: name a folder or a file; the folder you are in is ."
        )
