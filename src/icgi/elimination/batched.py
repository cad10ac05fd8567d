"""The passes for many models of one shape at once, in torch: same layout, different numbers.

Arrays carry a batch axis in front: cores (b, d, left, right), gauges (b, ·, bond). Bonds have the
same size in all models of a batch; directions that one of them would drop are zero in it. The
arithmetic is that of factors (`qr`), so answers agree with the compiled passes to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from icgi.elimination.layout import Layout
from icgi.elimination.passes import Cut
from icgi.elimination.potentials import Potentials, weights
from icgi.model.graph import FactorGraph, FloatArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Tapes = list[list["Tensor"]]  # per step, per site: cores


@dataclass(frozen=True, slots=True, eq=False)
class BatchPass:
    """What one forward and one backward pass say, model by model."""

    mass: FloatArray  # b n k    raw marginals
    log_z_steps: FloatArray  # b s      log ⟨F_t, B_t⟩, NaN where negative
    eps_max: FloatArray  # b

    @property
    def spread(self) -> FloatArray:
        """Range of log Z over the steps, b; infinite where a step is negative."""
        wide = self.log_z_steps.max(1) - self.log_z_steps.min(1)
        return np.where(np.isfinite(wide), wide, np.inf)

    def probs(self, k: int) -> FloatArray:
        """Marginals of model k: raw masses clipped at zero and normalised."""
        raw = self.mass[k].clip(0.0)
        return np.asarray(raw / raw.sum(1, keepdims=True))


def same_shape(models: Sequence[FactorGraph]) -> bool:
    """Whether all models have the same variables and scopes, of two variables at most."""
    first = models[0]
    return max(map(len, first.scopes), default=0) <= 2 and all(
        np.array_equal(m.cards, first.cards) and m.scopes == first.scopes for m in models[1:]
    )


def batched_passes(
    pots: Sequence[Potentials],
    layout: Layout,
    cut: Cut,
    iterations: int,
    device: str = "cpu",
) -> BatchPass:
    """Pairs of passes over all models, each with the one before as environment; the last one."""
    import torch

    numbers = [weights(p, layout) for p in pots]
    steps = _Steps(layout, pots[0].cards.tolist())

    def gather(arrays: list[FloatArray]) -> torch.Tensor:
        return torch.as_tensor(np.stack(arrays), device=device)

    leg, omega = gather([w.leg for w in numbers]), gather([w.omega for w in numbers])
    flat = gather([w.table for w in numbers])
    tables: Tapes = []
    for t in range(len(layout.step_variable)):
        tables.append([])
        for e in range(int(layout.site_start[t]), int(layout.site_start[t + 1])):
            d = steps.cards[int(layout.site[e])]
            a, b = int(numbers[0].table_left[e]), int(numbers[0].table_right[e])
            at = int(numbers[0].table_start[e])
            tables[-1].append(flat[:, at : at + a * d * b].reshape(-1, a, d, b))
    constant = torch.as_tensor(np.array([w.log_constant for w in numbers]), device=device)
    env: Tapes = [
        [omega[:, u, : steps.cards[u], None, None] for u in steps.sites(t)]
        for t in range(len(tables))
    ]
    for _ in range(max(1, iterations)):
        past, logs, lost_f = _forward(steps, leg, omega, tables, env, cut)
        mass, log_z, env, lost_b = _backward(steps, leg, omega, tables, past, logs, cut)
    eliminates = [t for t, v in enumerate(steps.variable) if v >= 0]
    found = torch.stack([log_z[t] for t in eliminates], 1) + constant[:, None]
    return BatchPass(
        mass.cpu().numpy(), found.cpu().numpy(), torch.maximum(lost_f, lost_b).cpu().numpy()
    )


class _Steps:
    """Layout as plain lists."""

    def __init__(self, layout: Layout, cards: list[int]) -> None:
        self.cards = cards
        self.variable: list[int] = layout.step_variable.tolist()
        self.before: list[int] = layout.before.tolist()
        self._start: list[int] = layout.site_start.tolist()
        self._site: list[int] = layout.site.tolist()
        self._fresh: list[int] = layout.fresh.tolist()

    def sites(self, t: int) -> list[int]:
        return self._site[self._start[t] : self._start[t + 1]]

    def fresh(self, t: int) -> list[int]:
        return self._fresh[self._start[t] : self._start[t + 1]]


@dataclass(slots=True, eq=False)
class _Train:
    """Frontier train: cores and environment by variable, gauges cached from both ends."""

    act: list[int] = field(default_factory=list)
    core: dict[int, Tensor] = field(default_factory=dict)
    env: dict[int, Tensor] = field(default_factory=dict)
    left: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    right: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    good_left: int = 0
    good_right: int = 0

    def insert(self, j: int, u: int, vector: Tensor) -> None:
        """Product with a function of a new variable at place j."""
        import torch

        bond = 1
        if self.act:
            bond = self.core[self.act[j - 1]].shape[3] if j else self.core[self.act[0]].shape[2]
        eye = torch.eye(bond, dtype=vector.dtype, device=vector.device)
        self.core[u] = vector[:, :, None, None] * eye
        self.act.insert(j, u)

    def gauge(self, low: int, high: int, one: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        """Gauge, overlap and its log scale left of `low` and right of `high`."""
        nothing = (one, one, one[:, 0, 0] * 0.0)
        for j in range(self.good_left, low):
            u = self.act[j]
            gauge, overlap, log = self.left[self.act[j - 1]] if j else nothing
            moved, more = _scaled(_overlap_left(self.core[u], self.env[u], overlap))
            self.left[u] = (_gauge_left(self.core[u], gauge), moved, log + more)
        self.good_left = max(self.good_left, low)
        last = len(self.act) - 1
        for j in range(last - self.good_right, high, -1):
            u = self.act[j]
            gauge, overlap, log = self.right[self.act[j + 1]] if j < last else nothing
            moved, more = _scaled(_overlap_right(self.core[u], self.env[u], overlap))
            self.right[u] = (_gauge_right(self.core[u], gauge), moved, log + more)
        self.good_right = max(self.good_right, last - high)
        return (
            self.left[self.act[low - 1]] if low else nothing,
            self.right[self.act[high + 1]] if high < last else nothing,
        )


def _forward(
    steps: _Steps, leg: Tensor, omega: Tensor, tables: Tapes, env: Tapes, cut: Cut
) -> tuple[Tapes, list[Tensor], Tensor]:
    """Eliminate everything: tape of F'_t, its log scales, largest discarded share."""
    import torch

    one = torch.ones_like(leg[:, :1, :1])
    train = _Train()
    tape: Tapes = []
    logs: list[Tensor] = []
    log_f = one[:, 0, 0] * 0.0
    worst = log_f
    for t, v in enumerate(steps.variable):
        sites, low = steps.sites(t), steps.before[t]
        high = low + len(sites) - 1
        for q, (u, fresh) in enumerate(zip(sites, steps.fresh(t), strict=True)):
            if fresh:
                train.insert(low + q, u, leg[:, u, : steps.cards[u]])
            train.env[u] = env[t][q]
        train.good_left = min(train.good_left, low)
        train.good_right = min(train.good_right, len(train.act) - 1 - high)
        (g0, o0, log_left), (g1, o1, _) = train.gauge(low, high, one)
        logs.append(log_f)
        tape.append([train.core[u] for u in sites])
        gone = sites.index(v) if v in sites else -1
        if len(sites) == 1:
            log_f = log_f + torch.log(
                (train.core[v][:, :, 0, 0] * omega[:, v, : steps.cards[v]]).sum(1).abs()
            )
            train = _Train()
            continue
        h = [_site(c, w) for c, w in zip(tape[-1], tables[t], strict=True)]
        envs = list(env[t])
        if gone >= 0:  # its sum goes into a neighbour
            bridge = torch.einsum("bx,bxac->bac", omega[:, v, : steps.cards[v]], h.pop(gone))
            envs.pop(gone)
            train.act.remove(v)
            if gone < len(h):
                h[gone] = bridge[:, None] @ h[gone]
            else:
                h[-1] = h[-1] @ bridge[:, None]
        kept = [u for u in sites if u != v]
        ranks = _caps(train.act, steps.cards, cut.rank)[low : low + len(kept)]
        done = _compress(h, envs, -1, (g0, o0), (g1, o1), ranks, cut)
        log_f = log_f + done.log
        worst = torch.maximum(worst, done.worst)
        _store(train, kept, done, log_left)
        train.good_left = low + len(kept) - 1
        train.good_right = len(train.act) - (low + len(kept))
    return tape, logs, worst


