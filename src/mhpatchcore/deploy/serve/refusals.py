"""What a service refuses: a status, one sentence for the caller, one word for the metrics."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
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
    return Refused(
        503, "closing", "the service is shutting down", {"Retry-After": "5", "Connection": "close"}
    )


def too_late(seconds: float) -> Refused:
    message = f"there was no result within {seconds:g} seconds: try again"
    return Refused(503, "timeout", message, {"Retry-After": "1"})


def deadline_passed(milliseconds: float) -> Refused:
    return Refused(200, "deadline", f"there was no result within {milliseconds:g} ms, the caller's deadline")


def failed() -> Refused:
    return Refused(500, "fault", "the service has failed on this request; its log says why")


def too_large(message: str) -> Refused:
    return Refused(413, "too large", message)


def unreadable(message: str) -> Refused:
    return Refused(422, "unreadable", message)


def described(errors: Iterable[Mapping[str, Any]]) -> str:
    """What pydantic finds wrong with a request, in one line."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in errors)


def not_allowed() -> Refused:
    message = "a token is needed: Authorization: Bearer TOKEN"
    return Refused(401, "token", message, {"WWW-Authenticate": "Bearer"})


def unknown(what: str) -> Refused:
    return Refused(404, "unknown", f"there is no {what}")


def of_user_error(error: UserError) -> Refused:
    """What is wrong with what was asked for, or with the service, whose log then says so too: a full disk, a lock."""
    message = str(without_paths(str(error)))
    if any(_is_full_disk(cause) for cause in _causes(error)):
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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
