"""`mhpatchcore serve MODEL... | FOLDER`, and `mhpatchcore verdicts FOLDER --out verdicts.csv`: what it recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, command
from mhpatchcore.cli.console import counted, warn
from mhpatchcore.errors import UserError
from mhpatchcore.runtime.texts import parse_size

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST = 16  # letters of a token
RECORD: dict[str, Any] = {"rich_help_panel": "The record of verdicts"}


def serve(
    models: list[Path] = options.argument("Model files, or a folder of them.", metavar="MODEL... | FOLDER"),
    host: str = options.option("The address to listen at; 0.0.0.0 is every one.", default="127.0.0.1"),
    port: int = options.option("The port to listen at.", default=8080, min=1, max=65535),
    token_file: options.TokenFile = None,
    device: options.Device = None,
    without_token: bool = options.flag("--without-token", "Let anybody in the network ask (with --host)."),
    workers: int = options.number("Images that are scored at a time (default: one per core)."),
    queue: int = options.number("Requests that may wait; others are told to try later.", default=32),
    max_bytes: int = options.number("Bytes of a request, at most.", default=64_000_000),
    max_pixels: int = options.number("Pixels of an image, at most.", default=100_000_000),
    max_json: int = options.number("Bytes of JSON in a request, at most.", default=1_000_000),
    timeout: float = options.option("How long a request may take.", default=30.0, min=0.1, metavar="SECONDS"),
    other_product: options.OtherProduct = False,
    record: Path = options.file("The record (default: verdicts.sqlite beside the first model).", **RECORD),
    without_record: bool = options.flag("--without-record", "Record nothing.", **RECORD),
    keep_days: float = options.option("Older verdicts go.", default=365, min=0, metavar="DAYS", **RECORD),
    keep_rows: int = options.number("Of more verdicts than that the oldest go.", default=2_000_000, **RECORD),
    keep_images: str = options.option(
        "Whose images are kept with them.", default="none", metavar="none|rejected|all", **RECORD
    ),
    keep_images_size: int = options.option(
        "Of more than that the oldest images go.", default="2GB", metavar="SIZE", parser=parse_size, **RECORD
    ),
    log_format: str = options.option("How log lines are written.", default="text", metavar="text|json"),
    log_level: str = options.option(
        "What is logged: passed parts only with debug.", default="info", metavar="debug|info|warning|error"
    ),
) -> None:
    r"""Answer HTTP: post an image, get score, verdict, regions and heatmap; with a page to look at, at /.

    A model file that is replaced is served from the next request on. Needs: pip install 'mhpatchcore\[serve]'

    Example: mhpatchcore serve part.mhpc --port 8080
    """
    try:
        from mhpatchcore.deploy.record import Keeping, Record, beside
        from mhpatchcore.deploy.serve.app import create_app, log_to_stderr, run
        from mhpatchcore.deploy.serve.pool import Limits
    except ModuleNotFoundError as error:
        if str(error.name).startswith("mhpatchcore"):
            raise
        raise UserError(f"serving needs {error.name}: pip install 'mhpatchcore[serve]'") from error
    token = None if token_file is None else read_token(token_file)
    alone = host in LOOPBACK
    if not alone and token is None:
        if not without_token:
            raise UserError(f"--host {host} opens it to the network: give --token-file, or --without-token")
        warn("everybody in the network may ask this service, and change its models")
    sizes = {"max_bytes": max_bytes, "max_json": max_json, "max_pixels": max_pixels}
    chosen = {} if workers is None else {"workers": workers}
    limits = Limits(queue=queue, timeout=timeout, **sizes, **chosen)
    log_to_stderr(log_format, log_level)
    keeping = Keeping(keep_days, keep_rows, keep_images, keep_images_size)
    file = record or beside(models[0])
    # anyone who knows the token may ask by any name, for example through a proxy
    hosts = LOOPBACK if token is None and alone else None
    kept = None if without_record else Record(file, keeping)
    app = create_app(models, limits, token, hosts, kept, other_product)
    names = ", ".join(served.name for served in app.state.service.models.served)
    place = f"[{host}]" if ":" in host else host
    run(app, host, port, lambda: print(f"serving {names} at http://{place}:{port}", flush=True))


def read_token(path: Path) -> str:
    """The token in a file; warns of one that others may read."""
    try:
        token = path.read_text(encoding="utf-8").strip()
        readable = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token in {path}: {error}") from error
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise UserError(
            f"{path} does not hold a token of {SHORTEST} letters or more: `openssl rand -hex 32 > {path}`"
        )
    if readable and os.name == "posix":
        warn(f"others on this machine may read {path}: chmod 600 {path}")
    return token


def parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"{text} is not a time: write it like 2026-11-18 or 2026-11-18T06:00Z") from None


@command()
def verdicts(
    place: Path = options.argument("The folder of served models, or the record.", metavar="FOLDER | FILE"),
    out: Path = options.out("A table (.csv, .parquet) or lines of JSON (.jsonl).", "verdicts.csv"),
    since: datetime = options.option(
        "From this time on: 2026-11-18, 2026-11-18T06:00+01:00.",
        metavar="TIME",
        parser=parse_time,
    ),
    until: datetime = options.option("Before this time.", metavar="TIME", parser=parse_time),
    model: str = options.option("Of this model alone.", metavar="NAME"),
    verdict: str = options.option("Only passed, rejected, or 'no threshold'.", metavar="VERDICT"),
) -> Answer:
    """Write what `serve` has recorded: every verdict with its part, time, model, score and regions.

    The service may go on meanwhile. It answers the same at /v1/verdicts.

    Example: mhpatchcore verdicts /var/lib/mhpatchcore --since 2026-11-18 --out today.csv
    """
    from mhpatchcore.deploy import record
    from mhpatchcore.runtime.files import atomic_path

    export = record.EXPORTS.get(out.suffix[1:])
    if export is None:
        raise UserError(f"cannot write {out}: name a file that ends in .{', .'.join(record.EXPORTS)}")
    file = record.beside(place) if place.is_dir() else place
    written = 0

    def found() -> Iterator[record.Answer]:
        nonlocal written
        for written, answer in enumerate(record.verdicts(file, since, until, model, verdict), 1):  # noqa: B007 (it is counted)
            yield answer

    with atomic_path(out) as path, path.open("wb") as opened:
        opened.writelines(export(found()))
    return Answer({"file": str(out), "verdicts": written}, [f"{out}: {counted(written, 'verdict')}"])
