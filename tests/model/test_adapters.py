"""Models of other libraries give the answers of those libraries."""

import itertools
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from some_networks import network

pytestmark = pytest.mark.filterwarnings("ignore")  # of the other libraries


def library(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def test_pyagrum_networks_and_back() -> None:
    gum = library("pyagrum")
    bn = gum.fastBN("A{x|y}->B[3]<-C->D{p|q|r}<-B")
    model = icgi.from_pyagrum(bn)
    engine = gum.LazyPropagation(bn)
    engine.setEvidence({"D": "q"})
    engine.makeInference()
    answer = icgi.marginals(model, {"D": "q"})
    for name in model.names:
        assert_allclose(answer[name], engine.posterior(name).toarray(), atol=1e-12)
        assert model.states[model.names.index(name)] == bn.variable(name).labels()
    again = icgi.from_pyagrum(icgi.to_pyagrum(network()))
    expected = icgi.marginals(network(), {"Mood": 1})
    for name in network().names:
        assert_allclose(icgi.marginals(again, {"Mood": 1})[name], expected[name], atol=1e-12)


def test_pyagrum_markov_networks() -> None:
    gum = library("pyagrum")
    mrf = gum.fastMRF("A--B[3]--C;C--D--A")
    model = icgi.from_pyagrum(mrf)
    engine = gum.ShaferShenoyMRFInference(mrf)
    engine.makeInference()
    answer = icgi.marginals(model)
    for name in model.names:
        assert_allclose(answer[name], engine.posterior(name).toarray(), atol=1e-12)


def test_pgmpy_bayesian_networks() -> None:
    library("pgmpy")
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    theirs = DiscreteBayesianNetwork([("Rain", "Wet"), ("Sun", "Wet")])
    rain = TabularCPD("Rain", 2, [[0.3], [0.7]], state_names={"Rain": ["yes", "no"]})
    sun = TabularCPD("Sun", 2, [[0.4], [0.6]])
    columns = np.random.default_rng(0).dirichlet(np.ones(3), 4).T
    names = {"Wet": ["dry", "damp", "soaked"], "Rain": ["yes", "no"], "Sun": [0, 1]}
    wet = TabularCPD("Wet", 3, columns, ["Rain", "Sun"], [2, 2], state_names=names)
    theirs.add_cpds(rain, sun, wet)
    model = icgi.from_pgmpy(theirs)
    expected = VariableElimination(theirs)
    found = icgi.marginals(model, {"Wet": "damp"})
    for name in ("Rain", "Sun"):
        factor = expected.query([name], evidence={"Wet": "damp"}, show_progress=False)
        factor.normalize()
        assert_allclose(found[name], factor.values, atol=1e-12)
        assert list(model.states[model.names.index(name)]) == list(map(str, names[name]))


def test_pgmpy_markov_networks() -> None:
    library("pgmpy")
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteMarkovNetwork

    rng = np.random.default_rng(1)
    theirs = DiscreteMarkovNetwork([("a", "b"), ("b", "c"), ("c", "a")])
    theirs.add_factors(
        DiscreteFactor(["a", "b"], [2, 3], rng.random(6)),
        DiscreteFactor(["b", "c"], [3, 2], rng.random(6)),
        DiscreteFactor(["c", "a"], [2, 2], rng.random(4)),
    )
    found = icgi.marginals(icgi.from_pgmpy(theirs))
    for name in ("a", "b", "c"):
        factor = VariableElimination(theirs).query([name], show_progress=False)
        factor.normalize()
        assert_allclose(found[name], factor.values, atol=1e-12)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_low_energies_of_dimod_are_likely(vartype: str) -> None:
    dimod = library("dimod")
    rng = np.random.default_rng(2)
    labels = ["a", "b", 3, ("c", 1)]
    bqm = dimod.BinaryQuadraticModel(vartype)
    bqm.offset = 0.7
    for v in labels:
        bqm.add_linear(v, rng.normal())
    for u, v in itertools.combinations(labels, 2):
        bqm.add_quadratic(u, v, rng.normal())
    beta = 1.3
    model = icgi.from_dimod(bqm, beta)
    solved = dimod.ExactSolver().sample(bqm)
    weights = np.exp(-beta * solved.record.energy)
    answer = icgi.marginals(model, engine="jt")
    assert answer.log_z == pytest.approx(np.log(weights.sum()), rel=1e-12)
    for column, label in enumerate(solved.variables):
        for x, value in enumerate(model.states[0]):
            share = weights[solved.record.sample[:, column] == int(value)].sum() / weights.sum()
            assert answer[str(label)][x] == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("triangle", ["both", "upper", "lower"])
def test_potts_arrays_by_enumeration(triangle: str) -> None:
    rng = np.random.default_rng(3)
    L, q, beta = 4, 3, 0.8
    h, upper = rng.normal(size=(L, q)), np.zeros((L, L, q, q))
    for i, j in itertools.combinations(range(L), 2):
        upper[i, j] = rng.normal(size=(q, q))
    upper[0, 2] = 0
    lower = upper.transpose(1, 0, 3, 2)
    J = {"both": upper + lower, "upper": upper, "lower": lower}[triangle]
    model = icgi.from_potts(h, J, beta)
    weights = np.zeros((q,) * L)
    for x in itertools.product(range(q), repeat=L):
        energy = sum(h[i, x[i]] for i in range(L))
        energy += sum(upper[i, j, x[i], x[j]] for i in range(L) for j in range(i + 1, L))
        weights[x] = np.exp(beta * energy)
    answer = icgi.marginals(model, engine="jt")
    assert answer.log_z == pytest.approx(np.log(weights.sum()), rel=1e-12)
    for i in range(L):
        rest = tuple(j for j in range(L) if j != i)
        assert_allclose(answer[i], weights.sum(rest) / weights.sum(), atol=1e-12)
    assert (0, 2) not in model.scopes


@pytest.mark.parametrize(
    ("h", "J", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 2, 3, 2)), "give h"),
        (np.zeros((2, 3)), np.ones((2, 2, 3, 3)), "itself"),
        (np.zeros((2, 2)), np.kron([[0, 1], [1, 0]], [[1, 2], [3, 4]]).reshape(2, 2, 2, 2)
         .transpose(0, 2, 1, 3), "transpose"),
    ],
)  # fmt: skip
def test_wrong_potts_arrays_are_named(h: Any, J: Any, message: str) -> None:
    with pytest.raises(icgi.ModelFormatError, match=message):
        icgi.from_potts(h, J)


