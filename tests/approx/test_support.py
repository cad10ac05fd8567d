"""Impossible states leave the model, possible ones never do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_trbp import sum_tables

import zoo
from icgi.approx.support import possible_configuration, supported, supported_all
from icgi.errors import EvidenceError
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.model.reduce import reducible


def constrained(seed: int, zeros: float = 0.5) -> FactorGraph:
    rng = np.random.default_rng(seed)
    scopes = [(0, 1), (1, 2), (2, 0), (2, 3, 4), (4, 5), (5, 0, 1), (3,)]
    return zoo.random_model(rng, [3, 2, 3, 2, 4, 1], scopes, zeros=zeros)


def possible(model: FactorGraph) -> np.ndarray:
    """States that some configuration of non-zero probability has."""
    return np.asarray(zoo.run(Enumerate(), model).probs > 0)


class TestSupported:
    @pytest.mark.parametrize("seed", range(20))
    def test_keeps_every_possible_state(self, seed: int) -> None:
        model = constrained(seed)
        part = supported(model)
        assert (part.alive | ~possible(model)).all()
        assert_array_equal(part.alive.sum(1), part.model.cards)

    @pytest.mark.parametrize("seed", range(20))
    def test_changes_no_probability(self, seed: int) -> None:
        model = constrained(seed)
        part = supported(model)
        before, after = zoo.run(Enumerate(), model), zoo.run(Enumerate(), part.model)
        assert after.log_z == pytest.approx(before.log_z)
        left = np.arange(part.model.max_states) < part.model.cards[:, None]
        assert_allclose(before.probs[part.alive], after.probs[left], atol=1e-12)

    def test_assumes_every_state_in_turn(self) -> None:
        """Two states, three variables: x = y, y = z, z ≠ x if x = 1; arcs alone find nothing."""
        equal = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
        third = np.array([[0.0, 0.0], [0.0, -np.inf]])
        model = FactorGraph(np.full(3, 2), ((0, 1), (1, 2), (2, 0)), (equal, equal, third))
        assert_array_equal(supported(model).alive, [[True, False]] * 3)

    def test_leaves_a_model_without_zeros_alone(self) -> None:
        model = zoo.MODELS["grid-3x3"]
        assert supported(model).model is model

    def test_one_state_variables_leave_all_scopes(self) -> None:
        model = zoo.MODELS["one-state-variable"]
        reduced = supported(model).model
        assert not any(reduced.cards[i] == 1 for scope in reduced.scopes for i in scope)
        assert zoo.run(Enumerate(), reduced).log_z == pytest.approx(
            zoo.exact("one-state-variable").log_z
        )


class TestTogether:
    def models(self) -> list[FactorGraph]:
        return [*zoo.MODELS.values(), *map(constrained, range(5)), FactorGraph(np.empty(0), (), ())]

    def test_equals_one_by_one(self) -> None:
        models = self.models()
        for part, model in zip(supported_all(models)[0], models, strict=True):
            alone = supported(model)
            assert_array_equal(part.alive, alone.alive)
            assert part.model.scopes == alone.model.scopes
            for a, b in zip(part.model.log_tables, alone.model.log_tables, strict=True):
                assert_array_equal(a, b)

    def test_reducible_models_have_zeros_or_one_state_variables(self) -> None:
        models = self.models()
        expected = [
            bool((m.cards == 1).any() or any(np.isneginf(t).any() for t in m.log_tables))
            for m in models
        ]
        assert reducible(models).tolist() == expected
        assert True in expected
        assert False in expected
        assert reducible([]).tolist() == []


class TestConfiguration:
    @pytest.mark.parametrize("seed", range(10))
    def test_is_possible(self, seed: int) -> None:
        model = supported(constrained(seed, 0.7)).model
        rng = np.random.default_rng(seed)
        found = possible_configuration(model, np.ones(int(model.cards.sum())), rng)
        assert found is not None
        states = np.where(found < 0, 0, found)  # any state where there are no zeros
        assert sum_tables(model)[tuple(states)] > -np.inf

    def test_follows_the_preference(self) -> None:
        """Of two states that both are possible, the one that is preferred, nearly always."""
        equal = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
        model = FactorGraph(np.full(2, 2), ((0, 1),), (equal,))
        likes = np.array([0.001, 0.999, 0.001, 0.999])
        draws = [
            possible_configuration(model, likes, np.random.default_rng(seed)) for seed in range(100)
        ]
        assert np.mean([d[0] for d in draws]) > 0.95
        assert all(d[0] == d[1] for d in draws)


def test_contradiction_says_where_to_look() -> None:
    never = np.full((2, 2), -np.inf)
    model = FactorGraph(np.full(2, 2), ((0, 1),), (never,))
    with pytest.raises(EvidenceError, match="check the evidence"):
        supported(model)
