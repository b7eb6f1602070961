"""Turned copies of normal images: views of an image, learnt where they make normal images more alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from process_executor import Processes
from same_model import assert_same_model

from mhpatchcore import Config, Detector, Execution
from mhpatchcore.fitting.checks import MOST_IMAGES, copies_to_try
from mhpatchcore.inputs.views import EVERY_TURN, TURNS

SIDE = 96
SMALL = Config(sizes=SIDE, K=300, m_c=64, layers=("block2", "block4"), chunk_images=4)
KINDS = ("rotations", "flips")


def part(seed: int, angle: float, speck: bool = False) -> np.ndarray:
    """A plate with a slot and a dot at its corner, on an even ground with some noise."""
    image = Image.new("RGB", (SIDE, SIDE), (60, 90, 80))
    image.paste((200, 190, 170), (24, 34, 72, 62))
    image.paste((90, 60, 60), (28, 38, 36, 56))
    image.paste((230, 60, 40), (62, 38, 68, 44))
    if speck:
        image.paste((20, 20, 20), (46, 46, 54, 54))
    turned = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=(60, 90, 80))
    grain = np.random.default_rng(seed).normal(0, 4, (SIDE, SIDE, 3))
    return np.clip(np.asarray(turned) + grain, 0, 255).astype(np.uint8)


def upright(seed: int) -> np.ndarray:
    """Bars of three colours that always lie alike, and differ in length."""
    longer = int(np.random.default_rng(seed).integers(0, 14))
    image = Image.new("RGB", (SIDE, SIDE), (60, 90, 80))
    image.paste((200, 190, 170), (10, 20, 50 + longer, 30))
    image.paste((230, 60, 40), (10, 20, 20, 80 - longer))
    image.paste((30, 40, 200), (60, 60, 70 + longer, 70))
    return np.asarray(image)


@pytest.fixture(scope="module")
def anywhere() -> list[np.ndarray]:
    return [part(seed, 45 * seed) for seed in (0, 1, 3, 6)]


@pytest.fixture(scope="module")
def fitted(anywhere: list[np.ndarray]) -> dict[str, Detector]:
    return {name: Detector.fit(anywhere, SMALL.with_changes(augment=name)) for name in TURNS}


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_views_of_their_image(fitted: dict[str, Detector], kind: str) -> None:
    plain, turned = fitted["none"], fitted[kind]
    (scale,), (alone,) = turned.scales, plain.scales
    assert turned.model.images == plain.model.images and turned.model.n_learnt == 4
    assert scale.moments.n == 8 * alone.moments.n
    assert set(np.unique(scale.origin[:, 0])) == set(range(4))
    assert set(np.unique(scale.origin[:, 1])) == {EVERY_TURN.index(turn) for turn in TURNS[kind]}
    assert turned.calibration.n == plain.calibration.n == 4


def test_an_image_is_calibrated_without_any_copy_of_its_own(anywhere: list[np.ndarray]) -> None:
    """Rings look the same however they are turned: a copy that was left in would be equal to them."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    rings = np.repeat((127 + 100 * np.sin(np.hypot(y, x)))[:, :, None], 3, axis=2).astype(np.uint8)
    detector = Detector.fit([*anywhere, rings], SMALL.with_changes(augment="flips"))
    highest, of = detector.calibration.scores[0], detector.calibration.deciding[0]
    assert of.image == 4 and highest > 10 * detector.score(rings).score


def test_parts_that_lie_anywhere_are_judged_better(fitted: dict[str, Detector]) -> None:
    good, bad = ([part(50 + i, 45 * i + 90, speck) for i in (4, 2)] for speck in (False, True))
    margin = {}
    for kind, detector in fitted.items():
        passing, failing = ([detector.score(one).score for one in some] for some in (good, bad))
        margin[kind] = min(failing) / max(passing)
    assert margin["rotations"] > 1.5 * margin["none"]


def test_auto_turns_what_lies_anywhere_and_not_what_lies_alike(anywhere: list[np.ndarray]) -> None:
    assert Detector.fit(anywhere, SMALL).config.augment == "rotations"
    assert Detector.fit([upright(seed) for seed in range(4)], SMALL).config.augment == "none"


