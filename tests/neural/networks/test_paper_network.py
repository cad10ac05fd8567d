"""The paper's network: untrained it is exact algebra; each of its parts matters and learns."""

from typing import Any

import numpy as np
import pytest
import torch
from laws import answers, batch_of, built, spins, trained
from numpy.testing import assert_allclose

import zoo
from icgi.approx.lbp import LoopyBP
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.exact.enumeration import Enumerate
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.neural import losses, network_engine
from icgi.neural.factor_patches import Limits
from icgi.neural.messages import dense_beliefs
from icgi.neural.network_engine import network_marginals
from icgi.neural.networks import NETWORKS, Draws, paper, paper_step
from icgi.neural.networks.bpnn import BPNNConfig
from icgi.train import runs
from icgi.train.config import tiny

SMALL = {"features": 16, "heads": 2, "layers": 1, "hidden": 8, "rank": 4}


def exact(model: FactorGraph) -> np.ndarray:
    return np.asarray(zoo.run(Enumerate(), model).probs)


def ring(rng: np.random.Generator, n: int, states: int, scale: float = 1.0) -> FactorGraph:
    scopes = [(i,) for i in range(n)] + [(i, (i + 1) % n) for i in range(n)]
    return zoo.random_model(rng, [states] * n, scopes, scale=scale)


def loopy() -> list[FactorGraph]:
    rng = np.random.default_rng(0)
    return [spins(rng, 9, 0.5) for _ in range(3)]


@pytest.mark.parametrize("name", zoo.TREES)
def test_untrained_it_is_exact_on_trees(name: str) -> None:
    net = built("paper", **SMALL).double().eval()
    model = zoo.MODELS[name]
    assert_allclose(answers(net, [model])[0], exact(model), atol=1e-4)


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("states", [2, 3])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_untrained_it_is_exact_on_rings(n: int, states: int, scale: float) -> None:
    net = built("paper", **SMALL).double().eval()
    model = ring(np.random.default_rng(n), n, states, scale)
    assert_allclose(answers(net, [model])[0], exact(model), atol=1e-4)


def test_padding_and_smaller_neighbours_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    models = [spins(rng, n) for n in (5, 9, 12)]
    for encode_every in (1, 2, 4):
        net = trained(built("paper", **SMALL, encode_every=encode_every))
        apart = [answers(net, [m])[0] for m in models]
        for sizes in ({}, {"variables": 15}):
            for alone, found in zip(apart, answers(net, models, **sizes), strict=True):
                assert_allclose(found, alone, atol=1e-5)


SWITCHES: list[dict[str, Any]] = [
    {"factors": "star"}, {"factors": "free"}, {"order": "min-degree"}, {"order": "learned"},
    {"order": "random"}, {"positions": "static"}, {"positions": "laplacian"},
    {"positions": "none"}, {"distribute": False}, {"corrected": False}, {"two_passes": False},
    {"steps": 0}, {"steps": 3}, {"core": 5}, {"core": 20}, {"encode_every": 1}, {"encodings": 0},
    {"most_states": 1},
]  # fmt: skip


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_every_switch_changes_answers(switch: dict[str, Any]) -> None:
    usual = answers(trained(built("paper", **SMALL)), loopy())
    found = answers(trained(built("paper", **SMALL, **switch)), loopy())
    assert max(np.abs(a - b).max() for a, b in zip(usual, found, strict=True)) > 1e-6
    assert all(np.isfinite(p).all() for p in found)


def test_without_steps_untrained_it_is_belief_propagation() -> None:
    net = built("paper", **SMALL, steps=0).double().eval()
    form = net.prepare(batch_of(loopy(), pairwise=True))
    with torch.no_grad():
        alpha = net(form)
    assert_allclose(alpha / alpha.sum(-1, keepdim=True), dense_beliefs(form.tables), atol=1e-6)


def test_a_core_of_all_is_exact() -> None:
    net = built("paper", **SMALL, core=20).double().eval()
    for model, found in zip(loopy(), answers(net, loopy()), strict=True):
        assert_allclose(found, exact(model), atol=1e-5)


