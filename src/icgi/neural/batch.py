"""Factor graphs as one batch of tensors: the form in which every network gets its models.

Variables are padded to the largest model of a batch, states to the largest variable; factors are
lists, one for each arity, whatever model they belong to. Networks that need dense arrays make
them from these lists (`tables_of`, `spins_of`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icgi.clock import Deadline
from icgi.model.graph import BoolArray, FactorGraph, FloatArray
from icgi.neural.arrange import distances
from icgi.neural.general_algebra import ABSENT
from icgi.neural.general_batch import (
    JOINS_NOTHING,
    LEAST_VARIABLES,
    Tables,
    gauge,
    pair_form,
)
from icgi.neural.pace import check
from icgi.neural.spins import Spins, make_spins

FLOOR = -30.0  # of log tables whose largest entry is 0: zeros are near-zeros inside a network


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of one arity of all models, those of a model one after the other."""

    log_tables: Tensor  # f k … k    at most 0; 0 for states that do not exist
    scopes: Tensor  # f a    numbers of variables inside their model
    start: Tensor  # b+1    where the factors of each model begin

    @property
    def arity(self) -> int:
        """Variables of each factor."""
        return self.scopes.shape[1]

    @property
    def graph(self) -> Tensor:
        """Which model each factor belongs to (f)."""
        counts = self.start.diff()
        return torch.repeat_interleave(
            torch.arange(len(counts), device=counts.device), counts, output_size=len(self.scopes)
        )

    def __getitem__(self, index: Tensor) -> "Factors":
        counts = self.start.diff()[index]
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        total = int(start[-1])
        shift = torch.repeat_interleave(self.start[index] - start[:-1], counts, output_size=total)
        which = torch.arange(total, device=counts.device) + shift
        return Factors(self.log_tables[which], self.scopes[which], start)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Models p(x) ∝ exp(Σ_i u_i(x_i) + Σ_f θ_f(x_f)) side by side."""

    states: Tensor  # b n k    1 for states, 0 for padding; padded variables have one state
    unary: Tensor  # b n k    `ABSENT` for states that do not exist
    real: Tensor  # b n    0 for padding
    own: Tensor  # b n    1 for the model's variables, 0 for auxiliaries and padding
    factors: tuple[Factors, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Models, variables, states: b, n, k."""
        b, n, k = self.states.shape
        return b, n, k

    def flat(self, factors: Factors) -> Tensor:
        """Scopes (f a) of factors as numbers of variables in the whole batch, i + n·model."""
        return factors.scopes + factors.graph[:, None] * self.states.shape[1]

    def to(self, device: torch.device | str) -> "Batch":
        """Same batch elsewhere."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self)[:4]}
        return replace(self, **moved, factors=tuple(_to(f, device) for f in self.factors))

    def __getitem__(self, index: Tensor | slice) -> "Batch":
        """Some of the models, by number."""
        if isinstance(index, slice):
            index = torch.arange(len(self.states), device=self.states.device)[index]
        states, unary, real, own = (getattr(self, f.name)[index] for f in fields(self)[:4])
        return Batch(states, unary, real, own, tuple(f[index] for f in self.factors))


def _to(factors: Factors, device: torch.device | str) -> Factors:
    return Factors(*(getattr(factors, f.name).to(device) for f in fields(factors)))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model as the lists that a batch is made of, and which of its states are left."""

    unary: tuple[FloatArray, ...]  # of every variable, auxiliaries last
    factors: tuple[tuple[tuple[int, ...], FloatArray], ...]  # scope and log table, arity ≥ 2
    alive: BoolArray  # n k    states of the model's own variables that are possible

    @property
    def cards(self) -> tuple[int, ...]:
        """States of each variable."""
        return tuple(len(u) for u in self.unary)


