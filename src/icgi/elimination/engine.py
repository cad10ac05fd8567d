"""`ttve`: variable elimination with tensor-train factors, and an honest word on its own error."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.elimination.dense import eliminate_dense
from icgi.elimination.layout import Layout
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut, Tape
from icgi.elimination.potentials import Potentials, potentials
from icgi.elimination.run import Pass, both_passes, distance
from icgi.elimination.sampling import Samples, draw, log_potential
from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising
from icgi.model.ordering import Order, greedy_order
from icgi.model.reduce import components

# The range of log ⟨F_t, B_t⟩ over the steps tracks the true error over ten orders of magnitude
# (docs/engines/ttve.md); above this an answer is not trusted.
SOUND_SPREAD = 0.05
EXACT_SHARE = 1e-13  # discarded weight that is rounding
_UNCUT = 1e-9  # discarded weight that no missing rank explains
_DENSE_TOTAL = 2**23  # entries of all dense tables together
# Log range of a table beyond which the digits that decide may be below those of double precision:
# a train then cannot be called exact, and small models go to logarithms.
STEEP = 20.0
_LEAST_ANGLE = math.log(1e-5)  # cancellation that leaves ten digits
_SHARE_FLOOR = 0.02  # effective sample share below which the samples contradict the train
_RAW_GAP = 0.1  # mean |raw − reweighted| beyond noise that contradicts it, too


@dataclass(frozen=True, slots=True)
class TensorTrainElimination:
    """All marginals and log Z by eliminating every variable into one tensor train and walking back.

    The frontier of eliminated and remaining variables is a train of bonds up to `rank`; bonds are
    truncated with the other pass as environment, repeatedly. Exact while no bond is cut. A failed
    self-check is met by a weaker environment, by annealing, then by doubling the rank up to
    `max_rank`; if it still fails, the status says so.
    """

    rank: int = 16
    max_rank: int = 64
    iterations: int = 3  # forward and backward passes at most, per attempt
    env_weight: float = 3.0  # λ, weight of the overlap with the environment against the plain norm
    tolerance: float = 1e-12  # singular values below this share of the largest are dropped
    arithmetic: Literal["auto", "gram", "qr"] = "auto"  # auto: gram first, qr to finish
    exact_entries: int = 2**18  # dense and exact where the largest table has no more entries
    halving: bool = True  # also run at half the rank, to report the difference
    samples: int = 200  # draws from the train, to check the answer by importance weights
    escalate: bool = True

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Solve every connected part; log Z adds up, the worst status counts."""
        clock = _Clock(budget)
        probs = np.zeros((model.n_variables, model.max_states))
        parts = []
        for part in components(model):
            answer = self._connected(part.model, clock, rng)
            probs[part.variables, : answer.probs.shape[1]] = answer.probs
            parts.append(answer)
        if not parts:
            constant = sum(float(t) for t in model.log_tables)
            return Marginals(probs, Status.EXACT, constant)
        return Marginals(
            probs,
            max((p.status for p in parts), key=_SEVERITY.index),
            _total([p.log_z for p in parts]),
            stats=_merged(parts),
        )

    def _connected(self, model: FactorGraph, clock: _Clock, rng: Generator) -> Marginals:
        order = greedy_order(model, "min-fill")
        fits = 2.0**order.log2_entries <= min(_DENSE_TOTAL, clock.budget.table_bytes / 16)
        if fits and 2.0**order.log2_table <= self.exact_entries:
            return _dense(model, order)
        spins = as_ising(model)
        if spins is not None and not spins.fields.any() and model.n_variables > 1:
            return self._mirrored(model, clock, rng)
        pots = potentials(model)
        if fits and pots.steepness > STEEP:
            return _dense(model, order)
        return self._compressed(model, pots, order if fits else None, clock, rng)

    def _mirrored(self, model: FactorGraph, clock: _Clock, rng: Generator) -> Marginals:
        """Spins without fields: all marginals are ½; with one spin held, log Z = log 2 + log Z₀."""
        rest = components(condition(model, {0: 0}).model)
        answers = [self._connected(part.model, clock, rng) for part in rest]
        sound = all(a.status in (Status.EXACT, Status.CONVERGED) for a in answers)
        log_z = _total([a.log_z for a in answers]) if sound else None
        return Marginals(
            np.full((model.n_variables, 2), 0.5),
            Status.EXACT if all(a.status is Status.EXACT for a in answers) else Status.CONVERGED,
            None if log_z is None else log_z + math.log(2.0),
            stats={**_merged(answers), "symmetric": 1.0},
        )

    def _compressed(
        self,
        model: FactorGraph,
        pots: Potentials,
        order: Order | None,
        clock: _Clock,
        rng: Generator,
    ) -> Marginals:
        """Marginals from trains; where these fail, by an order whose dense tables fit."""
        rank = _affordable(model, pots, self.rank, clock.budget)
        best: _Attempt | None = None
        for attempt in self._attempts(model, pots, rank, clock, rng):
            if best is None or attempt.badness < best.badness:
                best = attempt
            if order is not None and (self.escalate if not attempt.sound else attempt.rounded):
                return _dense(model, order)
            if attempt.sound or clock.spent:
                break
        if best is None:
            raise AssertionError("the first attempt is always made")
        stats = best.stats()
        if self.halving and not clock.spent and best.cut.rank > 1:
            half = best.cut._replace(rank=best.cut.rank // 2)
            rough = self._iterate(pots, best.layout, half, clock)
            stats["halving"] = distance(rough.probs, best.last.probs)
        drawn = None
        if self.samples and not clock.spent:
            drawn = self._check(model, pots, best, rng, stats)
        status = Status.DIVERGED
        if best.sound and (drawn is None or drawn):
            exact = best.exact and pots.steepness <= STEEP
            status = Status.EXACT if exact else Status.CONVERGED
        elif clock.spent:
            status = Status.BUDGET_SPENT
        return Marginals(best.last.probs, status, best.log_z, stats=stats)

    def _attempts(
        self, model: FactorGraph, pots: Potentials, rank: int, clock: _Clock, rng: Generator
    ) -> Iterator[_Attempt]:
        """Settings of growing effort: as given, weaker environment, annealed, larger rank."""
        while True:
            layout = find_layout(model, pots, rank, rng)
            yield self._attempt(
                pots, layout, Cut(rank, self.env_weight, self.tolerance, True), clock
            )
            if not self.escalate:
                return
            gentle = Cut(rank, min(1.0, self.env_weight), self.tolerance, True)
            yield self._attempt(pots, layout, gentle, clock)
            yield self._attempt(pots, layout, gentle, clock, anneal=True)
            if (
                2 * rank > self.max_rank
                or _bytes(layout, pots, 2 * rank) > clock.budget.table_bytes
            ):
                return
            rank *= 2

    def _attempt(
        self, pots: Potentials, layout: Layout, cut: Cut, clock: _Clock, anneal: bool = False
    ) -> _Attempt:
        env = _annealed(pots, layout, cut._replace(qr=False), clock) if anneal else None
        history: list[Pass] = []
        last = self._iterate(pots, layout, cut, clock, env, history)
        return _Attempt(layout, cut, last, history, anneal)

    def _iterate(
        self,
        pots: Potentials,
        layout: Layout,
        cut: Cut,
        clock: _Clock,
        env: Tape | None = None,
        history: list[Pass] | None = None,
    ) -> Pass:
        """Passes in turn until the spread of log Z stops falling; the pass of least spread."""
        done: list[Pass] = []
        limit = max(1, min(self.iterations, clock.budget.iterations))
        for k in range(limit):
            last = k > 0 or k == limit - 1
            qr = self.arithmetic == "qr" or (self.arithmetic == "auto" and last)
            done.append(both_passes(pots, layout, cut._replace(qr=qr), env))
            env = done[-1].backward
            if clock.spent:
                break
            if qr and done[-1].eps_max <= EXACT_SHARE and k > 0:
                break
            if k >= 2 and not done[-1].spread < 0.7 * done[-2].spread:
                break
        if history is not None:
            history.extend(done)
        return min(done[::-1], key=_badness)

    def _check(
        self,
        model: FactorGraph,
        pots: Potentials,
        best: _Attempt,
        rng: Generator,
        stats: dict[str, float],
    ) -> bool:
        """Importance weights of samples from the train; whether they agree with the raw answer."""
        states, log_q = draw(model, pots, best.layout, best.last.forward, self.samples, rng)
        drawn = Samples(states, log_q, log_potential(model, states))
        gap = distance(drawn.marginals(model.cards), best.last.probs)
        noise = 1.0 / math.sqrt(max(1.0, drawn.share * self.samples))
        stats |= {
            "sample_share": drawn.share,
            "sample_gap": gap,
            "sample_log_z": drawn.log_z,
            "sample_log_z_error": drawn.log_z_error,
        }
        return drawn.share > _SHARE_FLOOR and gap < _RAW_GAP + 2 * noise


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    layout: Layout
    cut: Cut
    last: Pass
    history: list[Pass]
    annealed: bool

    @property
    def badness(self) -> tuple[float, float]:
        return _badness(self.last)

    @property
    def sound(self) -> bool:
        return self.last.negative == 0.0 and self.last.spread <= SOUND_SPREAD

    @property
    def exact(self) -> bool:
        last = self.last
        kept = last.eps_max <= EXACT_SHARE and last.angle >= _LEAST_ANGLE
        return kept and last.spread <= 1e-10

    @property
    def rounded(self) -> bool:
        """Whether nothing was cut and digits are missing all the same."""
        return self.last.eps_max <= _UNCUT and not self.exact

    @property
    def log_z(self) -> float | None:
        found = self.last.log_z_steps[np.isfinite(self.last.log_z_steps)]
        return float(np.median(found)) if len(found) else None

    def stats(self) -> dict[str, float]:
        """Accounts of the attempt; `change` is between the last two pairs of passes."""
        past = self.history
        change = distance(past[-1].probs, past[-2].probs) if len(past) > 1 else math.nan
        return {
            "rank": float(self.cut.rank),
            "passes": float(len(past)),
            "spread": self.last.spread,
            "eps_sum": self.last.eps_sum,
            "eps_max": self.last.eps_max,
            "drift": self.last.drift,
            "angle": self.last.angle,
            "negative": self.last.negative,
            "change": change,
            "env_weight": self.cut.env_weight,
            "annealed": float(self.annealed),
            "frontier": float(self.layout.frontier),
            "predicted_cost": self.layout.cost,
        }


class _Clock:
    """Seconds left of a budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._end = time.perf_counter() + budget.seconds

    @property
    def spent(self) -> bool:
        return time.perf_counter() > self._end


def _dense(model: FactorGraph, order: Order) -> Marginals:
    probs, log_z = eliminate_dense(model, np.asarray(order.variables))
    return Marginals(probs, Status.EXACT, log_z, stats={"dense": 1.0})


_SEVERITY = [Status.EXACT, Status.CONVERGED, Status.BUDGET_SPENT, Status.DIVERGED]


def _badness(done: Pass) -> tuple[float, float]:
    return (done.negative, done.spread)


def _annealed(pots: Potentials, layout: Layout, cut: Cut, clock: _Clock) -> Tape | None:
    """Environment from hotter models: raise the scale while passes stay sound, else halve steps."""
    env: Tape | None = None
    scale, step = 0.0, 0.2
    while step > 0.02 and scale < 1.0 and not clock.spent:
        ahead = min(1.0, scale + step)
        done = both_passes(pots, layout, cut, env, ahead)
        if done.negative == 0.0 and done.spread < 0.5:
            env, scale = done.backward, ahead
            step = min(1.3 * step, 0.3)
        else:
            step /= 2
    return env


def _bytes(layout: Layout, pots: Potentials, rank: int) -> float:
    """Upper bound of the two tapes and the largest working arrays."""
    cores = float(pots.cards[layout.site].sum()) * rank**2
    carried = float(pots.cards.max(initial=1)) * rank
    longest = float(np.diff(layout.site_start).max(initial=1))
    return 8.0 * (2 * cores + 2 * longest * carried**2)


def _affordable(model: FactorGraph, pots: Potentials, rank: int, budget: Budget) -> int:
    """Largest rank up to the wanted one whose tapes fit the memory."""
    layout = find_layout(model, pots, rank, np.random.default_rng(0), restarts=0)
    while rank > 1 and _bytes(layout, pots, rank) > budget.table_bytes:
        rank //= 2
    needed = _bytes(layout, pots, rank)
    if needed > budget.table_bytes:
        raise BudgetError(
            f"even rank-one trains need {needed / 1e6:.0f} MB and the budget allows "
            f"{budget.table_bytes / 1e6:.0f} MB; raise --memory, or use a message-passing engine"
        )
    return rank


def _total(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(sum(known)) if len(known) == len(values) else None


_LEAST = {"sample_share", "angle"}
_ADDED = {"eps_sum", "drift", "spread", "predicted_cost", "sample_log_z"}


def _merged(parts: list[Marginals]) -> dict[str, float]:
    """Accounts of all parts: sums where errors add up, else the worst."""
    out: dict[str, float] = {}
    for part in parts:
        for key, value in part.stats.items():
            if key not in out:
                out[key] = value
            elif key in _ADDED:
                out[key] += value
            elif key in _LEAST:
                out[key] = min(out[key], value)
            else:
                out[key] = max(out[key], value)
    return out
