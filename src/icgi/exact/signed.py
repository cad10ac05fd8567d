"""Exact marginals of a collapsed model, with a certificate: a bound of every error."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.exact import signed_passes as passes
from icgi.exact.signed_tree import SignedPlan, plan_signed
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FloatArray
from icgi.model.ordering import Order, find_order, greedy_order
from icgi.model.structure.collapse import Collapsed, collapse

DIGITS = 1e-9  # largest error of a probability, and relative error of Z, that counts as exact
ENTRIES_PER_SECOND = 4e8  # wide products with their error bounds on one processor, measured low
ORDERS = 2  # along which an answer is tried: some lose 10⁸ times more digits than others
MOST_SECONDS = 120.0  # of an answer by other sums or other numbers than forecast, at most
QUADS = 12.0  # times the seconds that quad-doubles take; 8 measured on large tables
PLANNED = 2.0**40  # entries beyond which no tree is laid out


@dataclass(frozen=True, eq=False, slots=True)
class SignedForecast:
    """What exact inference on a collapsed model would cost, known before anything is allocated."""

    order: Order  # of the network's variables
    table_bytes: float
    seconds: float

    def fits(self, budget: Budget) -> bool:
        """Whether it keeps within the budget's memory and time."""
        return self.table_bytes <= budget.table_bytes and self.seconds <= budget.seconds


def forecast_signed(
    collapsed: Collapsed, rng: Generator, deadline: Deadline | None = None, hopeless: float = np.inf
) -> SignedForecast:
    """Search an elimination order of the network and predict the cost along it."""
    seconds = 10.0 if deadline is None else min(deadline.left, 10.0)
    order = find_order(collapsed.network.skeleton, rng, seconds, hopeless=hopeless)
    return forecast_along(collapsed, order)


def another_order(collapsed: Collapsed, rng: Generator) -> SignedForecast:
    """Cost along a random greedy order: some lose 10⁸ times fewer digits than others."""
    rule = ("min-fill", "min-weight", "min-degree")[int(rng.integers(3))]
    return forecast_along(collapsed, greedy_order(collapsed.network.skeleton, rule, rng))


def forecast_along(collapsed: Collapsed, order: Order) -> SignedForecast:
    """Cost along a given order."""
    entries = 2.0 ** min(order.log2_entries, 1000.0)
    if entries > PLANNED:
        return SignedForecast(order, 48 * order.message_entries, 8 * entries / ENTRIES_PER_SECOND)
    plan = plan_signed(collapsed, order.variables)
    return SignedForecast(order, plan.bytes_needed, plan.work / ENTRIES_PER_SECOND)


def answer_signed(
    collapsed: Collapsed, ahead: SignedForecast, budget: Budget, rng: Generator
) -> Marginals | None:
    """Marginals along the forecast's order, or whatever else leaves enough digits; None if nothing.

    Another order comes first, then quad-doubles; then 1, 2, 4, … sums, those of the fewest factors,
    stay unsplit: each costs some width and saves the digits that its signs would cancel.
    """
    deadline = budget.deadline()
    first = ahead
    for _ in range(ORDERS):
        found = solve_signed(collapsed, ahead.order, budget.until(deadline))
        if found is not None or deadline.passed:
            return found
        ahead = another_order(collapsed, rng)
    found = _with_quads(collapsed, first, budget.until(deadline))
    if found is not None or deadline.passed:
        return found
    smallest = sorted(collapsed.members, key=len)
    count = 1
    while count < len(smallest):
        part = collapse(collapsed.model, np.concatenate(smallest[:count]))
        if part is None:
            return None
        ahead = forecast_signed(part, rng, deadline.share(0.1))
        if not ahead.fits(budget.until(deadline)) or ahead.seconds > MOST_SECONDS:
            return None
        found = solve_signed(part, ahead.order, budget.until(deadline))
        if found is not None:
            return found
        count *= 2
    return None


def _with_quads(collapsed: Collapsed, ahead: SignedForecast, budget: Budget) -> Marginals | None:
    """Marginals by quad-doubles along the forecast's order, where they fit and are certain."""
    if QUADS * ahead.seconds > min(budget.seconds, MOST_SECONDS):
        return None
    deadline = budget.deadline()
    wider = collapse(collapsed.model, quads=True)
    if wider is None or not np.array_equal(wider.network.cards, collapsed.network.cards):
        return None  # a sum that is none to the last digit
    return solve_signed(wider, ahead.order, budget.until(deadline))


