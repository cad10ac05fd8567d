"""Joint marginals of several variables, from the tapes of the two passes.

At every step Z = ⟨F'_t, B'_t⟩, and left open at any sites of the frontier that is their joint
marginal. A factor's variables are all in the frontier when the first of them goes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.layout import Layout
from icgi.elimination.passes import Tape, Weights
from icgi.elimination.potentials import Potentials, weights
from icgi.elimination.run import Pass
from icgi.model.graph import FloatArray
from icgi.tt.train import open_sites

Scope = tuple[int, ...]


def joint_marginals(
    pots: Potentials,
    layout: Layout,
    done: Pass,
    scopes: Iterable[Scope],
    deadline: Deadline | None = None,
) -> dict[Scope, FloatArray]:
    """Raw joint marginals of scopes of factors: entries sum to one and may be negative.

    Where the deadline passes meanwhile, those that were found until then.
    """
    when = np.argsort(layout.order)
    wanted: dict[int, list[Scope]] = {}  # by the variable that goes first, one-state ones aside
    for scope in scopes:
        wanted.setdefault(min(_free(scope, pots) or scope, key=when.__getitem__), []).append(scope)
    if not wanted:
        return {}
    w = weights(pots, layout)
    later = _later(layout)
    at: dict[int, int] = {}  # where in the list of sites a frontier variable was last
    out: dict[Scope, FloatArray] = {}
    for t, v in enumerate(layout.step_variable.tolist()):
        if deadline is not None and deadline.passed:
            break
        first, end = int(layout.site_start[t]), int(layout.site_start[t + 1])
        at.update(zip(layout.site[first:end].tolist(), range(first, end), strict=True))
        if v in wanted:
            frontier = sorted(at, key=layout.position.__getitem__)
            past, future = _trains(pots, w, done, v, [(u, at[u]) for u in frontier], first, later)
            for scope in wanted[v]:
                free = sorted(_free(scope, pots) or [v], key=frontier.index)
                axes = [free.index(i) for i in _free(scope, pots)]
                with np.errstate(all="ignore"):  # NaN where the passes have lost everything
                    values = open_sites(past, future, [frontier.index(i) for i in free])
                    values = values / values.sum()
                out[scope] = values.transpose(axes or None).reshape(pots.cards[list(scope)])
        at.pop(v, None)
    return out


def _free(scope: Scope, pots: Potentials) -> list[int]:
    return [i for i in scope if pots.cards[i] > 1]


def _later(layout: Layout) -> list[int]:
    """Where in the list of sites the variable of each entry comes next, −1 for never."""
    following = [-1] * len(layout.site)
    seen: dict[int, int] = {}
    for e in range(len(following) - 1, -1, -1):
        u = int(layout.site[e])
        following[e] = seen.get(u, -1)
        seen[u] = e
    return following


def _trains(
    pots: Potentials,
    w: Weights,
    done: Pass,
    v: int,
    frontier: list[tuple[int, int]],
    first: int,
    later: list[int],
) -> tuple[list[FloatArray], list[FloatArray]]:
    """F'_t and B'_t of the step that sums out v, whose range begins at entry `first`.

    Outside of the range F' is what the next step to have a site in its range has found there, and
    B what the last one has.
    """
    past, future = [], []
    bond = 1
    for u, e in frontier:
        d = int(pots.cards[u])
        past.append(_core(done.forward, e if e >= first else later[e], d))
        core = w.omega[v, :d, None, None] * np.eye(bond) if u == v else _core(done.backward, e, d)
        bond = core.shape[2]
        if e >= first:
            a, b = int(w.table_left[e]), int(w.table_right[e])
            table = w.table[w.table_start[e] :][: a * d * b].reshape(a, d, b)
            core = np.einsum("pxq,xab->xpaqb", table, core).reshape(d, a * core.shape[1], b * bond)
        future.append(core)
    return past, future


def _core(tape: Tape, e: int, d: int) -> FloatArray:
    a, b = int(tape.left[e]), int(tape.right[e])
    return tape.data[tape.start[e] :][: d * a * b].reshape(d, a, b)
