"""The rule that makes one answer of several: laws on routes whose errors are known."""

import numpy as np
from numpy.testing import assert_allclose

from icgi.inference import Marginals, Status
from icgi.portfolio.combine import Route, combine, expected_errors, hat
from icgi.portfolio.doubt import told_error

N = 4000
TRUTH = np.random.default_rng(0).uniform(0.3, 0.7, N)


def route(
    name: str,
    error: float,
    stated: float | None = None,
    status: Status = Status.BUDGET_SPENT,
    seed: int = 0,
) -> Route:
    up = TRUTH + error * np.random.default_rng([seed, len(name)]).normal(size=N)
    probs = np.stack([1 - up, up], 1)
    spread = None if stated is None else np.full((N, 2), stated)
    return Route(name, Marginals(probs, status, std_error=spread))


def test_the_hat_sees_each_error_without_a_reference() -> None:
    routes = [route("a", 0.01), route("bb", 0.03), route("ccc", 0.06)]
    found = hat(routes)
    assert_allclose([e or 0 for e in found], [0.01, 0.03, 0.06], rtol=0.15)


def test_two_routes_are_too_few_for_a_hat() -> None:
    assert hat([route("a", 0.01), route("bb", 0.02)]) == [None, None]


def test_one_bad_route_does_not_spoil_the_others() -> None:
    routes = [route("a", 0.01), route("bb", 0.01), route("ccc", 0.01), route("dddd", 0.2)]
    found = [e or 0 for e in hat(routes)]
    assert max(found[:3]) < 0.03
    assert found[3] > 0.15


def test_the_smallest_expected_error_is_chosen() -> None:
    routes = [
        route("pt", 0.02, 0.02),
        route("ttve", 0.001, 0.001, Status.CONVERGED),
        route("lbp", 0.1, None, Status.AT_REST),
    ]
    made = combine(routes)
    assert made.chosen.name == "ttve"
    assert made.status is Status.CONVERGED
    assert "pt" in made.agreeing
    assert not made.opposing


def test_a_route_without_a_stated_error_may_be_the_best() -> None:
    routes = [route("lbp", 0.001, None, Status.AT_REST), route("pt", 0.05, 0.05)]
    made = combine(routes)
    assert made.chosen.name == "lbp"
    assert 0.001 < made.expected < 0.05
    assert made.status is not Status.CONVERGED  # nobody can vouch for so small an error


def test_routes_that_know_the_same_do_not_make_each_other_sure() -> None:
    """Three engines without time all answer from single factors: equal numbers, all wrong."""
    flat = np.full((N, 2), 0.5)
    routes = [
        Route(name, Marginals(flat, Status.BUDGET_SPENT, std_error=stated))
        for name, stated in (("lbp", None), ("ttve", np.full((N, 2), 0.4)))
    ]
    assert combine(routes).expected >= 0.4


def test_routes_without_time_for_a_sweep_do_not_confirm_each_other() -> None:
    """What fields alone say is one source, whoever reads it: its error is that of the fields."""
    fields, strength = np.full((N, 2), 0.5) + 0.05 * np.array([1, -1]), np.ones(N)
    unswept = Marginals(fields, Status.BUDGET_SPENT, stats={"sweeps": 0.0})
    guess = Marginals(np.full((N, 2), 0.5), Status.BUDGET_SPENT, std_error=np.full((N, 2), 0.33))
    routes = [Route("lbp", unswept, told_error("lbp", unswept, strength)), Route("ttve", guess)]
    made = combine(routes)
    assert made.expected > 0.3
    assert not made.agreeing


def test_two_that_hardly_moved_from_the_fields_accuse_nobody() -> None:
    """They are close to each other and far from a good sample that does not vouch for itself."""
    flat, strength = np.full((N, 2), 0.5), np.ones(N)
    moving = Marginals(flat + 0.02, Status.BUDGET_SPENT, stats={"sweeps": 5.0})
    guess = Marginals(flat, Status.BUDGET_SPENT, std_error=np.full((N, 2), 0.4))
    good = np.stack([TRUTH - 0.25, 1.25 - TRUTH], 1)
    sample = Marginals(good, Status.BUDGET_SPENT, std_error=np.full((N, 2), 0.01))
    told = told_error("lbp", moving, strength)
    made = combine([Route("lbp", moving, told), Route("ttve", guess), Route("pt", sample)])
    assert made.chosen.name == "pt"
    assert made.expected < 0.02


def test_an_overconfident_route_is_found_out_by_two_others() -> None:
    routes = [
        route("ttve", 0.3, 0.001),
        route("pt", 0.01, 0.01, Status.CONVERGED),
        route("lbp", 0.02, None, Status.AT_REST),
    ]
    made = combine(routes)
    assert made.chosen.name == "pt"
    assert expected_errors(routes)[0].mean() > 0.1


def test_two_that_are_wrong_in_different_ways_accuse_nobody() -> None:
    """Of half of the variables each is wrong by 0.3, of a quarter both."""
    bad = [route("lbp", 0.0), route("ttve", 0.0, 0.45)]
    for k, each in enumerate(bad):
        each.answer.probs[k * N // 4 : k * N // 4 + N // 2] += np.array([0.3, -0.3])
    good = route("pt", 0.01, 0.01)
    assert (hat([*bad, good])[2] or 0) > 0.1
    assert combine([*bad, good]).expected < 0.02


def test_two_that_vouch_and_disagree_widen_the_answer() -> None:
    a = route("ttve", 0.0, 0.001, Status.CONVERGED)
    shifted = a.answer.probs + np.array([0.1, -0.1])
    b = Route("pt", Marginals(shifted, Status.CONVERGED, std_error=np.full((N, 2), 0.005)))
    made = combine([a, b])
    assert made.opposing == ("pt",)
    assert made.expected >= 0.099
    assert made.status is Status.BUDGET_SPENT


def test_a_failed_route_is_chosen_only_when_alone() -> None:
    failed = route("ttve", 0.3, 0.001, Status.DIVERGED)
    assert combine([failed, route("lbp", 0.1, None, Status.AT_REST)]).chosen.name == "lbp"
    assert combine([failed]).status is Status.DIVERGED


def test_exact_stays_exact_and_its_error_is_zero() -> None:
    made = combine([route("lbp", 0.0, None, Status.EXACT), route("pt", 0.02, 0.02)])
    assert made.chosen.name == "lbp"
    assert made.status is Status.EXACT
    assert not made.error.any()
