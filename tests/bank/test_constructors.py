"""Constructors that select by coverage: each against a plain transcription, on data where float32 is exact."""

from __future__ import annotations

import numpy as np
import pytest

from mhpatchcore.bank import CONSTRUCTORS, build_bank
from mhpatchcore.bank.farthest_first import farthest_first
from mhpatchcore.bank.geores import geores
from mhpatchcore.bank.merge_reduce import always_full, tree
from mhpatchcore.bank.offline_greedy import offline_greedy, random_directions
from mhpatchcore.bank.patches import Patches, Stream, grid_origin
from mhpatchcore.bank.pool import Pool, gathered
from mhpatchcore.config import Config
from mhpatchcore.runtime.parallel import one_blas_thread


def raw_of(z: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """A raw descriptor that tells which patch it belongs to."""
    return np.concatenate([3 * z + 1, origin], axis=1).astype(np.float32)


def chunks(
    n_chunks: int, dim: int = 3, high: int = 30, grid: tuple[int, int] = (4, 5), seed: int = 0
) -> list[Patches]:
    """Chunks of two images each, with whole numbers from 0 to `high` − 1."""
    rng = np.random.default_rng(seed)
    made = []
    for chunk in range(n_chunks):
        origin = grid_origin([2 * chunk, 2 * chunk + 1], grid)
        z = rng.integers(0, high, (len(origin), dim)).astype(np.float32)
        made.append(Patches(z, raw_of(z, origin), origin))
    return made


def select(z: np.ndarray, k: int, covered: np.ndarray | None = None) -> np.ndarray:
    """Farthest-first, naive: rows of z in the order of their choice."""
    chosen = [z[0]] if covered is None else []
    known = chosen if covered is None else list(covered)
    nearest = np.min([((z - row) ** 2).sum(axis=1) for row in known], axis=0)
    while len(chosen) < k and nearest.max() > 0:
        chosen.append(z[nearest.argmax()])
        nearest = np.minimum(nearest, ((z - chosen[-1]) ** 2).sum(axis=1))
    return np.array(chosen[:k]).reshape(-1, z.shape[1])


def tree_nodes(parts: list[np.ndarray], m_c: int) -> list[np.ndarray]:
    """What is left of the pairwise merging: one perfect tree for each one-bit of the number of chunks."""

    def perfect(parts: list[np.ndarray]) -> np.ndarray:
        half = len(parts) // 2
        both = parts[0] if half == 0 else np.concatenate([perfect(parts[:half]), perfect(parts[half:])])
        return select(both, m_c)

    nodes = []
    for bit in reversed(range(len(parts).bit_length())):
        if len(parts) & (1 << bit):
            nodes.append(perfect(parts[: 1 << bit]))
            parts = parts[1 << bit :]
    return nodes[::-1]  # the youngest first


def distinct(z: np.ndarray) -> int:
    return len(np.unique(z, axis=0))


def pool_of(made: list[Patches]) -> np.ndarray:
    return np.concatenate([chunk.z for chunk in made])


@pytest.mark.parametrize("n_chunks", [1, 2, 3, 7, 8, 11])
@pytest.mark.parametrize(("K", "m_c"), [(50, 10), (12, 10), (6, 25)])
def test_tree_is_the_papers(n_chunks: int, K: int, m_c: int) -> None:
    made = chunks(n_chunks)
    bank = tree(Stream.of(made), K, m_c)
    nodes = tree_nodes([chunk.z for chunk in made], m_c)
    assert np.array_equal(bank.z, select(np.concatenate(nodes), K))
    assert len(bank) <= min(K, m_c * n_chunks.bit_count())


@pytest.mark.parametrize("n_chunks", [1, 2, 9])
@pytest.mark.parametrize("high", [2, 3, 30])
@pytest.mark.parametrize("K", [5, 30, 200])
def test_always_full_returns_k_or_all_distinct_rows(n_chunks: int, high: int, K: int) -> None:
    made = chunks(n_chunks, high=high)
    bank = always_full(Stream.of(made), K, m_c=8)
    assert len(bank) == distinct(bank.z) == min(K, distinct(pool_of(made)))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_always_full_finds_the_few_rows_among_many_duplicates(offset: float) -> None:
    # every image is one constant but for three patches; rounding of products must not let duplicates in
    rng = np.random.default_rng(0)
    made = chunks(6, dim=20)
    for chunk in made:
        z = np.full_like(chunk.z, offset)
        z[rng.choice(len(z), 3, replace=False)] += rng.normal(size=(3, 20)).astype(np.float32)
        chunk.z[:] = z
    bank = always_full(Stream.of(made), K=100, m_c=2)
    assert len(bank) == distinct(bank.z) == distinct(pool_of(made)) == 19


def test_always_full_reads_the_stream_once_unless_duplicates_leave_it_short() -> None:
    made, reads = chunks(3, high=1000), []

    def read(index: int) -> Patches:
        reads.append(index)
        return made[index]

    assert len(always_full(Stream(read, 3), K=90, m_c=8)) == 90
    assert reads == [0, 1, 2]


def test_always_full_covers_better_than_the_tree() -> None:
    made = chunks(8, high=1000)
    z = pool_of(made)

    def radius(bank: Patches) -> float:
        return float(((z[:, None] - bank.z[None]) ** 2).sum(axis=2).min(axis=1).max())

    assert radius(always_full(Stream.of(made), 60, 16)) < radius(tree(Stream.of(made), 60, 16))


@pytest.mark.parametrize("K", [1, 25, 1000])
def test_offline_greedy_is_farthest_first_over_the_pool(K: int) -> None:
    made = chunks(5)
    assert np.array_equal(offline_greedy(Stream.of(made), K).z, select(pool_of(made), K))


def test_offline_greedy_by_fraction() -> None:
    made = chunks(5, high=1000)
    assert len(offline_greedy(Stream.of(made), fraction=0.1)) == 20
    assert len(offline_greedy(Stream.of(made), fraction=1.0)) == 200
    assert len(offline_greedy(Stream.of(made), K=7, fraction=0.1)) == 7
    assert len(offline_greedy(Stream.of(made), fraction=1e-9)) == 1


def test_a_fraction_in_the_recipe_is_not_overruled_by_the_default_k() -> None:
    config = Config(constructor="offline-greedy", fraction=0.1)
    assert len(build_bank(Stream.of(chunks(5, high=1000)), config)) == 20


def test_offline_greedy_start_rules() -> None:
    made = chunks(5, high=1000)
    z = pool_of(made)
    centre = ((z - z.mean(axis=0)) ** 2).sum(axis=1).argmin()
    assert np.array_equal(offline_greedy(Stream.of(made), 1, start="first").z[0], z[0])
    assert np.array_equal(offline_greedy(Stream.of(made), 1, start="centre").z[0], z[centre])
    starts = [offline_greedy(Stream.of(made), 1, start="random", seed=seed).origin[0] for seed in range(5)]
    again = [offline_greedy(Stream.of(made), 1, start="random", seed=seed).origin[0] for seed in range(5)]
    assert np.array_equal(starts, again) and distinct(np.array(starts)) > 1


def test_offline_greedy_chooses_by_its_projection() -> None:
    made = chunks(5, dim=12)
    z = pool_of(made)
    rows = farthest_first(z @ random_directions(12, 2, seed=3), 15)
    bank = offline_greedy(Stream.of(made), 15, projection=2, seed=3)
    assert np.array_equal(bank.z, z[rows])
    assert not np.array_equal(bank.z, offline_greedy(Stream.of(made), 15).z)


def test_random_directions_keep_squared_length_on_average() -> None:
    x = np.random.default_rng(0).normal(size=(200, 30))
    ratio = ((x @ random_directions(30, 2000, seed=0)) ** 2).sum(axis=1) / (x**2).sum(axis=1)
    assert ratio.mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("K", "m_c", "alpha", "q"),
    [(20, 10, 0.6, 15), (21, 10, 0.7, 15), (40, 12, 0.9, None), (30, 30, 0.3, 4), (2, 5, 0.99, 1)],
)
@pytest.mark.parametrize("high", [3, 12, 1000])
def test_geores_is_the_papers(K: int, m_c: int, alpha: float, q: int | None, high: int) -> None:
    made = chunks(7, high=high)
    z = pool_of(made)
    K0 = min(K - 1, max(1, round(alpha * K)))
    coverage = np.concatenate(tree_nodes([chunk.z for chunk in made], m_c))
    P, M0 = select(coverage, K), select(coverage, K0)
    residuals = ((z[:, None] - P[None]) ** 2).sum(axis=2).min(axis=1)
    T = z[np.sort(np.argsort(-residuals, kind="stable")[: q or 10 * (K - K0)])]
    both = np.concatenate([M0, select(T, K - K0, covered=M0)])
    wanted = np.concatenate([both, select(coverage, K - len(both), covered=both)])
    bank = geores(Stream.of(made), K, m_c, alpha, q)
    assert np.array_equal(bank.z, wanted)
    assert len(bank) == distinct(bank.z) <= K


