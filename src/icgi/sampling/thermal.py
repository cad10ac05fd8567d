"""A tempering ladder read at all of its levels: what a model is like at many temperatures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.errors import BudgetError
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.sampling import bridge, exchange
from icgi.sampling.diagnostics import series_error, series_rhat
from icgi.sampling.snapshots import watched
from icgi.sampling.targets import Target, arranging_bytes, prepare, refuse
from icgi.sampling.tempering import RHAT, SLOWEST_SWAP, ParallelTempering, burnt_in

ENSEMBLES = 6  # three independent pairs for overlaps
MOST = 2048  # snapshots of all levels


@dataclass(frozen=True, slots=True, eq=False)
class Thermal:
    """Values at every wanted level, their standard errors, and whether the run mixed."""

    values: dict[str, FloatArray]  # t
    errors: dict[str, FloatArray]  # t
    mixed: bool
    sweeps: int


def scanned(
    model: FactorGraph,
    levels: FloatArray,
    states: IntArray,
    binary: bool,
    pairs: Sequence[tuple[int, int]],
    budget: Budget,
    rng: Generator,
) -> Thermal:
    """Averages of p(x) ∝ exp λ Σ_f θ_f(x_f) at every λ of `levels`, the last of which is one.

    The log weight Σ_f θ_f is `weight`, `heat` its variance times λ². `states`
    n k are the numbers of the states as people know them; with `binary` they are spins ±1.
    A model with zeros is read at λ = 1 only, where they are true: other levels see penalties.
    """
    deadline = budget.deadline()
    if (needed := arranging_bytes(model)) > budget.table_bytes:
        raise refuse("pt", needed, budget)
    aim = prepare(model, deadline)
    if aim is None:
        raise BudgetError("the seconds were over before a sweep was made; give more seconds")
    assert not aim.has_zeros or levels.tolist() == [1.0]
    settings = ParallelTempering(ensembles=ENSEMBLES)
    with burnt_in(aim, settings, budget, deadline, rng, through=levels) as (ensembles, ready):
        if not ready:
            raise BudgetError("the seconds were over before the ladder was placed; give more")
        at = np.abs(ensembles.all_levels[:, None] - levels).argmin(0)
        if aim.has_zeros:
            at = np.array([ensembles.levels - 1])
        look = _look(aim, at, states, binary, pairs)
        left = max(1, budget.sweeps() - ensembles.sweeps)
        room = max(
            64, int(0.25 * budget.table_bytes / (8 * ENSEMBLES * len(at) * (3 + len(pairs))))
        )
        seen = watched(ensembles, left, deadline, min(MOST, room), look)  # s k m t
        records = [member.record for member in ensembles.members]
        kept = int(records[0].tally[exchange.KEPT])
        trace = np.stack([record.trace[:kept] for record in records])  # m s c t
        sound = np.stack([record.sound[:kept, 0] for record in records])  # m s
        swaps = 1.0 - ensembles.rejection()
        ladder, sweeps = ensembles.all_levels, ensembles.sweeps
    if kept < 16 or len(seen) < 16:
        raise BudgetError(f"{sweeps} sweeps are too few for a scan; give more time or iterations")
    values, errors = _energies(trace[:, :, 0], ladder, at, aim, sound if aim.has_zeros else None)
    names = [*(("magnetisation", "abs_magnetisation") if binary else ()), *map(_pair_name, pairs)]
    for k, name in enumerate(names):
        values[name] = seen[:, k].mean((0, 1))
        errors[name] = np.array([series_error(seen[:, k, :, t].T) for t in range(len(at))])
    if binary:
        _overlaps(seen[:, len(names) :], values, errors)
        if aim.symmetric[aim.free].all() and len(aim.free) == len(aim.original.cards):
            values["magnetisation"] = np.zeros(len(at))
            errors["magnetisation"] = np.zeros(len(at))
    rhat = max(series_rhat(trace[:, :, 0, t]) for t in at if ladder[t] > 0) if ladder[-1] else 1.0
    trips = min(int(m.walk.tally[exchange.TRIPS]) for m in ensembles.members)
    mixed = rhat < RHAT and trips > 0 and float(swaps.min()) > SLOWEST_SWAP
    return Thermal(values, errors, mixed, sweeps)


def _pair_name(pair: tuple[int, int]) -> str:
    return f"{pair[0]},{pair[1]}"


def _energies(
    trace: FloatArray,
    ladder: FloatArray,
    at: IntArray,
    aim: Target,
    sound: NDArray[np.int8] | None,
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Values of log Z, weight, heat and entropy at some levels, from log weights m s t of all.

    `sound` m s: whether the last level but one violates nothing, where the last has true zeros.
    """
    m, s, levels = trace.shape
    log_z = aim.log_count
    influence = np.zeros((m, s))
    rows: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("log_z", "weight", "heat", "entropy")
    }
    known: list[tuple[float, FloatArray]] = []
    for t in range(levels):
        if t > 0 and ladder[t] > ladder[t - 1]:
            gap = ladder[t] - ladder[t - 1]
            part, effect = bridge.log_ratio(gap * trace[..., t], gap * trace[..., t - 1])
            log_z += part
            influence = influence + effect
        elif sound is not None and t == levels - 1:
            share = float(sound.mean())
            if share == 0:
                raise BudgetError(
                    "no configuration that violates nothing came down the ladder; give more time "
                    "or iterations"
                )
            log_z += float(np.log(share))
            influence = influence + (sound / share - 1.0)
        known.append((log_z + ladder[t] * aim.constant, influence))
    for t in at.tolist():
        total, effect = known[t]
        w = trace[..., t]
        centred = w - w.mean()
        rows["log_z"].append((total, series_error(effect)))
        rows["weight"].append((float(w.mean()) + aim.constant, series_error(w)))
        heat = ladder[t] ** 2 * centred**2
        rows["heat"].append((float(heat.mean()), series_error(heat)))
        entropy = total - ladder[t] * (float(w.mean()) + aim.constant)
        rows["entropy"].append((entropy, series_error(effect - ladder[t] * centred)))
    values = {name: np.array([v for v, _ in row]) for name, row in rows.items()}
    errors = {name: np.array([e for _, e in row]) for name, row in rows.items()}
    return values, errors