def _backward(
    steps: _Steps,
    leg: Tensor,
    omega: Tensor,
    tables: Tapes,
    past: Tapes,
    logs: list[Tensor],
    cut: Cut,
) -> tuple[Tensor, dict[int, Tensor], Tapes, Tensor]:
    """Walk back: masses, log Z per step, tape of B_t, largest discarded share."""
    import torch

    one = torch.ones_like(leg[:, :1, :1])
    train = _Train()
    tape: Tapes = [[] for _ in past]
    mass = torch.zeros_like(omega)
    log_z: dict[int, Tensor] = {}
    log_b = one[:, 0, 0] * 0.0
    worst = log_b
    for t in range(len(past) - 1, -1, -1):
        v, sites, low = steps.variable[t], steps.sites(t), steps.before[t]
        high = low + len(sites) - 1
        pivot = sites.index(v) if v in sites else -1
        old = len(sites) - (pivot >= 0)
        train.good_left = min(train.good_left, low)
        train.good_right = min(train.good_right, len(train.act) - (low + old))
        for q, u in enumerate(sites):
            train.env[u] = past[t][q]
            # the eliminated variable has no environment in the forward pass: a placeholder
            tape[t].append(omega[:, u, : steps.cards[u], None, None] if u == v else train.core[u])
        if pivot >= 0:
            train.insert(low + pivot, v, omega[:, v, : steps.cards[v]])
        (g0, o0, log_left), (g1, o1, log_right) = train.gauge(low, high, one)
        h = [_site(train.core[u], w) for u, w in zip(sites, tables[t], strict=True)]
        ranks = _caps(train.act, steps.cards, cut.rank)[low : high + 1]
        done = _compress(h, past[t], pivot, (g0, o0), (g1, o1), ranks, cut)
        worst = torch.maximum(worst, done.worst)
        if done.marginal is not None:
            z = done.marginal.sum(1)
            mass[:, v, : steps.cards[v]] = done.marginal / z[:, None]
            log_z[t] = torch.log(z) + done.marginal_log + log_left + log_right + log_b + logs[t]
        log_b = log_b + done.log
        _store(train, sites, done, log_left)
        train.good_left = high
        kept = list(sites)
        for u, fresh in zip(sites, steps.fresh(t), strict=True):
            if not fresh:
                continue
            q = kept.index(u)
            matrix = torch.einsum("bx,bxac->bac", leg[:, u, : steps.cards[u]], train.core[u])
            if len(kept) == 1:
                log_b = log_b + torch.log(matrix[:, 0, 0].abs())
            elif q + 1 < len(kept):
                train.core[kept[q + 1]], log = _scaled(matrix[:, None] @ train.core[kept[q + 1]])
                log_b = log_b + log
                train.good_left = min(train.good_left, low + q)
            else:
                train.core[kept[q - 1]], log = _scaled(train.core[kept[q - 1]] @ matrix[:, None])
                log_b = log_b + log
                train.good_left = min(train.good_left, low + q - 1)
            train.act.remove(u)
            kept.pop(q)
        train.good_right = len(train.act) - (low + len(kept))
    return mass, log_z, tape, worst


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    cores: list[Tensor]
    gauges: list[tuple[Tensor, Tensor, Tensor]]
    log: Tensor
    marginal: Tensor | None
    marginal_log: Tensor
    worst: Tensor


