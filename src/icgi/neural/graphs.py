"""Any factor graphs as one padded batch of tensors: the only form that the networks read.

Pairs are dense, b n n k k, so that an elimination can add a table to any two variables; factors of
more variables, and all factors of graphs too large for that, are lists by arity.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from icgi.clock import Deadline
from icgi.errors import UnsupportedModelError
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural.arrange import distances
from icgi.neural.closed_form import signs_like
from icgi.neural.pace import check

FLOOR = -30.0  # of log tables whose largest entry is 0: zeros are near-zeros inside the network
LARGEST_TABLE = 4096  # entries of one factor of three or more variables, padded


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of one arity a."""

    log_tables: Tensor  # b f k … k
    scopes: Tensor  # b f a    0 for padding
    present: Tensor  # b f    0 for padding

    @property
    def arity(self) -> int:
        """Variables of each factor."""
        return self.scopes.shape[2]


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """A batch of models p(x) ∝ exp Σ_f θ_f(x_f), padded to one size, and what is known of them.

    `estimate` and `reliability` are optional context: the probabilities that another method found,
    as log p + log (number of states), and how sure it is, 0 for none (see `train.labels`).
    """

    states: Tensor  # b n k    1 for states, 0 for padding
    unary: Tensor  # b n k    log potentials, at most 0
    pairs: Tensor  # b n n k k    log tables, at most 0; b 0 0 k k where pairs are a list
    adjacency: Tensor  # b n n    1 for variables that share a factor; b 0 0 as above
    distances: Tensor  # b n n    along edges
    estimate: Tensor  # b n k
    reliability: Tensor  # b n
    groups: tuple[Factors, ...] = field(default=())

    @property
    def real(self) -> Tensor:
        """1 for variables, 0 for padding (b n)."""
        return self.states[:, :, 0]

    @property
    def dense(self) -> bool:
        """Whether pairs of variables are dense arrays, as attention and elimination need them."""
        return self.adjacency.shape[1] > 0

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Graphs":
        """Same batch elsewhere; numbers of variables stay integers."""
        moved = {name: getattr(self, name).to(device, dtype) for name in _TENSORS}
        groups = tuple(
            Factors(
                g.log_tables.to(device, dtype), g.scopes.to(device), g.present.to(device, dtype)
            )
            for g in self.groups
        )
        return replace(self, **moved, groups=groups)

    def __getitem__(self, index: Tensor | slice) -> "Graphs":
        groups = tuple(
            Factors(g.log_tables[index], g.scopes[index], g.present[index]) for g in self.groups
        )
        return replace(
            self, **{name: getattr(self, name)[index] for name in _TENSORS}, groups=groups
        )

    def with_context(self, estimate: Tensor, reliability: Tensor) -> "Graphs":
        """Same batch with another method's estimates."""
        return replace(self, estimate=estimate, reliability=reliability)


