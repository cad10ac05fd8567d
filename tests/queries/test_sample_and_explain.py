import math
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

import icgi
import zoo
from icgi import clock
from icgi.engines import parse_engine
from icgi.exact.enumeration import joint
from icgi.joint import infer_joints


def surprise(model, states) -> float:
    """How probable a worse fit of the counts of whole configurations is (χ²)."""
    p = np.exp(joint(model) - zoo.run(zoo.Enumerate(), model).log_z)
    codes = np.ravel_multi_index(tuple(states.T), model.cards.tolist())
    counts, expected = np.bincount(codes, minlength=len(p)), len(states) * p
    assert counts[p == 0].sum() == 0
    order = np.argsort(-expected)
    often = order[expected[order] >= 5]
    rare = np.setdiff1d(order, often)
    bins = [*zip(counts[often], expected[often], strict=True)]
    if expected[rare].sum() > 0:
        bins.append((counts[rare].sum(), expected[rare].sum()))
    value = sum((c - e) ** 2 / e for c, e in bins)
    return float(chi2.sf(value, max(len(bins) - 1, 1)))


NAMES = ["chain", "tree", "loop", "zeros", "mixed-cards", "disconnected", "one-state-variable"]


@pytest.mark.parametrize("name", NAMES)
def test_exact_draws_have_the_frequencies_of_the_model(name: str) -> None:
    model = zoo.MODELS[name]
    drawn = icgi.sample(model, 20_000, engine="exact")
    assert drawn.how == "exact"
    assert surprise(model, drawn.states) > 1e-3
    assert drawn.log_z == pytest.approx(zoo.exact(name).log_z, abs=1e-9)
    assert drawn.share == pytest.approx(1.0)


def test_exact_draws_of_a_strong_model_stay_with_what_is_possible() -> None:
    model = zoo.MODELS["strong"]
    drawn = icgi.sample(model, 200, engine="exact")
    assert_allclose(drawn.marginals(model.cards), zoo.exact("strong").probs, atol=0.12)


def test_draws_by_tempering_have_the_right_marginals() -> None:
    model = zoo.MODELS["grid-3x3"]
    drawn = icgi.sample(model, 2000, engine="pt", seed=1)
    assert drawn.how == "pt"
    assert drawn.states.shape == (2000, 9)
    assert_allclose(drawn.marginals(model.cards), zoo.exact("grid-3x3").probs, atol=0.06)
    assert np.isnan(drawn.log_q).all()


def test_a_rank_asks_for_elimination_and_auto_for_what_fits() -> None:
    model = zoo.MODELS["grid-3x3"]
    assert icgi.sample(model, 5).how == "exact"
    assert icgi.sample(model, 5, rank=4).how == "ttve"
    J = np.triu(np.random.default_rng(0).normal(size=(50, 50)), 1) / math.sqrt(50)
    dense = icgi.from_ising(J)
    assert icgi.sample(dense, 5).how == "ttve"
    with pytest.raises(icgi.BudgetError, match="exact inference needs"):
        icgi.sample(dense, 5, engine="exact")


def test_the_seed_decides() -> None:
    model = zoo.MODELS["grid-3x3"]
    for engine in ("exact", "ttve", "pt"):
        first, again = (icgi.sample(model, 50, seed=3, engine=engine) for _ in range(2))
        assert_array_equal(first.states, again.states)
        assert (icgi.sample(model, 50, seed=4, engine=engine).states != first.states).any()


def test_more_configurations_than_the_memory_holds_are_refused() -> None:
    with pytest.raises(icgi.BudgetError, match="configurations of 9 variables need"):
        icgi.sample(zoo.MODELS["grid-3x3"], 10**9)


def test_each_removed_observation_is_what_a_question_without_it_says() -> None:
    model = zoo.MODELS["tree"]
    evidence = {6: 2, 4: 1, 0: 1}
    explained = icgi.explain(model, evidence, 2, engine="jt")
    assert_allclose(explained.probs, icgi.marginals(model, evidence, "enumerate")[2], atol=1e-12)
    assert_allclose(explained.prior, icgi.marginals(model, None, "enumerate")[2], atol=1e-12)
    assert [r.change for r in explained.removals] == sorted(r.change for r in explained.removals)[
        ::-1
    ]
    assert {r.variable for r in explained.removals} == set(evidence)
    for removal in explained.removals:
        rest = {i: x for i, x in evidence.items() if i != removal.variable}
        expected = icgi.marginals(model, rest, "enumerate")[2]
        assert_allclose(removal.probs, expected, atol=1e-12)
        assert removal.change == pytest.approx(0.5 * np.abs(explained.probs - expected).sum())
        assert removal.state == evidence[removal.variable]
    assert explained.status is icgi.Status.EXACT
    assert explained.std_error == 0.0


