"""Who runs beside whom, and who is stopped: laws on routes that do nothing but watch the clock."""

import time

import numpy as np
import pytest

from icgi import clock
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status
from icgi.portfolio import approximate
from icgi.portfolio.approximate import (
    POLICY,
    Policy,
    approximations,
    confirming,
    pilot_share,
    promising,
    worth_a_pilot,
)
from icgi.portfolio.combine import Route, combine

RNG = np.random.default_rng
PLANE = FAMILIES["ea2d"].sample(RNG(0), L=12)
CUBE = FAMILIES["ea3d"].sample(RNG(0), L=6)
DENSE = FAMILIES["sk"].sample(RNG(0), n=40)


def answer(error: float, status: Status = Status.BUDGET_SPENT) -> Marginals:
    n = PLANE.n_variables
    return Marginals(np.full((n, 2), 0.5), status, std_error=np.full((n, 2), error))


class Watch:
    """An engine that says something at once and then works until it is stopped."""

    def __init__(self, first: Marginals) -> None:
        self.first, self.began, self.spared = first, 0.0, 0.0

    def answers(self, model, budget, rng):
        self.began, deadline = clock.now(), budget.deadline()
        yield self.first
        while not deadline.passed:
            time.sleep(0.01)
        self.spared = deadline.at - clock.now()  # seconds that it was not given
        yield self.first

    def __call__(self, model, budget, rng):
        *_, last = self.answers(model, budget, rng)
        return last


def watched(monkeypatch, elimination: float, cores: int, policy: Policy = POLICY) -> dict:
    errors = {"lbp": 0.5, "ttve": elimination, "pt": 0.02}
    routes = {name: Watch(answer(error)) for name, error in errors.items()}
    made = {name: (lambda each=each: each) for name, each in routes.items()}
    monkeypatch.setattr(approximate, "ROUTES", made)
    monkeypatch.setattr(approximate, "_cores", lambda: cores)
    *_, last = approximations(PLANE, Budget(), Deadline.after(2.0), RNG(0), policy)
    assert {route.name for route in last.routes} == set(errors)
    return routes


@pytest.mark.parametrize("cores", [1, 2])
def test_elimination_without_hope_leaves_the_time_to_tempering(cores: int, monkeypatch) -> None:
    routes = watched(monkeypatch, 0.4, cores)
    assert routes["ttve"].spared > 1.0
    assert routes["pt"].spared < 0.1


def test_elimination_with_hope_goes_on(monkeypatch) -> None:
    assert watched(monkeypatch, 0.01, 2)["ttve"].spared < 0.1


def test_on_one_processor_tempering_waits_for_the_pilot(monkeypatch) -> None:
    policy = Policy(pilot=0.25)
    alone, beside = (watched(monkeypatch, 0.4, cores, policy) for cores in (1, 2))
    began = [each["pt"].began - each["ttve"].began for each in (alone, beside)]
    assert began[0] > 0.25 > began[1]


def test_a_large_dense_model_gets_no_pilot_that_is_over_before_it_begins(monkeypatch) -> None:
    glass = FAMILIES["sk"].sample(RNG(0), n=200)
    assert not worth_a_pilot(glass, 0.1)
    assert worth_a_pilot(glass, 2.0)
    assert worth_a_pilot(PLANE, 0.001)
    made = {name: (lambda: Watch(answer(0.1))) for name in ("lbp", "ttve", "pt")}
    monkeypatch.setattr(approximate, "ROUTES", made)
    *_, last = approximations(glass, Budget(), Deadline.after(0.5), RNG(0))
    assert {route.name for route in last.routes} == {"lbp", "pt"}


def test_a_promise_is_a_small_error_or_a_model_that_needs_small_ranks() -> None:
    assert promising(CUBE, answer(0.4, Status.CONVERGED), silent=False)
    assert promising(CUBE, answer(0.05), silent=True)
    assert not promising(PLANE, answer(0.4), silent=False)
    for model, soon, late in ((PLANE, True, True), (CUBE, True, False), (DENSE, False, False)):
        assert promising(model, None, silent=False) is soon
        assert promising(model, None, silent=True) is late


