"""The images that are given to learn from, looked at before the work: every one of them is learnt as a good part."""

from __future__ import annotations

from mhpatchcore.config import Config
from mhpatchcore.errors import UserError
from mhpatchcore.fitting.execution import Execution
from mhpatchcore.inputs.checks import odd_images, seen_headers
from mhpatchcore.inputs.normals import normals_among, refuse_defects
from mhpatchcore.inputs.sources import Gathered, Images, gather


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
