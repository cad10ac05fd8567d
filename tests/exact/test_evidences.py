"""Many evidences on one model: the same answers as one by one, with what is unchanged kept."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import some_networks
import zoo
from icgi.errors import EvidenceError
from icgi.exact.evidences import many_evidences
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, infer
from icgi.model.graph import FactorGraph

RNG = np.random.default_rng(0)


def random_evidences(model: FactorGraph, count: int) -> list[dict[int, int]]:
    """Possible and impossible ones: any states of up to three variables, none at all first."""
    found: list[dict[int, int]] = [{}]
    for _ in range(count - 1):
        chosen = RNG.choice(model.n_variables, min(3, model.n_variables), replace=False)
        found.append({int(i): int(RNG.integers(model.cards[i])) for i in chosen})
    return found


@pytest.mark.parametrize("name", zoo.MODELS)
def test_equals_one_by_one(name: str) -> None:
    model = zoo.MODELS[name]
    evidences = random_evidences(model, 70)  # more than one call answers
    order = JunctionTree().forecast(model, Budget(), RNG).order
    found = many_evidences(model, evidences, order, Budget(), threads=2)
    assert found is not None
    for evidence, answer in zip(evidences, found, strict=True):
        try:
            alone = infer(model, evidence, JunctionTree(), Budget(), RNG)
        except EvidenceError:
            assert answer is None
            continue
        if name == "strong" and answer is None:  # beyond linear arithmetic: one by one
            continue
        assert answer is not None
        assert_allclose(answer.probs, alone.probs, atol=1e-12)
        assert answer.log_z == pytest.approx(alone.log_z, abs=1e-11)
        assert answer.status is alone.status


def test_findings_that_come_and_go() -> None:
    """What is kept from the question before never shows: any order of questions, same answers."""
    model = zoo.MODELS["grid-3x3"]
    evidences = [{i: i % 2 for i in range(k)} for k in (0, 1, 2, 3, 9, 3, 1, 0, 5)]
    order = JunctionTree().forecast(model, Budget(), RNG).order
    forth = many_evidences(model, evidences, order, Budget())
    back = many_evidences(model, evidences[::-1], order, Budget())
    assert forth is not None
    assert back is not None
    for one, other in zip(forth, back[::-1], strict=True):
        assert one is not None
        assert other is not None
        assert_allclose(one.probs, other.probs, rtol=0, atol=0)


def test_impossible_evidence_between_possible_ones() -> None:
    model = icgi.from_factors([((0, 1), np.eye(2)), ((1, 2), [[0.9, 0.1], [0.3, 0.7]])])
    order = JunctionTree().forecast(model, Budget(), RNG).order
    found = many_evidences(model, [{0: 0}, {0: 0, 1: 1}, {1: 1}, {0: 5}], order, Budget())
    assert found is not None
    first, impossible, third, unknown = found
    assert impossible is None
    assert unknown is None
    assert first is not None
    assert third is not None
    assert_allclose(first.probs[2], [0.9, 0.1])
    assert_allclose(third.probs, [[0.0, 1.0], [0.0, 1.0], [0.3, 0.7]])
    with pytest.raises(EvidenceError, match="question 1"):
        icgi.marginals_batch(model, [{0: 0}, {0: 0, 1: 1}], engine="jt")


def test_one_by_one_where_tables_are_large_or_digits_few() -> None:
    pairs = [((i, j), RNG.random((2, 2)) + 0.1) for i in range(16) for j in range(i)]
    large = icgi.from_factors(pairs)
    order = JunctionTree().forecast(large, Budget(), RNG).order
    assert many_evidences(large, [{0: 0}, {0: 1}], order, Budget()) is None
    steep = FactorGraph(np.array([2]), ((0,),), (np.array([0.0, 1e9]),))
    order = JunctionTree().forecast(steep, Budget(), RNG).order
    assert many_evidences(steep, [{}, {}], order, Budget()) is None


def test_engines_that_prepare_use_it() -> None:
    model = some_networks.network()
    evidences = [{"Wet": "damp"}, {"Wet": "soaked", "Rain": 1}]
    for engine in ("jt", "exact", "auto"):
        for evidence, answer in zip(
            evidences, icgi.marginals_batch(model, evidences, engine=engine), strict=True
        ):
            alone = icgi.marginals(model, evidence, engine="jt")
            assert_allclose(answer.probs, alone.probs, atol=1e-12)
