"""The application: routes, errors as JSON, the page. `create_app` makes one of models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mhpatchcore import __version__, deploy
from mhpatchcore.deploy.inbox.jobs import Jobs
from mhpatchcore.deploy.record import Record
from mhpatchcore.deploy.serve import inbox_routes, v1, v2
from mhpatchcore.deploy.serve.answers import reply
from mhpatchcore.deploy.serve.pool import Limits
from mhpatchcore.deploy.serve.refusals import Refused, described, failed, of_user_error
from mhpatchcore.deploy.serve.registry import Served
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.errors import UserError

LOOK = 1.0  # seconds between looks at the model files
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
    workers = max(1, service.limits.workers // 2)  # the other half of the cores stays with the line
    app.state.jobs = Jobs(service.models.inbox, workers)
    app.add_middleware(Guard, service=service, hosts=None if hosts is None else frozenset(hosts))

    @app.get("/metrics", tags=["metrics"], dependencies=[Depends(v1.check_token)], response_class=Response)
    async def metrics() -> Response:
        """Counts, times and rates for Prometheus."""
        facts = [service.facts(served) for served in service.models.served]
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
        service.metrics.swapped(served.name)
        loop.call_soon_threadsafe(lambda: service.parts.tell("model", service.facts(served)))

    service.models.swapped = swapped
    looking = asyncio.create_task(_look(service))
    yield
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    service.close()
    await asyncio.to_thread(app.state.jobs.close)
    await asyncio.to_thread(service.end)


async def _look(service: Service) -> None:
    while True:
        await asyncio.sleep(LOOK)
        await asyncio.to_thread(service.models.refresh)


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
                self._service.metrics.answered(route, message["status"])
            await send(message)

        refused = _foreign(Request(scope), self._hosts)
        answer = self._app if refused is None else _answer(refused)
        await answer(scope, receive, with_headers)


def _foreign(request: Request, hosts: frozenset[str] | None) -> Refused | None:
    """Refuse what a page of another site asks in somebody's browser."""
    if hosts is not None and (request.url.hostname or "") not in hosts:
        return Refused(403, "host", "this service does not answer to that host name")
    origin = request.headers.get("origin")
    if request.method not in SAFE and origin and urlsplit(origin).netloc != request.headers.get("host"):
        return Refused(403, "origin", "requests from pages of other sites are refused")
    return None


def _answer(refused: Refused) -> Response:
    return reply({"error": refused.message}, refused.status, refused.headers)


async def _on_error(request: Request, error: Exception) -> Response:
    """Every answer without a result is JSON; the traceback of a fault goes to the log alone."""
    if isinstance(error, HTTPException):
        return reply({"error": str(error.detail)}, error.status_code, error.headers)
    if isinstance(error, RequestValidationError):
        errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
        return reply({"error": described(errors) or "the request is not valid"}, 422)
    refused = of_user_error(error) if isinstance(error, UserError) else error
    if not isinstance(refused, Refused):
        return _answer(failed())
    service: Service = request.app.state.service
    name = request.path_params.get("name")  # anyone may ask for any: only that of a model is counted
    known = any(served.name == name for served in service.models.served)
    service.metrics.refused(str(name) if known else "", refused.reason)
    return _answer(refused)
