"""One model as several pieces of work, and one answer from theirs.

Sampling is divided into independent runs, a model that is not connected into its components, and
elimination by conditioning on a few variables: p = Σ_c Z_c p_c / Σ_c Z_c over their states. The
pieces, each with a seed of its own, decide the answer; who works on them, and in which order they
end, does not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from icgi.elimination.engine import TensorTrainElimination
from icgi.errors import EvidenceError, UnsupportedModelError
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Engine, Marginals, Status
from icgi.model.condition import Evidence, condition
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ordering import greedy_order
from icgi.model.reduce import Component, components
from icgi.portfolio.auto import assembled, united
from icgi.portfolio.exact import Exact
from icgi.sampling.annealing import PopulationAnnealing
from icgi.sampling.diagnostics import student
from icgi.sampling.tempering import SMALL, ParallelTempering

SAMPLERS = (ParallelTempering, PopulationAnnealing)
CONDITIONED = (TensorTrainElimination, JunctionTree, Exact)
LARGEST = 0.75  # share of the table entries up to which a component is no reason to divide it
CANDIDATES = 12  # variables that are compared for each one that is conditioned on
MOST_STATES = 8  # of such a variable
_WORST = (Status.EXACT, Status.CONVERGED, Status.AT_REST, Status.ESTIMATED, Status.BUDGET_SPENT)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A question to the engine, with numbers of its own."""

    model: FactorGraph
    seed: int
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """All pieces of a model, and what makes one answer of theirs."""

    pieces: tuple[Piece, ...]
    words: str  # "4 independent runs"
    combine: Callable[[Sequence[Marginals | None]], Marginals]
    """From the answers of all pieces, None for one that is impossible."""


def divide(model: FactorGraph, engine: Engine, parts: int, rng: Generator) -> Division:
    """Divide a (conditioned) model into about so many pieces for an engine.

    Raises `UnsupportedModelError` where the engine's work on this model is one piece.
    """
    if isinstance(engine, SAMPLERS):
        pieces = tuple(Piece(model, seed) for seed in _seeds(rng, parts))
        return Division(pieces, f"{parts} independent runs", pooled)
    found = components(model)
    sizes = [sum(table.size for table in part.model.log_tables) for part in found]
    if len(found) > 1 and max(sizes) <= LARGEST * sum(sizes):
        groups = _grouped(found, sizes, parts)
        pieces = tuple(
            Piece(group.model, seed)
            for group, seed in zip(groups, _seeds(rng, len(groups)), strict=True)
        )
        return Division(
            pieces, f"{len(found)} connected parts in {len(groups)} groups",
            lambda answers: _whole(model, groups, answers),
        )  # fmt: skip
    if isinstance(engine, CONDITIONED):
        held = cutset(model, parts)
        if held:
            leaves = _states(model, held)
            seeds = _seeds(rng, len(leaves))
            pieces = tuple(Piece(model, s, e) for s, e in zip(seeds, leaves, strict=True))
            words = f"conditioning on {len(held)} variable{'s' * (len(held) > 1)}"
            return Division(pieces, f"{len(leaves)} branches by {words}", mixed)
    raise UnsupportedModelError(
        "this engine's work on this model is one piece, so workers do not help: pt and pa divide "
        "into independent runs, ttve, jt and exact into branches of conditioning, every engine "
        "into connected parts"
    )


def cutset(model: FactorGraph, parts: int) -> list[int]:
    """Variables whose states are at least so many together; each leaves the cheapest elimination.

    Those with most neighbours are compared; fewer states where no variable is left.
    """
    held: list[int] = []
    left = model
    while math.prod(int(model.cards[i]) for i in held) < parts:
        joined = np.zeros(model.n_variables)
        for scope in left.scopes:
            joined[list(scope)] += len(scope) - 1
        joined[(left.cards < 2) | (left.cards > MOST_STATES)] = 0.0
        near = np.argsort(-joined, kind="stable")[:CANDIDATES]
        tried = []
        for i in near[joined[near] > 0].tolist():
            without = left_without(left, i)
            tried.append((greedy_order(without, "min-fill").log2_entries, i, without))
        if not tried:
            break
        _, best, left = min(tried, key=lambda each: each[:2])
        held.append(best)
    return held


def left_without(model: FactorGraph, i: int) -> FactorGraph:
    """Shape of a model with one variable held: its axis taken at the first state."""
    scopes, tables = [], []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if i in scope:
            table = np.take(table, 0, scope.index(i))
            scope = tuple([j for j in scope if j != i])
        scopes.append(scope)
        tables.append(np.zeros(table.shape))
    cards = model.cards.copy()
    cards[i] = 1
    return FactorGraph(cards, tuple(scopes), tuple(tables))


