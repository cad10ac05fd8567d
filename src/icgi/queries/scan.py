"""A model at many temperatures: p(x) ∝ exp β Σ_f θ_f(x_f), exactly where that fits."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from icgi import clock
from icgi.api import GivenEvidence
from icgi.clock import Deadline
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.exact.enumeration import joint
from icgi.exact.forecast import Forecast, forecast
from icgi.exact.joints import exact_joints
from icgi.exact.kept import collected, forecast_kept
from icgi.exact.moments import STORES, moments
from icgi.exact.pfaffian import Pfaffian
from icgi.exact.tree import plan
from icgi.extras import require_extra
from icgi.inference import Budget, Status, budget_of
from icgi.lookup import chosen_variables
from icgi.model.condition import condition, resolve_evidence
from icgi.model.graph import FactorGraph, FloatArray, IntArray, assembled, real_array
from icgi.model.ising import as_ising
from icgi.randomness import generator
from icgi.sampling.thermal import Thermal, scanned
from icgi.wording import aligned

How = Literal["auto", "exact", "pfaffian", "pt"]
PATIENCE = 60.0  # seconds that exact answers may be forecast to take, where no time is named
DRAWS = 4000  # exact draws for what has no exact pass: |m| and overlaps
LISTED = 2**12  # configurations up to which these are summed instead
STEP = 1e-3  # of β, relative, between energies whose difference is the specific heat
HOTTEST = 1e-6  # β in place of zero where energies are read from weights times β
_SPIN = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False)
class Scan:
    """Averages at every β, with standard errors: zero where exact, NaN where not available."""

    model: FactorGraph
    betas: FloatArray  # b
    values: Mapping[str, FloatArray]  # b each, by name of the quantity
    errors: Mapping[str, FloatArray]  # b each
    how: str  # jt, pfaffian or pt
    status: Status
    seconds: float

    def __getitem__(self, quantity: str) -> FloatArray:
        """Values of one quantity at all β."""
        if quantity not in self.values:
            raise KeyError(f"no {quantity!r} in this scan; there are: {', '.join(self.values)}")
        return self.values[quantity]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them; None where a quantity is not available."""

        def plain(row: FloatArray) -> list[float | None]:
            return [x if np.isfinite(x) else None for x in row.tolist()]

        return {
            "engine": self.how,
            "status": self.status.value,
            "seconds": self.seconds,
            "beta": self.betas.tolist(),
            "values": {name: plain(row) for name, row in self.values.items()},
            "std_errors": {name: plain(row) for name, row in self.errors.items()},
        }

    def save(self, path: str | Path) -> None:
        """Write a CSV file: β, then every quantity and its standard error."""
        try:
            with Path(path).open("w", newline="") as file:
                writer = csv.writer(file)
                names = [(name, f"{name}_error") for name in self.values]
                writer.writerow(["beta", *(word for pair in names for word in pair)])
                for b, beta in enumerate(self.betas.tolist()):
                    cells = [(self.values[name][b], self.errors[name][b]) for name in self.values]
                    writer.writerow([beta, *(float(x) for pair in cells for x in pair)])
        except OSError as error:
            raise IcgiError(f"cannot write {path}: {error.strerror}") from error

    def rows(self) -> list[list[str]]:
        """Cells of the table: names first, then a row for every β; `1.234(5)` has its error."""
        names = list(self.values)
        return [["beta", *(name.replace("_", " ") for name in names)]] + [
            [f"{beta:g}", *(with_error(self.values[k][t], self.errors[k][t]) for k in names)]
            for t, beta in enumerate(self.betas.tolist())
        ]

    def __repr__(self) -> str:
        return f"{aligned(self.rows())}\n{self.how}: {self.status.value}; {self.seconds:.3g} s"

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw energy, specific heat, entropy per variable and the order parameters over β.

        Returns the figure of matplotlib, which a notebook shows; a path gets it as a file.
        """
        require_extra("matplotlib", "plot", "a plot")
        from matplotlib.figure import Figure

        n = self.model.n_variables
        per = {"energy": n, "specific_heat": n, "entropy": n}
        shown = [name for name, row in self.values.items() if np.isfinite(row).any()]
        shown = [name for name in shown if name != "log_z"]
        figure = Figure(figsize=(9.0, 2.6 * -(-len(shown) // 3)), layout="constrained")
        axes = figure.subplots(-(-len(shown) // 3), 3, squeeze=False).ravel()
        for axis, name in zip(axes, shown, strict=False):
            scale = 1.0 / per.get(name, 1)
            row, error = scale * self.values[name], scale * self.errors[name]
            axis.errorbar(self.betas, row, np.nan_to_num(error), marker=".", capsize=2)
            axis.set_xlabel("β")
            words = name.replace("_", " ")
            axis.set_title(f"{words} per variable" if name in per else words, fontsize="medium")
        for axis in axes[len(shown) :]:
            axis.set_axis_off()
        if path is not None:
            try:
                figure.savefig(path, dpi=150)
            except (OSError, ValueError) as error:
                raise IcgiError(f"cannot draw {path}: {error}") from error
        return figure


def with_error(value: float, error: float) -> str:
    """`1.234(5)`: the error is that of the last digits; exact values without, a dash for NaN."""
    if not math.isfinite(value):
        return "–"
    if not error > 0:
        return f"{value:.6g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f}({round(error * 10**digits)})"


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What a scan is made of."""

    model: FactorGraph  # conditioned
    states: IntArray  # n k  number of every state that is left in the model as it was
    binary: bool  # whether that has two states for every variable, which are spins then
    betas: FloatArray
    pairs: tuple[tuple[int, int], ...]

    def spins(self, x: IntArray) -> FloatArray:
        """Spins of configurations … n."""
        return np.asarray(_SPIN[self.states[np.arange(x.shape[-1]), x]])


