"""Those whom a watch asks and tells: a model or a service judges files; a webhook or a broker takes the results.

Messages wait in the journal until the other side has confirmed them, the oldest first. Each is sent at least once. A
kill between the confirmation and the note of it sends one again: its `id` tells.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from mhpatchcore.deploy.serve.registry import Registry
from mhpatchcore.deploy.watch.journal import Journal
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import ImageError, UserError, in_one_line
from mhpatchcore.runtime.texts import representable

JUDGED_WITHIN = 60  # seconds
LONGEST_PART = (
    200  # letters of a part's id that the service takes; the whole name of the file is told beside it
)
REPORTED = ("score", "threshold", "p_value", "verdict", "is_rejected", "defect", "regions", "model", "sha256")
TIMEOUT = 10
SHORTEST, LONGEST = 0.5, 30.0  # seconds between tries
NOT_WANTED = (400, 413, 415, 422)  # what is sent again would be refused again
FOLLOWED = (301, 307, 308)  # "it has moved"; 302 and 303 mean "look over there", as login pages answer
Judge = Callable[[Path, str], dict[str, Any]]  # a file and the part's name → what is told of it
Send = Callable[[str], None]


class UnavailableError(Exception):
    """Nobody can judge now; the file waits. `seconds` says how long at least."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class NotWantedError(Exception):
    """The other side is there, and does not take this message."""


class _Moved(urllib.request.HTTPRedirectHandler):
    """Posts again where a redirect stays on the host; urllib would ask there with a GET, without the content."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        same = there.hostname == here.hostname and there.scheme in (here.scheme, "https")
        return urllib.request.Request(newurl, req.data, req.headers) if same and code in FOLLOWED else None


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
        named = f"name={quote(os.fsencode(path.name))}&part={quote(os.fsencode(part[:LONGEST_PART]))}"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ImageError(f"cannot read image {path}: {error.strerror}") from error
        try:
            with closing(kind(str(url.hostname), url.port, timeout=JUDGED_WITHIN)) as connection:
                connection.request("POST", f"{url.path.rstrip('/')}/score?map=none&{named}", content, headers)
                answer = connection.getresponse()
                body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"the service does not answer: {error}") from error
        return _read(answer.status, body, answer.getheader("Retry-After"))

    return judge


def _read(status: int, body: bytes, retry_after: str | None) -> dict[str, Any]:
    try:
        document = json.loads(body)
        if status == 200:
            return {name: document["results"][0][name] for name in REPORTED}
        told = str(document["error"])
    except (ValueError, LookupError, TypeError):
        raise UnavailableError(f"what answers is not a service of mhpatchcore (status {status})") from None
    if status in (413, 422):
        raise ImageError(told)
    if status in (401, 403, 404):
        raise UserError(f"the service refuses: {told}")
    raise UnavailableError(told, float(retry_after) if retry_after and retry_after.isdigit() else 1.0)


def webhook(url: str) -> Send:
    """POST each message as JSON; any status of 200 to 299 confirms it.

    A redirect that is not followed confirms nothing, and says where the address should lead.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UserError(
            f"--webhook is an address such as http://mes.local/results, not {without_secret(url)}"
        )
    opener = urllib.request.build_opener(_Moved)
    headers = {"Content-Type": "application/json", "User-Agent": "mhpatchcore"}

    def send(content: str) -> None:
        try:
            request = urllib.request.Request(url, content.encode(), headers)
            opener.open(request, timeout=TIMEOUT).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in NOT_WANTED:
                raise NotWantedError(f"status {error.code}") from error
            if 300 <= error.code < 400:
                there = in_one_line(without_secret(error.headers.get("Location", "nowhere")))
                raise OSError(f"status {error.code}: it redirects to {there}; check --webhook") from error
            raise

    return send


def mqtt(url: str, topic: str) -> Send:
    """Publish each message with QoS 1, and wait until the broker has confirmed it.

    mqtt://user:password@host:1883/topic; mqtts:// is over TLS. Without a topic there it is `topic`.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
    except ValueError:
        port = 0
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or not port:
        raise UserError(f"--mqtt is an address such as mqtt://broker:1883/topic, not {without_secret(url)}")
    topic = unquote(parts.path.strip("/")) or topic
    if any(letter in topic for letter in "#+\0"):
        raise UserError(f"messages cannot be published under '{topic}': a topic has no # and no +")
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ModuleNotFoundError as error:
        raise UserError(
            "--mqtt needs paho-mqtt, which is not installed: pip install 'mhpatchcore[mqtt]'"
        ) from error
    client: Client | None = None

    def connected() -> Client:
        new = Client(CallbackAPIVersion.VERSION2)
        if parts.scheme == "mqtts":
            new.tls_set()
        if parts.username:
            new.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        new.connect_timeout = TIMEOUT
        new.connect(str(parts.hostname), port, keepalive=30)
        new.loop_start()
        return new

    def send(content: str) -> None:
        nonlocal client
        client = client or connected()
        try:
            published = client.publish(topic, content, qos=1)
            published.wait_for_publish(TIMEOUT)
            if not published.is_published():
                raise OSError("the broker does not confirm")
        except Exception:
            client.disconnect()
            client.loop_stop()
            client = None
            raise

    return send


class Forwarding:
    """A thread that sends the messages of one target as they come, until it is told to stop."""

    def __init__(self, journal: Journal, target: str, send: Send, status: Status) -> None:
        self._path, self._target, self._send, self._status = journal.path, target, send, status
        self._wake, self._ending = threading.Event(), threading.Event()
        self.refused = 0  # messages that the other side did not want
        self._thread = threading.Thread(target=self._run, name=f"forward to {target}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is a message."""
        self._wake.set()

    def end(self) -> None:
        """Stop; what can be sent at once still is, the rest waits in the journal."""
        self._ending.set()
        self._wake.set()
        self._thread.join(2 * TIMEOUT)

    def _run(self) -> None:
        pause = SHORTEST
        with closing(Journal(self._path)) as journal:
            while True:
                self._wake.clear()
                ending = self._ending.is_set()
                if self._sent_all(journal):
                    pause = SHORTEST
                    if ending:
                        return
                    self._wake.wait()
                elif ending or self._ending.wait(pause):
                    return
                else:
                    pause = min(2 * pause, LONGEST)

    def _sent_all(self, journal: Journal) -> bool:
        """Send what waits; False where the other side is not there."""
        while (message := journal.next_message(self._target)) is not None:
            id_, content = message
            try:
                self._send(content)
            except NotWantedError as error:
                journal.refused(id_, str(error))
                self.refused += 1
                name = json.loads(content).get("image")
                self._status.tell(f"{self._target} does not take the message of {name}: {error}")
            except Exception as error:  # whatever the network and its libraries raise
                self._status.set_problem(
                    self._target, f"{self._target} takes no messages ({error}): they wait"
                )
                return False
            else:
                journal.sent(id_)
                self._status.set_problem(self._target)
        return True


def without_secret(url: str) -> str:
    """
    >>> without_secret("mqtt://line:secret@broker/parts")
    'mqtt://broker/parts'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
