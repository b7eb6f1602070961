"""What a service refuses: a status, one sentence for the caller, one word for the metrics."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from mhpatchcore.deploy.inbox import NoSuchPartError
from mhpatchcore.deploy.inbox.jobs import NoSuchJobError, NotReadyError
from mhpatchcore.deploy.inbox.journal import InboxError
from mhpatchcore.deploy.inbox.versions import ModelChangedError, NotWrittenError
from mhpatchcore.errors import UserError
from mhpatchcore.model.history import OtherProductError
from mhpatchcore.runtime.texts import without_paths

log = logging.getLogger("mhpatchcore")


class Refused(Exception):  # noqa: N818 (an answer, not a fault)
    """A request, or an image of one, that gets no result; `reason` is what the metrics count it under.

    Status 200 is that of a part without a result which its caller wants to know as rejected.
    """

    def __init__(
        self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.headers = dict(headers or {})


def busy(seconds: int) -> Refused:
    return Refused(429, "busy", "the queue is full: try again", {"Retry-After": str(seconds)})


def closing() -> Refused:
    headers = {"Retry-After": "5", "Connection": "close"}
    return Refused(503, "closing", "the service is shutting down", headers)


def failed() -> Refused:
    return Refused(500, "fault", "the service has failed on this request; its log says why")


def too_large(message: str) -> Refused:
    return Refused(413, "too large", message)


def unreadable(message: str) -> Refused:
    return Refused(422, "unreadable", message)


def unknown(what: str) -> Refused:
    return Refused(404, "unknown", f"there is no {what}")


def described(errors: Iterable[Mapping[str, Any]]) -> str:
    """What pydantic finds wrong with a request, in one line."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in errors)


def of_user_error(error: UserError) -> Refused:
    """What is wrong with what was asked for, or with the service, whose log then says so too: a full disk, a lock."""
    message = str(without_paths(str(error)))
    if _is_full_disk(error):
        log.error("the disk is full: %s", error)
        return Refused(507, "full disk", "the disk of the service is full: nothing was written")
    if isinstance(error, InboxError | NotWrittenError):
        log.error("nothing was changed: %s", error)
        return Refused(503, "not written", message, {"Retry-After": "5"})
    if isinstance(error, NoSuchPartError | NoSuchJobError):
        return Refused(404, "unknown", message)
    if isinstance(error, ModelChangedError | NotReadyError | OtherProductError):
        return Refused(409, "changed", message)
    return unreadable(message)


def _is_full_disk(error: BaseException | None) -> bool:
    """Whether that is what an error comes from."""
    if error is None:
        return False
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (
        is_full
        or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        or _is_full_disk(error.__cause__)
    )