def scan(
    model: FactorGraph,
    betas: ArrayLike,
    evidence: GivenEvidence = None,
    pairs: Sequence[tuple[int | str, int | str]] = (),
    engine: How = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
) -> Scan:
    """Thermodynamics of p(x) ∝ exp β Σ_f θ_f(x_f); the model as it is has β = 1.

    Quantities, of the whole model: `log_z`; `energy` ⟨E⟩, E = −Σ_f θ_f, which is −d log Z/dβ;
    `specific_heat` β²(⟨E²⟩ − ⟨E⟩²); `entropy` log Z + β⟨E⟩ in nats. Where every variable has two
    states: `magnetisation` ⟨m⟩ and `abs_magnetisation` ⟨|m|⟩, m the mean of spins −1 (state 0) and
    +1; `abs_overlap` ⟨|q|⟩ and `overlap2` ⟨q²⟩, q the mean product of spins of two independent
    copies. `correlation a,b` of chosen pairs is ⟨s_a s_b⟩, or p(x_a = x_b) in models with more
    states.

    `exact`: junction tree; ⟨|m|⟩ and overlaps are summed in small models, and come from exact draws
    in others. `pfaffian`: planar Ising models without field. `pt`: one tempering ladder, of a
    model with zeros one for each β, with standard errors. `auto`: the first of these that fits.
    """
    if engine not in ("auto", "exact", "pfaffian", "pt"):
        raise IcgiError(f"a scan is made by exact, pfaffian or pt, not by {engine!r}")
    began, budget, rng = clock.now(), budget_of(budget), generator(seed)
    deadline = budget.deadline()
    chosen = tuple(_pair(model, pair) for pair in pairs)
    conditioned = condition(model, resolve_evidence(model, evidence), budget.table_bytes)
    binary = bool((model.cards == 2).all())
    kept = np.argsort(~conditioned.alive, axis=1, kind="stable")
    asked = _Asked(conditioned.model, kept, binary, _betas(betas), chosen)
    how, values, errors, status = _answered(asked, engine, budget, deadline, rng)
    for (i, j), (a, b) in zip(chosen, pairs, strict=True):
        name = f"{i},{j}"
        values[f"correlation {a},{b}"] = values.pop(name)
        errors[f"correlation {a},{b}"] = errors.pop(name)
    spent = clock.now() - began
    return Scan(model, asked.betas, values, errors, how, status, spent)