@pytest.mark.parametrize("constructor", [name for name in CONSTRUCTORS if name != "kmeans"])
def test_rows_stay_with_their_origin_and_descriptor(constructor: str) -> None:
    made = chunks(9)
    bank = build_bank(Stream.of(made), Config(constructor=constructor, K=60, m_c=16))
    known = {
        tuple(origin): z for chunk in made for origin, z in zip(chunk.origin.tolist(), chunk.z, strict=True)
    }
    assert 0 < len(bank) <= 60
    assert all(np.array_equal(known[tuple(o)], z) for o, z in zip(bank.origin.tolist(), bank.z, strict=True))
    assert np.array_equal(bank.raw, raw_of(bank.z, bank.origin))


@pytest.mark.parametrize("constructor", list(CONSTRUCTORS))
def test_workers_change_nothing(constructor: str) -> None:
    rng = np.random.default_rng(0)
    made = chunks(13, dim=6, grid=(10, 10))
    for chunk in made:
        chunk.z[:] = rng.normal(size=chunk.z.shape)
    config = Config(constructor=constructor, K=150, m_c=40)
    with one_blas_thread():
        alone, together = (build_bank(Stream.of(made, workers), config) for workers in (1, 4))
    for name in ("z", "raw", "origin"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))


def test_a_pool_is_shrunk_before_it_outgrows_its_limit() -> None:
    rows = np.arange(1000, dtype=np.float32)[:, None]
    summaries = [
        Patches(rows[i : i + 50], rows[i : i + 50], np.zeros((50, 3), np.int32)) for i in range(0, 1000, 50)
    ]
    seen: list[int] = []

    def shrink(whole: Patches) -> Patches:
        seen.append(len(whole))
        return whole.take(np.arange(30))

    pool = gathered(summaries, 200, shrink)
    assert seen and max(seen) <= 250
    assert len(pool) <= 200 and 999.0 in pool.z


def test_a_pool_takes_more_than_it_has_room_for() -> None:
    rows = np.arange(40, dtype=np.float32)[:, None]
    origin = np.arange(120, dtype=np.int32).reshape(40, 3)
    pool = Pool(room=4)
    for start, stop in ((0, 3), (3, 20), (20, 20), (20, 40)):
        pool.add(Patches(rows[start:stop], 2 * rows[start:stop], origin[start:stop]))
    held = pool.patches
    assert len(pool) == 40
    assert np.array_equal(held.z, rows) and np.array_equal(held.raw, 2 * rows)
    assert np.array_equal(held.origin, origin)
    pool.replace(held.take(np.array([5, 7])))
    assert pool.patches.z.ravel().tolist() == [5.0, 7.0]


@pytest.mark.parametrize("seed", range(8))
def test_drawn_rows_in_the_pool_cost_no_further_pass(seed: int) -> None:
    made, reads = chunks(41, high=1000, seed=seed), []

    def read(index: int) -> Patches:
        reads.append(index)
        return made[index]

    bank = always_full(Stream(read, len(made), 1), K=40, m_c=40, dense=0.5, seed=seed)
    assert len(bank) == 40
    assert reads == list(range(41))
