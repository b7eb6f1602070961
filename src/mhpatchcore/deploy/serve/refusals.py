"""What a service refuses: a status, one sentence for who asked, one word for the metrics."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):  # noqa: N818 (an answer, not a fault)
    """A request that gets no result; `reason` is what the metrics count it under."""

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


def too_large(message: str) -> Refused:
    return Refused(413, "too large", message)


def unreadable(message: str) -> Refused:
    return Refused(422, "unreadable", message)


def not_allowed() -> Refused:
    message = "a token is needed: Authorization: Bearer TOKEN"
    return Refused(401, "token", message, {"WWW-Authenticate": "Bearer"})


def unknown(what: str) -> Refused:
    return Refused(404, "unknown", f"there is no {what}")