Columns = dict[str, FloatArray]


def _answered(
    asked: _Asked, engine: How, budget: Budget, deadline: Deadline, rng: Generator
) -> tuple[str, Columns, Columns, Status]:
    limit = replace(budget, seconds=min(budget.seconds, PATIENCE)) if engine == "auto" else budget
    if engine in ("auto", "exact"):
        ahead = forecast(asked.model, limit, rng)
        cost = _cost(asked, ahead)
        if engine == "exact" or cost.fits(limit.until(deadline)):
            cost.refuse_beyond(budget.until(deadline))
            return "jt", *_exactly(asked, ahead, budget, deadline, rng), Status.EXACT
    if engine in ("auto", "pfaffian"):
        try:
            return "pfaffian", *_planar(asked, budget, deadline, rng), Status.EXACT
        except UnsupportedModelError:
            if engine == "pfaffian":
                raise
    return "pt", *_tempered(asked, budget, deadline, rng)


def _pair(model: FactorGraph, pair: tuple[int | str, int | str]) -> tuple[int, int]:
    a, b = chosen_variables(model, pair)
    return a, b


def _betas(given: ArrayLike) -> FloatArray:
    betas = np.unique(np.atleast_1d(real_array(given, "the list of β")))
    if betas.ndim != 1 or not len(betas) or not (np.isfinite(betas).all() and betas[0] >= 0):
        raise IcgiError("β should be finite numbers of at least 0, such as 0.2, 0.4, …, 2")
    return betas


def _at(model: FactorGraph, beta: float) -> FactorGraph:
    """Model at another temperature; what is impossible stays so, also at β = 0."""
    tables = tuple(np.where(np.isneginf(t), -np.inf, beta * _finite(t)) for t in model.log_tables)
    return assembled(model.cards, model.scopes, tables, model.names, model.states)


def _finite(table: FloatArray) -> FloatArray:
    return np.where(np.isneginf(table), 0.0, table)


def _cost(asked: _Asked, ahead: Forecast) -> Forecast:
    """Cost of all exact passes of a scan."""
    one = forecast_kept(asked.model, ahead.order, both=True)
    passes = len(asked.betas) * (STORES + 1)
    extra = (
        0.0 if one.plan is None else 8.0 * (one.plan.store_entries + 2 * one.plan.largest_clique)
    )
    return replace(one, seconds=passes * one.seconds, table_bytes=one.table_bytes + extra)


def _exactly(
    asked: _Asked, ahead: Forecast, budget: Budget, deadline: Deadline, rng: Generator
) -> tuple[Columns, Columns]:
    """Exact passes at every β."""
    model = asked.model
    made = plan(model, ahead.order.variables)
    energies = [-_finite(table) for table in model.log_tables]
    rows: list[dict[str, float]] = []
    errors: list[dict[str, float]] = []
    for beta in asked.betas.tolist():
        hot = _at(model, beta)
        log_z, energy, variance = moments(hot, energies, made, deadline)
        row = {
            "log_z": log_z,
            "energy": energy,
            "specific_heat": beta**2 * variance,
            "entropy": log_z + beta * energy,
        }
        error = dict.fromkeys(row, 0.0)
        if asked.binary:
            spins, doubt = _spins_exactly(asked, hot, ahead, budget.until(deadline), rng)
            row |= spins
            error |= doubt
        free = [tuple(i for i in pair if model.cards[i] > 1) for pair in asked.pairs]
        wanted = [scope for scope in dict.fromkeys(free) if scope]
        tables: dict[tuple[int, ...], FloatArray] = {}
        if wanted:
            left = budget.until(deadline)
            found = exact_joints(hot, wanted, left, rng, ahead.order)
            tables = dict(zip(wanted, found.tables, strict=True))
        for pair, scope in zip(asked.pairs, free, strict=True):
            row[f"{pair[0]},{pair[1]}"] = _correlation(asked, pair, tables.get(scope))
            error[f"{pair[0]},{pair[1]}"] = 0.0
        rows.append(row)
        errors.append(error)
    return _columns(rows), _columns(errors)


