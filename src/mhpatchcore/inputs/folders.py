"""The image files in a folder, by their suffixes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from mhpatchcore.errors import ImageWarning, UserError
from mhpatchcore.runtime.urls import files_below

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
