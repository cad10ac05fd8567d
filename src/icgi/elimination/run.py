"""Passes repeated with each other's cores as environment, and statistics of their consistency."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from icgi.clock import Deadline
from icgi.elimination.layout import Layout
from icgi.elimination.passes import Cut, Tape, Weights, backward, forward, unary_tape
from icgi.elimination.potentials import Potentials, steps_of, weights
from icgi.model.graph import FloatArray, IntArray

NEGATIVE = -0.01  # a raw probability below this is not rounding


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One forward and one backward pass: raw marginals, log Z, and the accounts."""

    cards: IntArray  # n
    mass: FloatArray  # n k      raw: rows sum to one, entries may be negative
    log_z: float  # of the forward pass
    log_z_back: float
    log_z_steps: FloatArray  # s        ⟨F_t, B_t⟩; NaN where negative or not computed
    eps_max: float  # largest share of environment-weighted norm discarded at one bond
    eps_sum: float  # Σ_t ε_t, ε_t² the sum over the bonds of step t
    drift: float  # Σ of log changes of ⟨F, B⟩ by the truncations of both passes
    angle: float  # log of the smallest ⟨F_t, B_t⟩ / ‖F_t‖‖B_t‖: digits that cancel
    forward: Tape
    backward: Tape

    @property
    def negative(self) -> float:
        """Share of variables with a raw probability that is clearly negative, or none at all."""
        return float(np.mean(~(self.mass.min(1, initial=0.0) >= NEGATIVE)))

    @property
    def spread(self) -> float:
        """Range of log ⟨F_t, B_t⟩ over all steps: zero without truncation, infinite if negative."""
        found = self.log_z_steps
        return float(found.max() - found.min()) if np.isfinite(found).all() else np.inf

    @property
    def probs(self) -> FloatArray:
        """Marginals: raw masses clipped at zero and normalised; uniform where nothing is left."""
        raw = np.where(np.isfinite(self.mass), self.mass, 0.0).clip(0.0)
        nothing = ~(raw.sum(1) > 0)
        raw[nothing] = np.arange(raw.shape[1]) < self.cards[nothing, None]
        return np.asarray(raw / raw.sum(1, keepdims=True))


class OutOfTimeError(Exception):
    """The deadline passed during a pass, which is abandoned."""


def both_passes(
    pots: Potentials,
    layout: Layout,
    cut: Cut,
    env: Tape | None = None,
    scale: float = 1.0,
    *,
    deadline: Deadline | None = None,
    numbers: Weights | None = None,
) -> Pass:
    """Eliminate p^scale and walk back; `env` is the backward tape of an earlier pair of passes.

    `numbers` are the weights of the model along the layout, where they are known already. Raises
    `OutOfTimeError` where the deadline passes meanwhile.
    """
    w = weights(pots, layout, scale) if numbers is None else numbers
    steps = steps_of(layout, pots.cards)
    tape = unary_tape(steps, w.omega) if env is None else env
    with (deadline or Deadline()).flag() as stop:
        try:
            past, logs, log_f, sign, errors_f = forward(steps, w, tape, cut, stop)
            mass, log_steps, log_b, future, errors_b = backward(
                steps, w, past, logs, cut, True, stop
            )
        # numbers beyond the range of double precision, or a singular value decomposition that
        # does not converge: grams need none
        except (np.linalg.LinAlgError, ValueError):
            if cut.qr:
                return both_passes(
                    pots, layout, cut._replace(qr=False), env, scale, deadline=deadline, numbers=w
                )
            return _lost(pots.cards, unary_tape(steps, w.omega))
        if stop[0]:
            raise OutOfTimeError
    errors = np.concatenate([errors_f, errors_b])
    eliminates = layout.step_variable >= 0
    angles = (log_steps - errors_f[:, 3] - errors_b[:, 3])[eliminates]
    return Pass(
        pots.cards,
        mass,
        log_f + w.log_constant if sign > 0 else np.nan,
        log_b + w.log_constant,
        log_steps[eliminates] + w.log_constant,
        float(errors[:, 0].max(initial=0.0)),
        float(np.sqrt(errors[:, 1]).sum()),
        float(errors[:, 2].sum()),
        float(angles.min(initial=0.0)),
        past,
        future,
    )


def _lost(cards: IntArray, tape: Tape) -> Pass:
    """Pass that says nothing and fails every check."""
    nan = math.nan
    mass = np.full((len(cards), int(cards.max())), nan)
    return Pass(cards, mass, nan, nan, np.array([nan]), 1.0, 1.0, nan, nan, tape, tape)


def distance(first: FloatArray, second: FloatArray) -> float:
    """Mean over variables of ‖p − q‖₁."""
    return float(np.abs(first - second).sum(1).mean()) if len(first) else 0.0
