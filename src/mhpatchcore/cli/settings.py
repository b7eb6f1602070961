"""The settings of a model on the command line: an option for each, or a TOML file; options win.

What a setting is called there and what its help says stands once, in SETTINGS. Its kind and its default are those of
`Config`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from mhpatchcore.config import SHARES, Config, of_its_kind, parse_share, parse_sizes
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.inputs.regions import parse_roi
from mhpatchcore.inputs.window import parse_window

METRIC, BANK, SCORE, REST = "Metric", "Bank", "Score and threshold", "The rest"
# what commands with settings take besides
WeightsOption = typer.Option(None, help="A local weights file for the backbone (.safetensors, .pth).")
SettingsOption = typer.Option(None, help="A TOML file of settings; options win over it.")
PresetOption = typer.Option(
    "default", help="A named configuration to start from (see `mhpatchcore presets`).", show_default=False
)


@dataclass(frozen=True)
class Setting:
    """How a setting of `Config` is asked for; `flags` where they are not made of its name."""

    name: str
    help: str
    panel: str | None = None
    flags: tuple[str, ...] = ()


SETTINGS = (
    Setting("false_alarm", "Share of good parts that may be rejected"),
    Setting("backbone", "efficientnet_lite0 (comes with the installation), resnet18, resnet50, wide_resnet50_2, …, "
            "or an .onnx file"),
    Setting("tag", "Training recipe of weights from the hub"),
    Setting("precision", "fp32, int8, or auto: int8 where it is known to be faster"),
    Setting("sizes", "What the network sees, in pixels: 224, or height x width: 224x640, or several scales: 224,448/2 "
            "(/2: patches are averaged two by two); tile:512 sees large images in tiles, at full resolution",
            flags=("--size",)),
    Setting("aspect", "keep the shape of the images, or stretch them to squares"),
    Setting("resize", "Resize the shorter side to this and crop the centre (the paper: 256), or none: see all of it"),
    Setting("window", "Which values of images with more than 8 bits are black and white: LOW,HIGH, or auto: learnt "
            "from them"),
    Setting("roi", "Where to look: a rectangle TOP,LEFT,BOTTOM,RIGHT in pixels or in shares of the image, a .json file "
            "of corners, a mask picture, or a folder of masks or a .csv file with a region for each image"),
    Setting("augment", "Learn turned copies of the images too: rotations (every 45°), flips (with quarter turns) or "
            "none; auto tries both on few images, and learns what makes them more alike"),
    Setting("layers", "Layers that describe patches, separated by commas, e.g. layer2,layer3; otherwise what suits "
            "the backbone"),
    Setting("descriptor", "concat, patchcore, or published: patchcore for ResNets and networks of one's own; otherwise "
            "what suits the backbone"),
    Setting("metric", "mahalanobis or euclidean", METRIC),
    Setting("reduction", "pca, ipca (the paper's literal path) or none", METRIC),
    Setting("variance", "Share of the variance to retain", METRIC),
    Setting("components", "Keep this many directions instead", METRIC),
    Setting("shrinkage", "A number from 0 to 1, or oas, rblw, ledoit-wolf, or none: jitter alone, no floor", METRIC),
    Setting("floor", "Least eigenvalue, relative to their mean", METRIC),
    Setting("constructor", "always-full, tree, offline-greedy, kmeans or geores", BANK),
    Setting("K", "Rows of the bank (K)", BANK, ("--rows", "-K")),
    Setting("m_c", "Rows kept of each chunk of images (m_c)", BANK, ("--local-rows",)),
    Setting("shuffle", "Make the bank from the images in random order, or as they come", BANK),
    Setting("fraction", "offline-greedy: this share of all patches", BANK),
    Setting("projection", "offline-greedy: select in so many random directions", BANK),
    Setting("start", "Where farthest-first selection begins: first row, farthest from the mean (the paper's authors) "
            "or random (the original PatchCore)", BANK),
    Setting("alpha", "geores: share of the main bank", BANK),
    Setting("q", "geores: candidates for the tail, otherwise K", BANK),
    Setting("score", "map-max, max or reweighted", SCORE),
    Setting("local", "Nearest bank rows between which a patch counts as known in the image score (1: the paper)",
            SCORE),
    Setting("neighbours", "reweighted: bank rows that the weight looks at (b)", SCORE),
    Setting("sigma", "Smoothing of the map, in pixels of the view", SCORE),
    Setting("calibration", "cross-image, held-out, or none: no threshold", SCORE),
    Setting("calibration_images", "Images used for the threshold, at most", SCORE),
    Setting("chunk_images", "Images per chunk", REST),
    Setting("seed", "Seed of everything random", REST),
)  # fmt: skip


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting, in the place of its parameter `changes`.

    Those that were given reach it there, by their names.
    """

    @wraps(command)
    def called(**given: Any) -> None:
        values = {setting.name: given.pop(setting.name) for setting in SETTINGS}
        command(**given, changes={name: value for name, value in values.items() if value is not None})

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += map(_parameter, SETTINGS) if parameter.name == "changes" else [parameter]
    keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    called.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in keyword_only}
    return called


