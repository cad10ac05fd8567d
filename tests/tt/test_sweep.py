import numpy as np
import pytest
from numba.typed import List
from numpy.testing import assert_allclose

from icgi.tt.contract import (
    absorb_left,
    dense_site,
    gram_left,
    gram_right,
    open_site,
    overlap_left,
    overlap_right,
    summed,
)
from icgi.tt.sweep import compress
from icgi.tt.train import dense, inner
from icgi.tt.truncate import by_gram, by_svd, inverse_factor, orthonormalise

CASES = [(2, 3, 4, 2, 2), (3, 1, 2, 1, 4), (2, 4, 4, 1, 1), (4, 2, 3, 3, 1)]  # d a b v w


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("case", CASES)
def test_structured_contractions_agree_with_the_formed_site(
    rng: np.random.Generator, case: tuple[int, ...]
) -> None:
    d, a, b, v, w = case
    core, table = rng.normal(size=(d, a, b)), rng.normal(size=(v, d, w))
    env = rng.normal(size=(d, 3, 5))
    h = np.einsum("xab,vxw->xvawb", core, table).reshape(d, v * a, w * b)
    root = rng.normal(size=(w * b, w * b))
    gram = root @ root.T
    over = rng.normal(size=(w * b, 5))
    left = rng.normal(size=(6, v * a))
    assert_allclose(dense_site(core, table), h)
    assert_allclose(gram_right(core, table, gram), sum(x @ gram @ x.T for x in h), atol=1e-10)
    expected = sum(x @ over @ e.T for x, e in zip(h, env, strict=True))
    assert_allclose(overlap_right(core, table, env, over), expected, atol=1e-10)
    assert_allclose(absorb_left(left, core, table), left @ h, atol=1e-10)
    weights = rng.normal(size=d)
    assert_allclose(summed(core, table, weights), np.tensordot(weights, h, 1), atol=1e-10)
    small = rng.normal(size=(a, a))
    assert_allclose(gram_left(core, small), sum(x.T @ small @ x for x in core), atol=1e-10)
    ends = rng.normal(size=(a, 3))
    expected = sum(x.T @ ends @ e for x, e in zip(core, env, strict=True))
    assert_allclose(overlap_left(core, env, ends), expected, atol=1e-10)
    right = rng.normal(size=(b, 5))
    expected = [np.sum((ends @ e) * (x @ right)) for x, e in zip(core, env, strict=True)]
    assert_allclose(open_site(core, env, ends, right), expected, atol=1e-10)


def test_inverse_factor_whitens_and_drops_null_directions(rng: np.random.Generator) -> None:
    root = rng.normal(size=(7, 4))
    x, kept = inverse_factor(root @ root.T)
    assert kept == 4
    assert_allclose(x @ root @ root.T @ x.T, np.eye(4), atol=1e-9)


@pytest.mark.parametrize("steep", [0.0, 0.5, 2.0])
def test_orthonormalise_keeps_the_span(rng: np.random.Generator, steep: float) -> None:
    mixed = rng.normal(size=(6, 6)) @ (10.0 ** (-steep * np.arange(6))[:, None] * np.eye(6, 9))
    rows = mixed.copy()
    orthonormalise(rows)
    assert_allclose(rows @ rows.T, np.eye(6), atol=1e-9)
    assert_allclose(mixed @ rows.T @ rows, mixed, atol=1e-10 * np.linalg.norm(mixed))


def test_orthonormalise_of_dependent_rows_and_zeros(rng: np.random.Generator) -> None:
    row = rng.normal(size=5)
    rows = np.stack([row, np.zeros(5), 3.0 * row + 1e-16])
    orthonormalise(rows)
    assert_allclose(np.abs(rows[0] @ row), np.linalg.norm(row))
    assert not rows[1].any()
    assert abs(rows[0] @ rows[2]) < 1e-9


