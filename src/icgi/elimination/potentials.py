"""A model taken apart for elimination: unary potentials, pairs as stars, wide factors as trains."""

from dataclasses import dataclass

import numpy as np

from icgi.elimination.layout import Layout
from icgi.elimination.passes import Steps, Weights
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.wiring import Wiring, wiring
from icgi.tt.train import carried, decompose

_TRAIN_TOLERANCE = 1e-14  # of singular values, for the exact train of a wide factor
FILLING = 3e-8  # seconds for an entry of the stars' tables, memory that is fresh included
_SMALLEST = 1e-5  # entries below this share of the largest would lose digits in an SVD


@dataclass(frozen=True, slots=True, eq=False)
class Potentials:
    """log p(x) = Σ unary + Σ pair + Σ wide + constant, single-variable effects all in `unary`."""

    cards: IntArray  # n
    unary: FloatArray  # n k      −inf from cards[i] on
    near_start: IntArray  # n+1      neighbours of i by pair tables
    near: IntArray
    near_pair: IntArray  # table of the pair, in `pairs`
    pair_first: IntArray  # variable of the pair's first axis
    pair_start: IntArray  # where a pair's table begins in `pair`
    pair: FloatArray
    wide_start: IntArray  # f+1
    wide_scope: IntArray
    wide: tuple[FloatArray, ...]
    constant: float

    @property
    def steepness(self) -> float:
        """Largest range of the logarithms in one table, zeros aside."""
        ranges = [np.ptp(t[np.isfinite(t)]) for t in (*self.unary, *self.wide)]
        if self.pair.size:
            top = np.maximum.reduceat(self.pair, self.pair_start[:-1])
            floor = np.where(np.isneginf(self.pair), np.inf, self.pair)
            ranges.append((top - np.minimum.reduceat(floor, self.pair_start[:-1])).max())
        return float(max(ranges, default=0.0))

    @property
    def stars(self) -> tuple[IntArray, IntArray]:
        """Neighbours by pairs, as (starts, flat)."""
        return self.near_start, self.near

    @property
    def wides(self) -> tuple[IntArray, IntArray]:
        """Scopes of wide factors, as (starts, flat)."""
        return self.wide_start, self.wide_scope


def seconds_apart(model: FactorGraph) -> float:
    """Seconds that `potentials` takes, roughly: by factors, and by entries of wide ones."""
    arity = model.arity
    wide = sum(int(arity[f]) * model.log_tables[f].size for f in np.flatnonzero(arity > 2))
    return 1.5e-6 * model.n_factors + 1.5e-8 * wide


def seconds_as_trains(pots: Potentials) -> float:
    """Seconds to turn all wide factors into trains, roughly: singular values of half their axes."""
    return float(sum(3e-4 + 1e-9 * table.size**1.5 for table in pots.wide))


def potentials(model: FactorGraph) -> Potentials:
    """Unary, pairwise and wide parts; parallel pairs are merged, single effects moved to `unary`.

    A single effect is the mean of the logarithms over the other states (for spins, the field), or
    the logarithm of the sum where there are zeros.
    """
    n, k = model.n_variables, model.max_states
    cards = model.cards
    unary = np.where(np.arange(k) < cards[:, None], 0.0, -np.inf)
    w = wiring(model)
    free = cards[w.scope] > 1
    inside = np.concatenate([[0], np.cumsum(free)])
    arity = np.diff(inside[w.scope_start])  # f   variables with a choice of states
    kept, first = w.scope[free], inside[w.scope_start[:-1]]
    constant = float(w.values[w.table_start[:-1][arity == 0]].sum())
    single = np.flatnonzero(arity == 1)
    for d in np.unique(cards[kept[first[single]]]).tolist():
        some = single[cards[kept[first[single]]] == d]
        values = w.values[w.table_start[some][:, None] + np.arange(d)]
        np.add.at(unary, (kept[first[some]][:, None], np.arange(d)), values)
    ends, pair_start, pair = _pairs(w, kept, first, np.flatnonzero(arity == 2), unary)
    wide = []
    for f in np.flatnonzero(arity > 2).tolist():
        scope = tuple(kept[first[f] : first[f] + arity[f]].tolist())
        wide.append((scope, model.log_tables[f].reshape([cards[i] for i in scope])))
    wide = [(scope, _centred(scope, values, unary)) for scope, values in wide]
    near_start, near, near_pair = _adjacency(n, ends)
    return Potentials(
        cards,
        unary,
        near_start,
        near,
        near_pair,
        ends[:, 0].copy(),
        pair_start,
        pair,
        np.concatenate([[0], np.cumsum([len(s) for s, _ in wide])]).astype(np.int64),
        np.array([i for s, _ in wide for i in s], dtype=np.int64),
        tuple(t for _, t in wide),
        constant,
    )