def _parameter(setting: Setting) -> inspect.Parameter:
    flag = setting.flags or (f"--{setting.name.replace('_', '-')}",)
    hint = get_type_hints(Config)[setting.name]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    default = getattr(Config(), setting.name)
    kind: Any = kinds[0]
    options: dict[str, Any] = {"rich_help_panel": setting.panel, "show_default": False}
    if setting.name in SHARES:
        options |= {"parser": share_parser(flag[0]), "metavar": "SHARE"}
        default = None if default is None else f"{100 * default:g}%"
    elif setting.name == "sizes":
        options |= {"parser": parse_sizes, "metavar": "PIXELS"}
        default = ",".join(map(str, default))
    elif setting.name == "window":
        options |= {"parser": parse_window, "metavar": "LOW,HIGH"}
    elif setting.name == "roi":
        options |= {"parser": parse_roi, "metavar": "REGION"}
    elif setting.name == "layers":
        options |= {"parser": listed, "metavar": "NAMES"}
    elif len(kinds) < len(get_args(hint)):
        options |= {"parser": _or_none(flag[0], kind), "metavar": kind.__name__.upper()}
    elif kind is bool:
        flag, default = (f"{flag[0]}/--no-{flag[0].removeprefix('--')}",), None
    told = f" (default: {default})" if default not in (None, "", ()) else ""
    option = typer.Option(None, *flag, help=f"{setting.help}{told}.", **options)
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _or_none(flag: str, kind: type) -> Callable[[str], Any]:
    """Reads a number, or the word none, which takes a preset's value back."""

    def parse(text: str) -> Any:
        try:
            return text if text == "none" else kind(text)
        except ValueError:
            raise UserError(f"{flag} takes a number or none, not '{text}'") from None

    return parse


def share_parser(flag: str) -> Callable[[str], float]:
    """Reads the value of a flag that asks for a share or a rate, such as 5% or 0.05."""

    def parse(text: str) -> float:
        try:
            return parse_share(text)
        except ValueError:
            raise UserError(f"{flag} takes a share such as 5% or 0.05, not '{text}'") from None

    return parse


def settings_from(file: Path | None, changes: Mapping[str, Any], base: Config) -> Config:
    """`base`, changed by the file, changed by what was given as options."""
    return base.with_changes(**read_settings(file)).with_changes(**changes)


def read_settings(file: Path | None) -> dict[str, Any]:
    """The settings in a TOML file, each of its kind; shares may be texts such as "5%"."""
    if file is None:
        return {}
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read settings {file}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is not TOML: {in_one_line(error)}; it wants lines such as K = 1000"
        ) from error
    try:
        return {name: of_its_kind(name, value) for name, value in settings.items()}
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def listed(text: str) -> tuple[str, ...]:
    """Names separated by commas.

    >>> listed("mh, patchcore,")
    ('mh', 'patchcore')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())
