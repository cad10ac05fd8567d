from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.tt.train import (
    carried,
    decompose,
    dense,
    inner,
    insert,
    multiply,
    open_sites,
    rounded,
    sum_out,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


SHAPES = [(3,), (2, 2), (2, 3, 4), (2, 1, 3, 2), (2, 2, 2, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_decompose_and_dense_are_inverse(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    tensor = rng.normal(size=shape)
    assert_allclose(dense(decompose(tensor)), tensor, atol=1e-13)


@pytest.mark.parametrize("shape", [*SHAPES, (4, 2, 2), (2, 2, 5), (1, 3)])
def test_carried_entries_keep_every_digit(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    tensor = np.exp(rng.normal(scale=200.0, size=shape))
    assert (dense(carried(tensor)) == tensor).all()
    parity = np.indices(shape).sum(0) % 2 * 1.0
    assert max(core.shape[2] for core in carried(parity)) <= 2


@pytest.mark.parametrize("shape", SHAPES)
def test_operations_agree_with_dense_tensors(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    a, b = rng.normal(size=shape), rng.normal(size=shape)
    first, second = decompose(a), decompose(b)
    assert inner(first, second) == pytest.approx((a * b).sum())
    assert_allclose(dense(multiply(first, second)), a * b, atol=1e-12)
    vector = rng.normal(size=3)
    for at in range(len(shape) + 1):
        wider = np.expand_dims(a, at) * np.expand_dims(
            vector, [x for x in range(len(shape) + 1) if x != at]
        )
        assert_allclose(dense(insert(first, at, vector)), wider, atol=1e-12)
    for at in range(len(shape)):
        assert_allclose(np.squeeze(dense(sum_out(first, at))), np.squeeze(a.sum(at)), atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_open_sites_are_marginals_of_the_product(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    a, b = rng.normal(size=shape), rng.normal(size=shape)
    every = range(len(shape))
    for sites in (s for k in every for s in combinations(every, k + 1)):
        expected = (a * b).sum(tuple(q for q in every if q not in sites))
        found = open_sites(decompose(a), decompose(b), sites)
        assert_allclose(found * expected.sum() / found.sum(), expected, atol=1e-9)


def test_rounding_keeps_to_the_singular_values_it_drops(rng: np.random.Generator) -> None:
    tensor = rng.normal(size=(2,) * 8)
    train = multiply(decompose(tensor), decompose(np.ones((2,) * 8)))
    for rank in (1, 3, 8, 16):
        error = np.linalg.norm(dense(rounded(train, rank)) - tensor)
        worst = 0.0
        for cut in range(1, 8):
            s = np.linalg.svd(tensor.reshape(2**cut, -1), compute_uv=False)
            worst += np.square(s[rank:]).sum()
        assert error <= np.sqrt(worst) + 1e-10


def test_rounding_and_inner_products_agree_with_quimb(rng: np.random.Generator) -> None:
    quimb = pytest.importorskip("quimb.tensor")
    train = [rng.normal(size=(2, a, b)) for a, b in [(1, 5), (5, 7), (7, 6), (6, 4), (4, 1)]]
    arrays = [c.transpose(1, 2, 0) for c in train]
    arrays[0], arrays[-1] = arrays[0][0], arrays[-1][:, 0]
    theirs = quimb.MatrixProductState(arrays, shape="lrp")
    assert inner(train, train) == pytest.approx(theirs.H @ theirs)
    theirs.compress(max_bond=3, cutoff=0.0)
    lost = np.linalg.norm(dense(train) - theirs.to_dense().reshape((2,) * 5))
    ours = np.linalg.norm(dense(train) - dense(rounded(train, 3)))
    assert ours <= 1.2 * lost
