"""The images at a path or URL, whatever it stands for.

parts/  parts.zip  list.txt  line.mp4     a folder, an archive, a list, a video
parts/*.png  shard-{000..099}.tar         patterns
{cam0,cam1}/                              stacks
"""

from __future__ import annotations

import csv
import glob
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import permutations, takewhile
from pathlib import Path
from typing import TypeVar

from mhpatchcore.errors import ImageWarning, UserError
from mhpatchcore.inputs.files import (
    ARCHIVES,
    ASKED_AT_ONCE,
    MOST_FRAMES,
    UNREAD_ARCHIVES,
    VIDEOS,
    FetchedFile,
    MemberName,
    absolute,
    frames_of,
    is_file,
    is_frame,
    members_of,
)
from mhpatchcore.inputs.pixels import video_frames
from mhpatchcore.runtime.parallel import ordered_map
from mhpatchcore.runtime.urls import READ_ONLY, files_below, join_url, read_url, url_of

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"),
    *(".gif", ".jp2", ".avif"),
)
# images in these formats are reported as left out, so that nobody believes they were read
UNREAD_SUFFIXES = (
    *(".heic", ".heif", ".jxl", ".jxr", ".j2k", ".jpx", ".exr", ".hdr", ".psd"),
    *(".svg", ".tga", ".pbm", ".pnm", ".raw", ".dng", ".cr2", ".cr3", ".nef"),
    *(".arw", ".orf", ".rw2", ".dcm"),
)
KINDS = {
    **dict.fromkeys((*SUFFIXES, *UNREAD_SUFFIXES), "image"),
    **dict.fromkeys((*ARCHIVES, *UNREAD_ARCHIVES), "archive"),
    **dict.fromkeys((".txt", ".csv"), "list"),
    **dict.fromkeys(VIDEOS, "video"),
}
COLUMNS = ("image", "path", "file", "filename")  # of a CSV file, any of which may hold the paths
NAMED = 3
RANGE = re.compile(r"(.*?)\{(\d+)\.\.(\d+)\}(.*)", re.DOTALL)
MOST_NAMES = 1_000_000  # that a range stands for

Name = TypeVar("Name", bound=str | Path)


def kind_of(path: str | Path) -> str:
    """What a path stands for: "stacks", "folder", "pattern", "archive", "list", "video" or one "image".

    What a URL stands for is judged by its looks, so that a list of a million of them does not cost as many requests.
    """
    if path == "":  # which would be taken for the folder that the program runs in
        raise UserError(
            "the path of the images is empty: name a folder or a file; the folder you are in is ."
        )
    frames, url, kind = frames_of(path), url_of(path), KINDS.get(suffix_of(path), "folder")
    if isinstance(path, FetchedFile | MemberName):
        return "image"
    if frames:
        return "image" if all(kind_of(frame) == "image" for frame in frames) else "stacks"
    if is_pattern(path):
        return "pattern"
    if url is not None:
        return "image" if kind == "folder" and url.startswith(READ_ONLY) else kind
    if Path(path).is_dir():
        return "folder"
    return kind if kind != "folder" and Path(path).is_file() else "image"


def may_exist(path: str | Path) -> bool:
    """Whether there is anything at a path, or may be if it is a pattern or a URL."""
    frames = frames_of(path)
    if frames:
        return all(map(may_exist, frames))
    return url_of(path) is not None or Path(path).exists() or is_pattern(path) or is_there(path)


def is_there(name: str | Path) -> bool:
    """Whether an image of this name is on this machine: a file, a member of an archive, a stack, a frame of a video.

    Places elsewhere, which a model may name, are not contacted.
    """
    names = frames_of(name) or (name,)
    return is_frame(name) or all(url_of(one) is None and is_file(one) for one in names)


def is_pattern(path: str | Path) -> bool:
    """Whether it is something like parts/*.png or shard-{000..099}.tar, and not the name of a file."""
    is_query = (url_of(path) or "").startswith(READ_ONLY)  # which begins with ?
    is_magic = RANGE.fullmatch(str(path)) or (glob.has_magic(str(path)) and not is_query)
    return bool(is_magic) and not Path(path).exists()


def suffix_of(name: str | Path) -> str:
    """The suffix of a file's name, or of a URL's without its query, in small letters.

    >>> suffix_of("http://camera/part.JPG?size=full")
    '.jpg'
    """
    return Path(str(name).partition("?")[0] if url_of(name) else name).suffix.lower()