def prepared(
    model: FactorGraph,
    alive: BoolArray,
    pairwise: bool = False,
    deadline: Deadline | None = None,
) -> Prepared:
    """Lists of a model restricted to the states `alive`; factors on one scope are multiplied.

    With `pairwise`, larger factors become auxiliary variables (`general_batch.pair_form`).
    """
    if pairwise:
        form = pair_form(model, alive=alive, deadline=deadline)
        return Prepared(form.unary, tuple(form.pairs.items()), alive)
    columns = [np.flatnonzero(alive[i, :c]) for i, c in enumerate(model.cards)]
    whole = [len(column) == c for column, c in zip(columns, model.cards, strict=True)]
    unary = [np.zeros(len(c)) for c in columns]
    merged: dict[tuple[int, ...], FloatArray] = {}
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        check(deadline)
        if not scope:
            continue
        kept = (
            table if all(whole[i] for i in scope) else table[np.ix_(*(columns[i] for i in scope))]
        )
        kept = np.maximum(kept - kept.max(), FLOOR)
        if len(scope) == 1:
            unary[scope[0]] += kept
            continue
        key = tuple(sorted(scope))
        if key != scope:
            kept = kept.transpose(np.argsort(scope))
        merged[key] = merged[key] + kept if key in merged else kept
    return Prepared(tuple(unary), tuple(merged.items()), alive)


def collate(
    models: Sequence[Prepared],
    variables: int | None = None,
    states: int | None = None,
    deadline: Deadline | None = None,
) -> Batch:
    """Batch of models, in single precision, padded to so many variables and states or what fits.

    Pair tables are gauged: fields tell what a variable prefers by itself, whoever wrote the model.
    """
    n = variables or max([LEAST_VARIABLES, *(len(m.unary) for m in models)])
    k = states or max([2, *(max(m.cards, default=1) for m in models)])
    unary = np.full((len(models), n, k), ABSENT)
    unary[:, :, 0] = 0.0
    real, own = np.zeros((2, len(models), n), np.float32)
    by_arity: dict[int, list[tuple[int, tuple[int, ...], FloatArray]]] = defaultdict(list)
    for b, model in enumerate(models):
        real[b, : len(model.unary)] = 1.0
        own[b, : len(model.alive)] = 1.0
        for i, u in enumerate(model.unary):
            unary[b, i, : len(u)] = u
        for scope, table in model.factors:
            by_arity[len(scope)].append((b, scope, table))
    groups = [
        _pairs(found, unary, len(models), k, deadline)
        if arity == 2
        else _large(found, len(models), k)
        for arity, found in sorted(by_arity.items())
    ]
    exists = unary > 0.5 * ABSENT
    top = np.where(exists, unary, -np.inf).max(2, keepdims=True)
    unary = np.where(exists, np.maximum(unary - top, 4 * FLOOR), ABSENT)
    return Batch(
        torch.from_numpy(exists.astype(np.float32)),
        torch.from_numpy(unary.astype(np.float32)),
        torch.from_numpy(real),
        torch.from_numpy(own),
        tuple(groups),
    )


_Found = list[tuple[int, tuple[int, ...], FloatArray]]


def _pairs(
    found: _Found, unary: FloatArray, count: int, k: int, deadline: Deadline | None
) -> Factors:
    """Gauged pair tables; what they lose goes to `unary`, those that join nothing are left out."""
    tables, rows, columns = _gauged([table for _, _, table in found], k, deadline)
    model = np.array([b for b, _, _ in found], dtype=np.int64)
    scopes = np.array([scope for _, scope, _ in found], dtype=np.int64).reshape(-1, 2)
    np.add.at(unary, (model, scopes[:, 0]), rows)
    np.add.at(unary, (model, scopes[:, 1]), columns)
    kept = np.abs(tables).max((1, 2), initial=0.0) > JOINS_NOTHING
    return _listed(model[kept], scopes[kept], tables[kept].astype(np.float32), count)


