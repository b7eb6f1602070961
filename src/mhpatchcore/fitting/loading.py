"""What a fit begins with: images that are good parts, and the network of every scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mhpatchcore import backbone as backbones
from mhpatchcore.backbone.session import Backbone
from mhpatchcore.config import Config, Size
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.checks import normals_among, odd_images, refuse_defects, seen_headers
from mhpatchcore.inputs.sources import Gathered, ImageLike, Images, gather, spread
from mhpatchcore.inputs.views import STRIDE, shape_like
from mhpatchcore.inputs.window import learnt_window

ASPECT_IMAGES = 100  # whose shapes decide the aspect of the views


def gather_normals(source: Images, config: Config, execution: Execution, all_good: bool = False) -> Gathered:
    """`gather`, for images of good parts.

    Of a whole data set the normal training images are taken, and defects and masks are refused by their names, unless
    `all_good` says that there are none. What else looks like a mistake is warned of.
    """
    given = gather(source, as_given=not config.shuffle)
    if not given.images:
        raise UserError("there are no images to learn from")
    if not all_good:
        given = normals_among(given, execution.warn)
        refuse_defects(given)
    for one in odd_images(seen_headers(given.images, given.names), config.roi, config.sees_whole):
        execution.warn(str(one))
    return given


def load_networks(
    config: Config, images: Sequence[ImageLike], weights: str | Path | None
) -> tuple[tuple[Backbone, ...], Config]:
    """The network for every scale, and the configuration with what images and network decide of it: sizes, window,
    layers, descriptor, reduction.
    """
    config = shaped(config, images).with_changes(window=learnt_window(images, config.window))
    networks = []
    for size in config.sizes:
        network = backbones.load(
            config.backbone,
            weights=weights,
            tag=config.tag,
            height=size.height,
            width=size.width,
            layers=config.layers,
            descriptor=config.descriptor,
            pool=size.pool,
            threads=1,
        )
        networks.append(_at_precision(network, size, images, config))
    info = networks[0].info
    sizes = [
        Size(one.info.height, one.info.width, one.info.pool, size.zoom)
        for one, size in zip(networks, config.sizes, strict=True)
    ]
    by_network = config.reduction == "auto"
    changed = config.with_changes(
        layers=info.layers,
        descriptor=info.descriptor,
        sizes=sizes,
        precision=info.precision,
        reduction=backbones.reduction_of(config.backbone) if by_network else config.reduction,
    )
    return tuple(networks), changed


def shaped(config: Config, images: Sequence[ImageLike]) -> Config:
    """The configuration with square views in the aspect of the images, unless it stretches, crops or tiles them."""
    if config.aspect == "stretch" or config.resize is not None:
        return config
    some = [images[i] for i in spread(len(images), ASPECT_IMAGES)]
    multiple, sizes = backbones.multiple_of(config.backbone), []
    for size in config.sizes:
        step = STRIDE if multiple == 1 else multiple * size.pool
        adapts = size.height == size.width and not size.zoom
        sides = shape_like(some, size.height, size.width, step) if adapts else size[:2]
        sizes.append(Size(*sides, size.pool, size.zoom))
    return config.with_changes(sizes=sizes)


def _at_precision(network: Backbone, size: Size, images: Sequence[ImageLike], config: Config) -> Backbone:
    if config.precision == "fp32":
        return network
    from mhpatchcore.backbone.quantising import at_precision  # the quantiser takes half a second to import

    view = replace(config.views[0], height=network.info.height, width=network.info.width, zoom=size.zoom)
    return at_precision(network, config.precision, images, view, config.roi)
