"""Who judges the files of a watched folder: a model in this process, or a service that holds it."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from mhpatchcore.deploy.serve.registry import Registry
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import ImageError, UserError
from mhpatchcore.runtime.texts import representable

TIMEOUT = 60
LONGEST = 200  # letters of a part's id that the service takes; the whole name of the file is told beside it
REPORTED = ("score", "threshold", "p_value", "verdict", "is_rejected", "defect", "regions", "model", "sha256")
Judge = Callable[[Path, str], dict[str, Any]]  # a file and the part's name → what is told of it


class UnavailableError(Exception):
    """Nobody can judge now; the file waits. `seconds` says how long at least."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


def is_address(model: str) -> bool:
    return model.startswith(("http://", "https://"))


def by_model(models: Registry) -> Judge:
    """The one model of a registry, as it is when a file comes."""
    (only,) = models.served

    def judge(path: Path, part: str) -> dict[str, Any]:
        served = models[only.name]
        try:
            result = served.detector.score_opened(served.detector.opened(path))
        except UserError as error:  # about this image, whatever it is
            raise ImageError(str(error)) from error
        told = result.to_dict() | {"model": served.name, "sha256": served.sha256}
        answer: dict[str, Any] = representable({name: told[name] for name in REPORTED})
        return answer

    return judge


def by_service(address: str, token: str | None) -> Judge:
    """A model of a service, by its address: http://127.0.0.1:8080/v1/models/NAME"""
    url = urlsplit(address)
    if not url.hostname or not url.path.startswith("/v1/models/"):
        raise UserError(
            f"{address} is not a model of a service; it looks like http://127.0.0.1:8080/v1/models/NAME"
        )
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/octet-stream"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}

    def judge(path: Path, part: str) -> dict[str, Any]:
        named = f"name={quote(os.fsencode(path.name))}&part={quote(os.fsencode(part[:LONGEST]))}"
        query = f"{url.path.rstrip('/')}/score?map=none&{named}"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ImageError(f"cannot read image {path}: {error.strerror}") from error
        connection = kind(str(url.hostname), url.port, timeout=TIMEOUT)
        try:
            connection.request("POST", query, content, headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"the service does not answer: {error}") from error
        finally:
            connection.close()
        return _read(answer.status, body, answer.getheader("Retry-After"))

    return judge


def _read(status: int, body: bytes, retry_after: str | None) -> dict[str, Any]:
    try:
        document = json.loads(body)
        told = document["results"][0] if status == 200 else document["error"]
    except (ValueError, LookupError, TypeError):
        raise UnavailableError(f"what answers is not a service of mhpatchcore (status {status})") from None
    if status == 200:
        return {name: told[name] for name in REPORTED}
    if status in (413, 422):
        raise ImageError(str(told))
    if status in (401, 403, 404):
        raise UserError(f"the service refuses: {told}")
    raise UnavailableError(str(told), float(retry_after) if retry_after and retry_after.isdigit() else 1.0)


def patient(judge: Judge, stopped: Callable[[float], bool], status: Status) -> Judge:
    """A judge that is asked again until it answers. `stopped(seconds)` waits, and says whether to give up."""

    def asked(path: Path, part: str) -> dict[str, Any]:
        while True:
            try:
                answer = judge(path, part)
            except UnavailableError as error:
                status.set_problem("judge", str(error))
                if stopped(error.seconds):
                    raise
            else:
                status.set_problem("judge")
                return answer

    return asked


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