def _compress(
    h: list[Tensor],
    envs: list[Tensor],
    opened: int,
    start: tuple[Tensor, Tensor],
    end: tuple[Tensor, Tensor],
    ranks: list[int],
    cut: Cut,
) -> _Done:
    """Truncate all bonds inside a range; as `icgi.tt.sweep.compress`, for a batch."""
    import torch

    m = len(h)
    zero = start[0][:, 0, 0] * 0.0
    right = [(end[0], end[1], zero)] * m
    for q in range(m - 1, 0, -1):
        moved, log = _scaled(_overlap_right(h[q], envs[q], right[q][1]))
        right[q - 1] = (_gauge_right(h[q], right[q][0]), moved, right[q][2] + log)
    gauge, overlap = start
    cores: list[Tensor] = []
    gauges: list[tuple[Tensor, Tensor, Tensor]] = []
    log_scale = log_left = worst = marginal_log = zero
    marginal: Tensor | None = None
    carried: Tensor | None = None
    for q in range(m):
        core = h[q] if carried is None else carried[:, None] @ h[q]
        if q == opened:
            seen = torch.einsum("bac,bxcd->bxad", overlap, envs[q])
            marginal = torch.einsum("bxad,bxae,bed->bx", seen, core, right[q][1])
            marginal_log = log_scale + log_left + right[q][2]
        if q == m - 1:
            core, log = _scaled(core)
            cores.append(core)
            log_scale = log_scale + log
            break
        gauge = _gauge_left(core, gauge)
        overlap, log = _scaled(_overlap_left(core, envs[q], overlap))
        log_left = log_left + log
        a, b, lost = _projectors(gauge, right[q][0], overlap, right[q][1], ranks[q], cut)
        worst = torch.maximum(worst, lost)
        overlap, log = _scaled(a.mT @ overlap)
        log_left = log_left + log
        core, log = _scaled(core @ a[:, None])
        log_scale, log_left = log_scale + log, log_left - log
        cores.append(core)
        gauge = _scaled(_triangle(gauge @ a))[0]
        gauges.append((gauge, overlap, log_left))
        carried = b
    return _Done(cores, gauges, log_scale, marginal, marginal_log, worst)


