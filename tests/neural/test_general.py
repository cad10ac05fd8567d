"""The network for q states: exact where the algebra is, invariant, equivariant, better than lbp."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import zoo
from icgi.approx.lbp import LoopyBP
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.neural.general import GeneralConfig, GeneralNetwork
from icgi.neural.general_algebra import strengths
from icgi.neural.general_batch import Tables, collate, pair_form

torch.set_num_threads(1)
SMALL = GeneralConfig(features=16, heads=2, layers=1, hidden=8, encode_every=3)


def network(seed: int = 0, trained: bool = False) -> GeneralNetwork:
    """An untrained network, or one whose corrections are random, as if trained."""
    torch.manual_seed(seed)
    net = GeneralNetwork(SMALL).double()
    if trained:
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
    return net


def exact(model: FactorGraph) -> np.ndarray:
    return zoo.run(Enumerate(), model).probs


def batch(models: list[FactorGraph], **sizes: int) -> Tables:
    return collate([pair_form(m) for m in models], dtype=torch.float64, **sizes)


@torch.no_grad()
def answers(net: GeneralNetwork, models: list[FactorGraph], core: int = 3) -> list[np.ndarray]:
    """Marginals of models all of whose states are possible."""
    alpha = net.run(batch(models), core)
    p = (alpha / alpha.sum(-1, keepdim=True)).numpy()
    return [p[b, : m.n_variables, : m.max_states] for b, m in enumerate(models)]


def tree_model(rng: np.random.Generator, n: int) -> FactorGraph:
    cards = rng.integers(2, 5, n).tolist()
    scopes = [(int(rng.integers(i)), i) for i in range(1, n)] + [(i,) for i in range(n)]
    return zoo.random_model(rng, cards, scopes, scale=1.5)


def factor_tree(rng: np.random.Generator, factors: int) -> FactorGraph:
    cards, scopes = [int(rng.integers(2, 4))], []
    for _ in range(factors):
        news = int(rng.integers(1, 3))
        root = int(rng.integers(len(cards)))
        scopes.append((*range(len(cards), len(cards) + news), root))
        cards += rng.integers(2, 4, news).tolist()
    return zoo.random_model(rng, cards, scopes, scale=1.5)


def ring_with_triangles(rng: np.random.Generator, n: int) -> FactorGraph:
    scopes = [(i, (i + 1) % n) for i in range(n)] + [(i, i + 2) for i in range(0, n - 2, 3)]
    return zoo.random_model(rng, rng.integers(2, 4, n).tolist(), scopes, scale=1.2)


def loopy(rng: np.random.Generator, n: int, cards: list[int], scale: float = 1.0) -> FactorGraph:
    scopes: list[tuple[int, ...]] = [
        (i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4
    ]
    return zoo.random_model(rng, cards, scopes + [(i,) for i in range(n)], scale=scale)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("make", [tree_model, factor_tree, ring_with_triangles])
def test_trees_and_induced_width_two_are_exact(make, trained: bool) -> None:
    rng = np.random.default_rng(1)
    models = [make(rng, 8 if make is not factor_tree else 5) for _ in range(4)]
    for found, model in zip(answers(network(trained=trained), models), models, strict=True):
        assert_allclose(found, exact(model), atol=1e-8)


@pytest.mark.parametrize("trained", [False, True])
def test_a_model_no_larger_than_the_core_is_exact(trained: bool) -> None:
    rng = np.random.default_rng(2)
    models = [zoo.random_model(rng, [2, 3, 4, 2], [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)])]
    (found,) = answers(network(trained=trained), models, core=4)
    assert_allclose(found, exact(models[0]), atol=1e-8)


def test_zeros_on_a_tree_are_exact_up_to_the_floor() -> None:
    rng = np.random.default_rng(3)
    scopes = [(0, 1), (1, 2, 3), (3, 4), (3, 5, 6)]
    model = zoo.random_model(rng, [3, 3, 2, 3, 3, 2, 3], scopes, zeros=0.3)
    form = pair_form(model)
    alpha = network().run(collate([form], dtype=torch.float64), 3).detach().numpy()[0]
    expected = exact(model)
    for i in range(7):
        possible = np.flatnonzero(form.alive[i])
        found = alpha[i, : len(possible)] / alpha[i].sum()
        assert_allclose(found, expected[i, possible], atol=1e-8)
        assert expected[i].sum() == pytest.approx(expected[i, possible].sum())


def test_untrained_elimination_beats_loopy_bp() -> None:
    rng = np.random.default_rng(4)
    models = [loopy(rng, 10, [2] * 10) for _ in range(6)]
    models += [loopy(rng, 8, rng.integers(2, 4, 8).tolist()) for _ in range(6)]
    ours = np.mean(
        [
            np.abs(p - exact(m)).mean()
            for p, m in zip(answers(network(), models), models, strict=True)
        ]
    )
    lbp = np.mean([np.abs(zoo.run(LoopyBP(), m).probs - exact(m)).mean() for m in models])
    assert ours < 0.5 * lbp


def test_order_of_variables_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    model = loopy(rng, 9, rng.integers(2, 4, 9).tolist())
    order = rng.permutation(9)
    place = np.argsort(order)
    moved = FactorGraph(
        model.cards[order],
        tuple(tuple(int(place[i]) for i in s) for s in model.scopes),
        model.log_tables,
    )
    net = network(trained=True)
    a, b = answers(net, [model, moved])
    assert_allclose(b, a[order], rtol=1e-7, atol=1e-10)


def test_relabelling_states_permutes_the_answer() -> None:
    rng = np.random.default_rng(6)
    model = loopy(rng, 9, [3] * 9)
    new = [rng.permutation(3) for _ in range(9)]
    tables = tuple(
        t[np.ix_(*(new[i] for i in s))] for s, t in zip(model.scopes, model.log_tables, strict=True)
    )
    a, b = answers(network(trained=True), [model, FactorGraph(model.cards, model.scopes, tables)])
    assert_allclose(b, np.stack([a[i, new[i]] for i in range(9)]), rtol=1e-7, atol=1e-10)


def test_padding_changes_nothing() -> None:
    rng = np.random.default_rng(7)
    models = [loopy(rng, 8, [2, 3] * 4), loopy(rng, 8, [3] * 8)]
    net = network(trained=True)
    plain = net.run(batch(models), 3)
    padded = net.run(batch(models, variables=11, states=5), 3)
    assert_allclose(padded[:, :8, :3].detach(), plain.detach(), rtol=1e-7, atol=1e-12)
    assert (padded[:, :, 3:] == 0).all()


def test_context_is_read_only_where_it_is_given() -> None:
    rng = np.random.default_rng(8)
    given = batch([loopy(rng, 8, [3] * 8)])
    net = network(trained=True)
    estimate = torch.randn_like(given.estimate)
    silent = given.with_context(estimate * 0.0, given.reliability)
    assert_allclose(net.run(silent, 3).detach(), net.run(given, 3).detach())
    with_context = given.with_context(estimate, torch.full_like(given.reliability, 0.9))
    assert (net.run(with_context, 3) - net.run(given, 3)).abs().max() > 1e-4


@pytest.mark.parametrize("trained", [False, True])
def test_gradients_are_finite_in_single_precision(trained: bool) -> None:
    rng = np.random.default_rng(9)
    scopes = [(0, 1, 2), (2, 3, 4), (4, 5, 0), (1, 3, 5), (6, 1), (6, 3), (6, 5), (6, 7), (7, 0)]
    models = [zoo.random_model(rng, [3] * 8, scopes, scale=4.0, zeros=0.3) for _ in range(3)]
    models.append(loopy(rng, 10, [2] * 10, scale=6.0))
    net = copy.deepcopy(network(trained=trained)).float()
    given = collate([pair_form(m) for m in models])
    alpha = net.run(given, 3)
    p = alpha / alpha.sum(-1, keepdim=True)
    (p.square().sum() + alpha.clamp(min=1e-6).log().mean()).backward()
    assert torch.isfinite(alpha).all()
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            assert torch.isfinite(parameter.grad).all(), name


def test_strength_is_the_correlation_of_spins() -> None:
    j = np.array([0.3, 1.5])
    model = FactorGraph(
        np.array([2, 2, 2, 3]),
        ((0, 1), (1, 2), (2, 3)),
        (*(c * np.array([[1.0, -1.0], [-1.0, 1.0]]) for c in j), np.zeros((2, 3))),
    )
    given = batch([model])
    found = strengths(given.tables, given.exists)[0]
    assert_allclose(found[[0, 1], [1, 2]], np.tanh(j), atol=1e-9)
    assert found[0, 2] == found[2, 3] == 0.0
    assert given.adjacency[0].sum() == 4  # a table that joins nothing is no edge
