"""The junction tree against programs that share no line with it.

pyAgrum is given its models through its API: its `.uai` reader transposes tables whose scope is not
in descending order. Its engine multiplies in linear space, so potentials stay moderate.
"""

import dimod
import numpy as np
import pytest
from dwave.samplers import TreeDecompositionSampler
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.exact.junction_tree import JunctionTree
from icgi.model.graph import FactorGraph


def random_couplings(n: int, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    J = np.zeros((n, n))
    upper = np.transpose(np.triu_indices(n, 1))
    i, j = rng.permutation(upper)[:edges].T
    J[i, j] = rng.normal(size=edges)
    return J + J.T, rng.normal(0.0, 0.5, n)


@pytest.mark.parametrize(("n", "edges", "beta"), [(12, 66, 1.0), (60, 90, 0.7), (150, 190, 2.0)])
def test_spin_glasses_equal_the_tree_decomposition_sampler(n: int, edges: int, beta: float) -> None:
    J, h = random_couplings(n, edges, seed=n)
    found = icgi.marginals(icgi.from_ising(J, h, beta), engine="jt")
    links = {(i, j): -J[i, j] for i, j in zip(*np.nonzero(np.triu(J)), strict=True)}
    energy = dimod.BinaryQuadraticModel(dict(enumerate(-h)), links, 0.0, "SPIN")
    info = TreeDecompositionSampler().sample(energy, beta=beta, marginals=True, num_reads=1).info
    up = [info["variable_marginals"][i] for i in range(n)]
    assert_allclose(found.probs[:, 1], up, atol=1e-9)
    assert found.log_z == pytest.approx(info["log_partition_function"], rel=1e-11)


def pyagrum_marginals(model: FactorGraph) -> list[np.ndarray]:
    import pyagrum as gum

    field = gum.MarkovRandomField()
    for i, card in enumerate(model.cards.tolist()):
        field.add(gum.LabelizedVariable(f"v{i}", "", card))
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        factor = field.addFactor([f"v{i}" for i in scope])
        # its arrays have the first variable of a factor as the last axis
        axes = [scope.index(int(v.name()[1:])) for v in reversed(factor.variablesSequence())]
        factor[:] = np.ascontiguousarray(np.exp(table).transpose(axes))
    engine = gum.ShaferShenoyMRFInference(field)
    engine.makeInference()
    return [engine.posterior(f"v{i}").toarray() for i in range(model.n_variables)]


@pytest.mark.filterwarnings("ignore")  # pyAgrum dies where its own warnings become exceptions
@pytest.mark.parametrize("seed", range(4))
def test_mixed_models_equal_pyagrum(seed: int) -> None:
    """Up to three variables a factor, scopes in any order, zeros, no symmetric table."""
    rng = np.random.default_rng(seed)
    n = 30
    cards = rng.integers(2, 5, n).tolist()
    triples = {tuple(sorted(rng.choice(n, 3, replace=False).tolist())) for _ in range(14)}
    scopes = [tuple(rng.permutation(t).tolist()) for t in triples]
    scopes += [(i + 1, i) for i in range(n - 1) if not any({i, i + 1} <= set(t) for t in triples)]
    model = zoo.random_model(rng, cards, scopes, zeros=0.1)
    found = zoo.run(JunctionTree(), model)
    for i, theirs in enumerate(pyagrum_marginals(model)):
        assert_allclose(found.probs[i, : cards[i]], theirs, atol=1e-9)
