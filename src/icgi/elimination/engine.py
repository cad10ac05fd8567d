"""`ttve`: variable elimination with tensor-train factors, and an estimate of its own error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.elimination.attempts import UNUSABLE_SPREAD, Attempt, attempt
from icgi.elimination.batched import batched_passes, same_shape
from icgi.elimination.branches import Leaf, branch, combined, passes_checks
from icgi.elimination.dense import eliminate_dense
from icgi.elimination.errors import Signals, estimated_error, standard_errors
from icgi.elimination.joints import joint_marginals
from icgi.elimination.layout import Layout, bond_cost
from icgi.elimination.messages import message_marginals, unary_factors
from icgi.elimination.orders import find_layout, find_layouts, rule_seconds
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import Potentials, potentials, seconds_apart
from icgi.elimination.pre_elimination import PreEliminated, pre_eliminate
from icgi.elimination.run import NEGATIVE, OutOfTimeError, distance
from icgi.elimination.sampled_joints import sampled_joints
from icgi.elimination.sampling import Samples, draw, log_potential
from icgi.errors import BudgetError, IcgiError
from icgi.inference import (
    Budget,
    JointTables,
    Marginals,
    Scope,
    Status,
    infer,
    require_device,
)
from icgi.model.condition import Evidence, condition
from icgi.model.graph import FactorGraph
from icgi.model.ordering import Order, greedy_order, neighbours
from icgi.model.reduce import Component, components
from icgi.model.structure.barren import are_barren

_DENSE_TOTAL = 2**23  # entries of all dense tables together
# Log range of a table beyond which the digits that decide may be below those of double precision:
# a train then cannot be called exact, and small models go to logarithms.
STEEP = 20.0
# Spread of log Z, or distance of two layouts' answers, above which variables are enumerated.
_BRANCH_SPREAD = 0.005
_BRANCH_TARGET = 0.0025
_SECONDS_PER_FACTOR = 4e-7  # to look at a factor once
_SPEED = 1e8  # predicted cost that a pair of passes does in a second, roughly
_FOR_TRAINS = 0.9  # of the time, where joint marginals of the last train are needed as well
_LEAST_SETTINGS = {
    "rank": 1, "max_rank": 1, "iterations": 1, "env_weight": 0, "tolerance": 0, "exact_entries": 0,
    "samples": 0, "spread": 0, "layouts": 1, "branches": 0, "steps": 0,
}  # fmt: skip
MOST_ERROR = 0.01  # estimated error, on average over the variables, of what is called converged
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
        for found in self.answers(model, budget, rng):
            last = found
        return last

    def answers(self, model: FactorGraph, budget: Budget, rng: Generator) -> Iterator[Marginals]:
        """Answers after every round of the last connected part: messages, trains, branches."""
        clock = _Limits(budget.deadline(), budget)
        needed = 24.0 * model.n_variables * model.max_states
        if needed > budget.table_bytes:
            raise _too_large("the marginals alone", needed, budget)
        if model.n_variables and _SECONDS_PER_FACTOR * model.n_factors >= clock.left:
            yield _unknown(model)
            return
        parts = components(model)
        if not parts:
            constant = sum(float(t) for t in model.log_tables)
            probs = np.zeros((model.n_variables, model.max_states))
            yield Marginals(probs, Status.EXACT, constant)
            return
        before = [self._connected(part.model, clock, rng) for part in parts[:-1]]
        for found in self._rounds(parts[-1].model, clock, rng):
            yield _assembled(model, parts, [*before, found], sum(clock.work))

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

    def joints(
        self, model: FactorGraph, scopes: Sequence[Scope], budget: Budget, rng: Generator
    ) -> JointTables:
        """Joint marginals of any variables, from reweighted draws of an elimination."""
        return sampled_joints(model, scopes, self.rank, self.max_rank, budget, rng)

    def _together(
        self, models: Sequence[FactorGraph], budget: Budget, rng: Generator
    ) -> list[Marginals | None]:
        """Answers of batched passes, None where they are not accurate or not needed."""
        order = greedy_order(models[0], "min-fill")
        pots = [potentials(m) for m in models]
        small = _at_most(order.log2_table, self.exact_entries)
        if small or _even(pots[0]) or len(components(models[0])) > 1 or not budget.seconds > 0:
            return [None] * len(models)
        layout = find_layout(models[0], pots[0], self.rank, rng)
        rank = _affordable(layout, pots[0], self.rank, _Limits(budget.deadline(), budget))
        cut = Cut(rank, self.env_weight, self.tolerance, True)
        done = batched_passes(pots, layout, cut, self.iterations, str(self.device))
        spread, lowest = done.spread, done.mass.min((1, 2))
        return [
            Marginals(
                done.probs(k), Status.CONVERGED, float(np.median(done.log_z_steps[k])),
                std_error=standard_errors(Signals("train", done.probs(k), float(spread[k]))),
                stats={"spread": float(spread[k]), "eps_max": float(done.eps_max[k]),
                       "rank": float(rank), "negative": 0.0},
            )
            if spread[k] <= self.spread and lowest[k] >= NEGATIVE
            else None
            for k in range(len(models))
        ]  # fmt: skip

    def _connected(self, model: FactorGraph, clock: _Limits, rng: Generator) -> Marginals:
        for found in self._rounds(model, clock, rng):
            last = found
        return last

    def _rounds(self, model: FactorGraph, clock: _Limits, rng: Generator) -> Iterator[Marginals]:
        """Answers to a connected model, after every round of trains."""
        if seconds_apart(model) >= clock.left:
            yield _unknown(model)
            return
        pots = potentials(model)
        # what comes now looks at every factor in Python, some of it several times
        if clock.left <= 10 * _SECONDS_PER_FACTOR * model.n_factors:
            yield _rough(pots, clock)
            return
        if _even(pots) and model.n_variables > 1:
            order = _order(model, clock)
            if not (order is not None and self._small(order, clock)):
                yield self._mirrored(model, clock, rng)
                return
        else:
            order = _order(model, clock)
        if order is not None and self._small(order, clock):
            yield _dense(model, order, clock) or _rough(pots, clock)
            return
        fits = order is not None and _at_most(order.log2_entries, clock.dense_entries)
        # of the time, this much is for what may be of no use in the end
        reduced = pre_eliminate(model, self.steps, clock.dense_entries, clock.deadline.share(0.3))
        if not len(reduced.kept):
            yield reduced.exact()
            return
        if clock.spent:
            yield _rough(pots, clock)
            return
        remainder_pots = potentials(reduced.remainder) if len(reduced.collected.order) else pots
        if fits and order and max(pots.steepness, remainder_pots.steepness) > STEEP:
            yield _dense(model, order, clock) or _rough(pots, clock)
            return
        early = _rough(pots, clock, 0.1) if self.escalate else None
        rounds = self._compressed(reduced, remainder_pots, order if fits else None, clock, rng)
        answered = False
        for found in rounds:
            answered = True
            if clock.spent and found.status is Status.DIVERGED:
                found = replace(found, status=Status.BUDGET_SPENT)
            # a mixture of branches is better than messages nearly always, docs/engines/ttve.md
            if early is None or "branches" in found.stats or not _clearly_better(early, found):
                yield found
            else:
                yield replace(early, status=found.status, stats={**found.stats, "messages": 1.0})
        if not answered:
            yield early or _rough(pots, clock)

    def _small(self, order: Order, clock: _Limits) -> bool:
        """Whether dense tables are small enough to be taken without a thought."""
        fits = _at_most(order.log2_entries, clock.dense_entries)
        return fits and _at_most(order.log2_table, self.exact_entries)

    def _mirrored(self, model: FactorGraph, clock: _Limits, rng: Generator) -> Marginals:
        """Spins without fields: all marginals are ½; with one spin held, log Z = log 2 + log Z₀.

        The marginals are exact by symmetry. Without a sound log Z the answer is unfinished.
        """
        rest = components(condition(model, {0: 0}).model)
        answers = [self._connected(part.model, clock, rng) for part in rest]
        leaf = not self.escalate
        sound = all(a.status.trusted or (leaf and passes_checks(a)) for a in answers)
        log_z = _total([a.log_z for a in answers]) if sound else None
        status = Status.BUDGET_SPENT
        if log_z is not None:
            exact = all(a.status is Status.EXACT for a in answers)
            status = Status.EXACT if exact else Status.CONVERGED
        stats = _merged(answers)
        if "sample_log_z" in stats:
            stats["sample_log_z"] += math.log(2.0)
        return Marginals(
            np.full((model.n_variables, 2), 0.5),
            status,
            None if log_z is None else log_z + math.log(2.0),
            std_error=None if status is Status.EXACT else np.zeros((model.n_variables, 2)),
            stats={**stats, "symmetric": 1.0},
        )

    def _compressed(
        self,
        reduced: PreEliminated,
        pots: Potentials,
        order: Order | None,
        clock: _Limits,
        rng: Generator,
    ) -> Iterator[Marginals]:
        """Marginals from trains; where these fail, by an order whose dense tables fit.

        Nothing where not one pass could be completed.
        """
        model, remainder = reduced.model, reduced.remainder
        whole = clock.deadline
        if reduced.roots:  # the way back to what was eliminated needs joints of the last train
            clock = replace(clock, deadline=whole.share(_FOR_TRAINS))
        layouts = find_layouts(
            remainder, pots, self.rank, rng, self.layouts if self.escalate else 1,
            deadline=clock.deadline.share(0.3), most_sites=clock.budget.table_bytes // 100,
        )  # fmt: skip
        if not layouts:
            return
        rank = _affordable(layouts[0], pots, self.rank, clock)
        kept: Marginals | None = None
        while True:
            done: list[Attempt] = []
            for tried in self._attempts(layouts, pots, rank, clock):
                done.append(tried)
                clock.work.append(_cost(tried.layout, pots, rank) * len(tried.history) / _SPEED)
                good = tried.sound and tried.last.spread <= self.spread
                dense = tried.rounded if good else self.escalate and self.exact_entries > 0
                if order is not None and dense:
                    exact = _dense(model, order, clock)
                    if exact is not None:
                        yield exact
                        return
                if good or clock.spent:
                    break
                if kept is None and len(done) == 1 and self.escalate:  # a first word, unchecked
                    unchecked = replace(self, halving=False, samples=0)
                    yield unchecked._answer(reduced, pots, tried, clock, clock.deadline, rng)
            if not done:
                if kept is not None:  # again, now that the time is over
                    yield kept
                return
            best, *others = sorted(done, key=lambda x: x.badness)
            answer = self._answer(reduced, pots, best, clock, whole, rng)
            apart = [distance(best.last.probs, x.last.probs) for x in others[:1] if x.sound]
            if apart:
                answer = replace(answer, stats={**answer.stats, "apart": apart[0]})
            good = answer.status.trusted
            good &= max([best.last.spread, *apart]) <= _BRANCH_SPREAD
            before, finer = kept, iter([answer])
            if not good and self.escalate and not clock.spent:
                finer = self._branched(model, answer, rank, clock, rng)
            for answer in finer:
                # a later rank, perhaps cut short, replaces an earlier one only if clearly better
                better = before is None or _clearly_better(answer, before)
                kept = answer if better else before
                assert kept is not None
                yield kept
            wider = 2 * rank <= self.max_rank
            unfinished = answer.status is Status.DIVERGED
            if good or not self.escalate or clock.spent or not unfinished or not wider:
                return
            needed = _bytes(best.layout, pots, 2 * rank) + _prepared_bytes(pots)
            heavy = needed > clock.budget.table_bytes
            if heavy or _cost(best.layout, pots, 2 * rank) / _SPEED > clock.left:
                return
            rank *= 2

    def _attempts(
        self, layouts: list[Layout], pots: Potentials, rank: int, clock: _Limits
    ) -> Iterator[Attempt]:
        """Attempts of growing effort: as given, weaker environment, other layouts, annealed."""
        try_ = partial(
            attempt, pots, deadline=clock.deadline, arithmetic=self.arithmetic,
            iterations=max(1, min(self.iterations, clock.budget.sweeps())),
        )  # fmt: skip
        cut = Cut(rank, self.env_weight, self.tolerance, True)
        gentle = cut._replace(env_weight=min(1.0, self.env_weight))
        sound = not self.escalate
        for layout in layouts:
            first = try_(layout, cut)
            if first is None:
                return
            yield first
            tried = [first]
            if not first.sound and self.escalate:
                weaker = try_(layout, gentle)
                if weaker is None:
                    return
                tried.append(weaker)
                yield weaker
            sound |= any(x.sound for x in tried)
            if self.branches > 1 and self.escalate and all(x.unusable for x in tried):
                return  # conditioning mends what no layout or annealing did, docs/engines/ttve.md
        if not sound:
            annealed = try_(layouts[0], gentle, anneal=True)
            if annealed is not None:
                yield annealed

    def _branched(
        self, model: FactorGraph, root: Marginals, rank: int, clock: _Limits, rng: Generator
    ) -> Iterator[Marginals]:
        """The root, then answers by conditioning on a few variables, each in few attempts."""
        yield root
        leaf = replace(
            self, escalate=False, halving=False, samples=0,
            arithmetic="gram" if self.arithmetic == "auto" else "qr",
        )  # fmt: skip

        def solve(held: Evidence) -> Marginals:
            """Half the rank finds what no rank mends; the rest gets all of it."""

            def run(rank: int, weight: float) -> Marginals:
                budget = clock.budget.until(clock.deadline)
                given = replace(leaf, rank=rank, env_weight=weight)
                answer = infer(model, held, given, budget, rng)
                clock.work.append(answer.stats.get("work", 0.0))
                return answer

            found = []
            for weight in sorted({self.env_weight, min(1.0, self.env_weight)}, reverse=True):
                found.append(run(max(1, rank // 2), weight))
                if not _unusable(found[-1]) or clock.spent:
                    break
            best = min(found, key=_failure)
            rough = best.stats.get("spread", 0.0) > _BRANCH_TARGET
            if rough and not _unusable(best) and not clock.spent:
                best = min(best, run(rank, weight), key=_failure)
            return best

        for leaves in branch(model, root, solve, self.branches, _BRANCH_TARGET, clock.deadline):
            yield self._mixture(root, leaves, clock)

    def _mixture(self, root: Marginals, leaves: list[Leaf], clock: _Limits) -> Marginals:
        """Answer of a conditioning tree, or its root where that is better."""
        found = combined(leaves)
        if len(leaves) == 1:  # nothing was held: no second opinion, so the root's errors stand
            calm = found.status.trusted and estimated_error(root.std_error) <= MOST_ERROR
            return replace(root, status=Status.CONVERGED) if calm else root
        sound = root.status in (Status.EXACT, Status.CONVERGED)
        doubt = max(root.stats["spread"], root.stats.get("apart", 0.0))
        level = found.stats.get("spread", math.inf) + found.stats.get("unsound", 1.0)
        if found is root or (sound and level > doubt):
            return root
        stats = {**root.stats, **found.stats}
        moved = {"root": np.abs(found.probs - root.probs)}
        band = standard_errors(Signals("branches", found.probs, level, moved))
        # of leaves that fail their checks nothing is known
        unsound = found.stats.get("unsound", 1.0)
        band = np.maximum(band, unsound * standard_errors(Signals("unary", found.probs)))
        status = found.status
        if status is not Status.EXACT and estimated_error(band) > MOST_ERROR:
            status = Status.DIVERGED
        if status is Status.DIVERGED and clock.spent:
            status = Status.BUDGET_SPENT
        exact = status is Status.EXACT
        found = replace(found, status=status, std_error=None if exact else band, stats=stats)
        return found if _unusable(root) else min(found, root, key=_expected_error)

    def _answer(
        self,
        reduced: PreEliminated,
        pots: Potentials,
        best: Attempt,
        clock: _Limits,
        whole: Deadline,
        rng: Generator,
    ) -> Marginals:
        """Best attempt with its checks and status; variables eliminated before are put back."""
        stats = {**best.stats(), "steps": float(reduced.steps)}
        rough: Attempt | None = None
        if self.halving and not clock.spent and best.cut.rank > 1:
            half = best.cut._replace(rank=best.cut.rank // 2)
            rough = attempt(
                pots, best.layout, half, clock.deadline,
                iterations=self.iterations, arithmetic=self.arithmetic,
            )  # fmt: skip
            if rough is not None:
                stats["halving"] = distance(rough.last.probs, best.last.probs)
        drawn = True
        if self.samples and not clock.spent:
            drawn = self._check(reduced.remainder, pots, best, clock, rng, stats)
        joints = joint_marginals(pots, best.layout, best.last, reduced.roots, whole)
        probs = reduced.restore(best.last.probs, joints)
        complete = len(joints) == len(reduced.roots)
        rougher = None
        if rough is not None and reduced.roots and not clock.spent:
            joints = joint_marginals(pots, rough.layout, rough.last, reduced.roots, whole)
            if len(joints) == len(reduced.roots):
                rougher = reduced.restore(rough.last.probs, joints)
        checked = best.sound and drawn and complete
        if checked and best.exact and pots.steepness <= STEEP:
            return Marginals(probs, Status.EXACT, best.log_z, stats=stats)
        moved = {}
        if len(best.history) > 1:
            moved["change"] = np.abs(best.history[-1] - best.history[-2])
        if rough is not None:
            moved["halving"] = np.abs(rough.last.probs - best.last.probs)
        barren = are_barren(reduced.model)
        if barren.any():
            stats["barren"] = float(barren.sum())
        signals = Signals(
            "train", best.last.probs, best.last.spread, moved, best.last.eps_sum,
            barren[reduced.kept],
        )  # fmt: skip
        errors = standard_errors(signals)
        if best.unusable:
            errors = np.maximum(errors, standard_errors(Signals("unary", best.last.probs)))
        band = reduced.restore_errors(errors, probs, rougher)
        if not complete:  # eliminated variables were led back by guesses
            gone = np.setdiff1d(np.arange(len(probs)), reduced.kept)
            band[gone] = np.maximum(band[gone], standard_errors(Signals("unary", probs[gone])))
        status = Status.BUDGET_SPENT if clock.spent else Status.DIVERGED
        if checked and estimated_error(band) <= MOST_ERROR:
            status = Status.CONVERGED
        return Marginals(probs, status, best.log_z, std_error=band, stats=stats)

    def _check(
        self,
        model: FactorGraph,
        pots: Potentials,
        best: Attempt,
        clock: _Limits,
        rng: Generator,
        stats: dict[str, float],
    ) -> bool:
        """Importance weights of samples from the train; whether they agree with the raw answer.

        Without the time to draw them there is nothing to disagree.
        """
        try:
            states, log_q = draw(
                model, pots, best.layout, best.last.forward, self.samples, rng, clock.deadline
            )
        except OutOfTimeError:
            return True
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


def _assembled(
    model: FactorGraph, parts: Sequence[Component], answers: Sequence[Marginals], work: float
) -> Marginals:
    """Answer of the whole from those of its connected parts."""
    probs = np.zeros((model.n_variables, model.max_states))
    errors = np.zeros_like(probs)
    for part, answer in zip(parts, answers, strict=True):
        columns = answer.probs.shape[1]
        probs[part.variables, :columns] = answer.probs
        if answer.std_error is not None:
            errors[part.variables, :columns] = answer.std_error
    status = max((each.status for each in answers), key=_SEVERITY.index)
    known = (model.cards < 2)[:, None] | (np.arange(model.max_states) >= model.cards[:, None])
    errors[known] = 0.0
    return Marginals(
        probs,
        status,
        _total([each.log_z for each in answers]),
        std_error=None if status is Status.EXACT else errors,
        stats=_merged(answers) | {"work": work},
    )


def _failure(answer: Marginals) -> tuple[float, float]:
    """Negative probabilities and spread of one attempt, as it says itself."""
    return answer.stats.get("negative", 0.0), answer.stats.get("spread", 0.0)


def _unusable(answer: Marginals) -> bool:
    negative, spread = _failure(answer)
    return negative > 0.0 or not spread < UNUSABLE_SPREAD


def _dense(model: FactorGraph, order: Order, clock: _Limits) -> Marginals | None:
    done = eliminate_dense(model, np.asarray(order.variables), clock.deadline)
    if done is None:
        return None
    return Marginals(done[0], Status.EXACT, done[1], stats={"dense": 1.0})


@dataclass(frozen=True, slots=True)
class _Limits:
    """Time and memory of one answer, and what was done with them."""

    deadline: Deadline
    budget: Budget = field(default_factory=Budget)
    # Passes so far, each in the core-seconds that an ordinary machine would need for it.
    work: list[float] = field(default_factory=list)

    @property
    def spent(self) -> bool:
        return self.deadline.passed

    @property
    def left(self) -> float:
        return self.deadline.left

    @property
    def dense_entries(self) -> int:
        """Entries of all dense tables together: tables, beliefs and scratch take 32 bytes each."""
        return min(_DENSE_TOTAL, self.budget.table_bytes // 32)


def _at_most(log2_entries: float, entries: int) -> bool:
    """Whether 2^log2_entries is at most so many; the power itself may be out of range."""
    return entries > 0 and log2_entries <= math.log2(entries)


def _order(model: FactorGraph, clock: _Limits) -> Order | None:
    """Order of a greedy rule, or of a sweep where there is no time for the rule."""
    edges = len(neighbours(model)[1])
    complete = edges == model.n_variables * (model.n_variables - 1)
    quick = not complete and rule_seconds(edges) > 0.3 * clock.left
    rule = "smallest-front" if quick or complete else "min-fill"
    return greedy_order(model, rule, seconds=0.5 * clock.left)


def _even(pots: Potentials) -> bool:
    """Whether a model has spins only, no zeros, and no field: it equals its mirror image."""
    free = pots.cards == 2
    plain = free.all() and not pots.wide and bool(np.isfinite(pots.pair).all())
    return bool(plain) and np.array_equal(pots.unary[:, 0], pots.unary[:, 1])


def _unknown(model: FactorGraph) -> Marginals:
    """Answer where there was no time for anything: what the factors of one variable say."""
    probs = unary_factors(model)
    band = standard_errors(Signals("unary", probs))
    return Marginals(probs, Status.BUDGET_SPENT, std_error=band, stats={"passes": 0.0})


def _rough(pots: Potentials, clock: _Limits, share: float = 1.0) -> Marginals:
    """Answer where no train was finished: messages over pairs, or the unary parts.

    Takes at most a share of the time that is left.
    """
    messages = not (pots.wide or clock.spent)
    probs, at_rest = message_marginals(pots, clock.deadline.share(share))
    way = ("fixed point" if at_rest else "messages") if messages else "unary"
    band = standard_errors(Signals(way, probs))
    return Marginals(probs, Status.BUDGET_SPENT, std_error=band, stats={"passes": 0.0})


def _expected_error(answer: Marginals) -> tuple[bool, float]:
    """What answers are compared by: whether they are trusted, then their estimated error."""
    return not answer.status.trusted, estimated_error(answer.std_error)


def _clearly_better(answer: Marginals, other: Marginals) -> bool:
    """Whether an answer is trusted and the other not, or states less error by a fifth."""
    doubtful, error = _expected_error(answer)
    other_doubtful, other_error = _expected_error(other)
    return (doubtful, error) < (other_doubtful, 0.8 * other_error)


def _too_large(what: str, needed: float, budget: Budget) -> BudgetError:
    return BudgetError(
        f"{what} need {needed / 1e6:.0f} MB and the budget allows "
        f"{budget.table_bytes / 1e6:.0f} MB; give it a larger memory budget, or use a "
        "message-passing engine"
    )


_SEVERITY = [Status.EXACT, Status.CONVERGED, Status.BUDGET_SPENT, Status.DIVERGED]


def _bytes(layout: Layout, pots: Potentials, rank: int) -> float:
    """Upper bound of what passes hold: tapes of three pairs while they grow, tables, scratch."""
    d = pots.cards[layout.site].astype(float)
    right = np.where(layout.caps >= 0, np.exp2(np.minimum(layout.caps, np.log2(rank))), rank)
    left = np.concatenate([[rank], right[:-1]])
    left[layout.site_start[:-1]] = rank
    owner = np.repeat(layout.step_variable, np.diff(layout.site_start))
    states = np.where(owner >= 0, pots.cards[np.maximum(owner, 0)], 1)
    carried = float(pots.cards.max(initial=1)) * rank
    longest = float(np.diff(layout.site_start).max(initial=1))
    tables = float((d * states**2).sum())
    lists = 6.0 * len(layout.site)
    return 8.0 * (6 * float((d * left * right).sum()) + tables + 2 * longest * carried**2 + lists)


def _prepared_bytes(pots: Potentials) -> float:
    """What a model in small pieces takes while it is prepared, mostly for Python's objects."""
    return 1000.0 * (len(pots.pair_first) + len(pots.wide) + len(pots.cards))


def _cost(layout: Layout, pots: Potentials, rank: int) -> float:
    return bond_cost(pots.cards, layout.step_variable, layout.site_start, layout.caps, rank)


def _affordable(layout: Layout, pots: Potentials, rank: int, clock: _Limits) -> int:
    """Largest rank up to the wanted one whose tapes fit the memory and whose passes fit the time.

    Of the seconds left a quarter is for the first pair of passes.
    """
    allowed = clock.budget.table_bytes - _prepared_bytes(pots)
    while rank > 1 and (
        _bytes(layout, pots, rank) > allowed or _cost(layout, pots, rank) / _SPEED > clock.left / 4
    ):
        rank //= 2
    needed = _bytes(layout, pots, rank)
    if needed > max(allowed, 0.5 * clock.budget.table_bytes):
        raise _too_large("even rank-one trains", needed, clock.budget)
    return rank


def _total(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(sum(known)) if len(known) == len(values) else None


_LEAST = {"sample_share", "angle", "passes"}
_ADDED = {"eps_sum", "drift", "spread", "predicted_cost", "sample_log_z", "steps", "barren"}


def _merged(parts: Sequence[Marginals]) -> dict[str, float]:
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
