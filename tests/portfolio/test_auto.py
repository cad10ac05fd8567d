"""`auto` always answers: exact where that fits, else with an error and reasons."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import zoo
from icgi import clock
from icgi.api import from_factors, marginals
from icgi.data.families import FAMILIES
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.portfolio.approximate import Found, _independent
from icgi.portfolio.auto import Auto
from icgi.portfolio.combine import Route, combine

RNG = np.random.default_rng
SECOND = Budget(seconds=1.0)


def glass(n: int = 60, **settings: float) -> FactorGraph:
    return FAMILIES["sk"].sample(RNG(0), n=n, **{"h": 0.5, **settings})


def sound(model: FactorGraph, found: Marginals) -> None:
    assert np.isfinite(found.probs).all()
    assert_allclose(found.probs.sum(1), 1.0, atol=1e-9)
    assert found.std_error is not None
    assert np.isfinite(found.std_error).all()


@pytest.mark.parametrize("name", zoo.MODELS)
def test_small_models_are_exact(name: str) -> None:
    assert zoo.run(Auto(), name).status is Status.EXACT


def test_what_is_beyond_exact_is_answered_with_an_error() -> None:
    model = glass()
    found = zoo.run(Auto(), model, budget=SECOND)
    sound(model, found)
    assert found.status is not Status.EXACT
    assert found.note
    assert 0 < found.stats["expected_error"] <= 1


def test_the_error_is_that_of_the_answer() -> None:
    model = FAMILIES["ea2d"].sample(RNG(0), L=6, beta=1.0)
    truth = zoo.run(JunctionTree(), model).probs
    found = zoo.run(Auto(exact=False), model, budget=SECOND)
    error = np.abs(found.probs - truth).max(1)
    stated = 0.0 if found.std_error is None else found.std_error.max(1).mean()
    assert error.mean() <= 3 * stated + 1e-6


def together(*models: FactorGraph) -> FactorGraph:
    factors, shift = [], 0
    for model in models:
        for scope, table in zip(model.scopes, model.log_tables, strict=True):
            factors.append((tuple(i + shift for i in scope), table))
        shift += model.n_variables
    return from_factors(factors, log=True)


def test_parts_that_fit_are_exact_whatever_happens_to_the_others() -> None:
    easy = FAMILIES["tree"].sample(RNG(1), n=20)
    hard = glass()
    model = together(hard, easy)
    found = zoo.run(Auto(), model, budget=SECOND)
    sound(model, found)
    rows = slice(hard.n_variables, None)
    truth = zoo.run(JunctionTree(), easy).probs
    assert_allclose(found.probs[rows, : truth.shape[1]], truth, atol=1e-12)
    assert not found.std_error[rows].any()
    assert found.std_error[: hard.n_variables].any()
    assert found.stats["exact_variables"] == easy.n_variables


def test_many_hard_parts_are_answered_in_one_run() -> None:
    model = together(*(glass(40, beta=1.0) for _ in range(6)), FAMILIES["tree"].sample(RNG(1), n=5))
    found = zoo.run(Auto(exact=False), model, budget=Budget(seconds=2.0))
    sound(model, found)
    assert found.stats["parts"] <= 2


def test_messages_under_another_name_do_not_confirm_themselves() -> None:
    def route(name: str, stated: float | None, **stats: float) -> Route:
        error = None if stated is None else np.full((4, 2), stated)
        answer = Marginals(np.full((4, 2), 0.5), Status.BUDGET_SPENT, std_error=error, stats=stats)
        return Route(name, answer)

    lbp, fallen, pt = route("lbp", None), route("ttve", 0.1, messages=1.0), route("pt", 0.2)
    assert [r.name for r in _independent([lbp, fallen, pt])] == ["lbp", "pt"]
    assert [r.name for r in _independent([lbp, fallen])] == ["ttve"]
    assert len(_independent([lbp, route("ttve", 0.1), pt])) == 3


def test_every_answer_on_the_way_is_complete() -> None:
    model, found = glass(), []
    last = marginals(model, engine=Auto(), budget=SECOND, on_answer=found.append)
    assert len(found) >= 2
    for answer in found:
        sound(model, answer.marginals)
    assert (found[-1].probs == last.probs).all()


def test_no_time_is_no_reason_not_to_answer() -> None:
    model = glass(100)
    sound(model, zoo.run(Auto(), model, budget=Budget(seconds=0.0)))


def test_little_memory_is_no_reason_not_to_answer() -> None:
    model = glass(100)
    sound(model, zoo.run(Auto(), model, budget=Budget(seconds=1.0, table_bytes=2_000_000)))


def test_a_request_to_stop_ends_with_the_best_answer() -> None:
    model, found = glass(), []

    def on_answer(answer: object) -> None:
        found.append(answer)
        clock.request_stop()

    with clock.stoppable():
        last = marginals(model, engine=Auto(), budget=Budget(seconds=600.0), on_answer=on_answer)
    sound(model, last.marginals)
    assert last.seconds < 60


def test_without_a_time_there_is_a_stated_one() -> None:
    engine = Auto(seconds=1.0)
    found = marginals(glass(), engine=engine)
    assert 0.5 < found.seconds < 10
    assert engine.bounded(Budget()).seconds == engine.patience


def test_work_and_distance_are_those_of_the_routes() -> None:
    """Two routes: the chosen one, and another whose distance is the answer's deviation."""
    near, far = Marginals(np.full((2, 2), 0.5), Status.AT_REST, stats={}), Marginals(
        np.array([[0.6, 0.4], [0.5, 0.5]]), Status.BUDGET_SPENT,
        std_error=np.full((2, 2), 0.01), stats={"work": 2.5},
    )  # fmt: skip
    routes = (Route("lbp", near), Route("pt", far))
    found = Auto().along(None)._worded(Found(routes, combine(routes), {}))  # type: ignore[arg-type]
    assert found.stats["work"] == 2.5
    assert found.deviation is not None
    assert_allclose(found.deviation, [0.1, 0.0], atol=1e-12)


def test_tori_that_no_junction_tree_fits_are_answered_by_their_columns() -> None:
    model = FAMILIES["ea2d"].sample(RNG(0), L=10, beta=2.0, periodic=True)
    truth = zoo.run(JunctionTree(), model)
    found = zoo.run(Auto(), model, budget=Budget(seconds=10.0, table_bytes=3_000_000))
    assert found.status is Status.CONVERGED
    assert "ring of columns" in found.note
    assert np.abs(found.probs - truth.probs).max() <= found.std_error.max() < 1e-3
    assert found.log_z == pytest.approx(truth.log_z, abs=1e-3)
