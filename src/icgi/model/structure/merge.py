"""Variables that determine each other become one, found from the zeros of all factors together.

The support of a pair of variables is the set of their joint states that no factor excludes; what
one factor excludes is impossible in every other factor of that pair, which excludes more, and so on
until nothing changes. Where every state of one variable goes with exactly one of another, the two
are copies: linkage and pedigree models have hundreds. Tables stay positive, and a copy's marginal
is its original's with the states renamed, so any engine can work on the merged model.
"""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from icgi.clock import Deadline
from icgi.errors import EvidenceError
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.reduce import all_states, propagate, restrict
from icgi.model.wiring import wiring

if TYPE_CHECKING:
    from icgi.inference import Marginals

Supports = dict[tuple[int, int], BoolArray]  # of pairs i < j in a common factor
Copies = dict[int, tuple[int, IntArray]]  # what a copy follows, and the state for each of its own


@dataclass(frozen=True, eq=False, slots=True)
class Merged:
    """A model with copies merged, and where each variable of the original is found in it."""

    whole: FactorGraph
    model: FactorGraph  # same numbers; copies have one state and are in no scope
    original: IntArray  # n    the variable that a copy follows, itself otherwise
    state: IntArray  # n k  the state of that variable, −1 for an impossible state

    @property
    def copies(self) -> int:
        """Number of variables that follow another one."""
        return int((self.original != np.arange(len(self.original))).sum())

    def spread(self, marginals: "Marginals") -> "Marginals":
        """Marginals of the original model; other fields than `probs` and log Z are kept as is."""
        probs = np.zeros((self.whole.n_variables, max(self.whole.max_states, 1)))
        rows, states = np.nonzero(self.state >= 0)
        probs[rows, states] = marginals.probs[self.original[rows], self.state[rows, states]]
        return replace(marginals, probs=probs)


def merge_copies(model: FactorGraph, deadline: Deadline | None = None) -> Merged | None:
    """Model with variables that determine each other merged; None where there are none.

    When the time is over, what was merged so far counts. Raises `EvidenceError` where the supports
    show that no configuration is possible.
    """
    n, width = model.n_variables, max(model.max_states, 1)
    original = np.arange(n)
    state = np.where(np.arange(width) < model.cards[:, None], np.arange(width), -1)
    now = model
    within = deadline or Deadline()
    while _has_zeros(now):
        tables, supports = _tighten(now, within)
        if within.passed:
            break
        alive = propagate(now, _alive(now, supports))
        copy_of = _copies(supports, alive)
        if not copy_of and alive.sum() == now.cards.sum():
            break
        _follow(original, state, _renumber(alive), copy_of)
        now = _rebuilt(now, tables, alive, copy_of)
    if now is model:
        return None
    return Merged(model, now, original, state)


def _has_zeros(model: FactorGraph) -> bool:
    w = wiring(model)
    if not len(w.values):
        return False
    least = np.minimum.reduceat(w.values, w.table_start[:-1])
    return bool(np.isneginf(least[np.diff(w.scope_start) > 1]).any())


def _tighten(model: FactorGraph, deadline: Deadline) -> tuple[list[BoolArray], Supports]:
    """Entries that are possible in every factor by the supports of all pairs, and these."""
    possible = [np.isfinite(table) for table in model.log_tables]
    holders: dict[tuple[int, int], list[int]] = {}
    for f, scope in enumerate(model.scopes):
        for i, j in combinations(sorted(scope), 2):
            holders.setdefault((i, j), []).append(f)
    supports: Supports = {}
    waiting = {f for f, scope in enumerate(model.scopes) if len(scope) > 1}
    while waiting and not deadline.passed:
        f = waiting.pop()
        scope, table = model.scopes[f], possible[f]
        pairs = [
            (a, b) for a in range(len(scope)) for b in range(len(scope)) if scope[a] < scope[b]
        ]
        for a, b in pairs:
            if (known := supports.get((scope[a], scope[b]))) is not None:
                table = table & _laid_out(known, a, b, table.ndim)
        possible[f] = table
        for a, b in pairs:
            if deadline.passed:
                return possible, supports
            found = np.asarray(table.any(tuple(c for c in range(table.ndim) if c not in (a, b))))
            found = found if a < b else found.T
            pair = scope[a], scope[b]
            known = supports.get(pair)
            if known is None or (found < known).any():
                supports[pair] = found if known is None else found & known
                if not found.all():
                    waiting.update(g for g in holders[pair] if g != f)
    return possible, supports