def test_who_is_refused_beside_the_others_is_asked_alone(monkeypatch) -> None:
    class Hungry(Watch):
        def answers(self, model, budget, rng):
            if budget.table_bytes < 1000:
                raise BudgetError("1000 bytes, please")
            yield self.first

    made = {name: (lambda: Hungry(answer(0.1))) for name in ("lbp", "ttve", "pt")}
    monkeypatch.setattr(approximate, "ROUTES", made)
    budget, deadline = Budget(table_bytes=1000), Deadline.after(5.0)
    assert len(list(approximations(PLANE, budget, deadline, RNG(0)))) == 1
    with pytest.raises(BudgetError, match="please"):
        list(approximations(PLANE, Budget(table_bytes=999), deadline, RNG(0)))


def test_large_dense_models_get_a_glimpse_of_elimination() -> None:
    crowd = FAMILIES["sk"].sample(RNG(0), n=60)
    for model, share in ((PLANE, "pilot"), (CUBE, "pilot"), (DENSE, "pilot"), (crowd, "glimpse")):
        assert pilot_share(model) == getattr(POLICY, share)


def routes_that_vouch(*stated: float) -> list[Route]:
    return [Route(str(k), answer(error, Status.CONVERGED)) for k, error in enumerate(stated)]


@pytest.mark.parametrize(
    ("error", "seconds"), [(1e-6, 0.0), (1e-4, 1.0), (0.01, np.inf)], ids=["sure", "good", "not"]
)
def test_the_better_an_answer_the_less_time_goes_into_confirming_it(error, seconds) -> None:
    routes = routes_that_vouch(error)
    assert confirming(routes, combine(routes), 4.0) == pytest.approx(seconds)


def test_who_disagrees_is_heard_however_sure_the_other_is() -> None:
    one, other = routes_that_vouch(1e-6, 1e-4)
    other.answer.probs[:] = [0.7, 0.3]
    assert confirming([one, other], combine([one, other]), 4.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("error", "confirmed"), [(1e-6, False), (1e-4, True)])
def test_who_has_only_to_confirm_knows_how_long(error, confirmed, monkeypatch) -> None:
    """Tempering that begins when all is settled is given that time, not what is left in all."""

    class Once(Watch):
        def answers(self, model, budget, rng):
            yield self.first

    class Told(Watch):
        given = 0.0

        def answers(self, model, budget, rng):
            Told.given = budget.seconds
            yield from super().answers(model, budget, rng)

    made = {"lbp": Once(answer(0.5)), "ttve": Once(answer(error, Status.CONVERGED))}
    made["pt"] = Told(answer(0.02))
    routes = {name: (lambda each=each: each) for name, each in made.items()}
    monkeypatch.setattr(approximate, "ROUTES", routes)
    *_, last = approximations(PLANE, Budget(), Deadline.after(20.0), RNG(0))
    assert last.combined.chosen.name == "ttve"
    assert (Told.given > 0) is confirmed
    assert Told.given < 1.0


@pytest.mark.parametrize("cores", [1, 2])
def test_one_processor_is_elimination_s_for_a_moment(cores: int, monkeypatch) -> None:
    policy = Policy(head=0.2)
    routes = watched(monkeypatch, 0.01, cores, policy)
    waited = routes["lbp"].began - routes["ttve"].began
    assert (waited > 0.3) is (cores == 1)


@pytest.mark.parametrize(("long", "times"), [(20.0, 2), (4.0, 1)])
def test_tempering_that_burns_in_for_too_long_begins_anew_to_confirm(
    long: float, times: int, monkeypatch
) -> None:
    """Told of all the time it would burn in for a quarter of it; where it has, it goes on."""

    class Silent(Watch):
        given: list[float] = []  # noqa: RUF012

        def answers(self, model, budget, rng):
            Silent.given.append(budget.seconds)
            deadline = budget.deadline()
            while not deadline.passed:
                time.sleep(0.01)
            yield self.first

    class Slow(Watch):
        def answers(self, model, budget, rng):
            time.sleep(2.0)
            yield self.first

    made = {"lbp": Watch(answer(0.5)), "ttve": Slow(answer(1e-4, Status.CONVERGED))}
    made["pt"] = Silent(answer(0.02))
    routes = {name: (lambda each=each: each) for name, each in made.items()}
    monkeypatch.setattr(approximate, "ROUTES", routes)
    monkeypatch.setattr(approximate, "_cores", lambda: 2)
    Silent.given.clear()
    policy = Policy(confirm=0.5, anew=0.3)
    *_, last = approximations(PLANE, Budget(), Deadline.after(long), RNG(0), policy)
    assert {route.name for route in last.routes} == set(made)
    assert len(Silent.given) == times
    assert Silent.given[0] > 0.8 * long
    assert times == 1 or 0.3 < Silent.given[1] < 1.2