@pytest.mark.parametrize(("states", "n"), [(2, 9), (3, 6)])
def test_what_is_left_is_summed_once_it_has_few_configurations(states: int, n: int) -> None:
    rng = np.random.default_rng(7)
    scopes = [(i, j) for j in range(n) for i in range(j)]
    models = [zoo.random_model(rng, [states] * n, scopes) for _ in range(12)]
    error = {}
    for most in (0, states ** (n - 2), states**n):
        net = built("paper", **SMALL, core_states=most).double().eval()
        pairs = zip(answers(net, models), models, strict=True)
        error[most] = np.mean([np.abs(p - exact(m)).mean() for p, m in pairs])
    # two steps of elimination are better than all, and none is exact
    assert error[states**n] < 1e-6 < error[states ** (n - 2)] < error[0]


def test_corrections_fade_where_more_is_lost_than_in_training() -> None:
    untrained = answers(built("paper", **SMALL).double().eval(), loopy())
    near = answers(trained(built("paper", **SMALL)), loopy())
    far = answers(trained(built("paper", **SMALL, most_step=1e-6, most_total=1e-6)), loopy())
    for before, free, bound in zip(untrained, near, far, strict=True):
        assert np.abs(bound - before).max() < 0.05 * np.abs(free - before).max()


def test_corrections_fade_where_many_weak_neighbours_act() -> None:
    equal = torch.full((1, 30), 0.1)
    assert paper_step.effective(equal).item() == pytest.approx(30.0)
    assert paper_step.effective(torch.tensor([[0.9, 1e-6, 0.0]])).item() == pytest.approx(1.0)
    rng = np.random.default_rng(1)
    dense = [FAMILIES["sk"].sample(rng, n=12, beta=1.0, h=0.1) for _ in range(3)]
    untrained = answers(built("paper", **SMALL).double().eval(), dense)
    free = answers(trained(built("paper", **SMALL)), dense)
    bound = answers(trained(built("paper", **SMALL, most_near=0.1)), dense)
    for before, near, far in zip(untrained, free, bound, strict=True):
        assert np.abs(far - before).max() < 0.05 * np.abs(near - before).max()


@pytest.mark.parametrize("encode_every", [1, 4])
@pytest.mark.parametrize("positions", ["spd", "static", "laplacian"])
def test_steps_in_place_are_those_of_training(encode_every: int, positions: str) -> None:
    rng = np.random.default_rng(2)
    sparse = [FAMILIES["ea2d"].sample(rng, L=6, beta=1.0), FAMILIES["ea2d"].sample(rng, L=5)]
    dense = [FAMILIES["sk"].sample(rng, n=n, beta=1.0, h=0.1) for n in (20, 16)]
    potts = [FAMILIES["potts"].sample(rng, L=5)]
    net = trained(built("paper", **SMALL, encode_every=encode_every, positions=positions))
    for models in (sparse, dense, sparse + dense, potts):
        form = net.prepare(batch_of(models, pairwise=True))
        copied = net(form).detach()
        before = [array.clone() for array in (form.tables.tables, form.tables.distances)]
        with torch.no_grad():
            for _ in range(2):  # the form can be read again
                assert_allclose(net(form), copied, rtol=1e-6)
        after = form.tables.tables, form.tables.distances
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("asked", [0, 1, 3])
def test_there_are_no_more_encodings_than_asked_for(asked: int) -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(2), L=6, beta=1.0)
    net, made = trained(built("paper", **SMALL, encodings=asked)), []
    net.again.register_forward_hook(lambda *_: made.append(1))
    answers(net, [model])
    assert min(asked, 1) <= len(made) <= asked


def test_means_of_more_states_than_trained_on_are_those_of_the_algebra() -> None:
    rng = np.random.default_rng(4)
    scopes = [(i, j) for j in range(5) for i in range(j)]
    models = [zoo.random_model(rng, [3] * 5, scopes) for _ in range(2)]
    kept = {"corrected": False, "factors": "star"}
    untrained = answers(built("paper", **SMALL, **kept).double().eval(), models)
    for most, same in ((2, True), (3, False)):
        found = answers(trained(built("paper", **SMALL, **kept, most_states=most)), models)
        apart = max(np.abs(a - b).max() for a, b in zip(untrained, found, strict=True))
        assert bool(apart < 1e-6) is same


