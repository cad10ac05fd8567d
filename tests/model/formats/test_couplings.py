"""Matrix Market and GSet: the couplings that the files say, with the stated signs."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.io import mmread, mmwrite
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
        ("4 5", "999999999999 5", 1, "dense array"),
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


HEAD = "%%MatrixMarket matrix coordinate real symmetric\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no Matrix Market"),
        ("MATRIX 2 2 1", 1, "no Matrix Market"),
        (HEAD, 1, "cut off"),
        (HEAD + "2 2\n", 2, "cut off"),
        (HEAD + "% words\n2 2 1\n", 3, "1 entries are announced, 0 follow"),
        (HEAD + "2 2 1\n3 1 1.0\n", 3, "from 1 to 2"),
        (HEAD + "2 2 1\n2 1\n", 3, "found 2 words"),
        (HEAD + "2 2 1\n2 1 nan\n", 3, "no finite weight"),
        (HEAD + "2 3 1\n1 2 1.0\n", 2, "square"),
        (HEAD + "2 2 1\n1 1 1.0\n", 3, "diagonal"),
        (HEAD.replace("real", "complex") + "2 2 1\n1 2 1 1\n", 1, "real numbers"),
        (HEAD.replace("symmetric", "hermitian") + "2 2 1\n1 2 1\n", 1, "'hermitian'"),
        (HEAD + "999999999 999999999 0\n", 2, "dense array"),
    ],
)
def test_damaged_matrices_are_refused(text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text(text)
    with pytest.raises(icgi.ModelFormatError, match=f"line {line}: .*{message}"):
        icgi.load(path)


def test_entries_are_given_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text(HEAD + "3 3 2\n2 1 1.0\n1 2 1.0\n")
    with pytest.raises(icgi.ModelFormatError, match="given twice"):
        icgi.load(path)
    path.write_text(HEAD.replace("symmetric", "general") + "3 3 2\n2 1 1.0\n1 2 2.0\n")
    with pytest.raises(icgi.ModelFormatError, match="symmetric"):
        icgi.load(path)


@pytest.mark.parametrize("symmetry", ["symmetric", "general"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("sparse", [True, False])
def test_matrices_are_those_that_scipy_reads(symmetry, field, sparse, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    J = np.triu(rng.integers(-3, 4, size=(7, 7)), 1).astype(float)
    if field == "real":
        J *= 1 / 3
    path = tmp_path / "J.mtx"
    given = J + J.T
    if field == "pattern" and not sparse:
        pytest.skip("a list of places")
    mmwrite(
        path, coo_array(given) if sparse else given, field=field, symmetry=symmetry, precision=17
    )
    theirs = mmread(path)
    theirs = theirs.toarray() if sparse else theirs
    s = spins(7)
    check(icgi.load(path), 0.5 * np.einsum("bi,ij,bj->b", s, theirs, s))
