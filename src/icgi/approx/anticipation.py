"""Factors that know what others would tell them: a model divided by its messages, and times them.

Π_f ψ_f = Π_f (ψ_f / Π_{i∈f} m_{f→i}) · Π_i Π_{f∋i} m_{f→i} holds for any positive messages m. With
those of a fixed point of belief propagation, any few of the divided factors times all the fields
have about the marginals of the whole model (Wainwright, Jaakkola and Willsky 2003).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from icgi.approx.flat import FlatModels
from icgi.approx.forests import Scope, multiply
from icgi.approx.lbp import LoopyBP
from icgi.approx.reading import TimeSpent
from icgi.clock import Deadline
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray, IntArray

Factor = tuple[Scope, FloatArray]

SHARE = 0.2  # of the seconds, for belief propagation
SWEEPS = 1000  # of it where no seconds are given
STRONGEST = 50.0  # log ratio of a message: fields stay within reach of double precision


@dataclass(frozen=True, slots=True, eq=False)
class Anticipated:
    """A model in linear space: scopes ascending, tables flat, largest entries one."""

    cards: IntArray
    factors: list[Factor]  # of two and more variables, none within another one
    fields: list[FloatArray]  # one per variable
    log_scale: float  # log of what all that has to be multiplied by, free variables summed out

    @property
    def largest(self) -> float:
        """log₂ of the largest table."""
        return math.log2(max((table.size for _, table in self.factors), default=1))

    @property
    def beliefs(self) -> FloatArray:
        """What the fields alone say, n k: belief propagation's answer where it came to rest."""
        probs = np.zeros((len(self.cards), int(self.cards.max(initial=1))))
        for i, field in enumerate(self.fields):
            probs[i, : len(field)] = field / field.sum()
        return probs


def anticipated(
    model: FactorGraph, budget: Budget, deadline: Deadline, rng: Generator, propagate: bool
) -> Anticipated:
    """Model divided by its messages where belief propagation comes to rest, else as it is.

    The model is one that `supported` left; raises `TimeSpent`.
    """
    seconds = deadline.share(SHARE).left
    limit = Budget(SWEEPS if math.isinf(seconds) else None, seconds, budget.table_bytes)
    settled = LoopyBP().messages(model, limit, rng)
    if settled is None:
        raise TimeSpent
    flat, messages, at_rest = settled
    sent = np.clip(messages, -STRONGEST, STRONGEST) * (propagate and at_rest)
    cards = model.cards.tolist()
    ratios = flat.field.copy()
    log_scale = float(flat.constant[0] - flat.top.sum())
    found: list[Factor] = []
    for f in range(len(flat.edge_start) - 1):
        scope, log = _divided(flat, f, sent, ratios, cards)
        top = float(log.max())
        log_scale += top
        axes = np.argsort(scope)
        found.append((tuple(scope[a] for a in axes), np.exp(np.transpose(log, axes) - top).ravel()))
    fields = []
    free = np.ones(len(cards), np.bool_)
    free[[i for scope, _ in found for i in scope]] = False
    for i in range(len(cards)):
        log = np.append(0.0, ratios[flat.ratio_start[i] : flat.ratio_start[i + 1]])
        top = float(log.max())
        fields.append(np.exp(log - top))
        log_scale += top + (math.log(fields[i].sum()) if free[i] else 0.0)
    factors, scale = _gathered(found, cards)
    return Anticipated(model.cards, factors, fields, log_scale + scale)


def _divided(
    flat: FlatModels, f: int, sent: FloatArray, ratios: FloatArray, cards: list[int]
) -> tuple[Scope, FloatArray]:
    """Scope and log table of a factor without what it sent, which is added to the fields."""
    edges = range(int(flat.edge_start[f]), int(flat.edge_start[f + 1]))
    scope = tuple(int(flat.variable[e]) for e in edges)
    shape = [cards[i] for i in scope]
    begin = int(flat.value_start[f])
    log = flat.values[begin : begin + math.prod(shape)].reshape(shape).copy()
    for axis, (e, i) in enumerate(zip(edges, scope, strict=True)):
        message = sent[flat.message_start[e] : flat.message_start[e + 1]]
        ratios[flat.ratio_start[i] : flat.ratio_start[i + 1]] += message
        log -= np.append(0.0, message).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return scope, log


def _gathered(found: list[Factor], cards: list[int]) -> tuple[list[Factor], float]:
    """Factors, each within another one multiplied into it; log of what that was scaled by."""
    scale = 0.0
    made: list[Factor] = []
    holding: dict[int, list[int]] = {}
    for scope, table in sorted(found, key=lambda factor: -len(factor[0])):
        rare = min(scope, key=lambda i: len(holding.get(i, ())))
        home = next((k for k in holding.get(rare, ()) if set(scope) <= set(made[k][0])), None)
        if home is None:
            for i in scope:
                holding.setdefault(i, []).append(len(made))
            made.append((scope, table.copy()))
        else:
            scale += multiply(made[home][1], made[home][0], table, scope, cards)
    return made, scale
