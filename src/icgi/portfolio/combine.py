"""One answer from several independent ones: the estimate with the smallest expected error.

Two routes a, b with independent errors are apart by D_ab² = e_a² + e_b² in the mean square, so
three routes tell each one's error without any reference: e_a² = (D_ab² + D_ac² − D_bc²) / 2 (the
three-cornered hat of metrology). A route that states its own errors is believed only as far as the
others do not contradict it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from icgi.inference import Marginals, Status
from icgi.model.graph import FloatArray

# Mean square distance that independent routes may be apart, in units of what they state.
AGREE = 3.0
# Distance of two routes, in units of theirs to a third, up to which they speak against that one.
ALLIED = 0.5
# Expected mean error up to which an answer that two routes support is called converged.
SMALL = 0.01
# Expected mean error beyond which a route is too rough to support or to contradict anything.
TELLING = 0.05
# Relative weight of a route's own word: errors of routes without one are multiplied by this.
UNSTATED = 1.5
# States of a route that failed its own checks: not a candidate while another one exists.
FAILED = (Status.DIVERGED,)


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """What one engine found."""

    name: str
    answer: Marginals
    told: FloatArray | None = None  # n  error by the regression on its signals (`portfolio.doubt`)

    @property
    def stated(self) -> FloatArray | None:
        """Error of every variable by the engine's own estimate, None where it has none.

        Where a regression on the same signals knows better, it is that.
        """
        error = self.answer.std_error
        if self.answer.status is Status.EXACT:
            return np.zeros(len(self.answer.probs))
        if error is None:
            return None
        return np.asarray(error.max(1)) if self.told is None else self.told

    @property
    def doubt(self) -> float | None:
        """Root mean square of the error that is stated or told, None where nothing is."""
        known = self.told if self.stated is None else self.stated
        return None if known is None else float(np.sqrt(np.mean(known**2)))

    @property
    def trusted(self) -> bool:
        """Whether the engine vouches for its numbers."""
        return self.answer.status.trusted


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """The chosen route with what the others say about it."""

    chosen: Route
    error: FloatArray  # n  expected error of each variable
    expected: float  # mean of it
    agreeing: tuple[str, ...]  # routes that independently support the chosen one
    opposing: tuple[str, ...]  # routes that vouch for other numbers

    @property
    def status(self) -> Status:
        """Converged only where the error is small and nobody who vouches disagrees."""
        own = self.chosen.answer.status
        if own is Status.EXACT and not self.opposing:
            return own
        supported = self.chosen.trusted or bool(self.agreeing)
        if supported and not self.opposing and self.expected <= SMALL:
            return Status.CONVERGED
        return Status.DIVERGED if own is Status.DIVERGED else Status.BUDGET_SPENT


def distances(routes: Sequence[Route]) -> Mapping[tuple[int, int], FloatArray]:
    """Distance of each variable's two distributions (largest over states), for all pairs."""
    found = {}
    for a in range(len(routes)):
        for b in range(a + 1, len(routes)):
            gap = np.abs(routes[a].answer.probs - routes[b].answer.probs).max(1)
            found[a, b] = found[b, a] = gap
    return found


def hat(routes: Sequence[Route], allied: float = math.inf) -> list[float | None]:
    """Root mean square error of each route by the others' distances; None where they do not tell.

    Only pairs count that are closer to each other than `allied` times their distances to the route:
    of routes that are all apart each may be wrong. And both have to be further from it than their
    own doubts and its allow: two that hardly moved from the fields are close to each other, and
    accuse nobody. Of several pairs the median counts: one bad route spoils its own only.
    """
    gaps = {pair: float(np.mean(gap**2)) for pair, gap in distances(routes).items()}

    def accuses(b: int, a: int) -> bool:
        doubts = routes[a].doubt or 0.0, routes[b].doubt or 0.0
        return gaps[a, b] >= AGREE**2 * (doubts[0] ** 2 + doubts[1] ** 2)

    found: list[float | None] = []
    for a in range(len(routes)):
        others = [b for b in range(len(routes)) if b != a]
        squares = [
            (gaps[a, b] + gaps[a, c] - gaps[b, c]) / 2
            for b in others
            for c in others
            if b < c
            and gaps[b, c] <= allied**2 * min(gaps[a, b], gaps[a, c])
            and (math.isinf(allied) or (accuses(b, a) and accuses(c, a)))
        ]
        found.append(math.sqrt(max(float(np.median(squares)), 0.0)) if squares else None)
    return found


