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

from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.structure.sums import Sums, as_quads, find_sums
from icgi.model.structure.wide import add, divide, multiply
from icgi.model.wiring import Wiring, wiring

WORTH = 0.55  # most log₂ terms of a sum as a share of log₂ entries of its table
MOST_STARS = 128  # in a group: its extra states have tables of links × leaves entries
MOST_EXTRA = (
    2**23
)  # entries of all tables of extra states; a model that needs more is not collapsed


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
    model: FactorGraph, spared: IntArray | None = None, *, quads: bool = False
) -> Collapsed | None:
    """Signed network of a model whose factors are sums of few products; None where none is.

    Factors that are `spared` stay as they are, without signs. With `quads`, numbers are
    quad-doubles (complex parts), and sums that lose a zero are not taken.
    """
    if max(map(len, model.scopes), default=0) < 3:
        return None
    w = wiring(model)
    sums = find_sums(w)
    size = np.log2(np.maximum(np.diff(w.table_start), 2))
    star = (sums.terms > 1) & (np.log2(np.maximum(sums.terms, 1)) <= WORTH * size)
    if spared is not None:
        star[spared] = False
    if quads:
        sums = as_quads(w, sums)
        star &= np.isfinite(sums.error)
    if not star.any():
        return None
    link = _fuse(w, sums, star)
    star &= (np.diff(w.scope_start) > 3) | (link.stars_of_group[link.group_of_star] > 1)
    if not star.any():
        return None
    return _build(model, w, sums, star, link)


@dataclass(frozen=True, eq=False, slots=True)
class _Fused:
    """Which stars are one, and through which variables."""

    variable: IntArray  # l
    ends: IntArray  # l 2  the two stars (factors)
    axes: IntArray  # l 2  axis of the variable in each
    match: IntArray  # l 2 R  state of the other star, −1 for none, seen from either end
    high: FloatArray  # l R  C[s, match] by the state of the first star
    low: FloatArray
    group_of_star: IntArray  # f  a star that stands for its group, itself where it is alone
    stars_of_group: IntArray  # f
    weight_high: FloatArray  # n k  product of a variable's unary factors
    weight_low: FloatArray


def _fuse(w: Wiring, sums: Sums, star: np.ndarray) -> _Fused:
    n = len(w.cards)
    weight_high, weight_low = _weights(w.cards, w.scope_start, w.scope, w.table_start, w.values)
    most = int(sums.terms[star].max())
    found = _find_links(
        w.cards, w.scope_start, w.scope, star, sums.terms, sums.start, sums.high, sums.low,
        weight_high, weight_low, most,
    )  # fmt: skip
    *parts, count, group = found
    variable, ends, axes, match, high, low = (part[:count] for part in parts)
    total = np.bincount(group, minlength=len(star)) if n else np.zeros(len(star), np.int64)
    return _Fused(
        variable, ends, axes, match, high, low, group, total.astype(np.int64),
        weight_high, weight_low,
    )  # fmt: skip