def _columns(rows: list[dict[str, float]]) -> Columns:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _correlation(asked: _Asked, pair: tuple[int, int], table: FloatArray | None) -> float:
    """⟨s_a s_b⟩, or p(x_a = x_b), from the joint of those of the two that are free."""
    a, b = pair
    cards = asked.model.cards
    joint_table = np.ones(1) if table is None else table
    joint_table = joint_table.reshape(int(cards[a]), int(cards[b]))
    same = asked.states[a, : cards[a], None] == asked.states[b, None, : cards[b]]
    if not asked.binary:
        return float((joint_table * same).sum())
    return float((joint_table * np.where(same, 1.0, -1.0)).sum())


def _spins_exactly(
    asked: _Asked, hot: FactorGraph, ahead: Forecast, budget: Budget, rng: Generator
) -> tuple[dict[str, float], dict[str, float]]:
    """Magnetisation and overlaps: sums over few configurations, else exact draws."""
    n = hot.n_variables
    count = float(np.prod(hot.cards, dtype=np.float64))
    names = ("magnetisation", "abs_magnetisation", "abs_overlap", "overlap2")
    if count <= LISTED:
        log = joint(hot)
        p = np.exp(log - log.max())
        p /= p.sum()
        states = np.stack(np.unravel_index(np.arange(len(p)), hot.cards.tolist()), 1)
        spins = asked.spins(states)  # c n
        m = spins.mean(1)
        size, square = _all_overlaps(spins, p, n)
        found = (float(p @ m), float(p @ np.abs(m)), size, square)
        return dict(zip(names, found, strict=True)), dict.fromkeys(names, 0.0)
    kept = collected(hot, forecast_kept(hot, ahead.order, both=False), budget)
    spins = asked.spins(kept.draws(DRAWS, rng))  # s n
    m = spins.mean(1)
    q = (spins[: DRAWS // 2] * spins[DRAWS // 2 :]).mean(1)
    values, errors = {}, {}
    for name, series in zip(names, (m, np.abs(m), np.abs(q), q**2), strict=True):
        values[name] = float(series.mean())
        errors[name] = float(series.std(ddof=1) / np.sqrt(len(series)))
    return values, errors


def _all_overlaps(spins: FloatArray, p: FloatArray, n: int) -> tuple[float, float]:
    """⟨|q|⟩ and ⟨q²⟩ over all pairs of configurations, a block of rows at a time."""
    size = square = 0.0
    step = max(1, 2**22 // len(p))
    likely = np.flatnonzero(p > 0)
    for begin in range(0, len(likely), step):
        rows = likely[begin : begin + step]
        q = spins[rows] @ spins.T / n
        size += float(p[rows] @ np.abs(q) @ p)
        square += float(p[rows] @ q**2 @ p)
    return size, square


def _planar(
    asked: _Asked, budget: Budget, deadline: Deadline, rng: Generator
) -> tuple[Columns, Columns]:
    """Planar Ising models without field: energies from exact edge marginals."""
    spins = as_ising(asked.model)
    if spins is None or spins.fields.any() or not (asked.model.cards == 2).all():
        raise UnsupportedModelError(
            "pfaffian: this is no Ising model without fields and evidence; use exact or pt"
        )
    edges = {
        (int(i), int(j)): float(J) for (i, j), J in zip(spins.edges, spins.couplings, strict=True)
    }

    def solved(beta: float) -> tuple[float, float, dict[tuple[int, int], float]]:
        found = Pfaffian()(_at(asked.model, beta), budget.until(deadline), rng)
        if found.log_z is None or found.pairs is None:
            raise BudgetError("pfaffian: the seconds were over; give more, or fewer β")
        same = {pair: 2.0 * float(np.trace(t)) - 1.0 for pair, t in found.pairs.items()}
        energy = -spins.constant - sum(J * same.get(pair, 0.0) for pair, J in edges.items())
        return found.log_z, energy, same

    rows = []
    for beta in asked.betas.tolist():
        step = STEP * max(beta, STEP)
        log_z, energy, same = solved(beta)
        slope = (solved(beta + step)[1] - solved(max(beta - step, 0.0))[1]) / (
            beta + step - max(beta - step, 0.0)
        )
        row = {
            "log_z": log_z,
            "energy": energy,
            "specific_heat": -(beta**2) * slope,
            "entropy": log_z + beta * energy,
            "magnetisation": 0.0,
            **dict.fromkeys(("abs_magnetisation", "abs_overlap", "overlap2"), np.nan),
        }
        for i, j in asked.pairs:
            row[f"{i},{j}"] = same.get((min(i, j), max(i, j)), np.nan)
        rows.append(row)
    values = _columns(rows)
    return values, {k: np.where(np.isnan(row), np.nan, 0.0) for k, row in values.items()}


def _tempered(
    asked: _Asked, budget: Budget, deadline: Deadline, rng: Generator
) -> tuple[Columns, Columns, Status]:
    """One ladder from β = 0 to the largest β that goes through all others.

    A model with zeros takes a ladder for each β: on the way down zeros are finite penalties, and
    only the end of a ladder is the model.
    """
    if any(np.isneginf(table).any() for table in asked.model.log_tables):
        return _ladder_by_ladder(asked, budget, deadline, rng)
    coldest = float(asked.betas[-1])
    if coldest == 0:
        raise IcgiError("a scan by tempering needs a β above 0; give more than one")
    levels = asked.betas / coldest
    found = scanned(
        _at(asked.model, coldest), levels, asked.states, asked.binary, asked.pairs,
        budget.until(deadline), rng,
    )  # fmt: skip
    return *_named(found, coldest), Status.CONVERGED if found.mixed else Status.BUDGET_SPENT


def _ladder_by_ladder(
    asked: _Asked, budget: Budget, deadline: Deadline, rng: Generator
) -> tuple[Columns, Columns, Status]:
    """A ladder for each β, all of equal time."""
    parts: list[tuple[Columns, Columns]] = []
    mixed = True
    for b, beta in enumerate(asked.betas.tolist()):
        share = budget.until(deadline.share(1 / (len(asked.betas) - b)))
        near = max(beta, HOTTEST)
        found = scanned(
            _at(asked.model, near), np.ones(1), asked.states, asked.binary, asked.pairs, share, rng
        )
        values, errors = _named(found, near)
        for column in (values, errors):
            column["specific_heat"] *= (beta / near) ** 2
        parts.append((values, errors))
        mixed = mixed and found.mixed
    values, errors = (
        {name: np.concatenate([part[name] for part in side]) for name in side[0]}
        for side in zip(*parts, strict=True)
    )
    return values, errors, Status.CONVERGED if mixed else Status.BUDGET_SPENT


def _named(found: Thermal, coldest: float) -> tuple[Columns, Columns]:
    """Values and errors under the names of a scan, energies in units of the model."""
    values, errors = dict(found.values), dict(found.errors)
    values["energy"], errors["energy"] = (
        -values.pop("weight") / coldest,
        errors.pop("weight") / coldest,
    )
    values["specific_heat"], errors["specific_heat"] = values.pop("heat"), errors.pop("heat")
    first = ("log_z", "energy", "specific_heat", "entropy")
    order = [*first, *(name for name in values if name not in first)]
    return {name: values[name] for name in order}, {name: errors[name] for name in order}
