"""Features describe a model, not how it is written down; groups are rules on them."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.calibration.features import NAMES, portrait
from icgi.calibration.groups import (
    Answered,
    Groups,
    claims_otherwise,
    in_words,
    likeness,
    third,
    thirds,
)
from icgi.data.families import FAMILIES
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph

RNG = np.random.default_rng
STRUCTURES = {
    "tree": ("tree", {"n": 20}),
    "spins on a lattice": ("grid", {"rows": 5, "columns": 5}),
    "spins, sparse": ("er", {"n": 30, "p": 0.15}),
    "spins, dense": ("sk", {"n": 10}),
    "pairs of several states": ("potts", {"L": 4}),
    "factors of three or more": ("factor", {"n": 20}),
    "tables with zeros": ("csp", {"n": 20}),
    "many states": ("potts", {"L": 3, "q": 9}),
}


def drawn(family: str, seed: int = 0, **parameters: float) -> FactorGraph:
    return FAMILIES[family].sample(RNG(seed), **parameters)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_model_has_finite_features(name: str) -> None:
    found = portrait(zoo.MODELS[name])
    assert found.values.shape == (len(NAMES),)
    assert np.isfinite(found.values).all()
    assert (found.values >= 0).all()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_are_those_of_the_families(structure: str) -> None:
    family, parameters = STRUCTURES[structure]
    assert portrait(drawn(family, **parameters)).structure == structure


def test_renaming_variables_and_scaling_factors_change_nothing() -> None:
    model = drawn("factor", n=15)
    order = RNG(1).permutation(15)
    cards = np.empty(15, np.int64)
    cards[order] = model.cards
    scopes = tuple(tuple(int(order[i]) for i in scope) for scope in model.scopes)
    shifted = tuple(table + 3.0 for table in model.log_tables)
    again = FactorGraph(cards, scopes, shifted)
    width = NAMES.index("width")  # a greedy order breaks ties by number
    a, b = (np.delete(portrait(m).values, width) for m in (model, again))
    assert_allclose(a, b, rtol=1e-9)


def test_graph_features_are_those_of_networkx() -> None:
    model = drawn("ws", n=30, k=4)
    graph = nx.Graph([scope for scope in model.scopes if len(scope) == 2])
    found = portrait(model)
    assert_allclose(found["degree"], 2 * graph.number_of_edges() / 30)
    assert_allclose(found["clustering"], nx.transitivity(graph))
    assert_allclose(found["cycles"], len(nx.cycle_basis(graph)) / 30)
    largest = max(nx.adjacency_spectrum(graph).real)
    assert_allclose(found["spectrum"] * found["degree"], largest, rtol=1e-3)


def test_coupling_and_field_of_spins_are_their_numbers() -> None:
    couplings = np.zeros((3, 3))
    couplings[0, 1] = couplings[1, 0] = 0.5
    couplings[1, 2] = couplings[2, 1] = -1.5
    found = portrait(icgi.from_ising(couplings, [0.3, 0.0, -0.6]))
    assert_allclose(found["coupling"], 1.0)
    assert_allclose(found["largest coupling"], 1.5)
    assert_allclose(found["coupling of a variable"], (0.5 + 2.0 + 1.5) / 3)
    assert_allclose(found["field"], 0.3)


def test_observed_variables_are_no_part_of_the_portrait() -> None:
    model = drawn("grid", rows=4, columns=4)
    seen = condition(model, {5: 0, 10: 1}).model
    assert portrait(seen)["variables"] == 14
    assert portrait(seen)["largest degree"] <= 4 / portrait(seen)["degree"]


def test_groups_overlap_and_say_so_in_words() -> None:
    features = np.stack([portrait(drawn("grid", rows=s, columns=s)).values for s in (3, 6)])
    answers = said(features, ["a", "b"])
    found = Groups.of(answers, clocked=False).members(answers)
    assert_allclose(found[:, :2], np.eye(2))
    assert_allclose(found[:, -1], [0, 1])
    assert_allclose(found[:, 2:5], [[0, 0, 0], [1, 0, 0]])  # 9 variables, 36 variables
    assert in_words(features[1]).startswith("20 to 45 variables")


def test_fresh_draws_are_familiar_and_others_are_not() -> None:
    grids = [portrait(drawn("grid", k, rows=6, columns=6)) for k in range(40)]
    features, kinds = np.stack([g.values for g in grids]), [g.structure for g in grids]

    def like(model: FactorGraph) -> bool:
        new = portrait(model)
        return likeness(new.values, new.structure, features, kinds).familiar

    fresh = [like(drawn("grid", 100 + k, rows=6, columns=6)) for k in range(30)]
    assert np.mean(fresh) > 0.8
    assert not like(drawn("grid", 200, rows=6, columns=6, beta=6.0))
    assert not like(drawn("grid", 200, rows=20, columns=20))
    assert not like(drawn("sk", n=36))
    found = likeness(grids[0].values, "tree", features, kinds)
    assert "tree" in found.outside
    assert found.nearest == "spins on a lattice"
    assert not likeness(grids[0].values, "tree", features[:0], []).familiar


def test_work_is_compared_within_a_structure() -> None:
    kinds = ["a"] * 30 + ["b"] * 30
    work = np.concatenate([np.linspace(1, 2, 30), np.linspace(100, 200, 30)])
    work[::10] = -1.0  # answers that ended by themselves
    found = third(work, kinds, thirds(work, kinds))
    assert (found[::10] == 0).all()
    for part in (found[:30], found[30:]):
        assert [int((part == r).sum()) for r in (1, 2, 3)] == [9, 9, 9]
    assert (np.diff(found[:30][found[:30] > 0]) >= 0).all()
    assert third(np.array([1.0]), ["c"], {}).tolist() == [0]


def test_what_an_answer_says_counts_where_the_clock_decides() -> None:
    """Two answers that differ in nothing but their stated error and their route."""
    features = np.stack([portrait(drawn("grid", k, rows=5, columns=5)).values for k in range(12)])
    stated = np.geomspace(1e-4, 1e-1, 12)
    made = said(features, ["a"] * 12, stated=stated, routes=["pt", "ttve"] * 6)
    ends = said(features[[0, 0]], ["a"] * 2, stated=stated[[0, -1]], routes=["pt", "ttve"])
    ends = replace(ends, trusted=[True, True])
    plain, clocked = (Groups.of(made, clocked=c).members(ends) for c in (False, True))
    assert_allclose(plain[0], plain[1])
    assert_allclose(clocked[0, -3:], [1, 0, 0])  # least error, largest error, not by `pt`
    assert_allclose(clocked[1, -3:], [0, 1, 1])

    def why(error: float, route: str = "pt", clocked: bool = True) -> str:
        return claims_otherwise(
            said(features[:1], ["a"], stated=np.array([error]), routes=[route]), made, clocked
        )

    assert why(0.01) == ""
    assert "there at most 0.1" in why(0.9)
    assert "there at least 0.0001" in why(1e-6)
    assert why(1e-6, clocked=False) == ""
    assert "by lbp" in why(0.01, "lbp")


def said(
    features: np.ndarray,
    structures: list[str],
    stated: np.ndarray | None = None,
    routes: list[str] | None = None,
) -> Answered:
    """Answers that ended by themselves; every second one is vouched for."""
    count = len(features)
    return Answered(
        features, structures, [k % 2 == 1 for k in range(count)], np.full(count, -1.0),
        np.zeros(count) if stated is None else stated, routes or [""] * count,
    )  # fmt: skip
