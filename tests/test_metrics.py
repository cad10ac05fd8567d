import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from icgi import metrics

CARDS = np.array([2, 3, 1])
P = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
Q = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])


def test_by_hand() -> None:
    assert_allclose(metrics.l1(P, Q), [0.8, 0.4, 0.0])
    assert metrics.mean_absolute_error(P, Q) == pytest.approx(0.4)
    assert metrics.max_error(P, Q) == pytest.approx(0.8)
    expected = 0.9 * np.log(1.8) + 0.1 * np.log(0.2)
    assert metrics.kl(P, Q)[0] == pytest.approx(expected)
    assert metrics.hellinger(P, Q)[0] == pytest.approx(
        np.sqrt(0.5 * ((np.sqrt(0.5) - np.sqrt(0.9)) ** 2 + (np.sqrt(0.5) - np.sqrt(0.1)) ** 2))
    )


def test_an_answer_that_excludes_a_possible_state_is_infinitely_wrong_in_kl_only() -> None:
    certain = np.array([[1.0, 0.0]])
    open_ = np.array([[0.5, 0.5]])
    assert metrics.mean_kl(certain, open_) == np.inf
    assert metrics.mean_kl(open_, certain) == pytest.approx(np.log(2))
    assert metrics.mean_hellinger(certain, open_) < 1


def test_score_of_exact_trivial_and_worse() -> None:
    assert metrics.uai_2022_score(Q, Q, CARDS) == 100
    assert metrics.uai_2022_score(metrics.uniform(CARDS), Q, CARDS) == pytest.approx(0)
    wrong = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert metrics.uai_2022_score(wrong, Q, CARDS) == 0


def test_score_where_uniform_is_right() -> None:
    uniform = metrics.uniform(CARDS)
    assert metrics.uai_2022_score(uniform, uniform, CARDS) == 100
    assert metrics.uai_2022_score(P, uniform, CARDS) == 0


def test_nothing_compared_is_no_error() -> None:
    none = np.zeros((0, 2))
    assert metrics.mean_absolute_error(none, none) == 0
    assert metrics.max_error(none, none) == 0
    assert metrics.uai_2022_score(none, none, np.zeros(0, np.int64)) == 100


@st.composite
def distributions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, k = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.dirichlet(np.ones(k), n), rng.dirichlet(np.ones(k), n)


@given(distributions())
def test_laws(pair: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = pair
    l1, kl, h = metrics.l1(p, q), metrics.kl(p, q), metrics.hellinger(p, q)
    assert_allclose(metrics.l1(q, p), l1)
    assert_allclose(metrics.hellinger(q, p), h)
    eps = 1e-12
    assert (h**2 <= l1 / 2 + eps).all()  # Le Cam
    assert (l1 / 2 <= np.sqrt(2) * h + eps).all()
    assert (l1**2 / 2 <= kl + eps).all()  # Pinsker
    assert (2 * h**2 <= kl + eps).all()
    order = np.random.default_rng(0).permutation(p.shape[1])
    assert_allclose(metrics.kl(p[:, order], q[:, order]), kl, atol=1e-12)
    padded = [np.pad(x, ((0, 0), (0, 2))) for x in (p, q)]
    assert_allclose(metrics.kl(*padded), kl)
    assert_allclose(metrics.hellinger(*padded), h)
