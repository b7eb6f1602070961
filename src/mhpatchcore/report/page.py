"""Pages of one file: templates, pictures as data, and what stands on every one of them."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mhpatchcore.calibration.choices import share
from mhpatchcore.report import wording
from mhpatchcore.report.drawing import OUTLINE, heat_layer
from mhpatchcore.report.pictures import encoded


def render_page(template: str, **context: Any) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("mhpatchcore", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "data_uri": data_uri,
        "four_digits": wording.four_digits,
        "number": wording.number,
        "relative": wording.relative,
        "share": share,
    }
    scale = np.linspace(0, 2, 128, dtype=np.float32)[None].repeat(8, 0)
    return environment.get_template(template).render(
        created=datetime.now(UTC),
        outline_colour="#{:02x}{:02x}{:02x}".format(*OUTLINE),
        heat_scale=encoded(heat_layer(scale, 1.0), "WEBP"),
        **context,
    )


def breakable(name: str) -> Markup:
    """A name that a narrow page may break after its marks, and nowhere else.

    >>> breakable("good/a_1.png")
    Markup('good/<wbr>a_<wbr>1.png')
    """
    return Markup("").join(
        Markup("{}<wbr>").format(part) if part in "/_-" else part
        for part in re.split("([/_-])", name)
        if part
    )


def data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"