def solve_signed(collapsed: Collapsed, order: Order, budget: Budget) -> Marginals | None:
    """Marginals of all variables along an order; None where the certificate or the time fails.

    Statistics name the certificate: `error_bound` for probabilities, `log_z_error`.
    """
    deadline = budget.deadline()
    plan = plan_signed(collapsed, order.variables)
    if plan.bytes_needed * collapsed.network.high.itemsize / 8 > budget.table_bytes:
        return None
    found = _run(collapsed, plan, deadline)
    if found is None:
        return None
    mass, log_z, relative = found
    probs, bound = _probabilities(collapsed, mass)
    bound, relative = bound + collapsed.error, relative + collapsed.error
    if not (bound <= DIGITS and relative <= DIGITS):
        return None
    return Marginals(
        probs,
        Status.EXACT,
        log_z,
        stats={
            "width": order.width,
            "log2_largest_table": order.log2_table,
            "bytes": plan.bytes_needed,
            "error_bound": bound,
            "log_z_error": relative,
            "collapsed": len(collapsed.links.variable),
        },
    )


def _run(
    collapsed: Collapsed, plan: SignedPlan, deadline: Deadline
) -> tuple[FloatArray, float, float] | None:
    """Masses (value, rest, bound) of all states of the model's variables; log Z and its error."""
    net, links, tree = collapsed.network, collapsed.links, plan.tree
    total = plan.store_entries + plan.extra_entries
    kind = net.high.dtype
    tables = np.empty((3, total), kind)
    H, L, E = tables
    passes.load(
        tree.cards, net.scope_start, plan.permuted, tree.scopes, net.table_start, net.high,
        net.low, H, L, E,
    )  # fmt: skip
    n = len(tree.cards)
    power = np.zeros(len(tree.parent), np.int64)
    scratch = np.empty((3, 2 * plan.scratch_entries), kind)
    by_time = np.zeros((3, n, int(net.cards.max(initial=1))), kind)
    extra = np.zeros((3, len(links.extra_link)), kind)
    with deadline.flag() as stop:
        if passes.collect(tree, H, L, E, power, scratch, stop):
            return None
        if passes.distribute(tree, H, L, E, scratch, by_time, stop):
            return None
        groups = plan.time[collapsed.model.n_variables :]
        for g, (first, last) in enumerate(
            zip(links.extra_start[:-1], links.extra_start[1:], strict=True)
        ):
            if last > first and passes.extra_masses(
                tree, groups[g], last - first, net.scope_start, plan.permuted, links.factor_start,
                links.high, links.low, plan.chunk, H, L, E, plan.store_entries, power, scratch,
                extra, first, stop,
            ):  # fmt: skip
                return None
    roots = tree.up[tree.parent < 0]
    value, error = H[roots].real, E[roots].real
    if np.prod(np.sign(value)) <= 0:
        return None
    log_z = net.log_scale + float(np.log(np.abs(value)).sum() + power.sum() * np.log(2.0))
    relative = float((error / np.abs(value)).sum())
    return _of_model(collapsed, plan, by_time, extra), log_z, relative


def _of_model(
    collapsed: Collapsed, plan: SignedPlan, by_time: FloatArray, extra: FloatArray
) -> FloatArray:
    """Masses by the model's own numbers, collapsed variables from those of their groups."""
    model, links = collapsed.model, collapsed.links
    mass = np.zeros((3, model.n_variables, max(model.max_states, 1)), by_time.dtype)
    width = min(mass.shape[2], by_time.shape[2])
    mass[:, :, :width] = by_time[:, plan.time[: model.n_variables], :width]
    if len(links.variable):
        found = np.zeros((3, len(links.variable), mass.shape[2]), mass.dtype)
        own = np.ascontiguousarray(by_time[:, plan.time[links.group]])
        passes.link_masses(
            links.own_start, links.own_high, links.own_low, collapsed.network.cards[links.group],
            own, links.extra_link, links.extra_high, links.extra_low, extra,
            model.cards[links.variable], found,
        )  # fmt: skip
        mass[:, links.variable] = found
    return mass


def _probabilities(collapsed: Collapsed, mass: FloatArray) -> tuple[FloatArray, float]:
    """Normalised rows, and the largest bound of the error of an entry."""
    value, _, error = mass.real
    total, slack = value.sum(1, keepdims=True), error.sum(1, keepdims=True)
    with np.errstate(all="ignore"):
        probs = value / total
        bound = (error + np.abs(probs) * slack) / (np.abs(total) - slack)
    possible = np.abs(total) > slack
    if not possible.all() or not np.isfinite(bound).all():
        return probs, np.inf
    probs = np.maximum(probs, 0.0)
    return probs / probs.sum(1, keepdims=True), float(bound.max(initial=0.0)) + 1e-15
