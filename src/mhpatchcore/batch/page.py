"""The page about many models: a line for each product, what could not be fitted, and images that one should see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mhpatchcore.batch.many import Fitted, Product, Recipe
from mhpatchcore.errors import UserError
from mhpatchcore.report.drawing import screen_pixels
from mhpatchcore.report.page import encoded, render_page
from mhpatchcore.report.wording import Tile, percent, settings
from mhpatchcore.runtime.files import write_text
from mhpatchcore.runtime.urls import url_of

PHOTO = 320  # pixels of its longer side


@dataclass(frozen=True)
class OddImage:
    """An image of a product that lies far beyond all others."""

    product: str
    name: str
    width: int
    height: int
    photo: bytes


def write_summary(
    recipe: Recipe, products: Sequence[Product], fitted: Sequence[Fitted], seconds: float, path: str | Path
) -> None:
    write_text(path, render(recipe, products, fitted, seconds))


def render(recipe: Recipe, products: Sequence[Product], fitted: Sequence[Fitted], seconds: float) -> str:
    """The page as text."""
    failed = [one for one in fitted if one.error is not None]
    models = [one for one in fitted if one.error is None]
    odd = [
        image for product, one in zip(products, fitted, strict=True) for image in _odd_images(product, one)
    ]
    return render_page(
        "many.html.j2",
        eyebrow="Models of many products",
        name=Path(recipe.out).name,
        headline=f"{len(models)} of {len(fitted)} products have a model",
        promise="Each threshold is set from the product's own images of good parts.",
        tiles=_tiles(models, len(failed), seconds),
        failed=failed,
        models=[(one, _notes(one)) for one in models],
        rates=rates,
        duration=duration,
        odd=odd,
        settings=settings(recipe.config),
    )


def _tiles(models: Sequence[Fitted], failed: int, seconds: float) -> list[Tile]:
    fresh = [one for one in models if not one.kept]
    images = sum(one.images for one in models)
    odd = sum(len(one.odd) for one in models)
    return [
        Tile("Models", str(len(models)), f"{len(fresh)} fitted now, {len(models) - len(fresh)} kept"),
        Tile("Failed", str(failed), "products without a new model"),
        Tile("Images", str(images), "of good parts, learnt from"),
        Tile("To look at", str(odd), "images far beyond all others of their product"),
        Tile("Time", duration(seconds), "for this run"),
    ]


def _notes(one: Fitted) -> list[str]:
    notes = list(one.warnings)
    if one.threshold is None:
        notes.append("no threshold: it has learnt from too few images")
    if one.odd:
        notes.append(f"{', '.join(one.odd)}: far beyond all others, and rejected")
    return notes


def _odd_images(product: Product, one: Fitted) -> Iterator[OddImage]:
    for name in one.odd:
        with suppress(UserError):  # it has gone since it was read
            place = url_of(f"{product.images}/{name}") or str(Path(product.images, name))
            photo = screen_pixels(place, longest=PHOTO)
            yield OddImage(one.product, name, photo.shape[1], photo.shape[0], encoded(photo, "JPEG"))


def rates(one: Fitted) -> str:
    """The share of good parts that a threshold rejects, in words.

    >>> rates(Fitted("a", "a.mhpc", threshold=1.0, false_alarm=0.01, interval=(0.002, 0.024)))
    '1 % (0.2 % to 2.4 %)'
    """
    if one.false_alarm is None:
        return "–"
    between = f" ({percent(one.interval[0])} to {percent(one.interval[1])})" if one.interval else ""
    return percent(one.false_alarm) + between


def duration(seconds: float) -> str:
    """
    >>> duration(3.14159), duration(250), duration(8000)
    ('3.1 s', '4 min 10 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
