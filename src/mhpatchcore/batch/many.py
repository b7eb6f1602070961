"""Many models: one for each product of a plant, each from the images in a folder of its own.

A product is one task: it is fitted whole, where the task runs. Beside its model lies a record of what that was made of;
run again, only products are fitted whose images or settings have changed, or whose model is gone. One that cannot be
fitted is reported, and the others go on. A page has a line for each product, what could not be fitted, and images that
one should see.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from time import perf_counter
from typing import Any, NamedTuple

from mhpatchcore.batch.scoring import read_record
from mhpatchcore.config import Config
from mhpatchcore.detector import Detector
from mhpatchcore.errors import ImageWarning, ModelFileError, UserError, in_one_line
from mhpatchcore.fitting.execution import Execution, Executor, silent
from mhpatchcore.inputs.datasets import GOOD
from mhpatchcore.inputs.files import absolute_name, states_of
from mhpatchcore.inputs.places import SUFFIXES, suffix_of
from mhpatchcore.inputs.sources import gather
from mhpatchcore.model.file import load
from mhpatchcore.report.drawing import screen_pixels
from mhpatchcore.report.page import Tile, encoded, percent, render_page, settings
from mhpatchcore.runtime.files import write_text
from mhpatchcore.runtime.urls import files_below, url_of

# where a product's good parts are, if there
PLACES = (*(f"train/{name}" for name in GOOD), *GOOD)
LAYOUT = 1
PHOTO = 320  # pixels of the longer side of a picture


class Product(NamedTuple):
    """A product, and where images of good ones are."""

    name: str
    images: str


@dataclass(frozen=True)
class Recipe:
    """What all products have in common, and where their models go; `workers` threads fit one of them."""

    config: Config
    out: str
    weights: str | None = None
    skip_broken: bool = False
    all_good: bool = False
    workers: int = 1

    def model(self, product: Product) -> str:
        return f"{self.out}/{product.name}.mhpc"

    def record(self, product: Product) -> str:
        return f"{self.out}/{product.name}.json"


@dataclass(frozen=True)
class Fitted:
    """What came of a product: its model's facts, or why there is none.

    `seconds` its fit took, now or when it was `kept`. `odd` are images that lie far beyond all others.
    """

    product: str
    model: str
    images: int = 0
    rows: int = 0
    threshold: float | None = None
    false_alarm: float | None = None
    interval: tuple[float, float] | None = None
    odd: tuple[str, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    kept: bool = False
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def products_in(folder: str | Path) -> list[Product]:
    """A product for every folder below, from its folder of good parts, or all of it."""
    url = url_of(folder)
    top = (url or absolute_name(folder)).rstrip("/")
    if url:
        images = (one[len(top) + 1 :] for one in files_below(url) if suffix_of(one) in SUFFIXES)
        folders = {str(parent) for image in images for parent in PurePosixPath(image).parents} - {"."}
        names = [one for one in folders if "/" not in one]
    elif Path(top).is_dir():
        names = [one.name for one in Path(top).iterdir() if one.is_dir() and not one.name.startswith(".")]
        folders = {f"{name}/{place}" for name in names for place in PLACES if Path(top, name, place).is_dir()}
    else:
        raise UserError(f"there is no folder {top}; check the path")
    if not names:
        raise UserError(f"there are no folders with images in {url or folder}: it wants one for each product")
    found = []
    for name in sorted(names):
        good = next((f"{name}/{place}" for place in PLACES if f"{name}/{place}" in folders), name)
        found.append(Product(name, f"{top}/{good}"))
    return found


def fit_products(recipe: Recipe, products: Sequence[Product], executor: Executor) -> Iterator[Fitted]:
    """Fit every product, and tell each when it is done, in their order."""
    executor, workers = executor.for_large_tasks()
    recipe = replace(recipe, workers=workers)
    executor.check(None, next((one for product in products for one in _first_image(product)), None), silent)
    for one in executor.map(partial(_fit_product, recipe), products):
        if one.error is None and not url_of(one.model) and not Path(one.model).is_file():
            where = "is another folder for some workers: name a place that all of them share"
            yield replace(one, error=f"{Path(one.model).parent} {where}")
        else:
            yield one


def _first_image(product: Product) -> list[str | Path]:
    with suppress(UserError):
        return [one for one in gather(product.images).images[:1] if isinstance(one, str | Path)]
    return []


def _fit_product(recipe: Recipe, product: Product) -> Fitted:
    """The task: a product's model, unless it is there and nothing has changed."""
    try:
        key = _key(recipe, product)
        record = read_record(recipe.record(product))
        with suppress(ModelFileError, KeyError, TypeError, ValueError):  # gone, damaged or of another version
            if record.get("key") == key:
                return _facts(Detector(load(Path(recipe.model(product)))), recipe, product, record, kept=True)
        return _fitted(recipe, product, key)
    except Exception as error:  # whatever it is, the others go on
        why = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {in_one_line(error)}"
        return Fitted(product.name, recipe.model(product), error=why)