@pytest.mark.parametrize("convert", ["from_pyagrum", "from_pgmpy", "from_dimod"])
def test_other_objects_are_refused(convert: str) -> None:
    with pytest.raises(icgi.ModelFormatError, match="Graph is no"):
        getattr(icgi, convert)(nx.Graph())


def test_the_graph_has_every_factor() -> None:
    model = network()
    graph = icgi.to_networkx(model)
    assert nx.is_bipartite(graph)
    assert graph.nodes["Wet"]["states"] == ("dry", "damp", "soaked")
    for f, scope in enumerate(model.scopes):
        assert set(graph["factor", f]) == {model.names[i] for i in scope}
        assert graph.nodes["factor", f]["scope"] == tuple(model.names[i] for i in scope)
    factors = [
        (data["scope"], data["log_table"]) for _, data in graph.nodes(data=True)
        if data["kind"] == "factor"
    ]  # fmt: skip
    again = icgi.from_factors(factors, log=True)
    assert_allclose(icgi.marginals(again)["Mood"], icgi.marginals(model)["Mood"])


def test_positions_and_residues_of_a_potts_model_have_names() -> None:
    h = np.log([[1.0, 2, 3], [4, 5, 6]])
    model = icgi.from_potts(h, np.zeros((2, 2, 3, 3)), names=["p1", "p2"], states="AC-")
    assert icgi.marginals(model)["p2"]["-"] == pytest.approx(6 / 15)
    assert icgi.marginals(model, exclude={"p1": ["A", "C"]})["p1"]["-"] == 1.0
    for states in ("AC", "AAC"):
        with pytest.raises(icgi.ModelFormatError, match="3 different ones"):
            icgi.from_potts(h, np.zeros((2, 2, 3, 3)), states=states)
