"""`mhpatchcore serve MODEL... | FOLDER`"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.console import warn
from mhpatchcore.errors import UserError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST = 16  # letters of a token
RECORD = "The record of verdicts"


def serve(
    models: list[Path] = typer.Argument(
        ..., metavar="MODEL... | FOLDER", help="Model files written by `fit`, or a folder of them."
    ),
    host: str = typer.Option("127.0.0.1", help="The address to listen at; 0.0.0.0 is every one."),
    port: int = typer.Option(8080, min=1, max=65535, help="The port to listen at."),
    token_file: options.TokenFile = None,
    device: options.Device = None,
    without_token: bool = typer.Option(
        False,
        "--without-token",
        help="Let everybody in the network ask, where --host is not this machine alone.",
    ),
    workers: int = typer.Option(
        None, min=1, metavar="N", help="Images that are scored at a time (default: one per core)."
    ),
    queue: int = typer.Option(
        32, min=1, metavar="N", help="Requests that may wait; further ones are told to try again later."
    ),
    max_bytes: int = typer.Option(64_000_000, min=1, metavar="N", help="Bytes of a request, at most."),
    max_pixels: int = typer.Option(100_000_000, min=1, metavar="N", help="Pixels of an image, at most."),
    max_json: int = typer.Option(
        1_000_000, min=1, metavar="N", help="Bytes of JSON in a request, at most: it takes much memory."
    ),
    timeout: float = typer.Option(30.0, min=0.1, metavar="SECONDS", help="How long a request may take."),
    other_product: options.OtherProduct = False,
    record: Path = typer.Option(
        None,
        metavar="FILE",
        help="Where every verdict is recorded (default: verdicts.sqlite beside the first model).",
        rich_help_panel=RECORD,
    ),
    without_record: bool = typer.Option(
        False, "--without-record", help="Record nothing.", rich_help_panel=RECORD
    ),
    keep_days: float = typer.Option(
        365, min=0, metavar="N", help="Verdicts older than so many days go.", rich_help_panel=RECORD
    ),
    keep_rows: int = typer.Option(
        2_000_000,
        min=1,
        metavar="N",
        help="Of more verdicts than that the oldest go.",
        rich_help_panel=RECORD,
    ),
    keep_images: str = typer.Option(
        "none", metavar="none|rejected|all", help="Whose images are kept with them.", rich_help_panel=RECORD
    ),
    keep_images_size: str = typer.Option(
        "2GB", metavar="SIZE", help="Of more than that the oldest images go.", rich_help_panel=RECORD
    ),
    log_format: str = typer.Option("text", metavar="text|json", help="How log lines are written."),
    log_level: str = typer.Option(
        "info", metavar="debug|info|warning|error", help="What is logged: passed parts only with debug."
    ),
) -> None:
    r"""Answer HTTP: post an image, get score, verdict, regions and heatmap; with a page to look at, at /.

    A model file that is replaced is served from the next request on. Needs: pip install 'mhpatchcore\[serve]'

    Example: mhpatchcore serve part.mhpc --port 8080
    """
    from mhpatchcore.deploy.record import Keeping, Record, beside
    from mhpatchcore.runtime.texts import parse_size

    try:
        from mhpatchcore.deploy.serve.app import create_app, log_to_stderr, run
        from mhpatchcore.deploy.serve.pool import Limits
    except ModuleNotFoundError as error:
        if str(error.name).startswith("mhpatchcore"):
            raise
        raise UserError(
            f"serving needs {error.name}, which is not installed: pip install 'mhpatchcore[serve]'"
        ) from error
    token = None if token_file is None else read_token(token_file)
    alone = is_loopback(host)
    if not alone and token is None:
        if not without_token:
            raise UserError(
                f"--host {host} opens the service to the network: give --token-file FILE, or --without-token"
            )
        warn("everybody in the network may ask this service, and change its models")
    chosen = {} if workers is None else {"workers": workers}
    limits = Limits(
        max_bytes=max_bytes,
        max_json=max_json,
        max_pixels=max_pixels,
        queue=queue,
        timeout=timeout,
        **chosen,
    )
    log_to_stderr(log_format, log_level)
    keeping = Keeping(keep_days, keep_rows, keep_images, parse_size(keep_images_size))
    file = record or beside(models[0])
    # anyone who knows the token may ask by any name, for example through a proxy
    hosts = LOOPBACK if token is None and alone else None
    kept = None if without_record else Record(file, keeping)
    app = create_app(models, limits, token, hosts, kept, other_product)
    names = ", ".join(served.name for served in app.state.service.models.served)
    place = f"[{host}]" if ":" in host else host
    run(app, host, port, lambda: print(f"serving {names} at http://{place}:{port}", flush=True))


def read_token(path: Path) -> str:
    """The token in a file; one that others may read is told."""
    try:
        token = path.read_text(encoding="utf-8").strip()
        readable = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token in {path}: {error}") from error
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise UserError(
            f"{path} holds no token: write one line of {SHORTEST} letters or more, "
            f"for example `openssl rand -hex 32 > {path}`"
        )
    if readable and os.name == "posix":
        warn(f"others on this machine may read {path}: chmod 600 {path}")
    return token


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("box.local")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
