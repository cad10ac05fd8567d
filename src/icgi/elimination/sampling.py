"""Independent configurations drawn from an elimination, each with its exact probability.

Walked backwards, an elimination is an autoregressive model: q(x_v | drawn) ∝ ω_v Π ψ_vu · F'_t.
Truncated trains are not exactly p, but log q is exact for what they are, so importance weights
w = p̃/q give an unbiased Z, a check on the raw marginals, and reweighted marginals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.elimination.layout import Layout, bond_cost
from icgi.elimination.orders import find_layouts
from icgi.elimination.passes import Cut, Tape
from icgi.elimination.potentials import Potentials, potentials
from icgi.elimination.run import OutOfTimeError, both_passes
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import as_ising
from icgi.model.reduce import components

MIRROR_SHARE = 0.1
_SPEED = 1e8  # predicted cost that a pair of passes does in a second, roughly
_FLOOR = 1e-290


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Configurations with log q and the model's log p̃ (unnormalised)."""

    states: IntArray  # s n
    log_q: FloatArray  # s
    log_p: FloatArray  # s
    how: str = "ttve"  # what they were drawn by

    def __repr__(self) -> str:
        count, n = self.states.shape
        return f"Samples({count:,} configurations of {n:,} variables, {self.how})"

    @property
    def log_weights(self) -> FloatArray:
        """Log of the importance weights p̃/q."""
        return self.log_p - self.log_q

    @property
    def weights(self) -> FloatArray:
        """Importance weights, normalised to sum one."""
        top = self.log_weights.max()
        if not np.isfinite(top):
            return np.full(len(self.log_q), 1.0 / len(self.log_q))
        w = np.exp(self.log_weights - top)
        return np.asarray(w / w.sum())

    @property
    def log_z(self) -> float:
        """Log of the unbiased estimate of Z, the mean weight."""
        return float(np.logaddexp.reduce(self.log_weights) - np.log(len(self.log_q)))

    @property
    def log_z_error(self) -> float:
        """Standard error of `log_z`, to first order."""
        n = len(self.log_q)
        return float(np.sqrt(max(np.square(self.weights).sum() * n - 1.0, 0.0) / n))

    @property
    def share(self) -> float:
        """Effective sample size as a share of the number of samples."""
        return float(1.0 / (np.square(self.weights).sum() * len(self.log_q)))

    def marginals(self, cards: IntArray) -> FloatArray:
        """Reweighted marginals n k."""
        probs = np.zeros((len(cards), int(cards.max(initial=0))))
        for i in range(len(cards)):
            probs[i] = np.bincount(self.states[:, i], self.weights, probs.shape[1])
        return probs


def sample(
    model: FactorGraph,
    n: int,
    rng: Generator,
    rank: int = 16,
    iterations: int = 2,
    env_weight: float = 3.0,
    deadline: Deadline | None = None,
) -> Samples:
    """Draw n independent configurations by eliminating the model at a given rank.

    With a deadline the rank is halved until the passes are predicted to fit; raises
    `OutOfTimeError` where they did not.
    """
    deadline = deadline or Deadline()
    if n < 1:
        raise IcgiError(f"{n} samples asked for; ask for at least one")
    if rank < 1:
        raise IcgiError(f"trains of rank {rank} asked for; ask for at least one")
    states = np.zeros((n, model.n_variables), np.int64)
    log_q = np.zeros(n)
    for part in components(model):
        pots = potentials(part.model)
        layouts = find_layouts(part.model, pots, rank, rng, 1, deadline=deadline)
        if not layouts:
            raise OutOfTimeError
        layout, passes = layouts[0], max(1, iterations)
        cut = Cut(_in_time(layout, pots, rank, passes, deadline), env_weight, 1e-12, True)
        env = None
        for _ in range(passes):
            done = both_passes(pots, layout, cut, env, deadline=deadline)
            env = done.backward
        found, log = draw(part.model, pots, layout, done.forward, n, rng, deadline)
        states[:, part.variables] = found
        log_q += log
    return Samples(states, log_q, log_potential(model, states))


def _in_time(layout: Layout, pots: Potentials, rank: int, passes: int, deadline: Deadline) -> int:
    """Largest rank up to the wanted one whose passes take at most half of the seconds left."""

    def seconds(rank: int) -> float:
        steps = layout.step_variable
        return bond_cost(pots.cards, steps, layout.site_start, layout.caps, rank) / _SPEED

    while rank > 1 and passes * seconds(rank) > deadline.left / 2:
        rank //= 2
    return rank


def draw(
    model: FactorGraph,
    pots: Potentials,
    layout: Layout,
    tape: Tape,
    n: int,
    rng: Generator,
    deadline: Deadline | None = None,
) -> tuple[IntArray, FloatArray]:
    """Configurations s n and log q of one component; for spins, from a mixture with q(−x).

    A mode that q misses is often the mirror image of one that it knows. Without fields both count
    the same, with fields the mirror image gets a small share. Raises `OutOfTimeError` where the
    deadline passes meanwhile.
    """
    states, log_q = walk(pots, layout, tape, n, rng, None, deadline)
    spins = as_ising(model)
    if spins is None:
        return states, log_q
    share = MIRROR_SHARE if spins.fields.any() else 0.5
    turn = np.where(rng.random(n) < share, 1, 0)[:, None] & (model.cards == 2)
    states = states ^ turn
    _, here = walk(pots, layout, tape, n, rng, states, deadline)
    _, there = walk(pots, layout, tape, n, rng, states ^ (model.cards == 2), deadline)
    return states, np.logaddexp(np.log1p(-share) + here, np.log(share) + there)


