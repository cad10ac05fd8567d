"""An elimination, step by step: fill-in, the frontier as a train, and what each cut discarded.

The steps are those of `ttve` itself, at a rank small enough to see it cut.
"""

from typing import Any

import numpy as np

from icgi.api import marginals
from icgi.clock import Deadline
from icgi.elimination.layout import Layout
from icgi.elimination.orders import find_layout
from icgi.elimination.passes import Cut, Tape, backward, forward
from icgi.elimination.potentials import Potentials, potentials, steps_of, weights
from icgi.elimination.run import Pass, both_passes
from icgi.errors import UnsupportedModelError
from icgi.inference import Budget
from icgi.model.condition import condition
from icgi.model.findings import enter
from icgi.model.graph import FactorGraph, FloatArray, variable_name
from icgi.model.reduce import Component, components
from icgi.randomness import generator
from icgi.web.drawing import cliques, graph
from icgi.web.questions import Question

MOST = 64  # variables of a picture that can be followed
_PASSES = 2  # the second truncates with the first as environment
_EXACT = Budget(seconds=5.0, table_bytes=2**27)


def trace(model: FactorGraph, asked: Question, rank: int = 4, seed: int = 0) -> dict[str, Any]:
    """Steps of eliminating the largest connected part of a model given its evidence.

    Every step has the variable that goes, the edges it leaves (`fill`), the frontier in the order
    of the train, the bond between each two neighbours in it, and the largest share of weight that
    was discarded at one bond, there and on the way back.
    """
    findings = asked.findings(model)
    given = condition(enter(model, findings), findings.observed)
    part = _largest(given.model)
    names = [variable_name(model, i) for i in part.variables.tolist()]
    pots = potentials(part.model)
    layout = find_layout(part.model, pots, rank, generator(seed))
    cut = Cut(rank, 3.0, 1e-12, True)
    done = both_passes(pots, layout, cut)
    for _ in range(_PASSES - 1):
        before = done.backward
        done = both_passes(pots, layout, cut, before)
    tape, there, back = _once_more(pots, layout, cut, before)
    drawn = graph(_named(part.model, names))
    return {
        "rank": rank,
        "nodes": drawn["nodes"],
        "edges": drawn["edges"],
        "left_out": model.n_variables - len(names),
        "steps": _steps(part.model, layout, tape, np.stack([there, back], 1)),
        "log_z": done.log_z if np.isfinite(done.log_z) else None,
        **_compared(part.model, done),
    }


def _largest(model: FactorGraph) -> Component:
    parts = [p for p in components(model) if p.model.n_variables > 1]
    if not parts:
        raise UnsupportedModelError(
            "there is nothing to eliminate: no two variables are connected; take evidence back"
        )
    part = max(parts, key=lambda p: p.model.n_variables)
    if part.model.n_variables > MOST:
        raise UnsupportedModelError(
            f"the picture of an elimination is for up to {MOST} connected variables, this model "
            f"has {part.model.n_variables}; observe some, or take a smaller model"
        )
    return part


def _named(model: FactorGraph, names: list[str]) -> FactorGraph:
    return FactorGraph(model.cards, model.scopes, model.log_tables, names=tuple(names))


def _once_more(
    pots: Potentials, layout: Layout, cut: Cut, env: Tape
) -> tuple[Tape, FloatArray, FloatArray]:
    """Tape of the last forward pass; largest shares discarded in each step, there and back."""
    steps, w = steps_of(layout, pots.cards), weights(pots, layout)
    with Deadline().flag() as stop:
        tape, logs, _, _, there = forward(steps, w, env, cut, stop)
        back = backward(steps, w, tape, logs, cut, True, stop)[-1]
    return tape, there[:, 0], back[:, 0]


def _steps(
    model: FactorGraph, layout: Layout, tape: Tape, discarded: FloatArray
) -> list[dict[str, Any]]:
    """One entry per eliminated variable; products of wide factors belong to the next one."""
    near: dict[int, set[int]] = {i: set() for i in range(model.n_variables)}
    for i, j in cliques(model.scopes):
        near[i].add(j)
        near[j].add(i)
    bonds = _bonds_ahead(layout, tape)
    frontier: list[int] = []
    steps, lost = [], np.zeros(2)
    for t, v in enumerate(layout.step_variable.tolist()):
        sites = layout.site[layout.site_start[t] : layout.site_start[t + 1]].tolist()
        frontier = sorted({*frontier, *sites}, key=lambda u: int(layout.position[u]))
        lost = np.maximum(lost, discarded[t])
        if v < 0:
            continue
        frontier.remove(v)
        around = sorted(near.pop(v))
        fill = [[i, j] for i in around for j in around if i < j and j not in near[i]]
        for i in around:
            near[i] |= set(around) - {i}
            near[i].discard(v)
        steps.append(
            {
                "variable": v,
                "neighbours": around,
                "fill": fill,
                "train": frontier.copy(),
                "bonds": [bonds(u, t) for u in frontier[:-1]],
                "touched": [u for u in sites if u != v],
                "discarded": float(lost[0]),
                "discarded_back": float(lost[1]),
            }
        )
        lost = np.zeros(2)
    return steps


def _bonds_ahead(layout: Layout, tape: Tape) -> Any:
    """Bond right of a frontier site after a step: what the next step to touch it finds there."""
    owner = np.repeat(np.arange(len(layout.step_variable)), np.diff(layout.site_start))

    def bond(u: int, t: int) -> int:
        later = np.flatnonzero((layout.site == u) & (owner > t))
        return int(tape.right[later[0]])

    return bond


def _compared(model: FactorGraph, done: Pass) -> dict[str, Any]:
    """How far the answer at this rank is from the exact one, where that is cheap."""
    exact = marginals(model, engine="auto", budget=_EXACT)
    if exact.status.value != "exact":
        return {"exact_log_z": None, "error": None}
    error = float(np.abs(done.probs - exact.probs).max())
    return {"exact_log_z": exact.log_z, "error": error}
