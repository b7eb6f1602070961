"""Pages that follow a line live, as browsers have them open: `python -m benchmarks.serving_pages PORT PAGES SECONDS`

Each page listens to the events. It fetches a small picture of every part. It shows a part at most every 700 ms, for
which it fetches the image, the heat, the outlines and, a little later, the evidence; as a browser does, over a few
connections. The process runs at the lowest priority: pages are looked at on other machines.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

PACE, LATER = 0.7, 0.18  # seconds, of the page's strip.js and part.js
CONNECTIONS = 5  # beside that of the events
SHOWN = ("image.jpg", "heatmap.png?style=layer", "heatmap.png?style=outline")
own = threading.local()


def page(port: int, seconds: float) -> list[int]:
    """Follow for so long; the statuses of all pictures, 0 for one that did not come."""
    end, shown_at, asked = time.monotonic() + seconds, 0.0, []
    with ThreadPoolExecutor(CONNECTIONS) as fetching:
        for part in parts(port, end):
            asked.append(fetching.submit(fetch, port, f"{part}/image.jpg?longest=120"))
            if time.monotonic() - shown_at > PACE:
                shown_at = time.monotonic()
                asked += [fetching.submit(fetch, port, f"{part}/{name}") for name in SHOWN]
                asked.append(fetching.submit(fetch, port, f"{part}/evidence.json", LATER))
        return [one.result() for one in asked]


def parts(port: int, end: float) -> Iterator[str]:
    """The addresses of all parts that are scored until then."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/v1/events")
    for line in connection.getresponse():
        if time.monotonic() > end:
            break
        if line.startswith(b"data: ") and b'"regions"' in line:
            yield f"/v1/parts/{json.loads(line[6:])['id']}"
    connection.close()


def fetch(port: int, path: str, wait: float = 0.0) -> int:
    time.sleep(wait)
    if not hasattr(own, "connection"):
        own.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        own.connection.request("GET", path)
        answer = own.connection.getresponse()
        answer.read()
        return int(answer.status)
    except (OSError, http.client.HTTPException):
        own.connection.close()
        return 0


def main() -> None:
    port, n, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    os.nice(19)
    with ThreadPoolExecutor(n) as pages:
        statuses = [status for one in pages.map(lambda _: page(port, seconds), range(n)) for status in one]
    print(json.dumps({"pictures": len(statuses), "failed": sum(status != 200 for status in statuses)}))


if __name__ == "__main__":
    main()