Look = Callable[[NDArray[np.int32]], FloatArray]


def _look(
    aim: Target, at: IntArray, states: IntArray, binary: bool, pairs: Sequence[tuple[int, int]]
) -> Look:
    """Return what is seen of the replicas m c t n: k m t, overlaps of pairs of ensembles last."""
    n = aim.original.n_variables
    place = np.full(n, -1)
    place[aim.free] = np.arange(len(aim.free))
    fixed = np.setdiff1d(np.arange(n), aim.free)
    numbers = [states[i, np.flatnonzero(aim.alive[i])] for i in range(n)]
    held = float(sum(2.0 * numbers[i][0] - 1.0 for i in fixed.tolist()))

    def column(x: NDArray[np.int32], i: int) -> IntArray:
        chosen = x[..., place[i]] if place[i] >= 0 else np.zeros(x.shape[:-1], np.int64)
        return np.asarray(numbers[i][chosen])

    def look(replicas: NDArray[np.int32]) -> FloatArray:
        x = replicas[:, 0, at]  # m t n
        rows = []
        if binary:
            spins = (2 * x - 1).astype(np.float32)
            m = (spins.sum(-1) + held) / n
            rows += [m, np.abs(m)]
        for i, j in pairs:
            same = column(x, i) == column(x, j)
            rows.append(2.0 * same - 1.0 if binary else same.astype(np.float64))
        if binary:
            q = ((spins[0::2] * spins[1::2]).sum(-1) + len(fixed)) / n  # pairs t
            rows.append(np.concatenate([q, np.zeros_like(q)]))
        return np.array(rows, dtype=np.float64).reshape(len(rows), *x.shape[:2])

    return look


def _overlaps(
    seen: FloatArray, values: dict[str, FloatArray], errors: dict[str, FloatArray]
) -> None:
    """Mean size and square of the overlaps s 1 m t of pairs of ensembles, in the first half."""
    q = seen[:, 0, : ENSEMBLES // 2]
    for name, series in (("abs_overlap", np.abs(q)), ("overlap2", q**2)):
        values[name] = series.mean((0, 1))
        errors[name] = np.array([series_error(series[:, :, t].T) for t in range(q.shape[2])])
