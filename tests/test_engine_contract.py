"""Every engine in `ENGINES` on every model of the zoo: a new engine is tested by existing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi.engines import ENGINES
from icgi.errors import UnsupportedModelError
from icgi.inference import Marginals, Status


def answer(engine: str, name: str, seed: int = 0) -> Marginals:
    try:
        return zoo.run(zoo.engine_or_skip(engine), name, seed=seed)
    except UnsupportedModelError as refusal:
        if len(str(refusal)) < 20:
            pytest.fail(f"a refusal says why and what to use instead, not {refusal!s}")
        pytest.skip(f"{engine} refuses {name}: {refusal}")


@pytest.mark.parametrize("name", zoo.MODELS)
@pytest.mark.parametrize("engine", ENGINES)
class TestContract:
    def test_rows_are_distributions(self, engine: str, name: str) -> None:
        model = zoo.MODELS[name]
        probs = answer(engine, name).probs
        assert probs.shape == (model.n_variables, model.max_states)
        assert probs.dtype == np.float64
        assert (probs >= 0).all()
        assert_allclose(probs.sum(1), 1.0, atol=1e-9)
        assert (probs[np.arange(model.max_states) >= model.cards[:, None]] == 0).all()

    def test_same_seed_same_answer(self, engine: str, name: str) -> None:
        first, second = answer(engine, name, seed=3), answer(engine, name, seed=3)
        assert_array_equal(first.probs, second.probs)
        assert first.log_z == second.log_z
        assert first.status == second.status

    def test_input_is_untouched(self, engine: str, name: str) -> None:
        model = zoo.MODELS[name]
        before = [table.copy() for table in model.log_tables]
        answer(engine, name)
        for table, copy in zip(model.log_tables, before, strict=True):
            assert_array_equal(table, copy)
            assert not table.flags.writeable

    def test_exact_means_exact(self, engine: str, name: str) -> None:
        found, exact = answer(engine, name), zoo.exact(name)
        close = np.allclose(found.probs, exact.probs, atol=1e-9, rtol=0)
        assert close or found.status is not Status.EXACT
        if found.status is Status.EXACT:
            assert found.log_z == pytest.approx(exact.log_z, abs=1e-9, rel=1e-12)

    def test_impossible_states_get_no_probability(self, engine: str, name: str) -> None:
        assert (answer(engine, name).probs[zoo.impossible(name)] == 0).all()
