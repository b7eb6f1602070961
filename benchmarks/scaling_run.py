"""A large fit on a local cluster, killed in the middle and run again: `python -m benchmarks.scaling_run FOLDER`

FOLDER holds images, of which --images small tiles are cut and packed into one archive, or is such an archive. The fit
runs with --workers processes as a command of its own. When a share of the images has been read it is killed, with all
its processes, by SIGKILL; then it runs again. Told are the memory of its processes over time, how long each run took,
and what it found in the store. --check fits the same images once more, undisturbed and on threads, and compares the
files.
"""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.commands import Row, parser_of, shown, write_json
from mhpatchcore.inputs.places import images_below

SIDE = 64
SETTINGS = ("--size", "64", "--layers", "block2,block4", "-K", "2000", "--local-rows", "64", "-q")
EVERY = 2.0  # seconds between two looks at memory
COLUMNS = {
    "run": "{run}",
    "images in the store before": "{before:,}",
    "seconds": "{seconds:.0f}",
    "client, MB": "{client_mb:.0f}",
    "a worker early, MB": "{early_mb:.0f}",
    "at half, MB": "{half_mb:.0f}",
    "late, MB": "{late_mb:.0f}",
    "largest, MB": "{largest_mb:.0f}",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--kill", type=float, default=0.5, metavar="SHARE", help="killed when so many images are read"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--scratch", type=Path, help="a folder with room for about 60 KB for each image")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        rows = shown(runs(options, Path(scratch)), COLUMNS)
    write_json(options.json, rows)


def runs(options: Any, scratch: Path) -> Iterator[Row]:
    archive = options.folder
    if archive.is_dir():
        archive = scratch / "parts.zip"
        write_tiles(options.folder, archive, options.images)
    store, cluster = scratch / "store", ("--cluster", f"local:{options.workers}")
    killed = watched(archive, scratch / "part.mhpc", store, options.kill * options.images, *cluster)
    yield killed | {"run": "killed"}
    yield watched(archive, scratch / "part.mhpc", store, None, *cluster) | {"run": "run again"}
    if options.check:
        yield watched(archive, scratch / "whole.mhpc", scratch / "other", None) | {
            "run": "on threads, undisturbed"
        }
        files = [(scratch / name).read_bytes() for name in ("part.mhpc", "whole.mhpc")]
        same = len({hashlib.sha256(content).digest() for content in files}) == 1
        print(f"\nthe files are {'the same' if same else 'NOT the same'}")


def write_tiles(folder: Path, archive: Path, n: int) -> None:
    """Small tiles of real images, at random places, as PNG files in an archive."""
    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in images_below(folder)[:100]]
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(archive, "w") as packed:
        for i in range(n):
            picture = pictures[rng.integers(len(pictures))]
            top, left = (int(rng.integers(side - SIDE + 1)) for side in picture.shape[:2])
            file = io.BytesIO()
            tile = Image.fromarray(picture[top : top + SIDE, left : left + SIDE])
            tile.save(file, "PNG", compress_level=1)
            packed.writestr(f"{i:07d}.png", file.getvalue())


@dataclass
class Watch:
    """The memory of a command and of its children, sampled."""

    client: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)

    def look(self, process: int) -> None:
        self.client.append(resident(process))
        self.workers.append(max([resident(child) for child in descendants(process)], default=0))

    def facts(self) -> Row:
        known = [size for size in self.workers if size] or [0]
        third = max(1, len(known) // 3)
        return {
            "client_mb": max(self.client) / 1e6,
            "early_mb": float(np.median(known[1 : third + 1] or known)) / 1e6,
            "half_mb": float(np.median(known[third : 2 * third] or known)) / 1e6,
            "late_mb": float(np.median(known[-third:])) / 1e6,
            "largest_mb": max(known) / 1e6,
        }


def watched(archive: Path, model: Path, store: Path, kill_at: float | None, *more: str) -> Row:
    """Run a fit, look at its memory, and kill it with all its processes when so many images are in the store."""
    before = entries(store)
    arguments = ["fit", str(archive), "-o", str(model), *SETTINGS, "--store", str(store), *more]
    started, watch = time.perf_counter(), Watch()
    command = [sys.executable, "-m", "mhpatchcore", *arguments]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    fit = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    while fit.poll() is None:
        time.sleep(EVERY)
        if fit.poll() is None:
            watch.look(fit.pid)
        if kill_at is not None and entries(store) >= kill_at:
            os.killpg(fit.pid, signal.SIGKILL)
            fit.wait()
    if kill_at is None and fit.returncode != 0:
        raise SystemExit(f"the fit ended with code {fit.returncode}")
    return {"before": before, "seconds": time.perf_counter() - started} | watch.facts()


def entries(store: Path) -> int:
    """How many images have entries."""
    top = store / "image"
    return sum(len(os.listdir(folder)) for folder in top.iterdir()) if top.is_dir() else 0  # noqa: PTH208


def descendants(process: int) -> list[int]:
    found: list[int] = []
    waiting = [process]
    while waiting:
        try:
            tasks = Path(f"/proc/{waiting.pop()}/task").iterdir()
            children = [int(one) for task in tasks for one in (task / "children").read_text().split()]
        except OSError:
            continue
        found += children
        waiting += children
    return found


def resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()