def _store(train: _Train, sites: list[int], done: _Done, log_left: Tensor) -> None:
    for u, core in zip(sites, done.cores, strict=True):
        train.core[u] = core
    for u, (gauge, overlap, log) in zip(sites, done.gauges, strict=False):
        train.left[u] = (gauge, overlap, log_left + log)


def _caps(act: list[int], cards: list[int], rank: int) -> list[int]:
    """Largest useful bond right of each frontier site: rank, and the states on either side."""
    caps, left, right = [], 1, 1
    for u in act:
        left = min(left * cards[u], rank)
        caps.append(left)
    for j in range(len(act) - 1, -1, -1):
        caps[j] = min(caps[j], right)
        right = min(right * cards[act[j]], rank)
    return caps


def _projectors(
    left: Tensor, right: Tensor, over_left: Tensor, over_right: Tensor, rank: int, cut: Cut
) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    la = _triangle(torch.cat([left, cut.env_weight * over_left.mT], 1))
    ra = _triangle(torch.cat([right, cut.env_weight * over_right.mT], 1))
    u, s, vt = torch.linalg.svd(la @ ra.mT, full_matrices=False)
    k = min(rank, s.shape[1])
    keep = s[:, :k] > cut.tolerance * s[:, :1]
    keep[:, 0] = True
    root = keep / s[:, :k].clamp_min(1e-300).sqrt()
    total = s.square().sum(1)
    held = (s[:, :k].square() * keep).sum(1)
    lost = ((total - held).clamp_min(0.0) / total.clamp_min(1e-300)).sqrt()
    return (ra.mT @ vt[:, :k].mT) * root[:, None], root[:, :, None] * (u[:, :, :k].mT @ la), lost


def _site(core: Tensor, table: Tensor) -> Tensor:
    """Product (b, d, v·a, w·c) of a core and a table (b, v, d, w)."""
    import torch

    batch, d, a, c = core.shape
    v, w = table.shape[1], table.shape[3]
    return torch.einsum("bxac,bvxw->bxvawc", core, table).reshape(batch, d, v * a, w * c)


def _gauge_left(core: Tensor, gauge: Tensor) -> Tensor:
    moved = gauge[:, None] @ core  # b d k c
    return _scaled(_triangle(moved.flatten(1, 2)))[0]


def _gauge_right(core: Tensor, gauge: Tensor) -> Tensor:
    moved = gauge[:, None] @ core.mT  # b d k a
    return _scaled(_triangle(moved.flatten(1, 2)))[0]


def _overlap_left(core: Tensor, env: Tensor, overlap: Tensor) -> Tensor:
    return (core.mT @ overlap[:, None] @ env).sum(1)


def _overlap_right(core: Tensor, env: Tensor, overlap: Tensor) -> Tensor:
    return (core @ overlap[:, None] @ env.mT).sum(1)


def _triangle(matrix: Tensor) -> Tensor:
    import torch

    if matrix.shape[1] <= matrix.shape[2]:
        return matrix
    found: Tensor = torch.linalg.qr(matrix, mode="r").R
    return found


def _scaled(array: Tensor) -> tuple[Tensor, Tensor]:
    norm = array.flatten(1).norm(dim=1).clamp_min(1e-300)
    return array / norm.reshape(-1, *[1] * (array.ndim - 1)), norm.log()
