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


REASONS = {
    400: "input",
    401: "token",
    404: "unknown",
    408: "timeout",
    409: "changed",
    413: "too large",
    415: "type",
    422: "unreadable",
    428: "unseen",
    429: "busy",
    500: "fault",
    503: "not written",
    507: "full disk",
}


class Refused(Exception):  # noqa: N818 (an answer, not a fault)
    """A request, or an image of one, that gets no result; `reason` is what the metrics count it under.

    Status 200 is that of a part without a result which its caller wants to know as rejected.
    """

    def __init__(
        self, status: int, message: str, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers
        self.reason = reason or REASONS[status]


def busy(seconds: int) -> Refused:
    return Refused(429, "the queue is full: try again", headers={"Retry-After": str(seconds)})


def closing() -> Refused:
    headers = {"Retry-After": "5", "Connection": "close"}
    return Refused(503, "the service is shutting down", "closing", headers)


def failed() -> Refused:
    return Refused(500, "the service has failed on this request; its log says why")


def described(errors: Iterable[Mapping[str, Any]]) -> str:
    """What pydantic finds wrong with a request, in one line."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in errors)


def of_user_error(error: UserError) -> Refused:
    """What is wrong with what was asked for, or with the service, whose log then says so too: a full disk, a lock."""
    message = str(without_paths(str(error)))
    if _is_full_disk(error):
        log.error("the disk is full: %s", error)
        return Refused(507, "the disk of the service is full: nothing was written")
    if isinstance(error, InboxError | NotWrittenError):
        log.error("nothing was changed: %s", error)
        return Refused(503, message, headers={"Retry-After": "5"})
    if isinstance(error, NoSuchPartError | NoSuchJobError):
        return Refused(404, message)
    if isinstance(error, ModelChangedError | NotReadyError | OtherProductError):
        return Refused(409, message)
    return Refused(422, message)


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
