"""Logs: a line for every event, as text or JSON, with its time in UTC, its level, and the part it is about."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from mhpatchcore.errors import UserError

KINDS, LEVELS = ("text", "json"), ("debug", "info", "warning", "error")
ABOUT = ("model", "part", "id", "score", "trial")  # what `extra` may say


class Lines(logging.Formatter):
    """One line for each record; only a traceback has more, and in JSON it has not."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = record.getMessage()
        about = {name: vars(record)[name] for name in ABOUT if vars(record).get(name) not in (None, False)}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            facts: dict[str, Any] = {"at": at, "level": record.levelname, "message": message, **about}
            return json.dumps(facts | ({"traceback": trace} if trace else {}))
        told = "".join(f" {name}={json.dumps(value)}" for name, value in about.items())
        return "\n".join([f"{at} {record.levelname} {message}{told}", *([trace] if trace else [])])


def log_to_stderr(kind: str, level: str) -> None:
    if kind not in KINDS or level not in LEVELS:
        raise UserError(
            f"logs are {' or '.join(KINDS)}, at the level {', '.join(LEVELS)}: not {kind}, {level}"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(as_json=kind == "json"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