def walk(
    pots: Potentials,
    layout: Layout,
    tape: Tape,
    n: int,
    rng: Generator,
    given: IntArray | None = None,
    deadline: Deadline | None = None,
) -> tuple[IntArray, FloatArray]:
    """Draw, or with `given` only evaluate: configurations s n and their log q.

    Truncated trains can be negative: such values count half their size, and where all are negative
    the tables alone decide. A little uniform chance keeps every possible state possible.
    """
    cards = pots.cards
    uniform = min(1e-3, 0.05 / max(len(cards), 1))
    states = np.zeros((n, len(cards)), np.int64) if given is None else given
    each = np.arange(n)
    log_q = np.zeros(n)
    frontier: list[int] = []
    cores: dict[int, FloatArray] = {}
    left: dict[int, FloatArray] = {}  # s a   product of the cores up to and with a site
    right: dict[int, FloatArray] = {}
    one = np.ones((n, 1))
    valid_left = valid_right = 0
    for t in range(len(layout.step_variable) - 1, -1, -1):
        if deadline is not None and deadline.passed:
            raise OutOfTimeError
        v = int(layout.step_variable[t])
        first, last = int(layout.site_start[t]), int(layout.site_start[t + 1])
        low = int(layout.before[t])
        sites = layout.site[first:last].tolist()
        for q, u in enumerate(sites):
            e = first + q
            d, a, b = int(cards[u]), int(tape.left[e]), int(tape.right[e])
            at = int(tape.start[e])
            cores[u] = tape.data[at : at + d * a * b].reshape(d, a, b)
        valid_left = min(valid_left, low)
        old = len(sites) - (1 if v >= 0 else 0)
        valid_right = min(valid_right, len(frontier) - low - old)
        if v >= 0:
            at = low + sites.index(v)
            for j in range(valid_left, at):
                u = frontier[j]
                before = left[frontier[j - 1]] if j else one
                left[u] = _step(before, cores[u], states[:, u], each)
            valid_left = max(valid_left, at)
            for j in range(len(frontier) - 1 - valid_right, at - 1, -1):
                u = frontier[j]
                after = right[frontier[j + 1]] if j + 1 < len(frontier) else one
                right[u] = _step(after, cores[u].transpose(0, 2, 1), states[:, u], each)
            valid_right = max(valid_right, len(frontier) - at)
            before = left[frontier[at - 1]] if at else one
            after = right[frontier[at]] if at < len(frontier) else one
            values = np.stack([((before @ g) * after).sum(1) for g in cores[v]], 1)  # s k
            local = _local(pots, v, states, frontier)
            p = _conditional(values, local, uniform)
            if given is None:
                draws = (rng.random(n)[:, None] >= np.cumsum(p, 1)).sum(1)
                states[:, v] = np.minimum(draws, cards[v] - 1)
            with np.errstate(divide="ignore"):
                log_q += np.log(p[each, states[:, v]])
            frontier.insert(at, v)
            valid_left = min(valid_left, at)
            valid_right = min(valid_right, len(frontier) - 1 - at)
        for q, u in enumerate(sites):
            if layout.fresh[first + q]:
                j = frontier.index(u)
                valid_left = min(valid_left, j)
                valid_right = min(valid_right, len(frontier) - 1 - j)
                frontier.pop(j)
    return states, log_q


def log_potential(model: FactorGraph, states: IntArray) -> FloatArray:
    """Log p̃ of configurations s n: the sum of all log tables."""
    total = np.zeros(len(states))
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        total += table[tuple(states[:, i] for i in scope)]
    return total


def _step(vectors: FloatArray, core: FloatArray, states: IntArray, each: IntArray) -> FloatArray:
    """Vectors s a through the core's matrix of each sample's state, rescaled."""
    moved = np.matmul(vectors[None], core)[states, each]  # s b
    return np.asarray(moved / np.maximum(np.abs(moved).max(1, keepdims=True), _FLOOR))


def _local(pots: Potentials, v: int, states: IntArray, frontier: list[int]) -> FloatArray:
    """Tables of v given the drawn neighbours, s k, largest one; ω_v included, ℓ_v is in F'."""
    d = int(pots.cards[v])
    unary = pots.unary[v, :d]
    log = np.tile(0.5 * np.where(np.isneginf(unary), -np.inf, unary), (len(states), 1))
    present = set(frontier)
    for e in range(int(pots.near_start[v]), int(pots.near_start[v + 1])):
        u, pair = int(pots.near[e]), int(pots.near_pair[e])
        if u not in present:
            continue
        table = pots.pair[pots.pair_start[pair] : pots.pair_start[pair + 1]]
        if int(pots.pair_first[pair]) == v:
            log += table.reshape(d, -1).T[states[:, u]]
        else:
            log += table.reshape(-1, d)[states[:, u]]
    top = log.max(1, keepdims=True)
    return np.exp(log - np.where(np.isneginf(top), 0.0, top))


def _conditional(values: FloatArray, local: FloatArray, uniform: float) -> FloatArray:
    positive = np.where(values < 0, 0.5 * np.abs(values), values)
    positive[(values <= 0).all(1)] = 1.0
    weight = positive * local
    weight[~(weight.sum(1) > 0)] = local[~(weight.sum(1) > 0)]
    possible = (local > 0).astype(np.float64)
    dead = ~(possible.sum(1) > 0)  # drawn into a corner: log p̃ is −inf whatever comes now
    weight[dead] = possible[dead] = 1.0
    p = weight / weight.sum(1, keepdims=True)
    return np.asarray((1 - uniform) * p + uniform * possible / possible.sum(1, keepdims=True))
