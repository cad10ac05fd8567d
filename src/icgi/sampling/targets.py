"""From a model to what the kernels sample: reduced, softened, arranged, and the way back.

Zeros. A chain of single-site updates can be cut in two by forbidden configurations, so every level
but the last sees a zero as a finite penalty, times λ like everything else: less by C than the
largest entry of its table, and by 1 than the smallest. The last level has λ = 1 and true zeros; it
meets the others only by swaps that bring it allowed configurations. So replicas travel through
forbidden ones, forbidden ones are never counted, λ = 0 is the uniform distribution of known Z, and
log Z has one more term, log p(nothing violated) at λ = 1. C = 3 + log(number of factors with
zeros) leaves a violation or less to be expected at λ = 1.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.inference import UNKNOWN_ERROR, Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays, as_ising
from icgi.model.reduce import all_states, propagate, restrict
from icgi.model.wiring import entries_of
from icgi.sampling.pairs import pairs
from icgi.sampling.replicas import Kernel
from icgi.sampling.spins import Spins, spins
from icgi.sampling.tables import Tables, tables

STRONGEST = 1024.0  # |h| + Σ|J| of a spin beyond which fields of single precision are too coarse
SINGLE = 1e-6  # error of probabilities that come from fields of single precision
SYMMETRIC = 1e-9  # fields of a component adding up to less than this cannot be told from none


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A model's free variables, arranged for the kernels.

    Slots are the numbers that a sweep reports: p(s_i = +1) for spins, p(x_i = x) for all states of
    all variables otherwise.
    """

    model: FactorGraph  # free variables only, no constants
    kernel: Kernel
    symmetric_slots: BoolArray  # slots that are ½ by symmetry
    constant: float  # what Σ_f θ_f adds to the kernel's log weight
    has_zeros: bool
    original: FactorGraph  # before variables with one state were left out
    alive: BoolArray  # states of the model that was asked about
    free: IntArray  # n    number of each variable in `original`

    @property
    def slots(self) -> int:
        """How many numbers describe all marginals."""
        spin = isinstance(self.kernel, Spins)
        return self.model.n_variables if spin else int(self.model.cards.sum())

    def stated(self, error: FloatArray) -> FloatArray:
        """Standard errors within what the arithmetic allows and what nothing being known means."""
        least = SINGLE if isinstance(self.kernel, Spins) else 0.0
        return np.where(self.symmetric_slots, 0.0, np.clip(error, least, UNKNOWN_ERROR))

    @property
    def symmetric(self) -> BoolArray:
        """Variables of that model that are spins in a component without fields."""
        known = np.zeros(self.original.n_variables, np.bool_)
        step = 1 if isinstance(self.kernel, Spins) else 2
        if self.symmetric_slots.any():
            known[self.free] = self.symmetric_slots[::step]
        return known

    @property
    def log_count(self) -> float:
        """Log of the number of configurations: log Z of the kernel's weights at λ = 0."""
        return float(np.log(self.model.cards).sum())

    def indicators(self, x: NDArray[np.int32]) -> FloatArray:
        """Slots of a single configuration: one where it has the state, zero elsewhere."""
        if isinstance(self.kernel, Spins):
            return x.astype(np.float64)
        slots = np.zeros(self.slots)
        slots[np.cumsum(self.model.cards) - self.model.cards + x] = 1.0
        return slots

    def spread(self, values: FloatArray, other: FloatArray) -> FloatArray:
        """Slots as rows of states; a spin's slot is its state 1, `other` goes to state 0."""
        if isinstance(self.kernel, Spins):
            return np.stack([other, values], 1)
        table = np.zeros((self.model.n_variables, self.model.max_states))
        table[all_states(self.model)] = values
        return table

    def states(self, x: NDArray[Any]) -> IntArray:
        """Configurations … n of the model that was asked about, from those of `model`."""
        full = np.zeros((*x.shape[:-1], self.original.n_variables), np.int64)
        full[..., self.free] = x
        kept = np.argsort(~self.alive, axis=1, kind="stable")  # n k  kept states come first
        return np.asarray(kept[np.arange(len(kept)), full])

    def fixed(self) -> Marginals:
        """Answer for a model whose zeros leave nothing free."""
        nothing = np.zeros((0, 0))
        stats = {"sweeps": 0.0, "rhat": 1.0, "log_z_std_error": 0.0}
        return self.answer(
            Marginals(
                nothing,
                Status.EXACT,
                self.constant,
                std_error=nothing,
                deviation=np.zeros(0),
                stats=stats,
            )
        )

    def answer(self, marginals: Marginals) -> Marginals:
        """Put fixed variables and removed states back into the marginals of `model`."""
        probs = np.zeros((self.original.n_variables, self.original.max_states))
        probs[:, :1] = 1.0
        probs[self.free, : marginals.probs.shape[1]] = marginals.probs
        full = replace(
            marginals,
            probs=probs,
            std_error=self._placed(marginals.std_error),
            deviation=self._placed(marginals.deviation),
            ess=self._placed(marginals.ess),
            rhat=self._placed(marginals.rhat),
        )
        return lift(full, self.alive)

    def _placed(self, values: FloatArray | None) -> FloatArray | None:
        """Rows of the free variables among those of all variables, which are zero."""
        if values is None:
            return None
        full = np.zeros((self.original.n_variables, self.original.max_states)[: values.ndim])
        if values.ndim == 2:
            full[self.free, : values.shape[1]] = values
        else:
            full[self.free] = values
        return full


