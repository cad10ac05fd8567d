"""What is left during elimination, what went and what is back, as the paper's network holds it.

A step changes the neighbours of the variable that goes and nothing else. With gradients everything
that is left is copied at each step; without, the neighbours alone are, unless they are most of
what is left, the rest is written in place, and a variable that went leaves a hole until the next
encoding closes them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from icgi.neural.arrange import after_elimination
from icgi.neural.general_algebra import inexactness, strengths
from icgi.neural.shrink import between, entry, near_or_all, rows, those_here


class Left(NamedTuple):
    """What is left: each array's axis 1 runs over the variables, in some of them holes."""

    tables: Tensor  # b n k n k
    unary: Tensor  # b n k
    adjacency: Tensor  # b n n
    distances: Tensor  # b n n
    correlation: Tensor  # b n n
    kernels: Tensor  # b n n t    static
    tokens: Tensor  # b n k d
    fixed: Tensor  # b n 2k+2    states, first marginals, real, number
    strength: Tensor  # b n n    of the tables
    cost: Tensor  # b n 3    inexactness, degree, and how weak a variable is
    here: Tensor  # b n    0 for holes
    size: int  # variables, holes not counted

    @property
    def states(self) -> Tensor:
        """1 for states that exist (b n k)."""
        return self.fixed[..., : self.unary.shape[2]]

    @property
    def first(self) -> Tensor:
        """Marginals of the first pass (b n k)."""
        return self.fixed[..., self.unary.shape[2] : -2]

    @property
    def real(self) -> Tensor:
        """0 for padding (b n)."""
        return self.fixed[..., -2]

    @property
    def ids(self) -> Tensor:
        """Original numbers (b n)."""
        return self.fixed[..., -1].long()

    def measured(self) -> "Left":
        """Same variables, strengths and costs as their tables say."""
        with torch.no_grad():
            strength = strengths(self.tables, self.states)
            cost = _cost(strength, self.adjacency, self.unary)
        return self._replace(strength=strength, cost=cost)

    def around(self, v: Tensor, present: Tensor) -> Tensor:
        """Places (b m) of those that a step looks at when the variables v (b) go."""
        n = self.here.shape[1]
        if torch.is_grad_enabled():  # sizes that no number decides
            place = torch.arange(1, n, device=v.device)
            return torch.where(place == v[:, None], 0, place)
        return near_or_all(self.here, v, present, self.size - 1)

    def near(self, at: Tensor) -> "Near":
        """What a step reads and writes of the variables at these places (b m)."""
        return Near(
            between(self.tables, at, 3),
            rows(self.unary, at),
            between(self.adjacency, at, 2),
            between(self.correlation, at, 2),
            rows(self.tokens, at),
            rows(self.fixed, at),
        )

    def dense(self) -> "Left":
        """Same variables without holes."""
        if self.size == self.here.shape[1]:
            return self
        at = those_here(self.here, self.size)
        return self._with(at, self.near(at))._replace(
            strength=between(self.strength, at, 2), cost=rows(self.cost, at)
        )

    def _with(self, at: Tensor, near: "Near") -> "Left":
        """These alone, at the places `at` (b m) until now; strengths and costs are as they were."""
        return Left(
            near.tables,
            near.unary,
            near.adjacency,
            between(self.distances, at, 2),
            near.correlation,
            between(self.kernels, at, 2),
            near.tokens,
            near.fixed,
            self.strength,
            self.cost,
            rows(self.here, at),
            at.shape[1],
        )

    def without(self, v: Tensor, at: Tensor, near: "Near", *, static: bool) -> "Left":
        """What is left without the variables v (b), given what the others (b m) have become.

        Distances stay as they are if `static`. In place, unless the others are all that is left.
        """
        to = entry(self.distances, v)
        if at.shape[1] == self.size - 1:
            left = self._with(at, near)
            if not static:
                to = rows(to, at)
                left = left._replace(distances=after_elimination(left.distances, to))
            return left.measured()
        if not static:
            torch.minimum(self.distances, to[:, :, None] + (to[:, None] - 1.0), out=self.distances)
        each, i, j = torch.arange(len(v), device=v.device)[:, None], at[:, :, None], at[:, None]
        self.here.scatter_(1, v[:, None], 0.0)
        for x, new in ((self.unary, near.unary), (self.tokens, near.tokens)):
            x[each, at] = new
        self.tables[each[..., None], i, :, j] = near.tables.transpose(2, 3)
        strength = strengths(near.tables, near.states)
        for x, new in ((self.adjacency, near.adjacency), (self.strength, strength)):
            x[each, at, v[:, None]] = 0.0
            x[each[..., None], i, j] = new
        self.cost[each, at] = _cost(self.strength[each, at], self.adjacency[each, at], near.unary)
        return self._replace(size=self.size - 1)


