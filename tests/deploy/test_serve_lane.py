"""The lane of pictures: made once, after what is scored, and only for those who wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from services import good, png, write_model

from mhpatchcore.deploy.serve import pool as pools
from mhpatchcore.deploy.serve.app import create_app
from mhpatchcore.deploy.serve.bodies import Sent
from mhpatchcore.deploy.serve.pool import Deadline, Lane, Limits, Pool
from mhpatchcore.deploy.serve.refusals import Refused
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.report.drawing import SCREEN

LIMITS = Limits(workers=1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


class Scoring:
    """A part that is scored until it is let go."""

    def __init__(self, pool: Pool) -> None:
        self._over = threading.Event()
        self._task = asyncio.create_task(pool.run(self._over.wait, Deadline.of(LIMITS)))

    async def end(self) -> None:
        self._over.set()
        await self._task


def drawing(made: list[str], name: str) -> Any:
    def draw() -> bytes:
        made.append(name)
        return name.encode()

    return draw


def test_a_picture_is_made_once_however_many_ask() -> None:
    async def work() -> None:
        lane, made = Lane(Pool(LIMITS)), list[str]()
        many = await asyncio.gather(*(lane.get(("a",), 0, drawing(made, "a")) for _ in range(10)))
        again = await lane.get(("a",), 0, drawing(made, "a"))
        assert [*many, again] == [b"a"] * 11 and made == ["a"] and lane.known(("a",)) == b"a"

    run(work())


def test_pictures_wait_until_nothing_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 20.0)

    async def work() -> None:
        pool, made = Pool(LIMITS), list[str]()
        lane, scoring = Lane(pool), Scoring(pool)
        await asyncio.sleep(0)
        asked = [
            asyncio.create_task(lane.get((name,), rank, drawing(made, name)))
            for name, rank in (("old", 0), ("evidence", 2), ("new", 0))
        ]
        await asyncio.sleep(0.2)
        assert made == []
        await scoring.end()
        await asyncio.gather(*asked)
        assert made == ["new", "old", "evidence"]  # what costs little first, and of that the latest

    run(work())


def test_pictures_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 0.1)

    async def work() -> None:
        pool, made = Pool(LIMITS), list[str]()
        lane, scoring = Lane(pool), Scoring(pool)
        await asyncio.sleep(0)
        assert await lane.get(("a",), 0, drawing(made, "a")) == b"a"
        await scoring.end()

    run(work())


def test_what_nobody_waits_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 20.0)

    async def work() -> None:
        pool, made = Pool(LIMITS), list[str]()
        lane, scoring = Lane(pool), Scoring(pool)
        await asyncio.sleep(0)
        gone, both, stays = (
            asyncio.create_task(lane.get((name,), 0, drawing(made, name)))
            for name in ("gone", "both", "both")
        )
        await asyncio.sleep(0.05)
        gone.cancel()
        both.cancel()
        await asyncio.sleep(0.05)
        await scoring.end()
        assert await stays == b"both" and made == ["both"]

    run(work())


def test_who_goes_away_takes_the_wish_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 20.0)

    async def work() -> None:
        app = create_app([write_model(tmp_path / "vial.mhpc")], LIMITS)
        service: Service = app.state.service
        (part,) = await service.score("vial", [Sent(png(good()))])
        scoring = Scoring(service.pool)
        await asyncio.sleep(0)
        left, statuses = asyncio.Event(), list[int]()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        path = f"/v1/parts/{part.id}/image.jpg"
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": [],
            "query_string": b"",
            "client": None,
        }
        asking = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0.2)
        assert not asking.done()  # it waits for the part that is scored
        left.set()
        await asking
        assert statuses == [499]
        await scoring.end()
        await asyncio.sleep(0.2)
        assert service.lane.known((part.id, "image", SCREEN)) is None  # nobody made it

    run(work())


def test_a_picture_that_fails_does_not_stop_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MOST_WAITING", 2)
    monkeypatch.setattr(pools, "MOST_BYTES", 3)

    def fails() -> bytes:
        raise ValueError("no picture")

    async def work() -> None:
        pool, made = Pool(LIMITS), list[str]()
        lane = Lane(pool)
        with pytest.raises(ValueError, match="no picture"):
            await lane.get(("a",), 0, fails)
        for name in ("ab", "cd"):
            await lane.get((name,), 0, drawing(made, name))
        assert lane.known(("ab",)) is None and lane.known(("cd",)) == b"cd"  # of three bytes
        scoring = Scoring(pool)
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(lane.get((i,), 0, drawing(made, "x"))) for i in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="full"):
            await lane.get((2,), 0, fails)
        await scoring.end()
        await asyncio.gather(*waiting)
        pool.closing = True
        with pytest.raises(Refused, match="shutting down"):
            await lane.get((3,), 0, fails)

    run(work())
