"""`exact` refuses what does not fit, and says what it would take."""

import numpy as np
import pytest

import zoo
from icgi.data.families import FAMILIES
from icgi.errors import BudgetError
from icgi.exact.forecast import SEARCH_SHARE, forecast, hopeless
from icgi.exact.junction_tree import JunctionTree
from icgi.exact.pfaffian import Pfaffian
from icgi.inference import Budget, Status
from icgi.model.ordering import find_order, search
from icgi.portfolio.exact import Exact
from icgi.units import readable_seconds


@pytest.mark.parametrize("size", [4, 8, 12])
def test_the_forecast_is_what_the_engine_then_takes(size: int) -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=size)
    ahead = forecast(model, Budget(), np.random.default_rng(0))
    assert ahead.table_bytes == zoo.run(JunctionTree(), model).stats["bytes"]


def test_complete_graphs_beyond_all_numbers_are_refused() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(0), n=1100)
    with pytest.raises(BudgetError, match="more than 10\\^290 GB"):
        zoo.run(Exact(), model)


def no_search(*words: object) -> None:
    raise AssertionError("searched for an order")


def test_what_is_beyond_hope_is_refused_without_a_search(monkeypatch) -> None:
    monkeypatch.setattr(search, "_random_search", no_search)
    wide, narrow = (FAMILIES["ea2d"].sample(np.random.default_rng(0), L=L) for L in (60, 40))
    with pytest.raises(BudgetError, match=r"10\^1\d GB"):
        zoo.run(Exact(), wide)
    with pytest.raises(AssertionError, match="searched"):
        zoo.run(Exact(), narrow)


def test_a_small_budget_is_no_reason_not_to_search() -> None:
    assert (
        hopeless(Budget(table_bytes=100)) == hopeless(Budget()) < hopeless(Budget(10**3, 1, 10**12))
    )


def test_exact_within_the_budget() -> None:
    assert zoo.run(Exact(), "grid-3x3").status is Status.EXACT


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-9, "0.01 s"),
        (1.25, "1.2 s"),
        (110.0, "110 s"),
        (600.0, "10 min"),
        (86400.0 * 30, "30 days"),
        (3e10, "951 years"),
        (3e29, "10^22 years"),
    ],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text


def test_time_is_part_of_the_budget() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=12)
    with pytest.raises(BudgetError, match="more seconds"):
        zoo.run(Exact(), model, budget=Budget(seconds=1e-7))


def test_an_order_is_searched_once(monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(
        "icgi.exact.forecast.find_order", lambda *a, **k: calls.append(1) or find_order(*a, **k)
    )
    zoo.run(Exact(), "grid-3x3")
    assert len(calls) == 1


def test_spins_without_field_are_exact_whatever_the_width() -> None:
    lattice = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=32, field=0.0)
    found = zoo.run(Exact(), lattice)
    assert found.status is Status.EXACT
    assert found.log_z == pytest.approx(zoo.run(Pfaffian(), lattice).log_z)
    glass = FAMILIES["sk"].sample(np.random.default_rng(0), n=60, h=0.0)
    found = zoo.run(Exact(), glass)
    assert found.status is Status.EXACT
    assert (found.probs == 0.5).all()
    assert found.log_z is None


def test_all_give_the_same_share_of_time_to_the_search() -> None:
    assert JunctionTree().search_share == SEARCH_SHARE
