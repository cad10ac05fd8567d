"""Edges of a batch as flat lists: sums over factors, tables applied to messages, softmax of states.

An edge is one place of one factor. Edges of all factors of all models are one list, arity after
arity, factor after factor, place after place.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from icgi.neural.batch import Batch, Factors
from icgi.neural.general_algebra import ABSENT

LEAST_LOG = -15.0  # of the log potentials that networks read
POTENTIALS = 4  # numbers that tell them what a state is by itself
LARGEST_TABLE = 2**16  # entries of a factor that the networks on edges read


@dataclass(frozen=True, slots=True, eq=False)
class Wired:
    """A batch and its edges."""

    batch: Batch
    ends: Tensor  # e    the variable of each edge, as i + n·model

    @classmethod
    def of(cls, batch: Batch) -> "Wired":
        """Edges of a batch."""
        flat = [batch.flat(group).reshape(-1) for group in batch.factors]
        return cls(batch, torch.cat([*flat, batch.unary.new_zeros(0, dtype=torch.long)]))

    def __getitem__(self, index: Tensor | slice) -> "Wired":
        return Wired.of(self.batch[index])

    @property
    def unary(self) -> Tensor:
        """Log potentials of all variables (v k)."""
        return self.batch.unary.flatten(0, 1)

    @property
    def exists(self) -> Tensor:
        """Which states all variables have (v k)."""
        return self.batch.states.flatten(0, 1) > 0.5

    @property
    def degree(self) -> Tensor:
        """Factors around each variable (v)."""
        return self.collect(self.batch.unary.new_ones(len(self.ends)))

    @property
    def potentials(self) -> Tensor:
        """What a state is by itself (v k 4): log p, p, factors around it, 1/states."""
        log = normalised(self.unary, self.exists)
        degree = torch.log1p(self.degree)[:, None].expand_as(log)
        share = 1.0 / self.exists.sum(-1, keepdim=True).to(log.dtype).expand_as(log)
        short = log.clamp(min=LEAST_LOG) / 5.0
        return torch.stack([short, log.exp() * self.exists, degree, share], -1)

    def spread(self, values: Tensor) -> Tensor:
        """Values of variables (v …) at their edges (e …)."""
        return values.index_select(0, self.ends)

    def collect(self, values: Tensor) -> Tensor:
        """Sums (v …) of the values of edges (e …)."""
        b, n, _ = self.batch.sizes
        return values.new_zeros(b * n, *values.shape[1:]).index_add(0, self.ends, values)

    def through_factors(self, sent: Tensor) -> Tensor:
        """Log messages (e k h) from factors to variables, of those that these send (e k h).

        In each head log Σ_{x_f∖x_i} exp(θ_f(x_f) + Σ_{j ∈ f∖i} sent_j(x_j)); states that do not
        exist must come with `ABSENT`, and leave with anything.
        """
        found = [_through(group, part) for group, part in self.by_group(sent)]
        return torch.cat([*found, sent[:0]])

    def by_group(self, sent: Tensor) -> list[tuple[Factors, Tensor]]:
        """The factors of each arity, and what is sent to them (f a k h)."""
        groups = self.batch.factors
        ends = [0, *accumulate(group.scopes.numel() for group in groups)]
        return [
            (group, sent[a:b].view(*group.scopes.shape, *sent.shape[1:]))
            for group, (a, b) in zip(groups, pairwise(ends), strict=True)
        ]


def joint(group: Factors, sent: Tensor) -> Tensor:
    """θ_f(x_f) + Σ_i sent_i(x_i) of each factor (f k … k h), for messages f a k h."""
    count, arity, k, heads = sent.shape
    total = group.log_tables[..., None]
    for place in range(arity):
        shape = [k if p == place else 1 for p in range(arity)]
        total = total + sent[:, place].reshape(count, *shape, heads)
    return total


def _through(group: Factors, sent: Tensor) -> Tensor:
    total = joint(group, sent)
    places = range(group.arity)
    found = [torch.logsumexp(total, [1 + q for q in places if q != p]) - sent[:, p] for p in places]
    return torch.stack(found, 1).flatten(0, 1)


def normalised(values: Tensor, exists: Tensor) -> Tensor:
    """Log probabilities (… k) of any logarithms; 0 for states that do not exist."""
    return torch.log_softmax(values.masked_fill(~exists, ABSENT), -1).masked_fill(~exists, 0.0)


def probabilities(logits: Tensor, batch: Batch) -> Tensor:
    """Softmax (b n k) over the states that exist of logits (v k)."""
    found = logits.masked_fill(batch.states.flatten(0, 1) < 0.5, ABSENT).softmax(-1)
    return found.view(batch.sizes)


def mean_of_states(values: Tensor, exists: Tensor) -> Tensor:
    """Mean (… 1 d) over the states that exist of values (… k d)."""
    mask = exists[..., None].to(values.dtype)
    return (values * mask).sum(-2, keepdim=True) / mask.sum(-2, keepdim=True).clamp(min=1.0)


def table_too_large(largest_table: int) -> str:
    """Why a model cannot be taken, or nothing."""
    if largest_table <= LARGEST_TABLE:
        return ""
    return f"its largest table has {largest_table:,} entries, this network reads {LARGEST_TABLE:,}"
