"""What is measured: networks with the settings of their aims, and the floor that everything else stands on.

efficientnet_lite0   the embedded network with the default settings
a ResNet             the paper's settings (one view of 224 px, the published descriptor) with the default's K and m_c;
                     random weights unless a file is given: for speed any weights do
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.commands import listed, parser_of, write_json
from mhpatchcore import Config
from mhpatchcore.backbone.building import ARCHITECTURES, load_weights
from mhpatchcore.backbone.graph import Graph
from mhpatchcore.backbone.resnet import SHAPES
from mhpatchcore.backbone.session import make_session
from mhpatchcore.config import Size
from mhpatchcore.demo.dataset import write_demo_dataset
from mhpatchcore.fitting.fit import shaped
from mhpatchcore.inputs.loading import load_views
from mhpatchcore.inputs.places import images_below
from mhpatchcore.inputs.sources import ImageLike
from mhpatchcore.inputs.views import View
from mhpatchcore.presets import preset
from mhpatchcore.runtime.arrays import Array

# Random weights spread little, so that 99 % of the variance would keep too few directions: they get as many as genuine
# weights keep (ResNet-18 on several data sets: 390 to 420 of 1024).
COMPONENTS = 400
DEFAULT = Config().backbone
AddOptions = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Subject:
    """A network with the settings it is measured with, and the first images of a folder."""

    name: str
    config: Config
    weights: str | None
    folder: Path
    images: Sequence[Path]


def add_subjects(parser: argparse.ArgumentParser) -> None:
    """The options that say what is measured."""
    parser.add_argument(
        "data", nargs="?", type=Path, help="a folder of normal images; made-up vials if there is none"
    )
    parser.add_argument(
        "--networks", type=listed, default=[DEFAULT], help=f"{DEFAULT}, {', '.join(SHAPES)}; by commas"
    )
    parser.add_argument("--weights", help="a weights file for the (single) network")
    parser.add_argument("--limit", type=int, default=200, help="at most so many images")
    parser.add_argument(
        "--rounds", type=int, default=3, help="fits and starts of which the median is reported"
    )


def measuring_command(
    description: str | None, run: Callable[[argparse.Namespace], Any], *more: AddOptions
) -> None:
    """A command that measures networks: options, a table by `run`, JSON on request."""
    parser = parser_of(description)
    for add in (add_subjects, *more):
        add(parser)
    options = parser.parse_args()
    write_json(options.json, run(options))


def subjects(options: argparse.Namespace) -> Iterator[Subject]:
    folder = options.data or made_up_images()
    for name in options.networks:
        config, weights = measured_settings(name, options.weights)
        yield Subject(name, config, weights, folder, images_below(folder)[: options.limit])


def measured_settings(name: str, weights: str | None) -> tuple[Config, str | None]:
    """The settings of a network, and its weights file."""
    if name not in SHAPES:
        return Config(backbone=name), weights
    config = preset("paper").config.with_changes(backbone=name, K=Config().K, m_c=Config().m_c)
    if weights:
        return config, weights
    return config.with_changes(components=COMPONENTS), _random_weights(name)


@dataclass(frozen=True, eq=False)
class Floor:
    """What cannot be avoided: decoding an image into its views, and running the bare network once on each of them."""

    views: tuple[View, ...]
    sessions: tuple[Any, ...]

    def decode(self, source: ImageLike) -> list[Array]:
        """The views as the network takes them, (1, H, W, 3)."""
        seen = load_views(source, self.views)
        return [np.ascontiguousarray(one[None], np.float32) for one, _ in seen]

    def run(self, views: Sequence[Array]) -> None:
        for session, view in zip(self.sessions, views, strict=True):
            session.run(None, {"image": view})


def floor_of(measured: Subject, threads: int) -> Floor:
    """Each call of a network uses so many threads; 0 is all cores."""
    config = shaped(measured.config, measured.images)
    graphs = [bare_graph(measured.name, measured.weights, size) for size in config.sizes]
    return Floor(config.views, tuple(make_session(graph, threads) for graph in graphs))


def bare_graph(name: str, weights: str | None, size: Size) -> bytes:
    """The network alone, up to the last layer that descriptors need."""
    architecture, shape = ARCHITECTURES[name], (size.height, size.width)
    state = load_weights(name, file=Path(weights) if weights else None).state
    graph = Graph(name)
    image = graph.normalised_image(*shape, architecture.mean, architecture.std)
    maps = architecture.build(graph, state, image, shape, architecture.layers)
    last = maps[architecture.layers[-1]]
    return graph.model({"last": (last.name, ("N", last.channels, last.height, last.width))})


def random_resnet(name: str, seed: int = 0) -> dict[str, Array]:
    """A state dict of the right shapes, scaled so that activations stay in range."""
    shape, rng = SHAPES[name], np.random.default_rng(seed)
    state: dict[str, Array] = {}

    def conv(key: str, bn: str, out: int, inside: int, kernel: int) -> None:
        scale = np.float32(np.sqrt(2 / (inside * kernel**2)))
        state[f"{key}.weight"] = rng.standard_normal((out, inside, kernel, kernel), np.float32) * scale
        for part, value in (("weight", 0.5), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            state[f"{bn}.{part}"] = np.full(out, value, np.float32)

    conv("conv1", "bn1", 64, 3, 7)
    channels = 64
    for stage, blocks in enumerate(shape.blocks, start=1):
        inner = shape.width * 2 ** (stage - 1)
        out = 256 * 2 ** (stage - 1) if shape.bottleneck else inner
        for block in range(blocks):
            key = f"layer{stage}.{block}"
            sizes = [(inner, channels, 1), (inner, inner, 3), (out, inner, 1)]
            if not shape.bottleneck:
                sizes = [(inner, channels, 3), (inner, inner, 3)]
            for i, (o, c, kernel) in enumerate(sizes, start=1):
                conv(f"{key}.conv{i}", f"{key}.bn{i}", o, c, kernel)
            if block == 0 and (stage > 1 or out != channels):
                conv(f"{key}.downsample.0", f"{key}.downsample.1", out, channels, 1)
            channels = out
    return state


def _random_weights(name: str) -> str:
    """A file that is made once and kept in the temporary folder."""
    path = Path(tempfile.gettempdir()) / f"mhpatchcore-random-{name}.safetensors"
    if not path.is_file():
        save_file(random_resnet(name), path)
    return str(path)


def made_up_images() -> Path:
    """A folder of vials, made once and kept in the temporary folder."""
    root = write_demo_dataset(Path(tempfile.gettempdir()) / "mhpatchcore-bench-vials")
    return root / "train" / "good"