def pooled(answers: Sequence[Marginals | None]) -> Marginals:
    """One answer from independent runs of a sampler, weighted by their sweeps.

    Its error is the larger of what the runs state, Σ_k w_k² e_k², and of the deviation ŝ/√M of all
    M ensembles of all runs, for which ŝ² = Σ_k [(m − 1) ŝ_k² + m (p_k − p)²] / (M − 1).
    """
    runs = [answer for answer in answers if answer is not None]
    if not runs:
        raise EvidenceError("no configuration has non-zero probability")
    if len(runs) == 1 or all(run.status is Status.EXACT for run in runs):
        return runs[0]
    weight = np.array([max(run.stats.get("sweeps", 1.0), 1.0) for run in runs])
    weight = weight / weight.sum()
    probs = _mean([run.probs for run in runs], weight)
    stated = [np.zeros_like(probs) if run.std_error is None else run.std_error for run in runs]
    own = np.sqrt(_mean([e**2 for e in stated], weight**2))
    each = np.array([max(run.stats.get("ensembles", run.stats.get("runs", 1.0)), 1.0)
                     for run in runs])  # fmt: skip
    spread = [0.0 if run.deviation is None else run.deviation[:, None] for run in runs]
    apart = sum(
        (m - 1.0) * np.square(s) + m * (run.probs - probs) ** 2
        for m, s, run in zip(each, spread, runs, strict=True)
    )
    deviation = np.sqrt(apart / (each.sum() - 1.0))
    between = np.where(own > 0, deviation / math.sqrt(each.sum()), 0.0)  # no error: by symmetry
    error = np.maximum(own, between) * student(own, between, int(each.sum()) - 1)
    sound = all(run.status.trusted for run in runs) and float(error.max()) <= SMALL
    stats = {key: sum(run.stats.get(key, 0.0) for run in runs) for key in ("sweeps", "work")}
    stats |= {"pieces": float(len(runs)), "ensembles": float(each.sum())}
    stats |= {"std_error": float(error.max())}
    stats |= {"rhat": max(run.stats.get("rhat", 1.0) for run in runs)}
    known = [run.log_z for run in runs if run.log_z is not None]
    log_z = float(weight @ known) if len(known) == len(runs) else None
    if log_z is not None:
        own_z = sum((w * run.stats.get("log_z_std_error", 0.0)) ** 2
                    for w, run in zip(weight, runs, strict=True))  # fmt: skip
        stats["log_z_std_error"] = max(
            math.sqrt(own_z), float(np.std(known, ddof=1)) / math.sqrt(len(runs))
        )
    ess = [run.ess for run in runs if run.ess is not None]
    rhat = [run.rhat for run in runs if run.rhat is not None]
    return Marginals(
        probs,
        Status.CONVERGED if sound else Status.BUDGET_SPENT,
        log_z,
        std_error=error,
        deviation=np.where(own > 0, deviation, 0.0).max(1),
        ess=np.sum(ess, 0) if len(ess) == len(runs) else None,
        rhat=np.max(rhat, 0) if len(rhat) == len(runs) else None,
        stats=stats,
    )


def mixed(answers: Sequence[Marginals | None]) -> Marginals:
    """Mixture of the branches of conditioning by their weights Z_c, of which all must be known.

    Its error is Σ_c w_c e_c, besides Σ_c w_c |p_c − p| σ_c from the errors σ_c of the log Z_c.
    """
    leaves = [answer for answer in answers if answer is not None]
    if not leaves:
        raise EvidenceError("no configuration has non-zero probability in any branch")
    log_z = np.array([math.nan if leaf.log_z is None else leaf.log_z for leaf in leaves])
    known = bool(np.isfinite(log_z).all())
    if not np.isfinite(log_z).any():
        raise UnsupportedModelError("no branch has a log Z, so none can be weighed against others")
    log_z = np.where(np.isfinite(log_z), log_z, -np.inf)
    total = float(np.logaddexp.reduce(log_z))
    weight = np.exp(log_z - total)
    probs = _mean([leaf.probs for leaf in leaves], weight)
    status = max((leaf.status for leaf in leaves), key=_severity)
    if not known:
        status = Status.DIVERGED
    stats = {"pieces": float(len(leaves)), "heaviest": float(weight.max())}
    stats |= {"work": sum(leaf.stats.get("work", 0.0) for leaf in leaves)}
    if status is Status.EXACT:
        return Marginals(probs, status, total, stats=stats)
    stated = [np.zeros_like(probs) if leaf.std_error is None else leaf.std_error for leaf in leaves]
    doubt = np.array([leaf.stats.get("spread", 0.0) for leaf in leaves])
    error = _mean(stated, weight)
    error += _mean([np.abs(leaf.probs - probs) for leaf in leaves], weight * doubt)
    stats["spread"] = float(weight @ doubt)
    return Marginals(probs, status, total, std_error=error, stats=stats)


def _whole(
    model: FactorGraph, groups: Sequence[Component], answers: Sequence[Marginals | None]
) -> Marginals:
    if any(answer is None for answer in answers):
        raise EvidenceError("a connected part of the model has no configuration at all")
    found = assembled(model, groups, answers)
    return replace(found, stats={**found.stats, "pieces": float(len(groups))})


def _grouped(found: Sequence[Component], sizes: Sequence[int], parts: int) -> list[Component]:
    """Components in so many groups of about the same size."""
    groups: list[list[Component]] = [[] for _ in range(min(parts, len(found)))]
    filled = [0] * len(groups)
    for size, k in sorted(((size, k) for k, size in enumerate(sizes)), reverse=True):
        least = filled.index(min(filled))
        groups[least].append(found[k])
        filled[least] += size
    return [group[0] if len(group) == 1 else united(group) for group in groups]


def _states(model: FactorGraph, held: Sequence[int]) -> list[Evidence]:
    """All states of a few variables that no factor alone excludes."""
    found: list[Evidence] = []
    for index in np.ndindex(*[int(model.cards[i]) for i in held]):
        leaf = dict(zip(held, map(int, index), strict=True))
        try:
            condition(model, leaf)
        except EvidenceError:
            continue
        found.append(leaf)
    return found


def _seeds(rng: Generator, count: int) -> list[int]:
    return [int(seed) for seed in rng.integers(2**62, size=count)]


def _mean(values: Sequence[FloatArray], weight: FloatArray) -> FloatArray:
    total = np.zeros_like(values[0])
    for each, w in zip(values, weight.tolist(), strict=True):
        total += w * each
    return total


def _severity(status: Status) -> int:
    return _WORST.index(status) if status in _WORST else len(_WORST)