def test_every_part_learns_after_a_step() -> None:
    torch.manual_seed(0)
    net, models = built("paper", **SMALL).double().train(), loopy()
    form = net.prepare(batch_of(models, pairwise=True))
    reference = torch.as_tensor(np.stack([exact(m) for m in models]))
    step = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(2):
        draws = Draws(torch.rand(net.noise(3, 9)).double(), torch.ones(()).double())
        alpha = net(form, draws)
        assert torch.isfinite(alpha).all()
        step.zero_grad()
        losses.graph_mean(losses.kl(alpha, reference), form.tables.real).backward()
        step.step()
    for name, p in net.named_parameters():
        # a constant added to all states' logs is none; α₀ is no matter of KL
        if name not in ("correct.single.bias", "correct.tilt.bias") and "head.scale" not in name:
            assert p.grad is not None, name
            assert p.grad.norm() > 0, name


@pytest.mark.parametrize("name", ["zeros", "strong", "one-state-variable"])
def test_concentrations_are_finite_and_positive(name: str) -> None:
    batch = batch_of([zoo.MODELS[name]], pairwise=True)
    net = trained(built("paper", **SMALL))
    with torch.no_grad():
        alpha = net(net.prepare(batch))
    assert torch.isfinite(alpha).all()
    assert (alpha[batch.states > 0] > 0).all()
    assert (alpha[batch.states == 0] == 0).all()


class Toy(torch.nn.Module):
    """Fields alone, sharpened by one weight."""

    settings: Any = BPNNConfig
    dirichlet, pairwise, recorded = False, False, False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.weight = config, torch.nn.Parameter(torch.zeros(()))

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        return ""

    def prepare(self, batch: Any, deadline: Any = None) -> Any:
        return batch

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        return ()

    def forward(self, form: Any, draws: Any = None, deadline: Any = None) -> torch.Tensor:
        return torch.softmax(form.unary * torch.exp(self.weight), -1)


def test_a_network_is_one_class_and_one_line(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(NETWORKS, "toy", f"{__name__}:Toy")
    monkeypatch.setattr(runs, "cache_folder", lambda: tmp_path / "cache" / "kernels")
    result, table = runs.run(tiny("toy"), tmp_path / "run", runs.Limits(steps=3), tests=0)
    assert result.steps == 3
    assert table["validation 0"]["models"] == 32
    model = zoo.MODELS["grid-3x3"]

    (found,) = network_marginals(
        result.network, "toy", [model], Budget(), [np.random.default_rng(0)], Deadline()
    )
    assert_allclose(found.probs.sum(1), 1.0)


def in_pieces(model: FactorGraph, seconds: float = np.inf) -> Marginals:
    net = built("paper", **SMALL).eval()
    rngs = [np.random.default_rng(0)]
    budget = Budget(seconds=seconds)
    return network_marginals(net, "paper", [model], budget, rngs, Deadline.after(seconds))[0]


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "MOST_TOKENS", 48)
    monkeypatch.setattr(network_engine, "PIECES", (Limits(48, 8),))


def test_a_tree_too_large_for_the_network_is_exact_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pieces(monkeypatch)
    rng = np.random.default_rng(3)
    n = 80
    scopes = [(i,) for i in range(n)] + [(int(rng.integers(i)), i) for i in range(1, n)]
    model = zoo.random_model(rng, [2] * n, scopes)
    found = in_pieces(model)
    assert found.status is Status.ESTIMATED
    assert found.stats["patches"] > 5
    assert "pieces" in found.note
    assert_allclose(found.probs, zoo.run(JunctionTree(), model).probs, atol=2e-4)


def test_pieces_of_a_lattice_are_better_than_the_messages_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pieces(monkeypatch)
    rng = np.random.default_rng(4)
    model = FAMILIES["ea2d"].sample(rng, L=9, beta=0.8)
    truth = zoo.run(JunctionTree(), model).probs
    found = in_pieces(model)
    assert found.stats["patches"] > 3
    assert found.std_error is not None
    error, before = (np.abs(p - truth).sum(1).mean() for p in (found.probs, _lbp(model)))
    assert error < before


def test_pieces_without_time_keep_what_is_known_and_say_so() -> None:
    model = ring(np.random.default_rng(5), 1100, 2)
    found = in_pieces(model, seconds=0.0)
    assert found.status is Status.BUDGET_SPENT
    assert_allclose(found.probs.sum(1), 1.0)


def _lbp(model: FactorGraph) -> np.ndarray:
    return np.asarray(zoo.run(LoopyBP(damping=0.3), model).probs)
