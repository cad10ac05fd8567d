"""Arrays in, arrays out: the same answers as model by model."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from icgi.arrays import PairwiseBatch

GRID = np.array([(i, i + 1) for i in range(9) if i % 3 < 2] + [(i, i + 3) for i in range(6)])
TREE = np.array([(0, 1), (1, 2), (1, 3), (3, 4)])


def ising(edges: np.ndarray, n: int, count: int = 40, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, len(edges))), rng.normal(size=(count, n))


@pytest.mark.parametrize("engine", ["jt", "lbp", "lbp:damping=0.3,restarts=6", "mf"])
@pytest.mark.parametrize(("edges", "n"), [(GRID, 9), (TREE, 6)])
def test_ising_models_as_one_by_one(engine: str, edges: np.ndarray, n: int) -> None:
    J, h = ising(edges, n)
    beta = np.linspace(0.1, 1.5, len(J))
    found = icgi.marginals_batch(icgi.ising_batch(J, h, beta, edges=edges), engine=engine)
    models = [icgi.from_ising((edges, J[m]), h[m], beta[m]) for m in range(len(J))]
    alone = icgi.marginals_batch(models, engine=engine)
    for m, answer in enumerate(alone):
        assert_allclose(found.probs[m], answer.probs, atol=1e-12 if engine == "jt" else 1e-5)
        assert found.status[m] is answer.status
        if answer.log_z is not None:
            assert found.log_z[m] == pytest.approx(answer.log_z, rel=1e-9)
        assert_allclose(found[m].probs, found.probs[m])


@pytest.mark.parametrize(
    "options",
    [
        "tolerance=1e-6",
        "tolerance=1e-11",
        "damping=0.4,tolerance=1e-11",
        "schedule=flooding,damping=0.3,restarts=0",
        "schedule=residual",
        "restarts=6,damping=0.2",
    ],
)
def test_spins_are_swept_as_by_the_ordinary_engine(options: str) -> None:
    """Runs that come to rest are the same, sweep by sweep, also where several fixed points are."""
    J, h = ising(GRID, 9, count=60, seed=2)
    beta = np.linspace(0.2, 2.5, len(J))
    batch = icgi.ising_batch(J, 0.2 * h, beta, edges=GRID)
    engine = f"lbp:{options}"
    found = icgi.marginals_batch(batch, engine=engine, budget=icgi.Budget(iterations=400))
    models = [icgi.from_ising((GRID, J[m]), 0.2 * h[m], beta[m]) for m in range(len(J))]
    alone = icgi.marginals_batch(models, engine=engine, budget=icgi.Budget(iterations=400))
    resting = 0
    for m, answer in enumerate(alone):
        assert found.status[m] is answer.status
        if answer.status is not icgi.Status.BUDGET_SPENT:  # else chaotic: rounding errors grow
            resting += 1
            assert_allclose(found.probs[m], answer.probs, atol=1e-9)
            assert found.log_z[m] == pytest.approx(answer.log_z, abs=1e-9)
            assert found.stats["converged_runs"][m] == answer.stats["converged_runs"]
    assert resting > 20


@pytest.mark.parametrize("scale", [1.0, 60.0, 400.0])
def test_tables_of_two_states_need_no_symmetry(scale: float) -> None:
    """Also where numbers are too large for ratios of probabilities."""
    rng = np.random.default_rng(5)
    h, J = rng.normal(size=(12, 6, 2)), scale * rng.normal(size=(12, len(TREE), 2, 2))
    batch = icgi.potts_batch(h, J, edges=TREE)
    found = icgi.marginals_batch(batch, engine="lbp")
    exact = icgi.marginals_batch(batch, engine="jt")
    assert_allclose(found.probs, exact.probs, atol=1e-9)
    assert_allclose(found.log_z, exact.log_z, rtol=1e-9)
    assert set(found.status) == {icgi.Status.EXACT}


def test_a_batch_hears_the_end_of_its_time() -> None:
    J, h = ising(GRID, 9, count=2000)
    batch = icgi.ising_batch(5 * J, h, edges=GRID)
    found = icgi.marginals_batch(batch, engine="lbp", budget=icgi.Budget(seconds=1e-6))
    assert found.seconds < 1.0
    assert_allclose(found.probs.sum(2), 1.0)


def test_dense_and_listed_couplings_are_the_same() -> None:
    J, h = ising(GRID, 9)
    dense = np.zeros((len(J), 9, 9))
    dense[:, GRID[:, 0], GRID[:, 1]] = J
    expected = icgi.marginals_batch(icgi.ising_batch(J, h, edges=GRID), engine="jt")
    for given in (dense, dense.transpose(0, 2, 1), dense + dense.transpose(0, 2, 1)):
        found = icgi.marginals_batch(icgi.ising_batch(given, h), engine="jt")
        assert_allclose(found.probs, expected.probs, atol=1e-12)
        assert_allclose(found.log_z, expected.log_z, rtol=1e-12)


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    J, h = ising(TREE, 6)
    a = icgi.ising_batch(J, h, edges=TREE)
    b = icgi.ising_batch(
        torch.tensor(J, requires_grad=True), torch.tensor(h), edges=torch.tensor(TREE)
    )
    assert (a.values == b.values).all()


@pytest.mark.parametrize("engine", ["jt", "lbp"])
def test_potts_models_as_one_by_one(engine: str) -> None:
    rng = np.random.default_rng(1)
    count, n, q = 20, 5, 3
    h, J = rng.normal(size=(count, n, q)), np.zeros((count, n, n, q, q))
    for i, j in TREE:
        J[:, i, j] = rng.normal(size=(count, q, q))
    both = J + J.transpose(0, 2, 1, 4, 3)
    listed = J[:, TREE[:, 0], TREE[:, 1]]
    swapped = listed.transpose(0, 1, 3, 2)
    expected = [icgi.marginals(icgi.from_potts(h[m], J[m], 0.7), engine=engine)
                for m in range(count)]  # fmt: skip
    for batch in (
        icgi.potts_batch(h, both, 0.7),
        icgi.potts_batch(h, J.transpose(0, 2, 1, 4, 3), 0.7),
        icgi.potts_batch(h, listed, 0.7, edges=TREE),
        icgi.potts_batch(h, swapped, 0.7, edges=TREE[:, ::-1]),
    ):
        found = icgi.marginals_batch(batch, engine=engine)
        for m, answer in enumerate(expected):
            assert_allclose(found.probs[m], answer.probs, atol=1e-12 if engine == "jt" else 1e-6)


def test_models_are_given_back() -> None:
    J, h = ising(GRID, 9)
    batch = icgi.ising_batch(J, h, 0.5, edges=GRID)
    expected = icgi.marginals(icgi.from_ising((GRID, J[3]), h[3], 0.5), engine="jt")
    found = icgi.marginals(batch.model(3), engine="jt")
    assert_allclose(found.probs, expected.probs, atol=1e-12)
    assert found.log_z == pytest.approx(expected.log_z)


@pytest.mark.parametrize("scale", [500.0, 1e8])
def test_wide_numbers_are_answered_one_by_one(scale: float) -> None:
    J, h = ising(TREE, 6, count=5)
    batch = icgi.ising_batch(scale * J, h, edges=TREE)
    found = icgi.marginals_batch(batch, engine="jt")
    for m in range(len(batch)):
        alone = icgi.marginals(batch.model(m), engine="jt")
        assert_allclose(found.probs[m], alone.probs, atol=1e-12)
        assert found.status[m] is alone.status


def test_cliques_too_large_to_form_are_swept() -> None:
    n = 16
    edges = np.stack(np.triu_indices(n, 1), 1)
    J, h = ising(edges, n, count=2, seed=3)
    found = icgi.marginals_batch(icgi.ising_batch(J / 4, h, edges=edges), engine="jt")
    for m in range(2):
        alone = icgi.marginals(icgi.from_ising((edges, J[m] / 4), h[m]), engine="jt")
        assert_allclose(found.probs[m], alone.probs, atol=1e-12)


def test_nothing_is_an_answer_too() -> None:
    none = icgi.ising_batch(np.zeros((0, 4)), np.zeros((0, 5)), edges=TREE)
    assert icgi.marginals_batch(none, engine="jt").probs.shape == (0, 5, 2)
    free = icgi.ising_batch(np.zeros((3, 2, 2)), [[0.0, 1.0]] * 3)
    assert_allclose(icgi.marginals_batch(free, engine="jt").probs[:, 0], 0.5)


def test_the_budget_is_kept() -> None:
    J, h = ising(GRID, 9)
    with pytest.raises(icgi.BudgetError):
        icgi.marginals_batch(
            icgi.ising_batch(J, h, edges=GRID), engine="jt", budget=icgi.Budget(table_bytes=100)
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"couplings": np.zeros((2, 3))}, "n × n"),
        ({"couplings": np.ones((2, 3, 3))}, "itself"),
        ({"couplings": [[[0, 1], [2, 0]]]}, "two triangles"),
        ({"couplings": np.zeros((2, 3)), "edges": [(0, 1)]}, "b × e"),
        ({"couplings": np.zeros((2, 1)), "edges": [(0, 0)]}, "itself"),
        ({"couplings": np.zeros((2, 2)), "edges": [(0, 1), (1, 0)]}, "twice"),
        ({"couplings": np.zeros((2, 1)), "edges": [(0, 5)], "fields": np.zeros(3)}, "different"),
        ({"couplings": np.zeros((2, 3, 3)), "fields": np.zeros((2, 4))}, "different"),
        ({"couplings": np.zeros((2, 3, 3)), "fields": np.zeros((5, 3))}, "2 models"),
        ({"couplings": np.zeros((2, 3, 3)), "beta": np.zeros(5)}, "5"),
        ({"couplings": [[[0, np.nan], [np.nan, 0]]]}, "two triangles|NaN"),
    ],
)
def test_wrong_arrays_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(icgi.ModelFormatError, match=message):
        icgi.ising_batch(**arguments)


def test_evidence_has_no_place_in_arrays() -> None:
    batch = icgi.ising_batch(np.zeros((1, 2, 2)))
    assert isinstance(batch, PairwiseBatch)
    with pytest.raises(icgi.EvidenceError, match="one by one"):
        icgi.marginals_batch(batch, [{}])  # type: ignore[call-overload]


def test_couplings_that_are_no_numbers_are_named_as_such() -> None:
    with pytest.raises(icgi.ModelFormatError, match="infinite or NaN"):
        icgi.ising_batch(np.full((2, 3, 3), np.nan), np.zeros((2, 3)))