_TENSORS = (
    "states", "unary", "pairs", "adjacency", "distances", "estimate", "reliability",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that a batch is padded to."""

    variables: int
    states: int
    factors: Mapping[int, int]  # arity -> how many, for the lists

    @classmethod
    def of(cls, models: Sequence[FactorGraph], dense: bool = True) -> "Shape":
        """Smallest sizes that hold all the models."""
        most: dict[int, int] = defaultdict(int)
        for model in models:
            for arity, scopes in _lists(model, dense).items():
                most[arity] = max(most[arity], len(scopes))
        return cls(
            max([1, *(m.n_variables for m in models)]),
            max([1, *(m.max_states for m in models)]),
            dict(sorted(most.items())),
        )


def make_batch(
    models: Sequence[FactorGraph],
    dense: bool = True,
    shape: Shape | None = None,
    deadline: Deadline | None = None,
) -> Graphs:
    """Padded batch of models without impossible states, in single precision and without context."""
    shape = shape or Shape.of(models, dense)
    b, n, k = len(models), shape.variables, shape.states
    check_tables(k, max([0, *shape.factors]))
    pair_n = n if dense else 0
    states = np.zeros((b, n, k), np.float32)
    unary = np.zeros((b, n, k))
    pairs = np.zeros((b, pair_n, pair_n, k, k))
    near = np.zeros((b, pair_n, pair_n), np.float32)
    for row, model in enumerate(models):
        states[row, : model.n_variables] = np.arange(k) < model.cards[:, None]
        for scope, table in zip(model.scopes, model.log_tables, strict=True):
            check(deadline)
            if len(scope) == 1:
                unary[row, scope[0], : table.size] += table
            elif len(scope) == 2 and dense:
                i, j = scope
                pairs[row, i, j, : table.shape[0], : table.shape[1]] += table
                pairs[row, j, i, : table.shape[1], : table.shape[0]] += table.T
            if dense:
                for i in scope:
                    near[row, i, [j for j in scope if j != i]] = 1.0
    groups = [_group(models, a, count, k, dense, deadline) for a, count in shape.factors.items()]
    adjacency = torch.from_numpy(near)
    mask = torch.from_numpy(states)
    return Graphs(
        mask,
        torch.from_numpy(_floored(unary, states > 0, 1)),
        torch.from_numpy(_floored(pairs, _pair_mask(states > 0, dense), 2)),
        adjacency,
        distances(adjacency, deadline) if dense else adjacency,
        torch.zeros_like(mask),
        torch.zeros(b, n),
        tuple(groups),
    )


def from_couplings(
    couplings: Tensor, fields: Tensor, real: Tensor, near: Tensor | None = None
) -> Graphs:
    """Batch of Ising models exp(Σ J s s + Σ θ s); states are in the order +1, −1.

    `near` are the distances, computed where they are not given.
    """
    s = signs_like(fields)
    states = real[:, :, None].expand(-1, -1, 2)
    unary = fields[:, :, None] * s
    pairs = couplings[..., None, None] * (s[:, None] * s)
    adjacency = (couplings != 0).to(fields.dtype)
    return Graphs(
        states,
        (unary - unary.amax(-1, keepdim=True)).clamp(min=FLOOR),
        (pairs - couplings.abs()[..., None, None]).clamp(min=FLOOR),
        adjacency,
        distances(adjacency) if near is None else near,
        torch.zeros_like(unary),
        torch.zeros_like(fields),
    )


def check_tables(states: int, arity: int) -> None:
    """Refuse factors whose padded table would be too large."""
    if arity > 2 and states**arity > LARGEST_TABLE:
        raise UnsupportedModelError(
            f"icgi:paper takes factors of up to {LARGEST_TABLE} padded entries, this model has one "
            f"of {arity} variables of up to {states} states ({states**arity} entries); use "
            "the engine lbp or pt, or jt for an exact answer"
        )


def _lists(model: FactorGraph, dense: bool) -> dict[int, list[int]]:
    """Factors that go into lists, by arity."""
    found: dict[int, list[int]] = defaultdict(list)
    for f, scope in enumerate(model.scopes):
        if len(scope) > (2 if dense else 1):
            found[len(scope)].append(f)
    return found


def _group(
    models: Sequence[FactorGraph],
    arity: int,
    count: int,
    k: int,
    dense: bool,
    deadline: Deadline | None,
) -> Factors:
    tables = np.zeros((len(models), count, *[k] * arity), np.float32)
    scopes = np.zeros((len(models), count, arity), np.int64)
    present = np.zeros((len(models), count), np.float32)
    for row, model in enumerate(models):
        for place, f in enumerate(_lists(model, dense).get(arity, [])):
            check(deadline)
            table = model.log_tables[f]
            here = tables[row, place][tuple(slice(size) for size in table.shape)]
            here[...] = np.maximum(table - table.max(), FLOOR)
            scopes[row, place] = model.scopes[f]
            present[row, place] = 1.0
    return Factors(torch.from_numpy(tables), torch.from_numpy(scopes), torch.from_numpy(present))


def _pair_mask(states: np.ndarray, dense: bool) -> np.ndarray:
    if not dense:
        return np.zeros((len(states), 0, 0, states.shape[2], states.shape[2]), bool)
    return np.asarray(states[:, :, None, :, None] & states[:, None, :, None, :])


def _floored(tables: FloatArray, mask: np.ndarray, axes: int) -> np.ndarray:
    """Largest entry 0, none below the floor, 0 outside the mask."""
    if not tables.size:
        return tables.astype(np.float32)
    last = tuple(range(-axes, 0))
    top = np.where(mask, tables, -np.inf).max(last, keepdims=True)
    shifted = np.where(mask, tables - np.where(np.isfinite(top), top, 0.0), 0.0)
    return np.maximum(shifted, FLOOR).astype(np.float32)


def in_batches(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover 0 … total."""
    for k in range(0, total, size):
        yield slice(k, min(k + size, total))