def _key(recipe: Recipe, product: Product) -> str:
    """All that decides a product's model, but for this version of the program."""
    found = gather(product.images)
    images = [one for one in found.images if isinstance(one, str | Path)]
    weights = (recipe.weights, *states_of([recipe.weights])) if recipe.weights else None
    parts = [LAYOUT, recipe.config.to_json(), weights, recipe.skip_broken, found.names, states_of(images)]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _fitted(recipe: Recipe, product: Product, key: str) -> Fitted:
    warned: list[str] = []
    started = perf_counter()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("default", ImageWarning)
        execution = Execution(workers=recipe.workers, skip_broken=recipe.skip_broken, warn=warned.append)
        study = Detector.study(
            product.images,
            recipe.config,
            weights=recipe.weights,
            name=product.name,
            all_good=recipe.all_good,
            execution=execution,
        )
    warned += [str(one.message) for one in raised if issubclass(one.category, ImageWarning)]
    study.detector.save(recipe.model(product))
    record = {"key": key, "seconds": round(perf_counter() - started, 2), "warnings": warned}
    write_text(recipe.record(product), json.dumps(record, indent=1) + "\n")
    return _facts(study.detector, recipe, product, record, kept=False)


def _facts(
    detector: Detector, recipe: Recipe, product: Product, record: Mapping[str, Any], kept: bool
) -> Fitted:
    calibration, judged = detector.calibration, detector.calibration.n > 0
    return Fitted(
        product.name,
        recipe.model(product),
        images=detector.model.n_learnt,
        rows=detector.model.rows,
        threshold=detector.threshold if judged else None,
        false_alarm=calibration.expected_rate if judged else None,
        interval=calibration.interval if judged else None,
        odd=tuple(detector.model.odd_images),
        seconds=float(record["seconds"]),
        warnings=tuple(map(str, record["warnings"])),
        kept=kept,
    )


def render(recipe: Recipe, products: Sequence[Product], fitted: Sequence[Fitted], seconds: float) -> str:
    """The page about all products, as text."""
    failed = [one for one in fitted if one.error is not None]
    models = [one for one in fitted if one.error is None]
    kept = sum(one.kept for one in models)
    tiles = (
        ("Models", len(models), f"{len(models) - kept} fitted now, {kept} kept"),
        ("Failed", len(failed), "products without a new model"),
        ("Images", sum(one.images for one in models), "of good parts, learnt from"),
        ("To look at", sum(len(one.odd) for one in models), "images far beyond all others of their product"),
        ("Time", _duration(seconds), "for this run"),
    )
    return render_page(
        "many.html.j2",
        eyebrow="Models of many products",
        name=Path(recipe.out).name,
        headline=f"{len(models)} of {len(fitted)} products have a model",
        promise="Each threshold is set from the product's own images of good parts.",
        tiles=[Tile(label, str(value), note) for label, value, note in tiles],
        failed=failed,
        models=[(one, _notes(one)) for one in models],
        rates=_rates,
        duration=_duration,
        odd=[image for pair in zip(products, fitted, strict=True) for image in _odd_images(*pair)],
        settings=settings(recipe.config),
    )


def _notes(one: Fitted) -> list[str]:
    notes = list(one.warnings)
    if one.threshold is None:
        notes.append("no threshold: it has learnt from too few images")
    if one.odd:
        notes.append(f"{', '.join(one.odd)}: far beyond all others, and rejected")
    return notes


def _odd_images(product: Product, one: Fitted) -> Iterator[dict[str, Any]]:
    """The images that lie far beyond all others, as the page shows them."""
    for name in one.odd:
        with suppress(UserError):  # it has gone since it was read
            photo = screen_pixels(f"{product.images}/{name}", longest=PHOTO)
            size = {"height": photo.shape[0], "width": photo.shape[1]}
            yield {"product": one.product, "name": name, "photo": encoded(photo, "JPEG"), **size}


def _rates(one: Fitted) -> str:
    """The share of good parts that a threshold rejects, in words.

    >>> _rates(Fitted("a", "a.mhpc", threshold=1.0, false_alarm=0.01, interval=(0.002, 0.024)))
    '1 % (0.2 % to 2.4 %)'
    """
    if one.false_alarm is None:
        return "–"
    between = f" ({percent(one.interval[0])} to {percent(one.interval[1])})" if one.interval else ""
    return percent(one.false_alarm) + between


def _duration(seconds: float) -> str:
    """
    >>> _duration(3.14159), _duration(250), _duration(8000)
    ('3.1 s', '4 min 10 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