def _cost(strength: Tensor, adjacency: Tensor, unary: Tensor) -> Tensor:
    """What decides the order (b n 3): inexactness, degree, the sum of strengths and the field."""
    weak = strength.sum(-1) + 0.01 * torch.softmax(unary, -1).amax(-1)
    return torch.stack([inexactness(strength, adjacency), adjacency.sum(-1), weak], -1)


class Near(NamedTuple):
    """Variables that a step looks at: the neighbours of the one that goes, and perhaps others."""

    tables: Tensor  # b m k m k
    unary: Tensor  # b m k
    adjacency: Tensor  # b m m
    correlation: Tensor  # b m m
    tokens: Tensor  # b m k d
    fixed: Tensor  # b m 2k+2

    @property
    def states(self) -> Tensor:
        """1 for states that exist (b m k)."""
        return self.fixed[..., : self.unary.shape[2]]

    @property
    def ids(self) -> Tensor:
        """Original numbers (b m)."""
        return self.fixed[..., -1].long()


class Gone(NamedTuple):
    """A variable as it was when it went."""

    row: Tensor  # b m v k    tables to those that the step looked at
    present: Tensor  # b m    1 for neighbours among those
    near: Tensor  # b m    numbers of those
    unary: Tensor  # b k
    tokens: Tensor  # b k d
    states: Tensor  # b k
    first: Tensor  # b k
    id: Tensor  # b
    alone: Tensor  # b k    its marginal as far as it was known when it went
    trusted: Tensor  # b    inexactness of the step, as far as corrections of it count


class Back(NamedTuple):
    """Variables that are back, by their original numbers; covariances of neighbours only."""

    marginals: Tensor  # b n k
    covariance: Tensor  # b n k n k
    states: Tensor  # b n k
    tokens: Tensor  # b n k d
    ids: Tensor  # b m    who is back, the last that went last

    @staticmethod
    def of(
        total: int, ids: Tensor, marginals: Tensor, covariance: Tensor, states: Tensor,
        tokens: Tensor,
    ) -> "Back":  # fmt: skip
        """Nobody has come back yet: these never went."""
        b, _, k = marginals.shape
        d = tokens.shape[3]
        empty = [marginals.new_zeros(b, total, *s) for s in ((k,), (k, total, k), (k,), (k, d))]
        everyone = torch.arange(b, device=ids.device)[:, None]
        empty[0][everyone, ids] = marginals
        empty[1][everyone[..., None], ids[:, :, None], :, ids[:, None]] = covariance.transpose(2, 3)
        empty[2][everyone, ids] = states
        empty[3][everyone, ids] = tokens
        return Back(empty[0], empty[1], empty[2], empty[3], ids)

    def grown(
        self, v: Tensor, near: Tensor, marginals: Tensor, cross: Tensor, states: Tensor,
        tokens: Tensor,
    ) -> "Back":  # fmt: skip
        """With one more: p (b k), covariances (b k m k) with those near, states and tokens."""
        arrays = [self.marginals, self.covariance, self.states, self.tokens]
        if torch.is_grad_enabled():
            arrays = [x.clone() for x in arrays]
        first = torch.arange(len(v), device=v.device)
        p, covariance, exist, token = arrays
        p[first, v], exist[first, v], token[first, v] = marginals, states, tokens
        own = torch.diag_embed(marginals) - marginals[:, :, None] * marginals[:, None]
        covariance[first, v, :, v] = own
        everyone, one = first[:, None], v[:, None]
        covariance[everyone, one, :, near] = cross.transpose(1, 2)
        covariance[everyone, near, :, one] = cross.permute(0, 2, 3, 1)
        return Back(p, covariance, exist, token, torch.cat([one, self.ids], 1))