def test_auto_is_what_it_chooses(anywhere: list[np.ndarray], fitted: dict[str, Detector]) -> None:
    assert_same_model(Detector.fit(anywhere, SMALL), fitted["rotations"])


def test_where_auto_need_not_try() -> None:
    assert [copies_to_try(SMALL, n) for n in (1, 2, MOST_IMAGES + 1)] == ["rotations", "auto", "none"]
    assert copies_to_try(SMALL.with_changes(sizes="tile:96"), 4) == "none"
    assert copies_to_try(SMALL.with_changes(constructor="kmeans", calibration="none"), 4) == "none"
    assert copies_to_try(SMALL.with_changes(augment="flips"), 1000) == "flips"


@pytest.mark.parametrize("augment", ["auto", "flips"])
def test_the_same_bits_with_any_workers_and_batches(anywhere: list[np.ndarray], augment: str) -> None:
    config = SMALL.with_changes(augment=augment)
    one = Detector.fit(anywhere, config, execution=Execution(workers=1, batch=1))
    assert_same_model(one, Detector.fit(anywhere, config, execution=Execution(workers=3, batch=5)))


def test_other_processes_give_the_same_bits(anywhere: list[np.ndarray], fitted: dict[str, Detector]) -> None:
    other = Detector.fit(anywhere, SMALL, execution=Execution(workers=2, executor=Processes(2)))
    assert_same_model(other, fitted["rotations"])


def test_a_kept_store_holds_every_turn_apart(
    anywhere: list[np.ndarray], fitted: dict[str, Detector], tmp_path: Path
) -> None:
    for name, expected in fitted.items():
        config = SMALL.with_changes(augment=name)
        assert_same_model(Detector.fit(anywhere, config, execution=Execution(store=tmp_path)), expected)


def test_updates_and_merges_go_on_with_copies(
    anywhere: list[np.ndarray], fitted: dict[str, Detector], tmp_path: Path
) -> None:
    config = SMALL.with_changes(augment="rotations")
    halves = [Detector.fit(anywhere[:2], config), Detector.fit(anywhere[2:], config)]
    expected = fitted["rotations"].scales[0].moments
    for grown in (halves[0].updated(anywhere[2:]), halves[0].merged(halves[1])):
        grown.save(tmp_path / "grown.mhpc")
        moments = Detector.load(tmp_path / "grown.mhpc").scales[0].moments
        assert moments.n == expected.n and np.allclose(moments.M2, expected.M2, rtol=1e-6, atol=1e-6)
        assert grown.calibration.n == 4 and grown.model.n_learnt == 4


@pytest.mark.parametrize("sizes", ["96", "tile:64"])
def test_with_a_region_copies_learn_from_inside_alone(anywhere: list[np.ndarray], sizes: str) -> None:
    config = SMALL.with_changes(augment="rotations", sizes=sizes, roi="0,0,96,50")
    other = [one.copy() for one in anywhere]
    for one in other:
        one[:, 50:] = 255
    assert_same_model(Detector.fit(anywhere, config), Detector.fit(other, config))


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_shows_the_place_that_a_turned_patch_comes_from(
    anywhere: list[np.ndarray], kind: str, tmp_path: Path
) -> None:
    """The red dot of a part that is turned as none was: the nearest normal patches show red dots."""
    for i, one in enumerate(anywhere):
        Image.fromarray(one).save(tmp_path / f"{i}.png")
    detector = Detector.fit(tmp_path, SMALL.with_changes(augment=kind, K=3000))
    new = part(77, 90)
    red = (new[:, :, 0] > 180) & (new[:, :, 1] < 100)
    new[red] = (255, 0, 255)  # the worst place
    place = detector.explain(new, tmp_path).places[0]
    first = next(patch for patch in place.nearest if patch.turned)
    assert first.turned in {str(turn) for turn in TURNS[kind]} and first.file is not None and first.box
    top, left, bottom, right = first.box
    shown = np.asarray(Image.open(first.file))[top:bottom, left:right].astype(int)
    assert ((shown[:, :, 0] > 180) & (shown[:, :, 1] < 110)).any()
