"""Files elsewhere, by their URL: s3://bucket/parts/1.png. They take fsspec: `pip install 'mhpatchcore[remote]'`.

Nothing is contacted but what a user names, and paths of this machine never get here. A request that fails for a reason
that may pass is made again, a few times; then one line says which URL it was and what to do.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeVar

from mhpatchcore.errors import UserError, in_one_line

Out = TypeVar("Out")

SCHEMES = ("file", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs")
READ_ONLY = ("http", "https")
URL = re.compile(rf"({'|'.join(SCHEMES)}):/+(.*)", re.DOTALL)
EXTRA, IN_EXTRA = "'mhpatchcore[remote]'", ("fsspec", "s3fs", "aiohttp")
WAITS = (0.5, 2.0)  # seconds before a request is made again
CONNECT_SECONDS, READ_SECONDS, MOST_SECONDS = 10, 30, 300
DENIED = (401, 403)  # of HTTP, where another try changes nothing
# keys under which the various stores report something that changes with a file's content
VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "updated")
BLOCK = 2**16  # bytes of a header or of an archive's table that are asked for at a time


def url_of(name: str | PurePath) -> str | None:
    """The URL that a name is; None where it is a path of this machine.

    A `Path` makes one slash of two, so both are understood.

    >>> url_of(Path("s3://bucket/1.png")), url_of("parts/1.png"), url_of(Path("file:///parts"))
    ('s3://bucket/1.png', None, 'file:///parts')
    """
    match = URL.fullmatch(str(name))
    return match and f"{match[1]}:{'///' if match[1] == 'file' else '//'}{match[2]}"


def shown(name: str | PurePath) -> str:
    """A path or URL as it is written."""
    return url_of(name) or str(name)


def read_url(
    url: str, kind: type[UserError] = UserError, start: int | None = None, stop: int | None = None
) -> bytes:
    """The bytes there, or some of them."""
    content: bytes = _request(url, kind, lambda system: system.cat_file(url, start=start, end=stop))
    return content


def open_url(url: str, kind: type[UserError] = UserError) -> BinaryIO:
    """A file of which only the parts that are read are asked for, to look at headers and tables."""
    found = size_and_state(url, kind)
    if found is None:
        raise kind(_missing(url))
    if found[0] is None:
        raise kind(f"the server of {url} does not say how large it is: copy it to this machine")
    from fsspec.spec import AbstractBufferedFile

    class Parts(AbstractBufferedFile):  # type: ignore[misc]  # each read is a request, made again where it fails
        def _fetch_range(self, start: int, stop: int) -> bytes:
            content = read_url(url, kind, start, stop)
            if len(content) > stop - start:
                raise kind(f"the server of {url} gives no parts of files: copy it to this machine")
            return content

    file: BinaryIO = Parts(_system(url), url, block_size=BLOCK, size=found[0])
    return file


def write_url(url: str, file: Path) -> None:
    """Copy a file there, whole or not at all; see `check_writable`."""
    _request(url, UserError, lambda system: system.put_file(str(file), url), "write")


def check_writable(url: str) -> None:
    """Refuse a place that nothing can be written to."""
    if url.startswith(READ_ONLY):
        raise UserError(f"cannot write {url}: such places can only be read; give a path, or s3://bucket/name")


def remove_url(url: str) -> None:
    """Delete what is there, if anything is."""
    if size_and_state(url) is not None:
        _request(url, UserError, lambda system: system.rm_file(url), "delete")


def files_below(url: str, pattern: bool = False) -> list[str]:
    """The URLs of all files under a prefix, or of those that match a pattern; sorted."""

    def find(system: Any) -> list[str]:
        try:
            found = system.glob(url) if pattern else system.find(url)
        except FileNotFoundError:
            return []
        return [str(system.unstrip_protocol(one)) for one in found]

    scheme = url.partition(":")[0]  # s3a://, which fsspec lists as s3://
    return sorted(
        f"{scheme}:{one.partition(':')[2]}" for one in _request(url, UserError, find) if one[-1] != "/"
    )


def size_and_state(url: str, kind: type[UserError] = UserError) -> tuple[int | None, str] | None:
    """How many bytes there are, and a text that changes with them; None where there is nothing."""

    def look(system: Any) -> dict[str, Any] | None:
        try:
            return dict(system.info(url))
        except FileNotFoundError:
            return None

    info = _request(url, kind, look)
    if info is None:
        return None
    state = [str(info[key]) for key in ("size", *VERSIONS) if info.get(key) is not None]
    return info.get("size"), " ".join(state)


def join_url(url: str, name: str) -> str:
    """What a relative name stands for beside a URL.

    >>> join_url("http://host/lists/a.txt", "../parts/1.png"), join_url("s3://bucket/a.txt", "s3://other/1.png")
    ('http://host/parts/1.png', 's3://other/1.png')
    """
    if url_of(name):
        return name
    scheme, _, path = url.partition("://")
    return f"{scheme}://{posixpath.normpath(posixpath.join(posixpath.dirname(path), name))}"


def _request(url: str, kind: type[UserError], request: Callable[[Any], Out], doing: str = "read") -> Out:
    """The answer to a request, which is made again where a failure may pass; errors are one line for the user."""
    for wait in (*WAITS, None):
        try:
            return request(_system(url))
        except UserError:
            raise
        except ImportError as error:
            # fsspec says in words of its own what it misses, and gives the import that failed as the cause
            package = error.name or getattr(error.__cause__, "name", None) or "another package"
            extra = EXTRA if package in IN_EXTRA else package
            raise UserError(f"{url} takes {package}: pip install {extra}") from None
        except FileNotFoundError as error:
            raise kind(_missing(url)) from error
        except Exception as error:  # every system has errors of its own
            by_name = "credential" in type(error).__name__.lower()
            if isinstance(error, PermissionError) or by_name or getattr(error, "status", None) in DENIED:
                raise kind(
                    f"cannot {doing} {url}: no permission ({in_one_line(error)}); check your credentials for it"
                ) from error
            if wait is None:
                raise kind(
                    f"cannot {doing} {url}: {in_one_line(error)} (tried {len(WAITS) + 1} times); "
                    "check the address and the network, and run the command again"
                ) from error
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _system(url: str) -> Any:
    """fsspec keeps one for each kind of URL. Listings are not kept: what is there may change."""
    import fsspec

    scheme = url.partition(":")[0]
    options: dict[str, Any] = {}
    if scheme in ("http", "https"):
        from aiohttp import ClientTimeout

        times = {"sock_connect": CONNECT_SECONDS, "sock_read": READ_SECONDS}
        options = {"client_kwargs": {"timeout": ClientTimeout(MOST_SECONDS, **times)}}
    elif scheme in ("s3", "s3a"):
        times = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
        options = {
            "config_kwargs": {**times, "retries": {"max_attempts": 1}},
            "use_listings_cache": False,
            "max_concurrency": 1,  # otherwise it asks for the size of every object before it reads it
        }
    return fsspec.filesystem(scheme, **options)


def _missing(url: str) -> str:
    return f"there is nothing at {url}; check the address"