def _gauged(
    tables: Sequence[FloatArray], k: int, deadline: Deadline | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`gauge`, at once for two spins: there its iteration ends early where tables are strong.

    J s s' + a s + b s' + c becomes J s s' − log cosh J; the spins' networks read no more of it.
    """
    found = np.zeros((len(tables), k, k))
    rows, columns = np.zeros((2, len(tables), k))
    binary = np.array([table.shape == (2, 2) for table in tables], bool)
    if binary.any():
        t = np.stack([tables[e] for e in np.flatnonzero(binary).tolist()])
        s = np.array([1.0, -1.0])
        j = 0.25 * np.einsum("exy,x,y->e", t, s, s)
        log_cosh = np.logaddexp(j, -j) - np.log(2.0)
        found[binary, :2, :2] = j[:, None, None] * np.outer(s, s) - log_cosh[:, None, None]
        rows[binary, :2] = 0.25 * np.einsum("exy,x->e", t, s)[:, None] * s
        columns[binary, :2] = 0.25 * np.einsum("exy,y->e", t, s)[:, None] * s
    others = np.flatnonzero(~binary).tolist()
    if len(others):
        found[others], rows[others], columns[others] = gauge(
            [tables[e] for e in others], k, deadline
        )
    return found, rows, columns


def _large(found: _Found, count: int, k: int) -> Factors:
    arity = len(found[0][1])
    tables = np.zeros((len(found), *[k] * arity), np.float32)
    for f, (_, _, table) in enumerate(found):
        tables[f][tuple(slice(size) for size in table.shape)] = np.maximum(
            table - table.max(), 2 * FLOOR
        )
    model = np.array([b for b, _, _ in found], dtype=np.int64)
    scopes = np.array([scope for _, scope, _ in found], dtype=np.int64)
    return _listed(model, scopes, tables, count)


def _listed(
    model: NDArray[np.int64], scopes: NDArray[np.int64], tables: NDArray[np.float32], count: int
) -> Factors:
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(model, minlength=count), out=start[1:])
    return Factors(torch.from_numpy(tables), torch.from_numpy(scopes), torch.from_numpy(start))


def joined(parts: Sequence[Batch]) -> Batch:
    """One batch of many that are padded to the same size."""
    states, unary, real, own = (
        torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Batch)[:4]
    )
    arities = sorted({f.arity for p in parts for f in p.factors})
    return Batch(states, unary, real, own, tuple(_joined(parts, arity) for arity in arities))


def _joined(parts: Sequence[Batch], arity: int) -> Factors:
    tables, scopes, counts = [], [], []
    for part in parts:
        mine = [f for f in part.factors if f.arity == arity]
        counts.append(mine[0].start.diff() if mine else torch.zeros(len(part.states)).long())
        tables += [f.log_tables for f in mine]
        scopes += [f.scopes for f in mine]
    start = torch.cat([torch.zeros(1).long(), torch.cat(counts).cumsum(0)])
    return Factors(torch.cat(tables), torch.cat(scopes), start)


def tables_of(batch: Batch, deadline: Deadline | None = None) -> Tables:
    """Dense pair tables of a pairwise batch: what elimination reads."""
    b, n, k = batch.sizes
    tables = batch.unary.new_zeros(b, n, n, k, k)
    adjacency = batch.unary.new_zeros(b, n, n)
    for group in batch.factors:
        g, (i, j) = group.graph, group.scopes.T
        tables[g, i, j] = group.log_tables
        tables[g, j, i] = group.log_tables.mT
        adjacency[g, i, j] = adjacency[g, j, i] = 1.0
    far = [distances(part, deadline) for part in torch.split(adjacency, 4096)]
    return Tables(
        tables.transpose(2, 3).contiguous(),
        batch.unary,
        batch.states,
        batch.real,
        batch.own,
        adjacency,
        torch.cat(far),
        torch.zeros_like(batch.unary),
        torch.zeros_like(batch.real),
    )


def spins_of(batch: Batch, deadline: Deadline | None = None) -> Spins:
    """Couplings and fields of a batch of binary pairwise models, with the algebra's first pass."""
    b, n, _ = batch.sizes
    couplings = batch.unary.new_zeros(b, n, n)
    fields_ = 0.5 * (batch.unary[:, :, 0] - batch.unary[:, :, 1]) * batch.real
    for group in batch.factors:
        g, (i, j) = group.graph, group.scopes.T
        t = group.log_tables
        value = 0.25 * (t[:, 0, 0] - t[:, 0, 1] - t[:, 1, 0] + t[:, 1, 1])
        couplings[g, i, j] = couplings[g, j, i] = value
    return make_spins(couplings, fields_, batch.real, deadline)