def _pairs(
    w: Wiring, kept: IntArray, first: IntArray, which: IntArray, unary: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Ends e 2, starts e+1 and tables of all pairs; parallel ones merged, single effects removed.

    Pairs of one shape are done together: a model may have millions of them.
    """
    ends = np.stack([kept[first[which]], kept[first[which] + 1]], 1).reshape(-1, 2)
    turned = ends[:, 0] > ends[:, 1]
    ends = np.where(turned[:, None], ends[:, ::-1], ends)
    n = len(w.cards)
    keys, group = ends[:, 0] * n + ends[:, 1], np.arange(len(ends))
    if not (np.diff(keys) > 0).all():
        keys, group = np.unique(keys, return_inverse=True)
    merged = np.stack([keys // max(n, 1), keys % max(n, 1)], 1).astype(np.int64)
    shapes = w.cards[merged]  # e 2
    start = np.concatenate([[0], np.cumsum(shapes.prod(1))]).astype(np.int64)
    flat = np.zeros(int(start[-1]))
    sizes, size = np.unique(w.cards, return_inverse=True)
    shape = size[merged[:, 0]] * len(sizes) + size[merged[:, 1]]
    for one in np.flatnonzero(np.bincount(shape)).tolist():
        a, b = sizes[one // len(sizes)], sizes[one % len(sizes)]
        mine = np.flatnonzero(shape == one)
        place = np.full(len(keys), -1, np.int64)
        place[mine] = np.arange(len(mine))
        tables = np.zeros((len(mine), a, b))
        for flip in (False, True):
            some = np.flatnonzero((place[group] >= 0) & (turned == flip))
            values = w.values[w.table_start[which[some]][:, None] + np.arange(a * b)]
            shaped = (
                values.reshape(-1, b, a).transpose(0, 2, 1) if flip else values.reshape(-1, a, b)
            )
            np.add.at(tables, place[group[some]], shaped)
        finite = np.asarray(np.isfinite(tables).all((1, 2)))
        for axis in (0, 1):
            with np.errstate(divide="ignore"):
                effect = np.where(
                    finite[:, None],
                    np.where(finite[:, None, None], tables, 0.0).mean(2 - axis),
                    np.logaddexp.reduce(tables, axis=2 - axis),
                )
            effect = np.where(np.isneginf(effect), 0.0, effect)  # impossible states stay so here
            tables -= np.expand_dims(effect, 2 - axis)
            np.add.at(unary, (merged[mine, axis][:, None], np.arange(effect.shape[1])), effect)
        flat[start[mine][:, None] + np.arange(a * b)] = tables.reshape(len(mine), -1)
    return merged, start, flat


def steps_of(layout: Layout, cards: IntArray) -> Steps:
    """Part of a layout that the compiled passes read."""
    return Steps(
        layout.step_variable,
        layout.site_start,
        layout.site,
        layout.fresh,
        layout.before,
        cards,
        layout.frontier,
    )


def filling_seconds(pots: Potentials, layout: Layout) -> float:
    """Seconds that the tables of all stars take, roughly: states to the power of three each."""
    *_, start = _table_shapes(
        layout.step_variable, layout.step_factor, layout.site_start, layout.site, pots.cards,
        pots.near_start, pots.near,
    )  # fmt: skip
    return FILLING * float(start[-1])


def weights(pots: Potentials, layout: Layout, scale: float = 1.0, share: float = 0.5) -> Weights:
    """Numbers of p^scale along a layout; `share` of each unary goes into ℓ, the rest into ω."""
    unary = np.where(np.isneginf(pots.unary), -np.inf, scale * pots.unary)
    top = unary.max(1, initial=-np.inf)
    norm = top + np.log(np.exp(unary - top[:, None]).sum(1))  # n
    unary = unary - norm[:, None]
    constant = scale * pots.constant + float(norm.sum())
    peaks = np.maximum.reduceat(pots.pair, pots.pair_start[:-1]) if pots.pair.size else np.empty(0)
    constant += scale * float(peaks.sum())
    pair = np.exp(scale * (pots.pair - np.repeat(peaks, np.diff(pots.pair_start))))
    left, right, start = _table_shapes(
        layout.step_variable, layout.step_factor, layout.site_start, layout.site, pots.cards,
        pots.near_start, pots.near,
    )  # fmt: skip
    trains: list[FloatArray] = []
    for table in pots.wide:
        peak = float(table.max())
        constant += scale * peak
        trains.append(np.exp(scale * (table - peak)))
    flat = np.zeros(0)
    if pots.wide:
        left, right, start, flat = _wide_tables(pots, layout, trains, left, right)
    size = int(start[-1])
    values = np.zeros(size)
    values[: len(flat)] = flat
    _fill(
        layout.step_variable, layout.site_start, layout.site, pots.cards, left, right, start,
        pots.near_start, pots.near, pots.near_pair, pots.pair_first, pots.pair_start, pair, values,
    )  # fmt: skip
    with np.errstate(invalid="ignore"):
        leg = np.where(np.isneginf(unary), 0.0, np.exp(share * unary))
        omega = np.where(np.isneginf(unary), 0.0, np.exp((1 - share) * unary))
    return Weights(leg, omega, start[:-1].copy(), left, right, values, constant)


def _wide_tables(
    pots: Potentials, layout: Layout, tables: list[FloatArray], left: IntArray, right: IntArray
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Fill in the trains of the wide factors at the sites of their steps, in site order."""
    pieces: dict[int, FloatArray] = {}
    for s in np.flatnonzero(layout.step_factor >= 0).tolist():
        f = int(layout.step_factor[s])
        scope = pots.wide_scope[pots.wide_start[f] : pots.wide_start[f + 1]].tolist()
        first = int(layout.site_start[s])
        sites = layout.site[first : int(layout.site_start[s + 1])].tolist()
        where = sorted(range(len(scope)), key=lambda a: sites.index(scope[a]))
        table = tables[f].transpose(where)
        even = table.min() > _SMALLEST * table.max()
        cores = iter(decompose(table, _TRAIN_TOLERANCE) if even else carried(table))
        bond = 1
        for q, u in enumerate(sites):
            d = int(pots.cards[u])
            if u in scope:
                core = next(cores)  # d a b
                piece = core.transpose(1, 0, 2)
            else:
                piece = np.broadcast_to(np.eye(bond)[:, None, :], (bond, d, bond))
            left[first + q], bond = piece.shape[0], piece.shape[2]
            right[first + q] = bond
            pieces[first + q] = np.ascontiguousarray(piece).ravel()
    sizes = left * pots.cards[layout.site] * right
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.zeros(int(start[-1]))
    for e, piece in pieces.items():
        flat[start[e] : start[e] + piece.size] = piece
    return left, right, start, flat


def _centred(scope: tuple[int, ...], table: FloatArray, unary: FloatArray) -> FloatArray:
    """Table without the effects of its single variables, which are added to `unary`."""
    out = np.array(table)
    finite = np.isfinite(table).all()
    for axis, i in enumerate(scope):
        others = tuple(a for a in range(len(scope)) if a != axis)
        if finite:
            effect = out.mean(others)
        else:
            effect = np.logaddexp.reduce(np.moveaxis(out, axis, 0).reshape(out.shape[axis], -1), 1)
        effect = np.where(np.isneginf(effect), 0.0, effect)  # an impossible state stays so here
        shape = [-1 if a == axis else 1 for a in range(len(scope))]
        out -= effect.reshape(shape)
        unary[i, : effect.size] += effect
    return out


def _adjacency(n: int, ends: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    pair = np.concatenate([np.arange(len(ends))] * 2)
    here = np.concatenate([ends[:, 0], ends[:, 1]])
    there = np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.lexsort((there, here))
    start = np.concatenate([[0], np.cumsum(np.bincount(here, minlength=n))]).astype(np.int64)
    return start, there[order], pair[order]


@kernel
def _table_shapes(variable, factor, site_start, site, cards, near_start, near):  # type: ignore[no-untyped-def]
    """Bonds of the star tables: the eliminated variable's states between the outermost members."""
    left = np.ones(len(site), np.int64)
    right = np.ones(len(site), np.int64)
    start = np.zeros(len(site) + 1, np.int64)
    member = np.full(len(cards), -1, np.int64)
    for s in range(len(variable)):
        v = variable[s]
        if v >= 0:
            member[v] = s
            for e in range(near_start[v], near_start[v + 1]):
                member[near[e]] = s
            low, high = site_start[s + 1], -1
            for e in range(site_start[s], site_start[s + 1]):
                if member[site[e]] == s:
                    low, high = min(low, e), max(high, e)
            for e in range(low, high):
                right[e] = cards[v]
                left[e + 1] = cards[v]
    for e in range(len(site)):
        start[e + 1] = start[e] + left[e] * cards[site[e]] * right[e]
    return left, right, start


@kernel
def _fill(  # type: ignore[no-untyped-def]
    variable, site_start, site, cards, left, right, start,
    near_start, near, near_pair, pair_first, pair_start, pair, values,
):  # fmt: skip
    which = np.full(len(cards), -1, np.int64)
    for s in range(len(variable)):
        v = variable[s]
        if v < 0:
            continue
        for e in range(near_start[v], near_start[v + 1]):
            which[near[e]] = near_pair[e]
        for e in range(site_start[s], site_start[s + 1]):
            u = site[e]
            d, a, b = cards[u], left[e], right[e]
            for x in range(d):
                for y in range(max(a, b)):  # state of the eliminated variable, 0 outside its span
                    p, q = (y if a > 1 else 0), (y if b > 1 else 0)
                    value = 1.0
                    if u == v:
                        if (a > 1 or b > 1) and y != x:
                            value = 0.0
                    elif which[u] >= 0:
                        at = pair_start[which[u]]
                        if pair_first[which[u]] == v:
                            value = pair[at + y * d + x]
                        else:
                            value = pair[at + x * cards[v] + y]
                    values[start[e] + (p * d + x) * b + q] = value
        for e in range(near_start[v], near_start[v + 1]):
            which[near[e]] = -1
