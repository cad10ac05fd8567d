"""Large models in patches: exact where the border is, better than belief propagation elsewhere."""

import numpy as np
from numpy.testing import assert_allclose

import icgi
from icgi.data.families.lattice import lattice_edges
from icgi.model.graph import FactorGraph
from icgi.model.ising import IsingArrays, as_ising, ising_model
from icgi.neural.patches import cut, outside_fields, whole


def lattice(seed: int, beta: float) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = lattice_edges((18, 32))
    return ising_model((edges, rng.normal(size=len(edges))), rng.normal(0, 0.2, 576), beta)


def tree(seed: int, n: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = np.array([(rng.integers(max(0, i - 40), i), i) for i in range(1, n)])
    return ising_model((edges, rng.normal(size=n - 1)), rng.normal(0, 0.5, n))


def arrays_of(model: FactorGraph) -> IsingArrays:
    arrays = as_ising(model)
    assert arrays is not None
    return arrays


def test_every_variable_is_answered_once() -> None:
    arrays = arrays_of(lattice(0, 1.0))
    patches = list(cut(arrays, 20, 60))
    answered = np.concatenate([p.members[p.answered] for p in patches])
    assert sorted(answered) == list(range(576))
    assert all(len(p.members) <= 60 and p.answered.sum() <= 20 for p in patches)


def test_one_patch_is_the_model() -> None:
    arrays = arrays_of(lattice(1, 1.0))
    (patch,) = cut(arrays, 576, 576)
    place = np.argsort(patch.members)
    assert_allclose(patch.arrays.fields[place], arrays.fields)
    back = {tuple(sorted(patch.members[e])) for e in patch.arrays.edges}
    assert back == {tuple(e) for e in arrays.edges.tolist()}
    assert whole(arrays).answered.all()


def test_messages_are_exact_on_trees() -> None:
    model = tree(2, 300)
    arrays = arrays_of(model)
    field = arrays.fields + np.bincount(
        np.concatenate([arrays.edges[:, 1], arrays.edges[:, 0]]), outside_fields(arrays), 300
    )
    exact = icgi.marginals(model, engine="jt").probs[:, 1]
    assert_allclose(0.5 * (1 + np.tanh(field)), exact, atol=1e-8)


def test_patches_of_a_large_tree_are_exact() -> None:
    model = tree(3, 600)
    found = icgi.marginals(model, engine="icgi:fast,orders=1,core=8,rest=sum")
    assert found.stats["patches"] > 1
    assert_allclose(found.probs, icgi.marginals(model, engine="jt").probs, atol=1e-4)


def test_patches_of_a_lattice_are_better_than_belief_propagation() -> None:
    model = lattice(4, 0.7)
    exact = icgi.marginals(model, engine="jt").probs
    found, bp = (
        np.abs(icgi.marginals(model, engine=e).probs - exact).sum(1).mean()
        for e in ("icgi:fast,orders=1,core=8,rest=sum", "lbp:damping=0.3")
    )
    assert found < 0.5 * bp


def test_borders_are_doubted() -> None:
    model = lattice(5, 1.2)
    found = icgi.marginals(model, engine="icgi:fast,orders=2,core=8")
    exact = icgi.marginals(model, engine="jt").probs
    alpha = found.marginals.concentration
    total = alpha.sum(1)
    stated = np.sqrt(alpha[:, 0] * alpha[:, 1] / (total + 1)) / total
    covered = (np.abs(found.probs - exact)[:, 0] < 2 * stated).mean()
    assert covered > 0.8
    assert_allclose(found.probs, alpha / total[:, None])


def test_a_model_without_edges() -> None:
    model = ising_model((np.zeros((0, 2), dtype=int), np.zeros(0)), np.linspace(-1, 1, 600))
    found = icgi.marginals(model, engine="icgi:fast,orders=1,core=4").probs[:, 1]
    assert_allclose(found, 0.5 * (1 + np.tanh(np.linspace(-1, 1, 600))), atol=1e-6)
