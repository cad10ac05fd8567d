"""Matrix Market and GSet: the couplings that the files say, with the stated signs."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.io import mmwrite
from scipy.sparse import coo_array

import icgi

GSET = "4 5\n1 2 1\n2 3 -1\n3 4 2\n1 4 1\n1 3 1\n"


def spins(n: int) -> np.ndarray:
    return np.array(list(itertools.product((-1, 1), repeat=n)))


def check(model: icgi.FactorGraph, energy: np.ndarray) -> None:
    """Marginals and log Z are those of p(s) ∝ exp energy(s), by enumeration."""
    weights, s = np.exp(energy), spins(model.n_variables)
    answer = icgi.marginals(model, engine="jt")
    assert answer.log_z == pytest.approx(np.log(weights.sum()), rel=1e-12)
    up = (weights[:, None] * (s > 0)).sum(0) / weights.sum()
    assert_allclose(answer.probs[:, 1], up, atol=1e-12)


def test_matrix_market_entries_are_couplings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    J = np.triu(rng.normal(size=(5, 5)) * (rng.random((5, 5)) < 0.6), 1)
    s, path = spins(5), tmp_path / "J.mtx"
    energy = np.einsum("bi,ij,bj->b", s, J, s)
    mmwrite(path, coo_array(J + J.T), symmetry="symmetric", precision=17)
    check(icgi.load(path), energy)
    check(icgi.from_matrix_market(path, beta=0.5), 0.5 * energy)
    mmwrite(path, J, precision=17)  # a dense one, one triangle only
    check(icgi.load(path), energy)
    remarks = icgi.save(icgi.load(path), tmp_path / "again.mtx.gz")
    assert any("log Z" in remark for remark in remarks)
    check(icgi.load(tmp_path / "again.mtx.gz"), energy)


def test_a_larger_cut_is_likelier(tmp_path: Path) -> None:
    path = tmp_path / "small.gset"
    path.write_text(GSET)
    s = spins(4)
    edges = [tuple(map(int, line.split())) for line in GSET.splitlines()[1:]]
    cut = sum(w * (s[:, i - 1] != s[:, j - 1]) for i, j, w in edges)
    check(icgi.load(path), cut)
    check(icgi.from_gset(path, beta=0.3), 0.3 * cut)


def test_only_couplings_are_written(tmp_path: Path) -> None:
    model = icgi.from_ising(np.array([[0, 1.0], [1.0, 0]]), [0.5, 0.0])
    with pytest.raises(icgi.ModelFormatError, match="fields"):
        icgi.save(model, tmp_path / "a.mtx")
    three = icgi.from_factors([((0,), [1.0, 2.0, 3.0])])
    with pytest.raises(icgi.ModelFormatError, match="other factors"):
        icgi.save(three, tmp_path / "a.mtx")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("4 5", "4", 1, "begins with"),
        ("4 5", "4 6", 1, "6 edges are announced"),
        ("2 3 -1", "2 3", 3, "an edge is"),
        ("2 3 -1", "2 9 -1", 3, "from 1 to 4"),
        ("2 3 -1", "2 2 -1", 3, "two different"),
        ("2 3 -1", "x 3 -1", 3, "'x'"),
        ("3 4 2", "3 4 inf", 4, "finite"),
    ],
)
def test_mistakes_of_gset_have_a_line(
    old: str, new: str, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.gset"
    path.write_text(GSET.replace(old, new, 1))
    with pytest.raises(icgi.ModelFormatError, match=f"line {line}: .*{message}"):
        icgi.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no Matrix Market"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n", "no Matrix Market"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n3 1 1.0\n", "no Matrix Market"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1.0\n", "square"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 1 1.0\n", "diagonal"),
        ("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 1 1\n", "real numbers"),
        ("%%MatrixMarket matrix coordinate real general\n999999999 999999999 0\n", "dense array"),
    ],
)
def test_damaged_matrices_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text(text)
    with pytest.raises(icgi.ModelFormatError, match=message):
        icgi.load(path)
