"""The application: routes, errors as JSON, the page; and how it runs under uvicorn.

It ends in order: what was accepted is answered, streams are closed. Its log has a line for every event, as text or
JSON, with its time in UTC, its level, and the part it is about.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from mhpatchcore import __version__, deploy
from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve import inbox_routes, v1, v2
from mhpatchcore.deploy.serve.answers import reply
from mhpatchcore.deploy.serve.pool import Limits
from mhpatchcore.deploy.serve.refusals import Refused, described, failed, of_user_error
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.errors import UserError

LOOK = 1.0  # seconds between looks at the model files
GRACE = 60  # seconds for what was accepted
IDLE = 20  # seconds after which a connection that asks nothing is closed
BACKLOG = 512
KINDS, LEVELS = ("text", "json"), ("debug", "info", "warning", "error")
ABOUT = ("model", "part", "id", "score", "trial")  # what `extra` may say
PAGE = Path(deploy.__file__).parent / "page"
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
}


def create_app(
    models: Iterable[str | Path],
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Iterable[str] | None = None,
    record: Record | None = None,
    other_product: bool = False,
) -> FastAPI:
    """A service for these models (files, or folders of them) that answers HTTP, and keeps a `record` of verdicts.

    `hosts` are the names under which it may be asked (None: any): a page of another site cannot reach a service on
    this machine by giving it a name of its own. With `other_product` a file of another product takes a model's place.
    """
    service = Service(models, limits, token, record, other_product)
    app = FastAPI(
        title="mhpatchcore",
        version=__version__,
        description="Finds defects from images of good parts alone.",
        openapi_url=None,  # it needs the token; FastAPI's pages would fetch their scripts from elsewhere
        lifespan=_lifespan,
    )
    app.state.service = service
    app.add_middleware(Guard, service=service, hosts=None if hosts is None else frozenset(hosts))

    @app.get("/metrics", tags=["metrics"], dependencies=[Depends(v1.check_token)], response_class=Response)
    async def metrics() -> Response:
        """Counts, times and rates for Prometheus."""
        facts = await asyncio.to_thread(lambda: [service.facts(served) for served in service.models.served])
        text = service.metrics.text(facts, service.pool.accepted, service.record)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(v1.check_token)])
    async def document() -> Response:
        return reply(app.openapi())

    for router in (v1.router, inbox_routes.router, v2.router, v2.health):
        app.include_router(router)
    _add_page(app)
    for kind in (Refused, UserError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _on_error)
    return app


def _add_page(app: FastAPI) -> None:
    """The files of the page at their names, each a route: a mount at / would answer 404 where 405 is right."""
    files = StaticFiles(directory=PAGE)
    for file in sorted(PAGE.iterdir()):
        for path in (f"/{file.name}", *(["/"] if file.name == "index.html" else [])):

            async def get(request: Request, name: str = file.name) -> Response:
                return await files.get_response(name, request.scope)

            app.add_route(path, get, methods=["GET"], include_in_schema=False)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Look at the model files while the service runs; at the end wait for what is under way."""
    service: Service = app.state.service
    loop = asyncio.get_running_loop()

    def swapped(served: Served) -> None:
        service.metrics.swaps.labels(served.name).inc()
        loop.call_soon_threadsafe(service.parts.tell, "model", service.facts(served))

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK)
            await asyncio.to_thread(service.models.refresh)

    service.models.swapped = swapped
    looking = asyncio.create_task(look())
    yield
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    service.close()
    await asyncio.to_thread(service.end)


class Guard:
    """Before and after all routes: refuses what pages of other sites ask, adds headers, counts answers."""

    def __init__(self, app: ASGIApp, service: Service, hosts: frozenset[str] | None) -> None:
        self._app, self._service, self._hosts = app, service, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                route = getattr(scope.get("route"), "path", "other")
                self._service.metrics.requests.labels(route, message["status"]).inc()
            await send(message)

        request, answer = Request(scope), self._app
        origin = request.headers.get("origin")
        if self._hosts is not None and request.url.hostname not in self._hosts:
            answer = reply({"error": "this service does not answer to that host name"}, 403)
        elif request.method not in SAFE and origin and urlsplit(origin).netloc != request.headers.get("host"):
            answer = reply({"error": "requests from pages of other sites are refused"}, 403)
        await answer(scope, receive, with_headers)


async def _on_error(request: Request, error: Exception) -> Response:
    """Every answer without a result is JSON; the traceback of a fault goes to the log alone."""
    if isinstance(error, HTTPException):
        return reply({"error": str(error.detail)}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
        return reply({"error": described(errors) or "the request is not valid"}, 422)
    refused = of_user_error(error) if isinstance(error, UserError) else error
    if not isinstance(refused, Refused):
        refused = failed()
    service: Service = request.app.state.service
    name = request.path_params.get("name")  # anyone may ask for any: only that of a model is counted
    known = any(served.name == name for served in service.models.served)
    service.metrics.refused.labels(name if known else "", refused.reason).inc()
    return reply({"error": refused.message}, refused.status, refused.headers)


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
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
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