def test_soft_evidence_and_exclusions_are_removed_as_well() -> None:
    model = zoo.MODELS["mixed-cards"]
    observed, weights, excluded = {0: 1}, {3: np.arange(1.0, 1 + model.cards[3])}, {1: (0,)}
    explained = icgi.explain(model, observed, 2, engine="jt", likelihood=weights, exclude=excluded)
    kinds = {}
    for removal in explained.removals:
        parts = {"observed": observed, "likely": weights, "excluded": excluded}
        parts[removal.kind] = {}
        expected = icgi.marginals(
            model, parts["observed"], "enumerate",
            likelihood=parts["likely"], exclude=parts["excluded"],
        )[2]  # fmt: skip
        assert_allclose(removal.probs, expected, atol=1e-12)
        kinds[removal.kind] = removal.variable, removal.state
    assert kinds == {"observed": (0, 1), "likely": (3, None), "excluded": (1, None)}
    everything = icgi.marginals(model, observed, "enumerate", likelihood=weights, exclude=excluded)
    assert_allclose(explained.probs, everything[2], atol=1e-12)
    assert_allclose(explained.prior, icgi.marginals(model, None, "enumerate")[2], atol=1e-12)
    assert {row["kind"] for row in explained.to_dict()["removed"]} == set(kinds)


def test_an_observation_that_separation_makes_irrelevant_changes_nothing() -> None:
    model = zoo.MODELS["chain"]
    explained = icgi.explain(model, {2: 1, 4: 0}, 0, engine="jt")
    assert {r.variable: round(r.change, 12) for r in explained.removals}[4] == 0.0


def test_questions_that_make_no_sense_are_refused() -> None:
    model = zoo.MODELS["chain"]
    with pytest.raises(icgi.EvidenceError, match="no evidence to explain"):
        icgi.explain(model, {}, 1)
    with pytest.raises(icgi.EvidenceError, match="observed itself"):
        icgi.explain(model, {1: 0}, 1)
    named = icgi.from_factors([(("rain", "wet"), [[1.0, 2.0], [3.0, 4.0]])])
    with pytest.raises(icgi.IcgiError, match="did you mean 'rain'"):
        icgi.explain(named, {"wet": 1}, "rian")


def test_what_is_found_prints_as_text() -> None:
    model = zoo.MODELS["grid-3x3"]
    lines = repr(icgi.explain(model, {0: 1, 8: 0}, 4)).splitlines()
    assert lines[0].split() == ["removed", "probability", "moved", "4=0", "4=1"]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert repr(icgi.sample(model, 7)) == "Samples(7 configurations of 9 variables, exact)"
    assert dict(icgi.mpe(model, {0: 1}))[0] == "1"


def wide_potts() -> icgi.FactorGraph:
    """Dense couplings of many states: a pair of passes at the usual rank takes a minute."""
    rng = np.random.default_rng(0)
    n, q = 20, 21
    J = np.triu(np.ones((n, n)), 1)[:, :, None, None] * 0.05 * rng.normal(size=(n, n, q, q))
    return icgi.from_potts(rng.normal(size=(n, q)), J)


@pytest.mark.parametrize("what", ["sample", "joint"])
def test_draws_of_an_elimination_keep_the_seconds(what: str) -> None:
    model, budget, rng = wide_potts(), icgi.Budget(seconds=2.0), np.random.default_rng(0)
    began = clock.now()
    with suppress(icgi.BudgetError):  # a busy machine may not come to draw in the time
        if what == "sample":
            assert icgi.sample(model, 50, engine="ttve", budget=budget).share > 0
        else:
            found = infer_joints(model, {}, [(0, 1)], parse_engine("ttve"), budget, rng)
            assert found.tables[0].sum() == pytest.approx(1.0)
    assert clock.now() - began < 8.0
