"""Arguments and options that several commands share. Those about how the work is done are in `command`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mhpatchcore.config import parse_share
from mhpatchcore.errors import UserError

RUN = "How the work is done"  # it changes nothing in a model
IMAGES = (
    "folders (subfolders are read too), files, archives (.zip, .tar), lists (.txt, .csv), videos, or - for a list on "
    "standard input."
)


def share_parser(flag: str) -> Callable[[str], float]:
    """Reads the value of a flag that asks for a share or a rate, such as 5% or 0.05."""

    def parse(text: str) -> float:
        try:
            return parse_share(text)
        except ValueError:
            raise UserError(f"{flag} takes a share such as 5% or 0.05, not '{text}'") from None

    return parse


def share(flag: str, help: str) -> Any:
    """An option whose value is a share."""
    return typer.Option(flag, parser=share_parser(flag), metavar="SHARE", help=help)


def file(help: str, *flags: str, default: Any = None) -> Any:
    """An option that names a file; `...` as default makes it required."""
    return typer.Option(default, *flags, metavar="FILE", help=help)


def folder(help: str, *flags: str, default: Any = None) -> Any:
    """An option that names a folder; `...` as default makes it required."""
    return typer.Option(default, *flags, metavar="DIR", help=help)


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> listed("mh, patchcore,")
    ('mh', 'patchcore')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


OUT = ("--out", "-o")
Model = Annotated[Path, typer.Argument(help="A model file written by `fit`.")]
ModelOut = Annotated[
    Path, typer.Option(*OUT, metavar="FILE", help="The model file to write; it can be the same one.")
]
Stack = Annotated[
    bool,
    typer.Option(
        "--stack",
        help="The images are two or three folders, or patterns in quotes, with frames of the same parts, matched by "
        "name.",
    ),
]
Every = Annotated[
    int,
    typer.Option("--every", min=1, metavar="N", help="Take every N-th frame of a video.", show_default=False),
]
AllGood = Annotated[
    bool, typer.Option("--all-good", help="All images are of good parts, whatever their folders are called.")
]
OtherProduct = Annotated[
    bool, typer.Option("--other-product", help="Let the model replace one of another product.")
]
FalseAlarm = Annotated[
    float | None,
    share("--false-alarm", "Share of good parts that may be rejected, e.g. 1% or 0.01 (default: unchanged)."),
]
Masks = Annotated[
    str | None,
    typer.Option(
        metavar="MASKS",
        help="Where the defects are: a folder of masks named like the images, or a .csv file of boxes "
        "(image,top,left,bottom,right). Default: where the model sees them.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A local weights file for the backbone (.safetensors, .pth)."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Run on a Dask cluster: tcp://host:8786, the address of its scheduler, or local:N, N processes here.",
        rich_help_panel=RUN,
    ),
]


def _use_device(name: str | None) -> str | None:
    if name is None:
        return None
    from mhpatchcore.backbone.session import use_device

    return use_device(name)


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|openvino|cuda|tensorrt|directml|coreml",
        envvar="MHPATCHCORE_DEVICE",
        callback=_use_device,
        help="What the network runs on (default: cpu).",
        rich_help_panel=RUN,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with the token that every request to the service must carry."),
]
