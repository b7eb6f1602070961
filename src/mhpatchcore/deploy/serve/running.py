"""An application under uvicorn, which ends in order: what was accepted is answered, streams are closed.

Its log has a line for every event, as text or JSON, with its time in UTC, its level, and the part it is about.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from mhpatchcore.errors import UserError

GRACE = 60  # seconds for what was accepted
IDLE = 20  # seconds after which a connection that asks nothing is closed
BACKLOG = 512
KINDS, LEVELS = ("text", "json"), ("debug", "info", "warning", "error")
ABOUT = ("model", "part", "id", "score", "trial")  # what `extra` may say


class Server(uvicorn.Server):
    """Calls `ready` once requests are taken.

    On the first signal no request is taken any more, and those who listen to events are told to go.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is there stays: looking through it again and again held everybody up
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app: FastAPI = self.config.app  # type: ignore[assignment]
        app.state.service.close()
        super().handle_exit(sig, frame)


class Connection(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """One that is closed when it has been idle for long: uvicorn waits for ever for a first request, or half of one."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look(None)

    def _look(self, before: Any) -> None:
        """Close it if nothing has been asked since the last look; else look again later."""
        if self.transport.is_closing():
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and before == (self.cycle,):
            self.transport.close()
        else:
            self.loop.call_later(IDLE, self._look, (self.cycle,))


def run(app: FastAPI, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve until a signal comes; `ready` is called once requests are taken."""
    Server(config_of(app), ready).run(listening(host, port))


def config_of(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        timeout_keep_alive=IDLE,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
    )


def listening(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host.

    Uvicorn would only log why it cannot listen, and end with an exit code that means something else here.
    """
    sockets: list[socket.socket] = []
    try:
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
            # connections inherit it: without, an answer in two pieces waits for an acknowledgement, some 40 ms
            sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        for one in sockets:
            one.close()
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise UserError(
            f"cannot listen at {host}, port {port}: {why}; choose another --host or --port"
        ) from error
    return sockets


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
