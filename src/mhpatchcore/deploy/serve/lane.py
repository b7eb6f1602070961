"""A lane for pictures beside that of the parts: whoever looks must not delay the line.

One thread draws. It begins a picture when few parts are being scored, or when it has waited for that long enough. Every
picture is made once, however many ask for it, and kept for those who ask later. What nobody waits for any more is not
begun.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mhpatchcore.deploy.serve.pool import Pool
from mhpatchcore.deploy.serve.refusals import busy, closing

PATIENCE = 1.0  # seconds that a picture waits for a quiet moment
MOST_WAITING = 200
MOST_BYTES = 100_000_000  # of pictures that are kept
Key = tuple[object, ...]


@dataclass(eq=False)
class Wanted:
    """A picture that is to be made; those of a lower rank come first, and the latest of them."""

    rank: int
    make: Callable[[], bytes]
    done: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting: int = 0
    begun: bool = False


class Lane:
    """All methods are called on the thread of the event loop."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="draw")
        self._wanted: dict[Key, Wanted] = {}  # the oldest first
        self._made: OrderedDict[Key, bytes] = OrderedDict()  # what was asked for last is at the end
        self._bytes = 0
        self._working: asyncio.Task[None] | None = None

    async def get(self, key: Key, rank: int, make: Callable[[], bytes]) -> bytes:
        """What `make` gives, on the lane's thread, or gave when it was asked for this key before."""
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        wanted = self._wanted.get(key)
        if wanted is None:
            if len(self._wanted) >= MOST_WAITING:
                raise busy(1)
            wanted = self._wanted[key] = Wanted(rank, make)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        wanted.waiting += 1
        try:
            return await asyncio.shield(wanted.done)
        finally:
            wanted.waiting -= 1
            if not (wanted.waiting or wanted.begun):
                del self._wanted[key]

    def known(self, key: Key) -> bytes | None:
        """A picture that is there; from any thread."""
        return self._made.get(key)

    async def _work(self) -> None:
        while self._wanted:
            await self._pool.quiet(PATIENCE)
            if self._wanted:
                await self._draw(*min(reversed(self._wanted.items()), key=lambda item: item[1].rank))
        self._working = None

    async def _draw(self, key: Key, wanted: Wanted) -> None:
        wanted.begun = True
        try:
            if self._pool.closing:
                raise closing()
            picture = await asyncio.get_running_loop().run_in_executor(self._thread, wanted.make)
        except Exception as error:
            if wanted.waiting:
                wanted.done.set_exception(error)
        else:
            wanted.done.set_result(picture)
            self._keep(key, picture)
        finally:
            del self._wanted[key]

    def _keep(self, key: Key, picture: bytes) -> None:
        self._made[key] = picture
        self._bytes += len(picture)
        while self._bytes > MOST_BYTES:
            self._bytes -= len(self._made.popitem(last=False)[1])

    def end(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
