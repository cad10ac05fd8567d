"""Collapse: sums of products that meet in a variable of theirs alone become one sum.

A factor Σ_s Π_k A_k[s, x_k] is a star: a new variable s, joined to each x_k by a table with signs.
A variable x that joins only two stars is summed out by C[s, t] = Σ_x A[s, x] w(x) B[t, x]. Where no
row and no column of C has two non-zero entries, t is known from s, and the two stars are one. A
noisy-or chain of any length and in any order becomes one variable of two states that way.

The marginal of a collapsed x needs the other entries, too,
p(x) ∝ Σ_st A[s, x] w(x) B[t, x] M[s, t], with M[s, t] the sum over everything else when the stars
on one side of x are in state s, those on the other in state t. For s, t matched by C these are
states that the new variable has; the others are extra states, kept apart (`Links`), that only the
question about x needs.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from icgi.clock import Deadline
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.structure.extra import extra_states, extra_tables
from icgi.model.structure.fuse import Fused, axis_start, fuse, group_states
from icgi.model.structure.sums import Sums, as_quads, find_sums
from icgi.model.structure.wide import multiply
from icgi.model.wiring import Wiring, wiring

WORTH = 0.55  # most log₂ terms of a sum as a share of log₂ entries of its table
MOST_EXTRA = 2**23  # entries of all tables of extra states; with more, nothing is collapsed


@dataclass(frozen=True, eq=False, slots=True)
class Network:
    """Tables with signs over the variables of a model and one new variable for each group of stars.

    Variables of the model keep their numbers; collapsed ones have one state and are in no scope.
    """

    cards: IntArray  # n + groups
    scope_start: IntArray  # f+1
    scope: IntArray  # ascending within a factor
    table_start: IntArray  # f+1
    high: FloatArray  # all tables, last variable fastest; complex for quad-doubles
    low: FloatArray  # what `high` leaves of a wide number
    log_scale: float  # taken out of the tables, to be added to log Z

    @property
    def skeleton(self) -> FactorGraph:
        """Model without numbers, for the search of elimination orders."""
        cards, scope, starts = self.cards.tolist(), self.scope.tolist(), self.scope_start.tolist()
        scopes = {tuple(scope[a:b]) for a, b in pairwise(starts)}
        kept = tuple(sorted(scopes))
        shapes = [tuple([cards[i] for i in s]) for s in kept]
        zeros = {shape: np.broadcast_to(np.zeros(()), shape) for shape in set(shapes)}
        return FactorGraph(self.cards, kept, tuple([zeros[shape] for shape in shapes]))


@dataclass(frozen=True, eq=False, slots=True)
class Links:
    """Collapsed variables, and the extra states of the groups that their marginals need."""

    variable: IntArray  # l     collapsed variable
    group: IntArray  # l     number of its group's variable
    own_start: IntArray  # l+1   where its coefficients of the group's own states begin, d × R each
    own_high: FloatArray
    own_low: FloatArray
    extra_start: IntArray  # g+1   extra states of each group
    extra_link: IntArray  # which link an extra state belongs to
    extra_high: FloatArray  # extra states × k  its coefficients
    extra_low: FloatArray
    factor_start: IntArray  # f+1   where a factor's table over extra states begins, empty if none
    high: FloatArray  # tables over extra states, in place of the group's own
    low: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Collapsed:
    """A model as a signed network, the way back to all marginals, and what was found."""

    model: FactorGraph
    network: Network
    links: Links
    error: float  # bound of the relative error of every probability that rounding the sums costs
    groups: int  # new variables
    largest: int  # most terms of a sum
    stars: int  # factors that were written as sums
    members: tuple[IntArray, ...]  # factors of each group

    @property
    def free(self) -> int:
        """Variables of more than one state that are left."""
        return int((self.network.cards > 1).sum())

    def __str__(self) -> str:
        before = int((self.model.cards > 1).sum())
        factors = "1 factor" if self.stars == 1 else f"{self.stars} factors"
        sums = "a sum" if self.groups == 1 else f"{self.groups} sums"
        return (
            f"{factors} collapsed into {sums} of at most {self.largest} products: "
            f"{before} → {self.free} variables"
        )


def collapse(
    model: FactorGraph,
    spared: IntArray | None = None,
    *,
    quads: bool = False,
    deadline: Deadline | None = None,
) -> Collapsed | None:
    """Signed network of a model whose factors are sums of few products; None where none is.

    Factors that are `spared` stay as they are, without signs. With `quads`, numbers are
    quad-doubles (complex parts), and sums that lose a zero are not taken. When the time is over,
    the sums found so far count.
    """
    if max(map(len, model.scopes), default=0) < 3:
        return None
    w = wiring(model)
    among = _promising(w)
    if not among.any():
        return None
    sums = find_sums(w, among, deadline)
    size = np.log2(np.maximum(np.diff(w.table_start), 2))
    star = (sums.terms > 1) & (np.log2(np.maximum(sums.terms, 1)) <= WORTH * size)
    if spared is not None:
        star[spared] = False
    if quads:
        sums = as_quads(w, sums)
        star &= np.isfinite(sums.error)
    if not star.any():
        return None
    link = fuse(w, sums, star)
    star &= (np.diff(w.scope_start) > 3) | (link.stars_of_group[link.group_of_star] > 1)
    if not star.any():
        return None
    return _build(model, w, sums, star, link)


def _promising(w: Wiring) -> BoolArray:
    """Factors whose sums could gain anything.

    A factor of three variables gains nothing alone: one of them has to join it to just one other.
    """
    arity = np.diff(w.scope_start)
    factor = np.repeat(np.arange(len(arity)), arity)
    n = len(w.cards)
    joined = np.bincount(w.scope[arity[factor] >= 2], minlength=n)
    widely = np.bincount(w.scope[arity[factor] >= 3], minlength=n)
    linking = (joined == 2) & (widely == 2)
    links = np.bincount(factor, weights=linking[w.scope], minlength=len(arity))
    return np.asarray((arity > 3) | ((arity == 3) & (links > 0)))


def _build(
    model: FactorGraph, w: Wiring, sums: Sums, star: np.ndarray, fused: Fused
) -> Collapsed | None:
    n, arity = len(w.cards), np.diff(w.scope_start)
    members = np.flatnonzero(star)
    roots, group = np.unique(fused.group_of_star[members], return_inverse=True)
    number = np.full(len(star), -1, np.int64)
    number[members] = group
    most = fused.match.shape[2]
    states, state_of, group_high, group_low = group_states(
        len(roots), members, number, sums.terms, fused.ends, fused.match, fused.high, fused.low,
        most,
    )  # fmt: skip
    if (states == 0).any():
        return None  # Z = 0, or rounding: the unsplit model decides
    cards = np.concatenate([w.cards, states])
    cards[fused.variable] = 1
    pairs = _leaves(w, star, fused.variable, number, n)
    plain = np.flatnonzero(~star & ((arity != 1) | ~np.isin(_first(w), fused.variable)))
    network = _network(w, sums, cards, plain, pairs, roots, states, state_of, group_high, group_low)
    links = _links(w, sums, fused, number, states, state_of, pairs, len(plain), network)
    if links is None:
        return None
    error = float(sums.error[star].sum())
    return Collapsed(
        model, network, links, 2.0 * error + 1e-15 * len(members), len(roots),
        int(states.max()), len(members),
        tuple(members[group == g] for g in range(len(roots))),
    )  # fmt: skip


def _first(w: Wiring) -> IntArray:
    """First variable of each factor, −1 for a constant."""
    first = np.full(len(w.scope_start) - 1, -1, np.int64)
    some = w.scope_start[1:] > w.scope_start[:-1]
    first[some] = w.scope[w.scope_start[:-1][some]]
    return first


@dataclass(frozen=True, eq=False, slots=True)
class _Leaves:
    """Axes of stars that are left, and the group–variable pairs they belong to."""

    star: IntArray  # a
    axis: IntArray  # a
    pair: IntArray  # a
    group: IntArray  # p
    variable: IntArray  # p


def _leaves(w: Wiring, star: np.ndarray, gone: IntArray, number: IntArray, n: int) -> _Leaves:
    factor = np.repeat(np.arange(len(star)), np.diff(w.scope_start))
    axis = np.arange(len(w.scope)) - w.scope_start[factor]
    left = star[factor] & ~np.isin(w.scope, gone)
    key = number[factor[left]] * np.int64(n) + w.scope[left]
    unique, pair = np.unique(key, return_inverse=True)
    return _Leaves(factor[left], axis[left], pair, unique // n, unique % n)


def _network(
    w: Wiring, sums: Sums, cards: IntArray, plain: IntArray, pairs: _Leaves, roots: IntArray,
    states: IntArray, state_of: IntArray, group_high: FloatArray, group_low: FloatArray,
) -> Network:  # fmt: skip
    """Plain factors, then one table per group and leaf, then one of weights per group."""
    n = len(w.cards)
    arity = np.diff(w.scope_start)[plain]
    count = len(pairs.group)
    lengths = np.concatenate([arity, np.full(count, 2), np.ones(len(roots), np.int64)])
    sizes = np.concatenate(
        [np.diff(w.table_start)[plain], cards[pairs.variable] * states[pairs.group], states]
    )
    scope_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    table_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    scope = np.empty(scope_start[-1], np.int64)
    kind = sums.high.dtype
    high, low = np.ones(table_start[-1], kind), np.zeros(table_start[-1], kind)
    shift = _copy_plain(
        w.cards, w.scope_start, w.scope, w.table_start, w.values, plain, scope_start, scope,
        table_start, high,
    )  # fmt: skip
    at = scope_start[len(plain) : len(plain) + count]
    scope[at], scope[at + 1] = pairs.variable, n + pairs.group
    scope[scope_start[len(plain) + count : -1]] = n + np.arange(len(roots))
    _pair_tables(
        w.cards, w.scope_start, w.scope, pairs.star, pairs.axis, pairs.pair,
        table_start[len(plain) :], states[pairs.group], state_of, sums.terms, sums.start,
        sums.high, sums.low, high, low,
    )  # fmt: skip
    begin = table_start[len(plain) + count]
    mask = np.arange(group_high.shape[1]) < states[:, None]
    high[begin:], low[begin:] = group_high[mask], group_low[mask]
    used = np.unique(pairs.star)
    return Network(
        cards, scope_start, scope, table_start, high, low,
        float(shift + sums.log_scale[used].sum()),
    )  # fmt: skip


def _links(
    w: Wiring, sums: Sums, fused: Fused, number: IntArray, states: IntArray, state_of: IntArray,
    pairs: _Leaves, plain: int, network: Network,
) -> Links | None:  # fmt: skip
    group = number[fused.ends[:, 0]]
    sizes = w.cards[fused.variable] * states[group]
    own_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    found = extra_states(
        w.cards, sums.terms, sums.start, sums.high, sums.low, w.scope_start, w.scope,
        fused.variable, fused.ends, fused.axes, fused.match, fused.high, fused.low,
        fused.weight_high, fused.weight_low, np.flatnonzero(number >= 0), number, group,
        len(states), state_of, states, own_start,
    )  # fmt: skip
    extra, which, assigned, slot, weight_high, weight_low, extra_high, extra_low, oh, ol = found
    extra_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(extra)])
    count = len(pairs.group)
    length = np.zeros(len(network.table_start) - 1, np.int64)
    length[plain : plain + count] = network.cards[pairs.variable] * extra[pairs.group]
    length[plain + count :] = extra
    if length.sum() > MOST_EXTRA:
        return None
    factor_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    kind = sums.high.dtype
    high, low = np.ones(factor_start[-1], kind), np.zeros(factor_start[-1], kind)
    extra_tables(
        w.cards, w.scope_start, w.scope, pairs.star, pairs.axis, pairs.pair, pairs.group,
        factor_start[plain:], extra_start, assigned, slot, sums.terms, sums.start, sums.high,
        sums.low, high, low,
    )  # fmt: skip
    begin = factor_start[plain + count]
    high[begin:], low[begin:] = weight_high, weight_low
    return Links(
        fused.variable, len(w.cards) + group, own_start, oh, ol, extra_start, which, extra_high,
        extra_low, factor_start, high, low,
    )  # fmt: skip


@kernel
def _copy_plain(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, plain, new_scope_start, new_scope,
    new_table_start, high,
):  # fmt: skip
    """Copy factors as potentials with largest entry one; returns the sum of the log scales."""
    shift = 0.0
    for p in range(len(plain)):
        f = plain[p]
        new_scope[new_scope_start[p] : new_scope_start[p + 1]] = scope[
            scope_start[f] : scope_start[f + 1]
        ]
        table = values[table_start[f] : table_start[f + 1]]
        top = table.max()
        if top > -np.inf:
            shift += top
        else:
            top = 0.0
        for j in range(len(table)):
            high[new_table_start[p] + j] = np.exp(table[j] - top)
    return shift


@kernel
def _pair_tables(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, leaf_star, leaf_axis, leaf_pair, table_start, states, state_of,
    terms, start, high, low, out_high, out_low,
):  # fmt: skip
    """Tables (variable, group): products of the matrices of all stars of the group."""
    for a in range(len(leaf_star)):
        f, p = leaf_star[a], leaf_pair[a]
        card, count = cards[scope[scope_start[f] + leaf_axis[a]]], states[p]
        source = axis_start(cards, scope_start, scope, terms, start, f, leaf_axis[a])
        for x in range(card):
            for e in range(count):
                j, c = table_start[p] + x * count + e, source + state_of[f, e] * card + x
                out_high[j], out_low[j] = multiply(out_high[j], out_low[j], high[c], low[c])