def target(model: FactorGraph, kind: str = "auto") -> Target:
    """Remove impossible states and fixed variables, choose the fastest kernel that fits."""
    made = prepare(model, Deadline(), kind)
    assert made is not None
    return made


def prepare(model: FactorGraph, deadline: Deadline, kind: str = "auto") -> Target | None:
    """Target of a model; None where the deadline passes first: it is asked after every step.

    Raises `EvidenceError` when zeros leave a variable without a state.
    """
    if deadline.passed:
        return None
    alive = propagate(model, all_states(model))
    if deadline.passed:
        return None
    original = restrict(model, alive)
    free = np.flatnonzero(original.cards > 1)
    number = np.full(original.n_variables, -1)
    number[free] = np.arange(len(free))
    part = original
    if len(free) < original.n_variables or not original.arity.all():
        chosen = np.flatnonzero(original.arity).tolist()
        part = FactorGraph(
            original.cards[free],
            tuple(tuple(int(number[i]) for i in original.scopes[f]) for f in chosen),
            tuple(original.log_tables[f] for f in chosen),
        )
    constant = 0.0
    if part is not original:
        both = zip(original.scopes, original.log_tables, strict=True)
        constant = float(sum(float(table) for scope, table in both if not scope))
    made = None if deadline.passed else _kernel(part, kind, deadline)
    if made is None:
        return None
    kernel, shift, symmetric = made
    has_zeros = not isinstance(kernel, Spins) and len(kernel.zero) > 0
    return Target(part, kernel, symmetric, constant + shift, has_zeros, original, alive, free)


def as_tables(model: FactorGraph) -> Tables:
    """Arrange a model for the kernel that takes anything."""
    return tables(model, soften(model))


def soften(model: FactorGraph) -> list[FloatArray]:
    """Tables with penalties in place of zeros."""
    gone = [np.isneginf(table) for table in model.log_tables]
    margin = 3.0 + math.log(max(1, sum(bool(mask.any()) for mask in gone)))

    def soft(table: FloatArray, mask: BoolArray) -> FloatArray:
        least, most = table[~mask].min(), table[~mask].max()
        return np.where(mask, min(least - 1.0, most - margin), table)

    pairs = zip(model.log_tables, gone, strict=True)
    return [soft(table, mask) if mask.any() else table for table, mask in pairs]