def images_in(path: str | Path, passed_over: list[str]) -> Iterator[tuple[str | Path, str | Path]]:
    """`images_at` a path where there has to be something."""
    if not may_exist(path):
        raise UserError(f"there is no file or folder {path}; check the path")
    yield from images_at(path, passed_over)


def images_at(path: str | Path, passed_over: list[str]) -> Iterator[tuple[str | Path, str | Path]]:
    """The images at a path, each with the folder or archive that it is in; others there are added to `passed_over`.

    A path with nothing there is passed on: whoever reads it reports that.
    """
    kind, url, place = kind_of(path), url_of(path), absolute(path)
    if kind == "list":
        for entry in listed_paths(path):
            if not may_exist(entry) or kind_of(entry) == "list":
                raise UserError(f"list {url or path}: there is no image {entry}; correct the line")
            yield from images_at(entry, passed_over)
    elif kind in ("stacks", "pattern"):
        images = stacked(*frames_of(path)) if kind == "stacks" else _matching(url or str(path))
        yield from ((image, Path(absolute(image)).parent) for image in images)
    elif kind == "video":
        if url:
            raise UserError(f"videos are read on this machine only: copy {url}")
        yield from ((name, place) for name in video_frames(path))
    elif kind == "image":
        yield path if isinstance(path, FetchedFile | MemberName) else url or path, Path(place).parent
    else:
        yield from ((image, place) for image in _inside(path, kind, passed_over))


def _inside(path: str | Path, kind: str, passed_over: list[str]) -> Sequence[str | Path]:
    """The images in a folder or an archive, sorted; others there are added to `passed_over`."""
    url = url_of(path)
    files: Sequence[str | Path]
    if kind == "archive":
        files = members_of(path)
    elif url is None:
        files = _files_below(Path(path))
    else:
        files = [one for one in files_below(url) if "/." not in one[len(url.rstrip("/")) :]]
    images = _images_among(files, url or path)
    if not images:
        raise UserError(
            f"no images in {url or path} (looked for {', '.join(SUFFIXES)}, also in its subfolders): check the path; "
            f"archives in it take a pattern, {(url or str(path)).rstrip('/')}/*.zip"
        )
    passed_over += [str(one) for one in files if suffix_of(one) not in SUFFIXES]
    return images


def images_below(folder: Path) -> list[Path]:
    """Image files in a folder and its subfolders, sorted, without hidden ones."""
    return _images_among(_files_below(folder), folder)


def _images_among(files: Sequence[Name], place: str | Path) -> list[Name]:
    """Those that are images, with a warning of such in formats that are not read."""
    unread = [str(one) for one in files if suffix_of(one) in UNREAD_SUFFIXES]
    if unread:
        some = ", ".join(unread[:NAMED]) + (", …" if len(unread) > NAMED else "")
        warnings.warn(
            f"left out of {place}: {len(unread)} in formats that are not read ({some}); save as PNG, TIFF or JPEG",
            ImageWarning,
            stacklevel=3,
        )
    return [one for one in files if suffix_of(one) in SUFFIXES]