def _build(
    model: FactorGraph, w: Wiring, sums: Sums, star: np.ndarray, fused: _Fused
) -> Collapsed | None:
    n, arity = len(w.cards), np.diff(w.scope_start)
    members = np.flatnonzero(star)
    roots, group = np.unique(fused.group_of_star[members], return_inverse=True)
    number = np.full(len(star), -1, np.int64)
    number[members] = group
    most = fused.match.shape[2]
    states, state_of, group_high, group_low = _group_states(
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
    w: Wiring, sums: Sums, fused: _Fused, number: IntArray, states: IntArray, state_of: IntArray,
    pairs: _Leaves, plain: int, network: Network,
) -> Links | None:  # fmt: skip
    group = number[fused.ends[:, 0]]
    sizes = w.cards[fused.variable] * states[group]
    own_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    found = _extra_states(
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
    _extra_tables(
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
def _weights(cards, scope_start, scope, table_start, values):  # type: ignore[no-untyped-def]
    """Product of the unary factors of every variable, as potentials."""
    most = cards.max() if len(cards) else 1
    high, low = np.ones((len(cards), most)), np.zeros((len(cards), most))
    for f in range(len(scope_start) - 1):
        if scope_start[f + 1] - scope_start[f] == 1:
            i = scope[scope_start[f]]
            for x in range(cards[i]):
                value = np.exp(values[table_start[f] + x])
                high[i, x], low[i, x] = multiply(high[i, x], low[i, x], value, 0.0)
    return high, low


@kernel
def _axis_start(cards, scope_start, scope, terms, start, f, axis):  # type: ignore[no-untyped-def]
    """Where the matrix of one axis of a star begins."""
    at = start[f]
    for a in range(scope_start[f], scope_start[f] + axis):
        at += terms[f] * cards[scope[a]]
    return at


@kernel
def _top(parent, f):  # type: ignore[no-untyped-def]
    while parent[f] != f:
        parent[f] = parent[parent[f]]
        f = parent[f]
    return f


@kernel
def _find_links(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, star, terms, start, high, low, weight_high, weight_low, most
):
    n, count = len(cards), len(star)
    times = np.zeros(n, np.int64)  # factors of two or more variables that name a variable
    where, axis = np.full((n, 2), -1, np.int64), np.zeros((n, 2), np.int64)
    for f in range(count):
        if scope_start[f + 1] - scope_start[f] < 2:
            continue
        for a in range(scope_start[f], scope_start[f + 1]):
            i = scope[a]
            if times[i] < 2:
                where[i, times[i]] = f if star[f] else -1
                axis[i, times[i]] = a - scope_start[f]
            times[i] += 1
    parent, joined = np.arange(count), np.ones(count, np.int64)
    variable = np.empty(n, np.int64)
    ends, axes = np.empty((n, 2), np.int64), np.empty((n, 2), np.int64)
    room = 0
    for i in range(n):
        if times[i] == 2 and where[i, 0] >= 0 and where[i, 1] >= 0:
            room += 1
    match = np.full((room, 2, most), -1, np.int64)
    out_high, out_low = np.zeros((room, most), high.dtype), np.zeros((room, most), high.dtype)
    made = 0
    for i in range(n):
        f, g = where[i, 0], where[i, 1]
        if times[i] != 2 or f < 0 or g < 0 or cards[i] < 2:
            continue
        if _top(parent, f) == _top(parent, g):
            continue  # a ring of stars: one variable of it stays
        if joined[_top(parent, f)] + joined[_top(parent, g)] > MOST_STARS:
            continue
        at = _axis_start(cards, scope_start, scope, terms, start, f, axis[i, 0])
        to = _axis_start(cards, scope_start, scope, terms, start, g, axis[i, 1])
        match[made] = -1
        sound, matched = True, 0
        for s in range(terms[f]):
            for t in range(terms[g]):
                h, l = 0.0, 0.0  # noqa: E741
                for x in range(cards[i]):
                    p, q = at + s * cards[i] + x, to + t * cards[i] + x
                    ph, pl = multiply(high[p], low[p], weight_high[i, x], weight_low[i, x])
                    ph, pl = multiply(ph, pl, high[q], low[q])
                    h, l = add(h, l, ph, pl)  # noqa: E741
                if h == 0.0:
                    continue
                if match[made, 0, s] >= 0 or match[made, 1, t] >= 0:
                    sound = False
                    break
                match[made, 0, s], match[made, 1, t] = t, s
                out_high[made, s], out_low[made, s] = h, l
                matched += 1
            if not sound:
                break
        if not sound or matched < 2:
            continue
        variable[made] = i
        ends[made, 0], ends[made, 1] = f, g
        axes[made] = axis[i]
        joined[_top(parent, g)] += joined[_top(parent, f)]
        parent[_top(parent, f)] = _top(parent, g)
        made += 1
    group = np.empty(count, np.int64)
    for f in range(count):
        group[f] = _top(parent, f)
    return variable, ends, axes, match, out_high, out_low, made, group


@kernel
def _adjacent(ends, count):  # type: ignore[no-untyped-def]
    """Links of every star, as linked lists: entry 2l + end; the other end is that number ^ 1."""
    head, follow = np.full(count, -1, np.int64), np.full(2 * len(ends), -1, np.int64)
    for e in range(2 * len(ends)):
        f = ends[e // 2, e % 2]
        follow[e] = head[f]
        head[f] = e
    return head, follow


@kernel
def _spread(head, follow, ends, match, high, low, f, s, barred, assigned, stack):  # type: ignore[no-untyped-def]
    """Assign states to all stars reached from star f in state s, not over the link `barred`.

    Returns whether every one has a state, and the product of the C on the way.
    """
    h, l = 1.0, 0.0  # noqa: E741
    assigned[f] = s
    stack[0, 0], stack[0, 1] = f, barred
    top = 1
    while top > 0:
        top -= 1
        g, came = stack[top, 0], stack[top, 1]
        e = head[g]
        while e >= 0:
            link, end = e // 2, e % 2
            if link != came and link != barred:
                t = match[link, end, assigned[g]]
                if t < 0:
                    return False, 0.0, 0.0
                first = assigned[g] if end == 0 else t
                h, l = multiply(h, l, high[link, first], low[link, first])  # noqa: E741
                other = ends[link, 1 - end]
                assigned[other] = t
                stack[top, 0], stack[top, 1] = other, link
                top += 1
            e = follow[e]
    return True, h, l


@kernel
def _group_states(groups, members, number, terms, ends, match, high, low, most):  # type: ignore[no-untyped-def]
    """States of each group: those of its first star that have a partner in all others."""
    count = len(number)
    head, follow = _adjacent(ends, count)
    assigned, stack = np.full(count, -1, np.int64), np.empty((count + 1, 2), np.int64)
    states = np.zeros(groups, np.int64)
    state_of = np.full((count, most), -1, np.int64)
    out_high = np.zeros((groups, most), high.dtype)
    out_low = np.zeros_like(out_high)
    begun = np.zeros(groups, np.bool_)
    start, listed = _by_group(groups, members, number)
    for f in members:
        g = number[f]
        if begun[g]:
            continue
        begun[g] = True
        for s in range(terms[f]):
            sound, h, l = _spread(  # noqa: E741
                head, follow, ends, match, high, low, f, s, -1, assigned, stack
            )
            if not sound:
                continue
            e = states[g]
            for m in range(start[g], start[g + 1]):
                state_of[listed[m], e] = assigned[listed[m]]
            out_high[g, e], out_low[g, e] = h, l
            states[g] += 1
    return states, state_of, out_high, out_low


@kernel
def _by_group(groups, members, number):  # type: ignore[no-untyped-def]
    """Stars of all groups one after the other, and where each group begins."""
    start = np.zeros(groups + 1, np.int64)
    for f in members:
        start[number[f] + 1] += 1
    start = np.cumsum(start)
    at = start[:groups].copy()
    listed = np.empty(len(members), np.int64)
    for f in members:
        listed[at[number[f]]] = f
        at[number[f]] += 1
    return start, listed


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
        source = _axis_start(cards, scope_start, scope, terms, start, f, leaf_axis[a])
        for x in range(card):
            for e in range(count):
                j, c = table_start[p] + x * count + e, source + state_of[f, e] * card + x
                out_high[j], out_low[j] = multiply(out_high[j], out_low[j], high[c], low[c])


@kernel
def _extra_tables(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, leaf_star, leaf_axis, leaf_pair, pair_group, table_start,
    extra_start, assigned, slot, terms, start, high, low, out_high, out_low,
):  # fmt: skip
    """The same for the extra states of each group; `assigned` says which state each star is in."""
    for a in range(len(leaf_star)):
        f, p = leaf_star[a], leaf_pair[a]
        g = pair_group[p]
        first, count = extra_start[g], extra_start[g + 1] - extra_start[g]
        card = cards[scope[scope_start[f] + leaf_axis[a]]]
        source = _axis_start(cards, scope_start, scope, terms, start, f, leaf_axis[a])
        for x in range(card):
            for e in range(count):
                j = table_start[p] + x * count + e
                c = source + assigned[first + e, slot[f]] * card + x
                out_high[j], out_low[j] = multiply(out_high[j], out_low[j], high[c], low[c])


@kernel
def _coefficient(  # type: ignore[no-untyped-def]
    cards, terms, start, high, low, scope_start, scope, variable, ends, axes, weight_high,
    weight_low, link, s, t, x,
):  # fmt: skip
    """A[s, x] w(x) B[t, x] of a link."""
    i = variable[link]
    at = _axis_start(cards, scope_start, scope, terms, start, ends[link, 0], axes[link, 0])
    to = _axis_start(cards, scope_start, scope, terms, start, ends[link, 1], axes[link, 1])
    p, q = at + s * cards[i] + x, to + t * cards[i] + x
    h, l = multiply(high[p], low[p], weight_high[i, x], weight_low[i, x])  # noqa: E741
    return multiply(h, l, high[q], low[q])


@kernel
def _extra_states(  # type: ignore[no-untyped-def]
    cards, terms, start, high, low, scope_start, scope, variable, ends, axes, match, link_high,
    link_low, weight_high, weight_low, members, number, group, groups, state_of, states, own_start,
):  # fmt: skip
    """Pairs of states (s, t) that C does not match but some state of a collapsed variable needs.

    Returns their number by group, the link of each, the states of all stars by their slot in the
    group, the slots, the product of C over all other links, and the coefficients of extra and of
    own states.
    """
    count, links = len(number), len(variable)
    head, follow = _adjacent(ends, count)
    first, listed = _by_group(groups, members, number)
    slot = np.full(count, -1, np.int64)
    widest = 1
    for g in range(groups):
        widest = max(widest, first[g + 1] - first[g])
        for m in range(first[g], first[g + 1]):
            slot[listed[m]] = m - first[g]
    now, stack = np.full(count, -1, np.int64), np.empty((count + 1, 2), np.int64)
    most = 1
    for link in range(links):
        most = max(most, cards[variable[link]])
    own_high = np.zeros(own_start[links], high.dtype)
    own_low = np.zeros_like(own_high)
    for link in range(links):
        a, b, d = ends[link, 0], ends[link, 1], cards[variable[link]]
        for e in range(states[group[link]]):
            s, t = state_of[a, e], state_of[b, e]
            for x in range(d):
                h, l = _coefficient(  # noqa: E741
                    cards, terms, start, high, low, scope_start, scope, variable, ends, axes,
                    weight_high, weight_low, link, s, t, x,
                )  # fmt: skip
                j = own_start[link] + x * states[group[link]] + e
                own_high[j], own_low[j] = divide(h, l, link_high[link, s], link_low[link, s])
    by_group = np.argsort(group, kind="mergesort")
    extra = np.zeros(groups, np.int64)
    room = 16
    which, assigned = np.empty(room, np.int64), np.empty((room, widest), np.int64)
    wh, wl = np.empty(room, high.dtype), np.empty(room, high.dtype)
    ch, cl = np.zeros((room, most), high.dtype), np.zeros((room, most), high.dtype)
    made = 0
    for link in by_group:
        a, b, g = ends[link, 0], ends[link, 1], group[link]
        for s in range(terms[a]):
            left, lh, ll = _spread(
                head, follow, ends, match, link_high, link_low, a, s, link, now, stack
            )
            if not left:
                continue
            for t in range(terms[b]):
                if match[link, 0, s] == t:
                    continue
                right, rh, rl = _spread(
                    head, follow, ends, match, link_high, link_low, b, t, link, now, stack
                )
                if not right:
                    continue
                if made == room:
                    room *= 2
                    which, assigned = _grown(which, room), _grown_rows(assigned, room)
                    wh, wl = _grown(wh, room), _grown(wl, room)
                    ch, cl = _grown_rows(ch, room), _grown_rows(cl, room)
                needed = False
                for x in range(cards[variable[link]]):
                    h, l = _coefficient(  # noqa: E741
                        cards, terms, start, high, low, scope_start, scope, variable, ends, axes,
                        weight_high, weight_low, link, s, t, x,
                    )  # fmt: skip
                    ch[made, x], cl[made, x] = h, l
                    needed = needed or h != 0.0
                if not needed:
                    continue
                which[made] = link
                wh[made], wl[made] = multiply(lh, ll, rh, rl)
                for m in range(first[g], first[g + 1]):
                    assigned[made, m - first[g]] = now[listed[m]]
                extra[g] += 1
                made += 1
    return (
        extra, which[:made], assigned[:made], slot, wh[:made], wl[:made], ch[:made], cl[:made],
        own_high, own_low,
    )  # fmt: skip


@kernel
def _grown(values, room):  # type: ignore[no-untyped-def]
    out = np.zeros(room, values.dtype)
    out[: len(values)] = values
    return out


@kernel
def _grown_rows(values, room):  # type: ignore[no-untyped-def]
    out = np.zeros((room, values.shape[1]), values.dtype)
    out[: len(values)] = values
    return out