def _laid_out(support: BoolArray, a: int, b: int, axes: int) -> BoolArray:
    """A pair's support along axes a and b of a table."""
    shape = [1] * axes
    shape[a], shape[b] = support.shape
    return (support if a < b else support.T).reshape(shape)


def _alive(model: FactorGraph, supports: Supports) -> BoolArray:
    alive = all_states(model)
    for (i, j), support in supports.items():
        if support.all():
            continue
        alive[i, : model.cards[i]] &= support.any(1)
        alive[j, : model.cards[j]] &= support.any(0)
    if not alive.any(1).all():
        raise EvidenceError(
            "no configuration has non-zero probability: the zeros of the factors exclude each "
            "other; check the evidence against them"
        )
    return alive


def _copies(supports: Supports, alive: BoolArray) -> Copies:
    """Copies, the variable each follows (no copy itself), and the state for each of theirs."""
    found: Copies = {}
    followed: set[int] = set()
    for (i, j), support in supports.items():
        if np.count_nonzero(support) > min(support.shape):
            continue
        kept = support[alive[i, : support.shape[0]]][:, alive[j, : support.shape[1]]]
        if kept.shape[0] < 2 or kept.shape[0] != kept.shape[1]:
            continue
        if not ((kept.sum(0) == 1).all() and (kept.sum(1) == 1).all()):
            continue
        if i in found or j in found or j in followed:
            continue  # chains of copies take another round
        found[j] = i, kept.argmax(0)
        followed.add(i)
    return found


def _renumber(alive: BoolArray) -> IntArray:
    """New number of each state, −1 for a removed one."""
    return np.where(alive, np.cumsum(alive, 1) - 1, -1)


def _follow(
    original: IntArray, state: IntArray, renumbered: IntArray, copy_of: Copies
) -> None:  # fmt: skip
    """Update in place where the variables of the first model are found after one round."""
    for i in range(len(original)):
        j = int(original[i])
        new = np.where(state[i] >= 0, renumbered[j, np.maximum(state[i], 0)], -1)
        if j in copy_of:
            original[i], to = copy_of[j]
            new = np.where(new >= 0, to[np.maximum(new, 0)], -1)
        state[i] = new


def _rebuilt(
    model: FactorGraph, possible: list[BoolArray], alive: BoolArray,
    copy_of: Copies,
) -> FactorGraph:  # fmt: skip
    """Model with impossible entries at zero, impossible states gone, copies in no scope."""
    tables = tuple(
        np.where(mask, table, -np.inf)
        for mask, table in zip(possible, model.log_tables, strict=True)
    )
    reduced = restrict(FactorGraph(model.cards, model.scopes, tables, model.names), alive)
    cards = reduced.cards.copy()
    scopes, merged = [], []
    for scope, table in zip(reduced.scopes, reduced.log_tables, strict=True):
        new_scope, new_table = _substituted(scope, table, copy_of)
        scopes.append(new_scope)
        merged.append(new_table)
    cards[list(copy_of)] = 1
    return FactorGraph(cards, tuple(scopes), tuple(merged), model.names)


def _substituted(
    scope: tuple[int, ...], table: FloatArray, copy_of: Copies
) -> tuple[tuple[int, ...], FloatArray]:
    """A factor with copies replaced by what they follow, as diagonals where both are there."""
    names = list(scope)
    for a, i in enumerate(scope):
        if i in copy_of:
            names[a], to = copy_of[i]
            table = np.take(table, np.argsort(to), a)
    while len(set(names)) < len(names):
        i = next(name for name in names if names.count(name) > 1)
        a, b = [c for c, name in enumerate(names) if name == i][:2]
        table = np.moveaxis(np.diagonal(table, 0, a, b), -1, 0)
        names = [i, *(name for c, name in enumerate(names) if c not in (a, b))]
    return tuple(names), np.array(table)
