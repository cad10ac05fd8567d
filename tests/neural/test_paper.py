"""The paper's network: belief propagation before training, invariant, equivariant, finite."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import zoo
from icgi.approx.lbp import LoopyBP
from icgi.errors import CheckpointError, UnsupportedModelError
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.neural import local
from icgi.neural.graphs import Graphs, Shape, make_batch
from icgi.neural.paper import PaperConfig, PaperNetwork
from icgi.neural.selection import gumbel

torch.set_num_threads(1)
SMALL = PaperConfig(
    features=16, heads=2, layers=2, rank=3, hidden=8, width=4, rounds=3, at_once=2
)  # fmt: skip
ABLATIONS = {
    "as it is": {},
    "dense factors": {"factors": "dense"},
    "laplacian": {"positions": "laplacian"},
    "learned order": {"order": "learned"},
    "no distribute": {"distribute": False},
    "no elimination": {"autoregressive": False},
    "one at a time": {"parallel_rounds": False},
    "between states": {"attention": "states"},
    "blocks": {"blocks": True, "rank": 6},
    "belief": {"readout": "belief", "spread": 1.0},
    "recurrent": {"autoregressive": False, "repeats": 3, "attention": "states"},
    "messages": {
        "autoregressive": False, "repeats": 3, "attention": "none", "readout": "belief",
    },
    "everything": {"attention": "states", "blocks": True, "readout": "belief", "spread": 1.0},
}  # fmt: skip


def network(trained: bool = True, config: PaperConfig = SMALL, seed: int = 0) -> PaperNetwork:
    """A network of double precision, untrained or with random weights everywhere."""
    torch.manual_seed(seed)
    net = PaperNetwork(config).double().eval()
    if trained:
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
    return net


def double(models: list[FactorGraph], shape: Shape | None = None) -> Graphs:
    return make_batch(models, shape=shape).to("cpu", torch.float64)


def model(kind: str, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    if kind == "potts":
        cards = rng.integers(2, 5, 7).tolist()
        pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5), (5, 6), (6, 2)]
        return zoo.random_model(rng, cards, [*pairs, (0,), (4,)])
    if kind == "ternary":
        cards = rng.integers(2, 4, 6).tolist()
        return zoo.random_model(rng, cards, [(0, 1, 2), (2, 3), (3, 4, 5), (5, 1), (0,), (4,)])
    return zoo.random_model(rng, [2] * 9, zoo.grid_scopes(3, 3))


def rearranged(
    given: FactorGraph, order: np.ndarray, states: list[np.ndarray], rng: np.random.Generator
) -> FactorGraph:
    """Variable order[i] becomes i, its state states[order[i]][x] becomes x; factors shuffled."""
    number = np.argsort(order)
    scopes, tables = [], []
    for f in rng.permutation(given.n_factors):
        scope = given.scopes[f]
        table = given.log_tables[f][np.ix_(*(states[i] for i in scope))]
        turn = rng.permutation(len(scope))
        scopes.append(tuple(int(number[scope[a]]) for a in turn))
        tables.append(np.ascontiguousarray(table.transpose(turn)))
    return FactorGraph(given.cards[order], tuple(scopes), tuple(tables))


def beside(left: FactorGraph, right: FactorGraph) -> FactorGraph:
    """Both models in one, joined by nothing."""
    moved = tuple(tuple(i + left.n_variables for i in scope) for scope in right.scopes)
    return FactorGraph(
        np.concatenate([left.cards, right.cards]),
        left.scopes + moved,
        left.log_tables + right.log_tables,
    )


@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("name", ["loop", "grid-3x3", "mixed-cards", "ternary-factors", "tree"])
def test_untrained_beliefs_are_damped_belief_propagation(name: str, damping: float) -> None:
    config = replace(SMALL, layers=5, damping=damping, autoregressive=False)
    # lbp solves forests in two passes: beside a loop a tree is swept like anything else
    model = beside(zoo.MODELS[name], zoo.MODELS["loop"])
    found = network(False, config).run(double([model])).belief
    belief = torch.softmax(found, 2).detach().numpy()[0]
    lbp = LoopyBP(damping=damping, schedule="flooding", tolerance=0.0)
    expected = lbp(model, Budget(iterations=5), np.random.default_rng(0)).probs
    for head in range(SMALL.heads):
        assert_allclose(belief[..., head], expected, atol=1e-5)


def lbp(name: str, sweeps: int, damping: float) -> np.ndarray:
    engine = LoopyBP(damping=damping, schedule="flooding", tolerance=0.0)
    budget = Budget(iterations=sweeps)
    return engine(zoo.MODELS[name], budget, np.random.default_rng(0)).probs


@pytest.mark.parametrize("attention", ["states", "none"])
@pytest.mark.parametrize("name", ["loop", "grid-3x3", "mixed-cards", "ternary-factors"])
def test_untrained_answers_with_the_belief_readout_are_belief_propagation(
    name: str, attention: str
) -> None:
    config = replace(
        SMALL, layers=2, repeats=3, autoregressive=False, readout="belief", attention=attention
    )
    alpha = network(False, config)(double([zoo.MODELS[name]])).detach().numpy()[0]
    expected = lbp(name, 5, SMALL.damping)
    assert_allclose(alpha / alpha.sum(1, keepdims=True), expected, atol=1e-5)


def test_heads_that_begin_apart_are_sweeps_of_their_own_damping() -> None:
    config = replace(SMALL, layers=4, autoregressive=False, damping=0.4, spread=1.2)
    net = network(False, config)
    belief = torch.softmax(net.run(double([zoo.MODELS["grid-3x3"]])).belief, 2).detach().numpy()[0]
    for head, logit in enumerate((-1.2, 1.2)):
        damping = 1.0 / (1.0 + np.exp(-logit) * 0.6 / 0.4)
        assert_allclose(belief[..., head], lbp("grid-3x3", 4, damping), atol=1e-5)


def gradient(net: PaperNetwork, graphs: Graphs) -> torch.Tensor:
    """Gradients of the first beliefs by everything in message passing."""
    net.zero_grad()
    # the log-odds are bounded, so that what grows is the chain of sweeps
    torch.softmax(net.run(graphs).belief, 2)[:, :, 0].sum().backward()
    found = [p.grad.flatten() for n, p in net.named_parameters() if p.grad is not None]
    return torch.cat(found)


def test_gradients_of_stable_sweeps_are_what_differences_say() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, layers=4, autoregressive=False, attention="none")
    net = network(config=config)
    scopes = [(i,) for i in range(4)] + [(i, i + 1) for i in range(3)]
    rng = np.random.default_rng(0)
    chain = zoo.random_model(rng, [2] * 4, scopes)
    graphs = double([FactorGraph(chain.cards, chain.scopes, [0.3 * t for t in chain.log_tables])])
    gradient(net, graphs)
    p = net.layers[0].sweep.cavity
    for head in range(SMALL.heads):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                p[head] += step
                ends.append(float(torch.softmax(net.run(graphs).belief, 2)[:, :, 0].sum()))
                p[head] -= step
        assert float(p.grad[head]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)


def test_no_gradient_grows_from_sweep_to_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SMALL, layers=24, damping=0.1, autoregressive=False, attention="none")
    net = network(False, config)
    rng = np.random.default_rng(1)
    scopes = [(i,) for i in range(12)] + [(i, j) for i in range(12) for j in range(i)]
    glass = zoo.random_model(rng, [2] * 12, scopes)
    mild = FactorGraph(glass.cards, glass.scopes, [0.02 * t for t in glass.log_tables])
    models = [FactorGraph(glass.cards, glass.scopes, [1.5 * t for t in glass.log_tables]), mild]
    limited = [float(gradient(net, double([m])).norm()) for m in models]
    monkeypatch.setattr(local, "_contained", lambda m, tilt, gate, ruler: (m, tilt, gate))
    plain = [float(gradient(net, double([m])).norm()) for m in models]
    assert plain[0] > 100 * limited[0]
    assert limited[0] < 100 * limited[1]


def test_lists_of_pairs_say_the_same_as_dense_pairs() -> None:
    config = replace(SMALL, autoregressive=False)
    net = network(False, config)
    for name in ("grid-3x3", "ternary-factors"):
        dense = net.run(make_batch([zoo.MODELS[name]]).to("cpu", torch.float64)).belief
        lists = net.run(make_batch([zoo.MODELS[name]], dense=False).to("cpu", torch.float64)).belief
        assert_allclose(lists.softmax(2).detach(), dense.softmax(2).detach(), atol=1e-9)


@pytest.mark.parametrize("kind", ["potts", "ternary", "grid"])
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_numbering_of_variables_states_and_factors_does_not_matter(
    kind: str, ablation: str
) -> None:
    net = network(config=replace(SMALL, **ABLATIONS[ablation]))
    check_rearranged(net, kind, 1)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["potts", "ternary"]))
def test_numbering_does_not_matter_for_any_model(seed: int, kind: str) -> None:
    check_rearranged(network(), kind, seed)


def check_rearranged(net: PaperNetwork, kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    given = model(kind, seed)
    order = rng.permutation(given.n_variables)
    states = [rng.permutation(c) for c in given.cards]
    # the tables are single precision, so that both batches hold the same numbers
    plain = net(double([given]))[0].detach().numpy()
    moved = net(double([rearranged(given, order, states, rng)]))[0].detach().numpy()
    for i, old in enumerate(order):
        card = given.cards[old]
        assert_allclose(moved[i, :card], plain[old, states[old]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ablation", ["as it is", "no distribute", "everything"])
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_padding_changes_nothing(seed: int, ablation: str) -> None:
    small, large = model("ternary"), zoo.MODELS["grid-3x3"]
    net = network(config=replace(SMALL, **ABLATIONS[ablation]), seed=seed)
    alone = net(double([small]))[0].detach()
    n, k = alone.shape
    shape = Shape(12, 5, {3: 4, 4: 1})
    padded = net(double([small, large], shape))[0].detach()
    assert_allclose(padded[:n, :k], alone, rtol=1e-7)


def test_context_is_read_where_it_is_given() -> None:
    graphs = double([model("grid")])
    net = network()
    told = graphs.with_context(
        graphs.states * torch.tensor([0.5, -0.9]).double(), 0.8 * graphs.real
    )
    assert (net(told) - net(graphs)).abs().max() > 1e-4


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_gradients_are_finite_with_zeros_in_tables(ablation: str) -> None:
    torch.manual_seed(0)
    net = PaperNetwork(replace(SMALL, **ABLATIONS[ablation])).train()
    graphs = make_batch([zoo.MODELS["zeros"], zoo.MODELS["strong"], zoo.MODELS["factor-tree"]])
    noise = gumbel((3, 6, graphs.states.shape[1]), torch.Generator().manual_seed(0))
    alpha = net(graphs, noise, torch.tensor(0.5))
    assert (alpha > 0).all()
    (torch.log(alpha) * graphs.states).sum().backward()
    seen = 0
    for name, p in net.named_parameters():
        if p.grad is not None:
            assert torch.isfinite(p.grad).all(), name
            seen += int(p.grad.abs().max() > 0)
    assert seen > 10


def test_scores_hear_from_the_choice_in_training_only_with_a_temperature() -> None:
    net = network().train()
    graphs = double([model("grid")])
    noise = gumbel((1, 6, 9), torch.Generator().manual_seed(0)).double()
    net(graphs, noise, torch.tensor(0.5)).sum().backward()
    assert net.score.linear.weight.grad.abs().max() > 0
    again = network().train()
    again(graphs, noise).sum().backward()
    assert again.score.linear.weight.grad is None


def test_steps_limit_how_many_variables_go() -> None:
    net = network()
    graphs = double([zoo.MODELS["grid-3x3"]])
    assert [float(net.run(graphs, steps=steps).eliminated) for steps in (0, 1, 3)] == [0, 1, 3]
    one = network(config=replace(SMALL, parallel_rounds=False))
    assert float(one.run(graphs, steps=3).eliminated) == 3


def test_the_random_order_depends_on_the_noise_alone() -> None:
    net = network(config=replace(SMALL, order="random"))
    graphs = double([zoo.MODELS["grid-3x3"]])
    noise = [
        torch.randn(1, 3, 9, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1)
    ]
    assert_allclose(net(graphs, noise[0]).detach(), net(graphs, noise[0]).detach())
    assert (net(graphs, noise[0]) - net(graphs, noise[1])).abs().max() > 1e-6


def test_large_tables_and_odd_sizes_are_refused() -> None:
    rng = np.random.default_rng(0)
    large = zoo.random_model(rng, [9] * 4, [(0, 1, 2, 3)])
    with pytest.raises(UnsupportedModelError, match="the engine"):
        make_batch([large])
    with pytest.raises(CheckpointError, match="multiple"):
        PaperConfig(features=10, heads=4)


def test_the_default_network_fits_the_package() -> None:
    count = sum(p.numel() for p in PaperNetwork(PaperConfig()).parameters())
    assert count < 6.5e6  # 13 MB in half precision


def test_low_precision_changes_little() -> None:
    net = network().float().train()
    graphs = make_batch([model("grid"), model("ternary")])
    noise = gumbel((2, 3, 9), torch.Generator().manual_seed(0))
    plain = net(graphs, noise, torch.tensor(0.5))
    net.low_precision = True
    low = net(graphs, noise, torch.tensor(0.5))
    assert low.dtype == torch.float32
    assert 0 < (low - plain).abs().max() < 0.05 * plain.abs().max()
    low.sum().backward()
    assert torch.isfinite(net.bias.table.grad).all()


@pytest.mark.parametrize("name", ["one-variable", "chain", "tree", "disconnected", "no-factors"])
def test_untrained_elimination_and_distribution_are_exact_on_trees_of_pairs(name: str) -> None:
    # one sweep before, so that only collecting and distributing can bring the news across
    config = replace(SMALL, layers=1, damping=0.0, rounds=12, at_once=4)
    found = network(False, config).run(double([zoo.MODELS[name]]))
    belief = torch.softmax(found.belief, 2)[0, :, :, 0].detach().numpy()
    assert float(found.eliminated) == zoo.MODELS[name].n_variables
    assert_allclose(belief, zoo.exact(name).probs, atol=1e-6)
    alone = network(False, replace(config, autoregressive=False)).run(double([zoo.MODELS[name]]))
    if name in ("chain", "tree"):
        short = torch.softmax(alone.belief, 2)[0, :, :, 0].detach().numpy()
        assert np.abs(short - zoo.exact(name).probs).max() > 1e-3