def expected_errors(routes: Sequence[Route]) -> list[FloatArray]:
    """Expected error of every variable, for every route.

    A stated error is kept, and raised to what the hat says where that is clearly larger. Without a
    stated one the error is what a route with one lets us see: √(D² − σ²), at least half of D; and
    σ where D is less than half of it, because then the two share their errors. Where a regression
    tells the error of such a route, it counts as far as that distance allows, between √(D² − σ²)
    and √(D² + σ²).
    """
    gaps, seen = distances(routes), hat(routes, ALLIED)
    vouching = [k for k, route in enumerate(routes) if route.stated is not None]
    found = []
    for a, route in enumerate(routes):
        stated = route.stated
        if stated is not None:
            own = float(np.sqrt(np.mean(stated**2)))
            other = seen[a] or 0.0
            scale = 1.0 if route.trusted or other <= AGREE * max(own, 1e-12) else other / own
            found.append(np.asarray(np.minimum(stated * scale, 1.0)))
            continue
        anchors = [k for k in vouching if k != a]
        if not anchors:
            unknown = np.full(len(route.answer.probs), 0.5)
            found.append(unknown if route.told is None else route.told)
            continue
        best = min(anchors, key=lambda k: float(np.mean(routes[k].stated)))  # type: ignore[arg-type]
        gap, sigma = gaps[a, best], routes[best].stated
        assert sigma is not None
        apart, own = float(np.mean(gap**2)), float(np.mean(sigma**2))
        if route.told is not None:
            told = float(np.mean(route.told**2))
            if told >= apart - own:
                scale = min(1.0, math.sqrt((apart + own) / max(told, 1e-300)))
                found.append(np.asarray(np.minimum(route.told * scale, 1.0)))
                continue
        elif apart < own / 4:  # closer than independent errors can be: no better than the other
            found.append(np.asarray(np.minimum(UNSTATED * sigma, 1.0)))
            continue
        square = max(apart - own, apart / 4)
        rough = math.sqrt(square) * UNSTATED
        # half of it common to all variables, the rest where the routes are apart
        share = gap / max(float(gap.mean()), 1e-12)
        found.append(np.asarray(np.minimum(rough * (0.5 + 0.5 * share), 1.0)))
    return found


def combine(routes: Sequence[Route]) -> Combined:
    """Choose the route with the smallest expected error, and say who supports it."""
    errors = expected_errors(routes)
    means = [float(e.mean()) for e in errors]
    candidates = [k for k, r in enumerate(routes) if r.answer.status not in FAILED]
    candidates = candidates or list(range(len(routes)))
    best = min(candidates, key=lambda k: (routes[k].answer.status is not Status.EXACT, means[k]))
    gaps, error = distances(routes), errors[best].copy()
    agreeing, opposing = [], []
    for k, route in enumerate(routes):
        if k == best:
            continue
        gap = gaps[best, k]
        allowed = AGREE**2 * float(np.mean(errors[best] ** 2 + errors[k] ** 2)) + 1e-12
        near = float(np.mean(gap**2)) <= allowed
        if near and max(means[k], means[best]) <= TELLING:
            agreeing.append(route.name)
        elif not near and route.trusted:
            opposing.append(route.name)
            error = np.maximum(error, gap)  # one of two that vouch is wrong: nobody knows which
    return Combined(routes[best], error, float(error.mean()), tuple(agreeing), tuple(opposing))
