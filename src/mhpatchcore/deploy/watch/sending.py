"""Store and forward: messages wait in the journal until the other side has confirmed them, the oldest first.

Each is sent at least once. A kill between the confirmation and the note of it sends one again: its `id` tells.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from mhpatchcore.deploy.watch.journal import Journal
from mhpatchcore.deploy.watch.status import Status
from mhpatchcore.errors import UserError, in_one_line

TIMEOUT = 10
SHORTEST, LONGEST = 0.5, 30.0  # seconds between tries
NOT_WANTED = (400, 413, 415, 422)  # what is sent again would be refused again
FOLLOWED = (301, 307, 308)  # "it has moved"; 302 and 303 mean "look over there", as login pages answer
Send = Callable[[str], None]


class NotWantedError(Exception):
    """The other side is there, and does not take this message."""


class _Moved(urllib.request.HTTPRedirectHandler):
    """Posts the message again where a redirect stays on the host; urllib would ask there with a GET, without it."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        same = there.hostname == here.hostname and there.scheme in (here.scheme, "https")
        return urllib.request.Request(newurl, req.data, req.headers) if same and code in FOLLOWED else None


def webhook(url: str) -> Send:
    """POST each message as JSON; any status of 200 to 299 confirms it.

    A redirect that is not followed confirms nothing, and says where the address should lead.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UserError(
            f"--webhook is an address such as http://mes.local/results, not {without_secret(url)}"
        )

    opener = urllib.request.build_opener(_Moved)

    def send(content: str) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "mhpatchcore"}
        request = urllib.request.Request(url, content.encode(), headers)
        try:
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
    host, topic = parts.hostname, unquote(parts.path.strip("/")) or topic
    if any(letter in topic for letter in "#+\0"):
        raise UserError(f"messages cannot be published under '{topic}': a topic has no # and no +")
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion
    except ModuleNotFoundError as error:
        raise UserError(
            "--mqtt needs paho-mqtt, which is not installed: pip install 'mhpatchcore[mqtt]'"
        ) from error
    connected: list[Client] = []

    def connection() -> Client:
        if not connected:
            client = Client(CallbackAPIVersion.VERSION2)
            if parts.scheme == "mqtts":
                client.tls_set()
            if parts.username:
                client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
            client.connect_timeout = TIMEOUT
            client.connect(host, port, keepalive=30)
            client.loop_start()
            connected.append(client)
        return connected[0]

    def send(content: str) -> None:
        try:
            published = connection().publish(topic, content, qos=1)
            published.wait_for_publish(TIMEOUT)
            if not published.is_published():
                raise OSError("the broker does not confirm")
        except Exception:
            while connected:
                client = connected.pop()
                client.disconnect()
                client.loop_stop()
            raise

    return send


class Forwarding:
    """A thread that sends the messages of one target as they come, until it is told to stop."""

    def __init__(self, journal: Journal, target: str, send: Send, status: Status) -> None:
        self._journal, self._target, self._send, self._status = journal, target, send, status
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
        journal, pause = self._journal.another(), SHORTEST
        try:
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
        finally:
            journal.close()

    def _sent_all(self, journal: Journal) -> bool:
        """Send what waits; False where the other side is not there."""
        while (message := journal.next_message(self._target)) is not None:
            try:
                self._send(message.content)
            except NotWantedError as error:
                journal.refused(message, str(error))
                self.refused += 1
                name = name_in(message.content)
                self._status.tell(f"{self._target} does not take the message of {name}: {error}")
            except Exception as error:  # whatever the network and its libraries raise
                self._status.set_problem(
                    self._target, f"{self._target} takes no messages ({error}): they wait"
                )
                return False
            else:
                journal.sent(message)
                self._status.set_problem(self._target)
        return True


def name_in(content: str) -> str:
    told: dict[str, Any] = json.loads(content)
    return str(told.get("image"))


def without_secret(url: str) -> str:
    """
    >>> without_secret("mqtt://line:secret@broker/parts")
    'mqtt://broker/parts'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
