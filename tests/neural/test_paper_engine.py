"""The paper's network as an engine: the contract on the zoo, batches, memory, large graphs."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi import engines
from icgi.data.families import FAMILIES
from icgi.engines import parse_engine
from icgi.errors import BudgetError, CheckpointError, IcgiError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.neural import paper_engine
from icgi.neural.engine import IcgiNetwork
from icgi.neural.paper import PaperConfig, PaperNetwork
from icgi.neural.paper_engine import bytes_needed, paper_marginals
from icgi.neural.possible import possible_states
from icgi.neural.weights import load_weights, save_weights

torch.set_num_threads(1)
SMALL = PaperConfig(features=16, heads=2, layers=2, rank=3, hidden=8, width=4, rounds=3, at_once=2)


def network(config: PaperConfig = SMALL) -> PaperNetwork:
    torch.manual_seed(0)
    return PaperNetwork(config)


def answer(*names: str, budget: Budget = zoo.BUDGET, seed: int = 0) -> list[Marginals]:
    models = [zoo.MODELS[name] for name in names]
    return paper_marginals(network(), models, budget, np.random.default_rng(seed))


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_contract_of_engines(name: str) -> None:
    model = zoo.MODELS[name]
    before = [table.copy() for table in model.log_tables]
    found = answer(name)[0]
    assert found.probs.shape == (model.n_variables, model.max_states)
    assert found.probs.dtype == np.float64
    assert (found.probs >= 0).all()
    assert_allclose(found.probs.sum(1), 1.0, atol=1e-9)
    assert (found.probs[zoo.impossible(name)] == 0).all()
    assert_array_equal(found.probs, answer(name)[0].probs)
    assert found.concentration is not None
    assert_allclose(
        found.concentration / found.concentration.sum(1, keepdims=True), found.probs, atol=1e-12
    )
    assert found.status is Status.ESTIMATED
    for table, copy in zip(model.log_tables, before, strict=True):
        assert_array_equal(table, copy)


def test_a_batch_says_what_each_model_says_alone() -> None:
    names = [name for name in zoo.MODELS if name != "zeros"] * 2
    together = answer(*names)
    for name, found in zip(names, together, strict=True):
        assert_allclose(found.probs, answer(name)[0].probs, atol=2e-5)


def test_a_random_order_is_the_seeds() -> None:
    net = network(PaperConfig(**{**config_of(SMALL), "order": "random"}))

    def run(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return paper_marginals(net, [zoo.MODELS["grid-3x3"]], zoo.BUDGET, rng)[0].probs

    assert_array_equal(run(1), run(1))
    assert np.abs(run(1) - run(2)).max() > 1e-9


def config_of(config: PaperConfig) -> dict:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def test_memory_is_predicted_and_refused() -> None:
    models = [FAMILIES["er"].sample(np.random.default_rng(0), n=n, p=0.1) for n in (20, 40, 80)]
    need = [bytes_needed(SMALL, model, True) for model in models]
    assert need[0] < need[1] < need[2]
    with pytest.raises(BudgetError, match="MB"):
        paper_marginals(network(), models, Budget(table_bytes=10_000), np.random.default_rng(0))


def test_a_small_budget_makes_many_batches_of_the_same_answers() -> None:
    names = ["loop", "grid-3x3", "chain"]
    one = bytes_needed(SMALL, zoo.MODELS["grid-3x3"], True)
    for a, b in zip(answer(*names), answer(*names, budget=Budget(table_bytes=one)), strict=True):
        assert_allclose(a.probs, b.probs, atol=2e-5)


def test_graphs_too_large_for_attention_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_engine, "MOST_DENSE", 8)
    small, large = answer("loop", "grid-3x3")
    assert small.stats["attention"] == 1.0
    assert small.stats["variables_eliminated"] > 0
    assert large.stats["attention"] == 0.0
    assert large.stats["variables_eliminated"] == 0.0


@pytest.mark.parametrize("name", zoo.MODELS)
def test_states_that_can_occur_are_kept(name: str) -> None:
    assert possible_states(zoo.MODELS[name])[~zoo.impossible(name)].all()


def test_wide_factors_are_refused_with_another_engine() -> None:
    wide = zoo.random_model(np.random.default_rng(0), [9] * 4, [(0, 1, 2, 3)])
    with pytest.raises(UnsupportedModelError, match="the engine"):
        paper_marginals(network(), [wide], zoo.BUDGET, np.random.default_rng(0))


def test_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ENGINES, "icgi", "icgi.neural.engine:IcgiNetwork")
    assert parse_engine("icgi") == IcgiNetwork()
    assert parse_engine("icgi:fast") == IcgiNetwork(variant="fast")
    assert parse_engine("icgi:variant=fast,core=12") == IcgiNetwork(core=12)
    assert parse_engine("icgi:paper,steps=5") == IcgiNetwork(variant="paper", steps=5)
    assert parse_engine("icgi:paper,steps=none") == IcgiNetwork(variant="paper")
    with pytest.raises(IcgiError, match="fast, paper"):
        parse_engine("icgi:slow")


def test_the_engine_runs_the_stored_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    path = tmp_path / "w.safetensors"  # type: ignore[operator]
    save_weights(path, network())
    monkeypatch.setattr("icgi.neural.weights.shipped", lambda name: load_weights(path))
    found = zoo.run(IcgiNetwork(variant="paper"), "ternary-factors", {1: 0})
    assert_allclose(found.probs.sum(1), 1.0)
    assert found.probs[1, 0] == 1.0
    fewer = zoo.run(IcgiNetwork(variant="paper", steps=1), "grid-3x3")
    assert fewer.stats["variables_eliminated"] == 1.0


def test_weights_of_no_kind_are_refused(tmp_path: object) -> None:
    path = tmp_path / "w.safetensors"  # type: ignore[operator]
    save_weights(path, network())
    text = path.with_suffix(".json").read_text().replace('"paper"', '"other"')
    path.with_suffix(".json").write_text(text)
    with pytest.raises(CheckpointError, match="no weights"):
        load_weights(path)