def _files_below(folder: Path) -> list[Path]:
    """Files in a folder and its subfolders, sorted, without hidden ones.

    Links to folders are followed after all real folders, and no folder is read twice. A broken link counts as a file:
    whoever reads it reports that.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read folder {error.filename}: {error.strerror}; change that or move it away")

    files: list[Path] = []
    seen: set[str] = set()
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        for place, folders, names in os.walk(waiting.pop(0), onerror=refuse):
            real = os.path.realpath(place)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and real not in seen)
            waiting += [path for path in (Path(place, name) for name in folders) if path.is_symlink()]
            if real not in seen:
                files += [Path(place, name) for name in names if not name.startswith(".")]
            seen.add(real)
    return sorted(path for path in files if path.is_file() or (path.is_symlink() and not path.exists()))


def listed_paths(path: str | Path) -> list[str | Path]:
    """The paths and URLs in a list; relative ones start from the folder of the list.

    A text file has one on each line. A CSV file has them in its column "image" ("path", "file" or "filename" will do),
    as `score --csv` writes it.
    """
    url = url_of(path)
    place = url or str(path)
    try:
        text = (read_url(url) if url else Path(path).read_bytes()).decode("utf-8-sig")
        lines = text.split("\n")
        if suffix_of(path) == ".csv":
            rows = csv.DictReader(text.splitlines())
            column = next((name for name in COLUMNS if name in (rows.fieldnames or ())), None)
            if column is None:
                raise ValueError("it has no column of paths")
            lines = [row[column] or "" for row in rows]
        names = [line.strip() for line in lines if line.strip()]
        if not names:
            raise ValueError("it names no images")
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(
            f"cannot read list {place}: {error}; write one path per line, or in one of the columns {', '.join(COLUMNS)}"
        ) from error
    return [url_of(name) or (join_url(url, name) if url else Path(place).parent / name) for name in names]


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
    kinds = {one: kind_of(one) for one in found if url_of(one) or Path(one).exists()}
    images = [one for one, kind in kinds.items() if kind == "image" and suffix_of(one) in SUFFIXES]
    for folder in (one for one, kind in kinds.items() if kind == "folder" and not url_of(one)):
        images += images_below(Path(folder))
    archives = [one for one, kind in kinds.items() if kind == "archive"]
    for members in ordered_map(lambda archive: _inside(archive, "archive", []), archives, ASKED_AT_ONCE):
        images += members
    if not images:
        raise UserError(f"no images match {pattern}; check the pattern")
    return list(dict.fromkeys(images))


def ranged(name: str) -> list[str]:
    """The names that one with a range of numbers stands for; the name alone where it has none.

    >>> ranged("shard-{008..010}.tar")
    ['shard-008.tar', 'shard-009.tar', 'shard-010.tar']
    """
    match = RANGE.fullmatch(name)
    if match is None:
        return [name]
    before, first, last, after = match.groups()
    if not 0 <= int(last) - int(first) < MOST_NAMES:
        raise UserError(f"{name} has no such range: write the smaller number first, for example {{000..099}}")
    numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return [one for number in numbers for one in ranged(f"{before}{number}{after}")]


def stack_name(folders: Sequence[str | Path], name: str) -> str:
    """The frames of one name in two or three folders, as one name.

    >>> stack_name(["line/cam0", "line/cam1"], "a/1.png")
    'line/{cam0,cam1}/a/1.png'
    """
    if not 2 <= len(folders) <= MOST_FRAMES:
        raise UserError(
            "a stack takes two or three folders, or patterns in quotes such as 'cam0/*.png', "
            f"not {len(folders)}"
        )
    places = [os.path.normpath(folder) for folder in folders]
    if any(place.startswith(os.pardir) or Path(place).is_absolute() for place in places):
        places = [os.path.abspath(place) for place in places]  # noqa: PTH100 (Path.absolute keeps ..)
    common = os.path.commonpath(places)
    group = ",".join(os.path.relpath(place, common or os.curdir) for place in places)
    return os.path.join(common, f"{{{group}}}", name)  # noqa: PTH118 (a text)


def stacked(*places: str | Path) -> list[str]:
    """The names of the stacks in two or three places (folders, archives, patterns), whose frames are matched by name.

    `Detector.fit(stacked("cam0/*.png", "cam1/*.png"))` learns from cam0/1.png with cam1/1.png, and so on.

    Parameters
    ----------
    *places
        Two or three folders, archives or patterns.
    """
    folders = [folder_of(str(place)) for place in places]
    return [stack_name(folders, name) for name in matched(list(map(str, places)))]


def matched(places: Sequence[str]) -> list[str]:
    """The names, relative to their places, that all of these have; a frame that is missing somewhere is an error."""
    found = ([str(image) for image, _ in images_in(place, [])] for place in places)
    names = [[os.path.relpath(one, folder_of(place)) for one in some] for place, some in zip(places, found)]  # noqa: B905
    for name in (*places, *(name for some in names for name in some)):
        if any(letter in name for letter in "{},"):
            raise UserError(f"{name} cannot be part of a stack: rename it without commas and braces")
    for (place, some), (other, others) in permutations(zip(places, names, strict=True), 2):
        missing = sorted({*some} - {*others})
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise UserError(
                f"{other} has no frame {missing[0]}{more}, which {place} has: add it, or remove the others"
            )
    return list(dict.fromkeys(names[0]))


def folder_of(place: str) -> Path:
    """What names are relative to: a folder or archive, the folder of an image, or what comes before a pattern's magic.

    >>> str(folder_of("line/cam0/*/part*.png"))
    'line/cam0'
    """
    path = Path(place)
    if is_pattern(place):
        return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
    return path.parent if path.is_file() and kind_of(path) == "image" else path