def guess(model: FactorGraph, sweeps: float = 0.0) -> Marginals:
    """What unary factors say, with errors that promise nothing: for runs without time."""
    log_weight = np.where(all_states(model), 0.0, -np.inf)
    for f in _unary(model):
        table = model.log_tables[f]
        log_weight[model.scopes[f][0], : len(table)] += table
    log_weight -= log_weight.max(1, keepdims=True, initial=-1e300)
    weight = np.exp(log_weight)
    probs = weight / weight.sum(1, keepdims=True)
    error = np.where((probs > 0) & (model.cards[:, None] > 1), UNKNOWN_ERROR, 0.0)
    stats = {"sweeps": sweeps, "std_error": float(error.max(initial=0.0))}
    return Marginals(
        probs,
        Status.BUDGET_SPENT,
        std_error=error,
        deviation=error.max(1, initial=0.0),
        stats=stats,
    )


def arranging_bytes(model: FactorGraph) -> int:
    """Bytes that arranging a model for the kernels takes at its peak, the kernel included."""
    return 40 * entries_of(model) + 64 * int(model.arity.sum()) + 16 * int(model.cards.sum())


def _unary(model: FactorGraph) -> list[int]:
    """Numbers of the factors of one variable."""
    found: list[int] = np.flatnonzero(model.arity == 1).tolist()
    return found


def refuse(engine: str, needed: float, budget: Budget) -> BudgetError:
    """Error for a model whose replicas and records do not fit."""
    return BudgetError(
        f"{engine} needs {needed / 1e9:.2g} GB for its tables, replicas and records, the budget is "
        f"{budget.table_bytes / 1e9:.2g} GB; give a larger memory budget, or use fewer replicas"
    )


def replica_bytes(aim: Target) -> int:
    """Bytes of one replica's state."""
    n, f = aim.model.n_variables, aim.model.n_factors
    if isinstance(aim.kernel, Spins):
        return 8 * n
    return 4 * n + (8 * f if isinstance(aim.kernel, Tables) else 12 * aim.slots)


def _kernel(
    model: FactorGraph, kind: str, deadline: Deadline
) -> tuple[Kernel, float, BoolArray] | None:
    """(kernel, constant that it leaves out, symmetric slots); None where the deadline passes."""
    ising = as_ising(model) if kind in ("auto", "spins") else None
    if deadline.passed:
        return None
    known = symmetric_spins(ising) if ising is not None else None
    if ising is not None and (kind == "spins" or _strongest(ising) < STRONGEST):
        assert known is not None
        return None if deadline.passed else (spins(ising), ising.constant, known)
    none = np.zeros(int(model.cards.sum()), dtype=np.bool_)
    soft = soften(model)
    if deadline.passed:
        return None
    if kind in ("auto", "pairs") and model.arity.max(initial=0) <= 2:
        return pairs(model, soft), 0.0, none if known is None else np.repeat(known, 2)
    return tables(model, soft), 0.0, none


def _strongest(ising: IsingArrays) -> float:
    """Largest |h_i| + Σ_j |J_ij|."""
    pull, size = np.abs(ising.fields), np.abs(ising.couplings)
    for end in ising.edges.T:
        pull = pull + np.bincount(end, size, len(pull))
    return float(pull.max(initial=0.0))


def symmetric_spins(ising: IsingArrays) -> BoolArray:
    """Spins in components without fields: p(s) = p(−s), so each is up with probability ½."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(ising.fields)
    if (np.abs(ising.fields) >= SYMMETRIC).all():
        return np.zeros(n, dtype=np.bool_)
    i, j = ising.edges.T
    graph = coo_array((np.ones(len(i)), (i, j)), shape=(n, n))
    label = connected_components(graph, directed=False)[1]
    strength = np.bincount(label, np.abs(ising.fields), n)
    return np.asarray(strength[label] < SYMMETRIC)
