"""`ttve`: variable elimination with tensor-train factors, and an honest word on its own error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.elimination.attempts import WRECK_SPREAD, Attempt, Clock, attempt
from icgi.elimination.batched import batched_passes, same_shape
from icgi.elimination.branches import branch, combined
from icgi.elimination.dense import eliminate_dense
from icgi.elimination.joints import joint_marginals
from icgi.elimination.layout import Layout
from icgi.elimination.orders import find_layout, find_layouts
from icgi.elimination.passes import Cut
from icgi.elimination.peel import Peeled, peel
from icgi.elimination.potentials import Potentials, potentials
from icgi.elimination.run import NEGATIVE, distance
from icgi.elimination.sampling import Samples, draw, log_potential
from icgi.errors import BudgetError, IcgiError
from icgi.inference import Budget, Marginals, Status, infer, require_device
from icgi.model.condition import Evidence, condition
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising
from icgi.model.ordering import Order, greedy_order
from icgi.model.reduce import components

_DENSE_TOTAL = 2**23  # entries of all dense tables together
# Log range of a table beyond which the digits that decide may be below those of double precision:
# a train then cannot be called exact, and small models go to logarithms.
STEEP = 20.0
# Spread of log Z, or distance of two layouts' answers, above which variables are enumerated.
_BRANCH_SPREAD = 0.005
_BRANCH_TARGET = 0.0025
_SPEED = 1e8  # predicted cost that a pair of passes does in a second, roughly
_LEAST_SETTINGS = {
    "rank": 1, "max_rank": 1, "iterations": 1, "env_weight": 0, "tolerance": 0, "exact_entries": 0,
    "samples": 0, "spread": 0, "layouts": 1, "branches": 0, "steps": 0,
}  # fmt: skip
_SHARE_FLOOR = 0.02  # effective sample share below which the samples contradict the train
_RAW_GAP = 0.1  # mean |raw − reweighted| beyond noise that contradicts it, too


@dataclass(frozen=True, slots=True)
class TensorTrainElimination:
    """All marginals and log Z by eliminating every variable into one tensor train and walking back.

    The frontier of eliminated and remaining variables is a train of bonds up to `rank`; bonds are
    truncated with the other pass as environment, repeatedly. Exact while no bond is cut. A failed
    self-check is met by a weaker environment, by other layouts, by annealing, by conditioning on
    a few variables, then by doubling the rank up to `max_rank`; if it still fails, the status
    says so.
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
    spread: float = 2e-3  # of log Z over the steps, above which other layouts are tried
    layouts: int = 3  # orders and positions to try
    branches: int = 64  # leaves of the conditioning tree, where trains of the whole model fail
    steps: int | None = None  # variables eliminated exactly before trains; None: all cheap ones
    device: str | None = None  # torch device for batches of models of one shape; None: compiled

    def __post_init__(self) -> None:
        for name, least in _LEAST_SETTINGS.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise IcgiError(f"ttve: {name}={value} is too small; give {least} or more")
        if self.device is not None:
            require_device(self.device)

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Solve every connected part; log Z adds up, the worst status counts."""
        clock = Clock(budget)
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

    def batch(
        self,
        models: Sequence[FactorGraph],
        budget: Budget,
        rngs: Sequence[Generator],
        threads: int | None = None,
    ) -> list[Marginals] | None:
        """Marginals of many pairwise models of one shape at once on the `device`, else None.

        What the batch does not settle (small tables, unsound trains) is solved one by one.
        """
        if self.device is None or len(models) < 2 or not same_shape(models):
            return None
        found = self._together(models, budget, rngs[0])
        return [
            self(model, budget, rng) if done is None else done
            for model, rng, done in zip(models, rngs, found, strict=True)
        ]

    def _together(
        self, models: Sequence[FactorGraph], budget: Budget, rng: Generator
    ) -> list[Marginals | None]:
        """Answers of batched passes, None where they are not accurate or not needed."""
        order = greedy_order(models[0], "min-fill")
        spins = as_ising(models[0])
        even = spins is not None and not spins.fields.any()
        if 2.0**order.log2_table <= self.exact_entries or even or len(components(models[0])) > 1:
            return [None] * len(models)
        pots = [potentials(m) for m in models]
        rank = _affordable(models[0], pots[0], self.rank, budget)
        layout = find_layout(models[0], pots[0], rank, rng)
        cut = Cut(rank, self.env_weight, self.tolerance, True)
        done = batched_passes(pots, layout, cut, self.iterations, str(self.device))
        spread, lowest = done.spread, done.mass.min((1, 2))
        return [
            Marginals(
                done.probs(k), Status.CONVERGED, float(np.median(done.log_z_steps[k])),
                stats={"spread": float(spread[k]), "eps_max": float(done.eps_max[k]),
                       "rank": float(rank), "negative": 0.0},
            )
            if spread[k] <= self.spread and lowest[k] >= NEGATIVE
            else None
            for k in range(len(models))
        ]  # fmt: skip

    def _connected(self, model: FactorGraph, clock: Clock, rng: Generator) -> Marginals:
        order = greedy_order(model, "min-fill")
        most = min(_DENSE_TOTAL, clock.budget.table_bytes // 16)
        fits = 2.0**order.log2_entries <= most
        if fits and 2.0**order.log2_table <= self.exact_entries:
            return _dense(model, order)
        spins = as_ising(model)
        if spins is not None and not spins.fields.any() and model.n_variables > 1:
            return self._mirrored(model, clock, rng)
        peeled = peel(model, self.steps, most)
        if not len(peeled.kept):
            return peeled.exact()
        pots = potentials(peeled.core)
        if fits and max(potentials(model).steepness, pots.steepness) > STEEP:
            return _dense(model, order)
        return self._compressed(peeled, pots, order if fits else None, clock, rng)

    def _mirrored(self, model: FactorGraph, clock: Clock, rng: Generator) -> Marginals:
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
        peeled: Peeled,
        pots: Potentials,
        order: Order | None,
        clock: Clock,
        rng: Generator,
    ) -> Marginals:
        """Marginals from trains; where these fail, by an order whose dense tables fit."""
        model, core = peeled.model, peeled.core
        rank = _affordable(core, pots, self.rank, clock.budget)
        while True:
            done: list[Attempt] = []
            for tried in self._attempts(core, pots, rank, clock, rng):
                done.append(tried)
                good = tried.sound and tried.last.spread <= self.spread
                dense = tried.rounded if good else self.escalate and self.exact_entries > 0
                if order is not None and dense:
                    return _dense(model, order)
                if good or clock.spent:
                    break
            best, *others = sorted(done, key=lambda x: x.badness)
            answer = self._answer(peeled, pots, best, clock, rng)
            apart = [distance(best.last.probs, x.last.probs) for x in others[:1] if x.sound]
            if apart:
                answer = replace(answer, stats={**answer.stats, "apart": apart[0]})
            good = answer.status in (Status.EXACT, Status.CONVERGED)
            good &= max([best.last.spread, *apart]) <= _BRANCH_SPREAD
            if good or not self.escalate or clock.spent:
                return answer
            answer = self._branched(model, answer, rank, clock, rng)
            wider = 2 * rank <= self.max_rank
            if answer.status is not Status.DIVERGED or clock.spent or not wider:
                return answer
            heavy = _bytes(best.layout, pots, 2 * rank) > clock.budget.table_bytes
            if heavy or 8 * best.layout.cost / _SPEED > clock.left:
                return answer
            rank *= 2

    def _attempts(
        self, model: FactorGraph, pots: Potentials, rank: int, clock: Clock, rng: Generator
    ) -> Iterator[Attempt]:
        """Attempts of growing effort: as given, weaker environment, other layouts, annealed."""
        try_ = partial(
            attempt, pots, clock=clock, iterations=self.iterations, arithmetic=self.arithmetic
        )
        cut = Cut(rank, self.env_weight, self.tolerance, True)
        gentle = cut._replace(env_weight=min(1.0, self.env_weight))
        layouts = find_layouts(model, pots, rank, rng, self.layouts if self.escalate else 1)
        sound = not self.escalate
        for layout in layouts:
            tried = [try_(layout, cut)]
            yield tried[0]
            if not tried[0].sound and self.escalate:
                tried.append(try_(layout, gentle))
                yield tried[1]
            sound |= any(x.sound for x in tried)
            if self.branches > 1 and self.escalate and all(x.wreck for x in tried):
                return  # conditioning mends what no layout or annealing did, docs/engines/ttve.md
        if not sound:
            yield try_(layouts[0], gentle, anneal=True)

    def _branched(
        self, model: FactorGraph, root: Marginals, rank: int, clock: Clock, rng: Generator
    ) -> Marginals:
        """Answer by conditioning on a few variables, each branch in few attempts."""
        leaf = replace(
            self, escalate=False, halving=False, samples=0,
            arithmetic="gram" if self.arithmetic == "auto" else "qr",
        )  # fmt: skip

        def solve(held: Evidence) -> Marginals:
            """Half the rank finds the wrecks, which more rank does not mend; the rest gets all."""

            def run(rank: int, weight: float) -> Marginals:
                budget = replace(clock.budget, seconds=max(clock.left, 0.0))
                given = replace(leaf, rank=rank, env_weight=weight)
                return infer(model, held, given, budget, rng)

            found = []
            for weight in sorted({self.env_weight, min(1.0, self.env_weight)}, reverse=True):
                found.append(run(max(1, rank // 2), weight))
                if not _wrecked(found[-1]) or clock.spent:
                    break
            best = min(found, key=_wreckage)
            rough = best.stats.get("spread", 0.0) > _BRANCH_TARGET
            if rough and not _wrecked(best) and not clock.spent:
                best = min(best, run(rank, weight), key=_wreckage)
            return best

        found = combined(branch(model, root, solve, self.branches, _BRANCH_TARGET, clock))
        sound = root.status in (Status.EXACT, Status.CONVERGED)
        doubt = max(root.stats["spread"], root.stats.get("apart", 0.0))
        if sound and found.stats["spread"] + found.stats["unsound"] > doubt:
            return root
        stats = {**root.stats, **found.stats}
        if found.status is Status.DIVERGED and clock.spent:
            return replace(found, status=Status.BUDGET_SPENT, stats=stats)
        return replace(found, stats=stats)

    def _answer(
        self, peeled: Peeled, pots: Potentials, best: Attempt, clock: Clock, rng: Generator
    ) -> Marginals:
        """Best attempt with its checks and its status, and the peeled variables put back."""
        stats = {**best.stats(), "steps": float(peeled.steps)}
        if self.halving and not clock.spent and best.cut.rank > 1:
            half = best.cut._replace(rank=best.cut.rank // 2)
            rough = attempt(
                pots, best.layout, half, clock,
                iterations=self.iterations, arithmetic=self.arithmetic,
            )  # fmt: skip
            stats["halving"] = distance(rough.last.probs, best.last.probs)
        drawn = True
        if self.samples and not clock.spent:
            drawn = self._check(peeled.core, pots, best, rng, stats)
        status = Status.BUDGET_SPENT if clock.spent else Status.DIVERGED
        if best.sound and drawn:
            exact = best.exact and pots.steepness <= STEEP
            status = Status.EXACT if exact else Status.CONVERGED
        joints = joint_marginals(pots, best.layout, best.last, peeled.roots)
        probs = peeled.restore(best.last.probs, joints)
        return Marginals(probs, status, best.log_z, stats=stats)

    def _check(
        self,
        model: FactorGraph,
        pots: Potentials,
        best: Attempt,
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


def _wreckage(answer: Marginals) -> tuple[float, float]:
    """Negative probabilities and spread of one attempt, as it says itself."""
    return answer.stats.get("negative", 0.0), answer.stats.get("spread", 0.0)


def _wrecked(answer: Marginals) -> bool:
    negative, spread = _wreckage(answer)
    return negative > 0.0 or not spread < WRECK_SPREAD


def _dense(model: FactorGraph, order: Order) -> Marginals:
    probs, log_z = eliminate_dense(model, np.asarray(order.variables))
    return Marginals(probs, Status.EXACT, log_z, stats={"dense": 1.0})


_SEVERITY = [Status.EXACT, Status.CONVERGED, Status.BUDGET_SPENT, Status.DIVERGED]


def _bytes(layout: Layout, pots: Potentials, rank: int) -> float:
    """Upper bound of the two tapes and the largest working arrays."""
    cores = float(pots.cards[layout.site].sum()) * rank**2
    carried = float(pots.cards.max(initial=1)) * rank
    longest = float(np.diff(layout.site_start).max(initial=1))
    return 8.0 * (2 * cores + 2 * longest * carried**2)


def _affordable(model: FactorGraph, pots: Potentials, rank: int, budget: Budget) -> int:
    """Largest rank up to the wanted one whose tapes fit the memory and whose passes fit the time.

    Of the seconds a quarter is for the first pair of passes.
    """
    layout = find_layout(model, pots, rank, np.random.default_rng(0), restarts=0)
    cost = layout.cost
    while rank > 1 and (
        _bytes(layout, pots, rank) > budget.table_bytes or cost / _SPEED > budget.seconds / 4
    ):
        rank, cost = rank // 2, cost / 8
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
_ADDED = {"eps_sum", "drift", "spread", "predicted_cost", "sample_log_z", "steps"}


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
