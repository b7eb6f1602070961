"""An application under uvicorn, which ends in order: what was accepted is answered, streams are closed."""

from __future__ import annotations

import logging
from types import FrameType

import uvicorn
from fastapi import FastAPI

GRACE = 60  # seconds for what was accepted
BACKLOG = 512


class Server(uvicorn.Server):
    """On the first signal no request is taken any more, and those who listen to events are told to go."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app: FastAPI = self.config.app  # type: ignore[assignment]
        app.state.service.close()
        super().handle_exit(sig, frame)


def run(app: FastAPI, host: str, port: int) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
    )
    Server(config).run()
