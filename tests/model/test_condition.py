import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import zoo
from icgi.errors import EvidenceError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Marginals, Status
from icgi.model.condition import condition, lift, resolve_evidence
from icgi.model.graph import FactorGraph


def with_delta(model: FactorGraph, evidence: dict[int, int]) -> FactorGraph:
    """Evidence as extra factors instead of conditioning: the law that conditioning must obey."""
    scopes, tables = list(model.scopes), list(model.log_tables)
    for i, x in evidence.items():
        delta = np.full(model.cards[i], -np.inf)
        delta[x] = 0.0
        scopes.append((i,))
        tables.append(delta)
    return FactorGraph(model.cards, tuple(scopes), tuple(tables))


@given(st.sampled_from(sorted(zoo.MODELS)), st.data())
@settings(max_examples=120, deadline=None)
def test_evidence_equals_a_delta_factor(name: str, data) -> None:
    model = zoo.MODELS[name]
    observed = data.draw(st.sets(st.integers(0, model.n_variables - 1)))
    evidence = {i: data.draw(st.integers(0, int(model.cards[i]) - 1)) for i in observed}
    rng = np.random.default_rng(0)
    try:
        expected = Enumerate()(with_delta(model, evidence), zoo.BUDGET, rng)
    except EvidenceError:
        with pytest.raises(EvidenceError):
            zoo.run(Enumerate(), model, evidence)
        return
    found = zoo.run(Enumerate(), model, evidence)
    assert_allclose(found.probs, expected.probs, atol=1e-12)
    assert found.log_z == pytest.approx(expected.log_z, abs=1e-10, rel=1e-12)


def test_observed_variables_keep_their_numbers() -> None:
    conditioned = condition(zoo.MODELS["mixed-cards"], {1: 3})
    assert conditioned.model.cards.tolist() == [2, 1, 3, 4]
    assert all(1 not in scope for scope in conditioned.model.scopes)
    assert conditioned.alive[1].tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [({9: 0}, "variable 9"), ({-1: 0}, "variable -1"), ({0: 2}, "state 2"), ({0: -1}, "state -1")],
)
def test_evidence_out_of_range(evidence: dict[int, int], words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        condition(zoo.MODELS["chain"], evidence)


def test_impossible_evidence_is_found_by_propagation_alone() -> None:
    equal = np.where(np.eye(2) > 0, 0.0, -np.inf)
    model = FactorGraph(
        np.full(4, 2), ((0, 1), (1, 2), (2, 3)), (equal, equal.copy(), equal.copy())
    )
    with pytest.raises(EvidenceError, match="non-zero probability"):
        condition(model, {0: 0, 3: 1})


def test_names_resolve_to_numbers() -> None:
    model = FactorGraph(
        np.array([2, 2]), (), (), names=("rain", "7"), states=(("no", "yes"), ("0", "1"))
    )
    assert resolve_evidence(model, {"rain": "yes", "7": 0}) == {0: 1, 1: 0}
    assert resolve_evidence(model, {"0": "1"}) == {0: 1}
    assert resolve_evidence(model, None) == {}
    with pytest.raises(EvidenceError, match="'snow'"):
        resolve_evidence(model, {"snow": 1})
    with pytest.raises(EvidenceError, match="'perhaps'"):
        resolve_evidence(model, {"rain": "perhaps"})


def test_lift_spreads_every_table() -> None:
    alive = np.array([[True, False, True], [False, True, False]])
    small = Marginals(
        np.array([[0.25, 0.75], [1.0, 0.0]]),
        Status.CONVERGED,
        concentration=np.array([[1.0, 3.0], [5.0, 0.0]]),
        std_error=np.array([[0.1, 0.2], [0.0, 0.0]]),
        pairs={(0, 1): np.array([[0.25], [0.75]])},
    )
    full = lift(small, alive)
    assert full.probs.tolist() == [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]
    assert full.concentration is not None
    assert full.concentration.tolist() == [[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]]
    assert full.std_error is not None
    assert full.std_error.tolist() == [[0.1, 0.0, 0.2], [0.0, 0.0, 0.0]]
    assert full.pairs is not None
    assert full.pairs[0, 1].tolist() == [[0.0, 0.25, 0.0], [0.0, 0.0, 0.0], [0.0, 0.75, 0.0]]


def test_whole_numbers_of_any_type_are_evidence() -> None:
    model = FactorGraph(np.array([2, 3]), ((0, 1),), (np.zeros((2, 3)),))
    found = resolve_evidence(model, {np.int64(0): np.int8(1), 1: 2.0})
    assert found == {0: 1, 1: 2} == resolve_evidence(model, {0: 1, 1: 2})
    assert_allclose(condition(model, found).alive, [[False, True, False], [False, False, True]])
    with pytest.raises(EvidenceError, match="whole number"):
        resolve_evidence(model, {0: 0.5})  # type: ignore[dict-item]