def test_grams_cut_a_steep_bond_to_all_their_digits(rng: np.random.Generator) -> None:
    decay = 10.0 ** (-0.5 * np.arange(32))
    turn = np.linalg.qr(rng.normal(size=(32, 32)))[0]
    left, right = (rng.normal(size=(32, 32)) * decay @ turn for _ in range(2))
    a, b, _ = by_gram(left.T @ left, right.T @ right, 16)
    full = left @ right.T
    assert np.linalg.norm(full - left @ a @ b @ right.T) < 1e-11 * np.linalg.norm(full)


@pytest.mark.parametrize("rank", [2, 5, 8])
def test_both_truncations_reach_the_best_error(rng: np.random.Generator, rank: int) -> None:
    decay = 10.0 ** -np.arange(10)
    left = rng.normal(size=(10, 10)) * decay**0.3
    right = rng.normal(size=(10, 10)) * decay**0.2
    full = left @ right.T
    s = np.linalg.svd(full, compute_uv=False)
    best = np.sqrt(np.square(s[rank:]).sum())
    for a, b, lost in (
        by_svd(left, right, rank, 0.0),
        by_gram(left.T @ left, right.T @ right, rank),
    ):
        found = np.linalg.norm(full - left @ a @ b @ right.T)
        assert found <= 1.1 * best
        assert lost == pytest.approx(found / np.linalg.norm(full), rel=0.2)


@pytest.mark.parametrize("qr", [False, True])
@pytest.mark.parametrize("gone", [-1, 0, 1, 3])
def test_compress_without_cutting_multiplies_and_sums(
    rng: np.random.Generator, gone: int, qr: bool
) -> None:
    bonds, wires, d = [1, 3, 4, 3, 1], [1, 2, 3, 2, 1], 2
    cores = [rng.normal(size=(d, bonds[q], bonds[q + 1])) for q in range(4)]
    tables = [rng.normal(size=(wires[q], d, wires[q + 1])) for q in range(4)]
    envs = [rng.normal(size=(d, 1, 1)) for _ in range(4)]
    weights = rng.normal(size=d)
    one = np.ones((1, 1))
    opened = 2 if gone < 0 else -1
    out, *_, log, marginal, marginal_log, worst, _, _, _, _ = compress(
        List(cores), List(tables), List(envs), gone, weights, opened, one, one, one, one,
        np.full(4, 64), 3.0, 1e-14, qr,
    )  # fmt: skip
    expected = dense(cores) * dense([t.transpose(1, 0, 2) for t in tables])
    if gone >= 0:
        expected = np.tensordot(weights, np.moveaxis(expected, gone, 0), 1)
    kept = [c for q, c in enumerate(out) if q != gone]
    assert_allclose(dense(kept) * np.exp(log), expected, atol=1e-9 * np.abs(expected).max())
    assert worst < 1e-7
    if opened >= 0:
        seen = expected * dense(envs)
        wanted = np.moveaxis(seen, opened, 0).reshape(d, -1).sum(1)
        assert_allclose(marginal * np.exp(marginal_log), wanted, rtol=1e-8)


def test_environment_protects_what_it_sees(rng: np.random.Generator) -> None:
    """The overlap with the environment survives truncation better than without its weight."""
    cores = [rng.normal(size=s) for s in [(2, 1, 8), (2, 8, 8), (2, 8, 8), (2, 8, 1)]]
    envs = [rng.normal(size=s) for s in [(2, 1, 2), (2, 2, 2), (2, 2, 2), (2, 2, 1)]]
    tables = [np.ones((1, 2, 1))] * 4
    one = np.ones((1, 1))
    exact = inner(cores, envs)
    errors = []
    for weight in (0.0, 30.0):
        out, *_, log, _, _, _, _, _, _, _ = compress(
            List(cores), List(tables), List(envs), -1, np.ones(2), -1, one, one, one, one,
            np.full(4, 2), weight, 1e-14, True,
        )  # fmt: skip
        errors.append(abs(inner(out, envs) * np.exp(log) - exact))
    assert errors[1] < 0.1 * errors[0]
