"""What a model inspects, by name. Models of different products do not take each other's place."""

from __future__ import annotations

import re

from mhpatchcore.errors import UserError
from mhpatchcore.inputs.sources import FROM_PYTHON, SEVERAL_PLACES

LONGEST = 200  # letters
GENERIC = {"good", "image", "images", "img", "normal", "normals", "ok", "train", "training"}
ARCHIVE = re.compile(r"\.(zip|tar|tar\.\w+|tgz|txt|csv|mp4|avi|mov|mkv|webm)$", re.IGNORECASE)


class OtherProductError(UserError):
    """A model would take the place of one of another product."""


def product_of(source: str) -> str:
    """A name for what is in the images of a place: that of the nearest folder whose name says something.

    >>> product_of("/data/bottle/train/good"), product_of("s3://plant/vial/images"), product_of("/data/caps.tar.gz")
    ('bottle', 'vial', 'caps')
    >>> product_of("/images/good"), product_of("given in Python")
    ('', '')
    """
    if source in (FROM_PYTHON, SEVERAL_PLACES):
        return ""
    _, _, path = source.rpartition("://")
    names = [ARCHIVE.sub("", name) for name in path.split("/")]
    return next((name[:LONGEST] for name in reversed(names) if name and name.lower() not in GENERIC), "")


def checked_product(name: str) -> str:
    """A name as somebody has given it."""
    if not name.strip() or len(name) > LONGEST or not name.isprintable():
        raise UserError(f"the name of a product is a line of 1 to {LONGEST} letters, such as bottle")
    return name.strip()


def differ(one: str, other: str) -> bool:
    """Whether two models are known to be of different products.

    >>> differ("bottle", "plate"), differ("bottle", "bottle"), differ("bottle", "")
    (True, False, False)
    """
    return bool(one and other and one != other)
