"""The scoring graph against its plain twin: every rule, with and without excluded rows, in all its three forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from made_up_heads import made_up_head, noise, stored
from plain_scoring import PlainScores, plain_scores, plain_whitened

from mhpatchcore.backbone.session import make_session
from mhpatchcore.scoring.graph import DISTANCES, EXCLUDED, SCORES, Head
from mhpatchcore.scoring.local import MAP_PARTS, map_parts

RULES = ("max", "reweighted", "map-max")
FORMS = ("whole", "head", "rows")


def run(
    head: Head,
    image: int,
    counts: np.ndarray | None = None,
    form: str = "head",
    threads: int = 1,
    inside: np.ndarray | None = None,
) -> PlainScores:
    """One of the three graphs on a picture, with all or some rows and patches."""
    feed: dict[str, Any] = {
        "penalty": head.no_penalty if counts is None else np.where(counts, np.float32(0), EXCLUDED),
        "inside": head.everywhere if inside is None else inside.astype(np.float32),
    }
    maps = stored(head.backbone, image)
    if form == "whole":
        feed["image"] = noise(head, image)[None].astype(np.float32)
    elif form == "head":
        feed |= {f"local_{i}": layer[None] for i, layer in enumerate(maps)}
    else:
        feed["z"] = np.ascontiguousarray(head.whitening.of_maps(maps).T)
    session = make_session(getattr(head, f"{form}_graph"), threads)
    score, peak, nearest, judged = session.run(list(SCORES), feed)
    assert score.shape == peak.shape == (1,)
    return PlainScores(float(score[0]), float(peak[0]), nearest.reshape(head.grid), judged.reshape(head.grid))


def assert_alike(found: PlainScores, wanted: PlainScores, rel: float = 2e-4) -> None:
    scale = float(wanted.nearest.max())
    assert np.allclose(found.nearest, wanted.nearest, rtol=rel, atol=rel * scale)
    assert np.allclose(found.judged, wanted.judged, rtol=rel, atol=rel * scale)
    assert found.score == pytest.approx(wanted.score, rel=rel, abs=rel * scale)
    assert found.peak == pytest.approx(wanted.peak, rel=rel, abs=rel * scale)


def some_rows(K: int, left_out: str) -> np.ndarray | None:
    """Which of K rows count."""
    return {
        "none": None,
        "a third": np.arange(K) % 3 > 0,
        "most": np.arange(K) % 5 == 1,
        "all but three": np.isin(np.arange(K), (0, K // 2, K - 1)),
        "all but one": np.arange(K) == K // 2,
    }[left_out]


@pytest.mark.parametrize("left_out", ["none", "a third", "most", "all but three", "all but one"])
@pytest.mark.parametrize("local", [1, 3, 9])
@pytest.mark.parametrize("score", RULES)
def test_every_rule_is_its_definition(score: str, local: int, left_out: str) -> None:
    head = made_up_head(70, k=12, score=score, local=local, neighbours=5)
    counts = some_rows(70, left_out)
    for image in (1, 2):
        z = plain_whitened(head, stored(head.backbone, image))
        assert_alike(run(head, image, counts), plain_scores(head, z, counts))


@pytest.mark.parametrize("score", RULES)
@pytest.mark.parametrize("K", [1, 2, 5, 31, 32, 33, 64, 100])
def test_banks_of_any_size(score: str, K: int) -> None:
    head = made_up_head(K, score=score, local=9, neighbours=9)
    z = plain_whitened(head, stored(head.backbone, 3))
    assert_alike(run(head, 3), plain_scores(head, z))


@pytest.mark.parametrize("left_out", ["none", "a third", "most", "all but one"])
def test_the_map_of_a_larger_bank_is_the_mean_over_its_parts(left_out: str) -> None:
    head = made_up_head(480, local=9)
    counts = some_rows(480, left_out)
    assert map_parts(9, 480) == MAP_PARTS
    z = plain_whitened(head, stored(head.backbone, 3))
    assert_alike(run(head, 3, counts), plain_scores(head, z, counts))
    alone = run(replace(head, local=1), 3, counts)
    assert (run(head, 3, counts).nearest >= alone.nearest * (1 - 1e-4)).all()


@pytest.mark.parametrize("size", [(32, 32), (32, 96), (72, 40), (36, 44)])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sigma", [0.0, 4.0])
def test_views_of_any_shape(size: tuple[int, int], layers: int, sigma: float) -> None:
    head = made_up_head(45, size=size, layers=layers, sigma=sigma, local=9)
    assert head.grid == (-(-size[0] // 4), -(-size[1] // 4))
    z = plain_whitened(head, stored(head.backbone, 4))
    counts = some_rows(45, "a third")
    for form in FORMS:
        assert_alike(run(head, 4, form=form), plain_scores(head, z))
        assert_alike(run(head, 4, counts, form), plain_scores(head, z, counts))


LARGE = (148, 160)  # 1480 patches


@pytest.mark.parametrize("K", [45, 480, 571])  # a run of rows, several in each piece, runs of one row
@pytest.mark.parametrize("score", RULES)
def test_distances_are_formed_in_pieces(score: str, K: int) -> None:
    head = made_up_head(K, size=LARGE, score=score, local=9)
    assert K == 45 or K * head.backbone.info.patches > DISTANCES
    z, counts = plain_whitened(head, stored(head.backbone, 4)), some_rows(K, "a third")
    for form in FORMS:
        assert_alike(run(head, 4, form=form), plain_scores(head, z))
        assert_alike(run(head, 4, counts, form), plain_scores(head, z, counts))


@pytest.mark.parametrize("size", [(48, 64), LARGE])
@pytest.mark.parametrize("score", RULES)
def test_memory_does_not_grow_with_all_distances(score: str, size: tuple[int, int]) -> None:
    """Of the distances between the rows and the patches there are at most those of one piece in any tensor."""
    K = 480
    head = made_up_head(K, size=size, score=score, local=9)
    graph = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(head.head_graph)).graph
    sizes = {one.name: [d.dim_value for d in one.type.tensor_type.shape.dim] for one in graph.value_info}
    products = [sizes[node.output[0]] for node in graph.node if node.op_type == "MatMul"]
    most = min(DISTANCES, K * head.backbone.info.patches)
    assert 0.8 * most < max(map(np.prod, products)) <= most


@pytest.mark.parametrize("score", RULES)
@pytest.mark.parametrize("left_out", ["none", "a third", "all but three"])
def test_the_three_graphs_agree(score: str, left_out: str) -> None:
    head = made_up_head(70, score=score, local=9)
    whole, stored_layers, rows = (run(head, 5, some_rows(70, left_out), form) for form in FORMS)
    assert_alike(stored_layers, whole, rel=1e-5)
    assert_alike(rows, whole, rel=1e-4)


@pytest.mark.parametrize("score", RULES)
def test_excluded_rows_are_as_good_as_gone(score: str) -> None:
    head, counts = made_up_head(80, score=score, local=5), some_rows(80, "a third")
    assert counts is not None
    smaller = replace(head, bank=head.bank[counts], weights=head.weights[counts])
    assert_alike(run(head, 6, counts), run(smaller, 6), rel=1e-5)
    assert run(head, 6).score != pytest.approx(run(head, 6, counts).score, rel=1e-3)


@pytest.mark.parametrize("local", [1, 9])
@pytest.mark.parametrize("score", RULES)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_only_patches_inside_count(score: str, local: int, share: float) -> None:
    head = made_up_head(70, k=12, score=score, local=local, neighbours=5)
    inside = np.random.default_rng(0).random(head.backbone.info.patches) < share
    assert 0 < inside.sum() < len(inside)
    z = plain_whitened(head, stored(head.backbone, 1))
    found = run(head, 1, inside=inside)
    assert_alike(found, plain_scores(head, z, inside=inside))
    assert not found.nearest[~inside.reshape(head.grid)].any()
    assert not found.judged[~inside.reshape(head.grid)].any()


@pytest.mark.parametrize("score", RULES)
def test_patches_outside_change_nothing(score: str) -> None:
    head = made_up_head(70, k=12, score=score, local=9)
    inside = np.arange(head.backbone.info.patches) % 3 > 0
    session = make_session(head.rows_graph, 1)
    z = head.whitening.of_maps(stored(head.backbone, 2))
    other = np.where(inside[:, None], z, 1000 * z[::-1])
    inputs = {"penalty": head.no_penalty, "inside": inside.astype(np.float32)}
    one, two = (session.run(list(SCORES), {"z": np.ascontiguousarray(x.T)} | inputs) for x in (z, other))
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(one, two, strict=True))


@pytest.mark.parametrize("size", [(48, 64), LARGE])
@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(form: str, size: tuple[int, int]) -> None:
    head = made_up_head(200, size=size, local=9)
    one, two = (run(head, 7, form=form, threads=threads) for threads in (1, 2))
    assert (one.score, one.peak) == (two.score, two.peak)
    assert np.array_equal(one.nearest, two.nearest) and np.array_equal(one.judged, two.judged)


def test_distances_to_every_row_can_be_asked_for() -> None:
    head = made_up_head(40)
    maps = stored(head.backbone, 8)
    feed: dict[str, Any] = {f"local_{i}": layer[None] for i, layer in enumerate(maps)}
    (found,) = make_session(head.table_graph, 1).run(["distances"], feed | {"penalty": head.no_penalty})
    wanted = ((plain_whitened(head, maps)[None] - head.bank[:, None]) ** 2).sum(axis=2)
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3)


def on_rows(bank: np.ndarray, z: np.ndarray, **rule: Any) -> tuple[float, np.ndarray]:
    """Score and judged distances of patches z (12·16, k) by a bank of our own."""
    head = replace(
        made_up_head(4, k=bank.shape[1]), bank=bank.astype(np.float32), weights=np.ones(len(bank), np.float32)
    )
    head = replace(head, **rule)
    inputs = {"penalty": head.no_penalty, "inside": head.everywhere}
    feed = {"z": np.ascontiguousarray(z.T, np.float32)} | inputs
    score, judged = make_session(head.rows_graph, 1).run(["score", "judged"], feed)
    return float(score[0]), judged


def test_equidistant_neighbours_share_the_weight() -> None:
    bank = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    z = np.tile(bank[0], (192, 1))
    z[50] = 0  # one from all four rows
    score, _ = on_rows(bank, z, score="reweighted", neighbours=4)
    assert score == pytest.approx(1 - 1 / 4)


@pytest.mark.parametrize("scale", [30.0, 1e4, 1e8])
def test_huge_distances_do_not_overflow(scale: float) -> None:
    rng = np.random.default_rng(0)
    z, bank = scale * rng.normal(size=(192, 3)), scale * 0.3 * rng.normal(size=(40, 3))
    score, judged = on_rows(bank, z, score="reweighted")
    head = replace(made_up_head(4, k=3), bank=bank, weights=np.ones(40), score="reweighted")
    assert score == pytest.approx(plain_scores(head, z).score, rel=1e-3)
    assert np.isfinite(judged).all()


def test_a_patch_that_is_a_row_is_no_distance_away() -> None:
    rng = np.random.default_rng(0)
    bank = 1000 + rng.normal(size=(192, 6))
    score, judged = on_rows(bank, bank.astype(np.float32), score="max")
    assert score >= 0 and (judged >= 0).all() and judged.max() < 10


def line(positions: np.ndarray, dimensions: int = 12) -> np.ndarray:
    """Rows (n, dimensions) along one direction."""
    return np.outer(positions, np.ones(dimensions))


def test_what_lies_between_rows_is_nearer_than_what_lies_beside_them() -> None:
    bank = line(np.arange(40.0))
    between, beside = line(np.array([20.5])), line(np.array([20.0]))
    beside[0, ::2] += 0.5
    beside[0, 1::2] -= 0.5  # as far from its nearest row as the other, but off the line

    def score(patch: np.ndarray, local: int) -> float:
        z = np.tile(line(np.array([5.0])), (192, 1))  # all others are a row
        z[60] = patch
        return on_rows(bank, z, score="max", local=local)[0]

    assert score(between, 1) == pytest.approx(score(beside, 1), rel=1e-3)
    assert score(between, 9) < 0.3 * score(beside, 9)
