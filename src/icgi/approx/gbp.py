"""Generalised belief propagation: beliefs over regions that agree wherever regions overlap.

The cluster variation method approximates log Z by the largest value (in practice a stationary one)
of

    Σ_α Σ_x b_α(x) (θ_α(x) − log b_α(x)) − Σ_β c_β Σ_x b_β(x) log b_β(x),   Σ_{x_α∖x_β} b_α = b_β,

over maximal regions α and their intersections β with counting numbers c_β (Kikuchi 1951). With
multipliers λ_αβ of the constraints, b_α ∝ exp(θ_α + Σ_β λ_αβ), and one region β is solved by

    log M_αβ = log Σ_{x_α∖x_β} b_α − λ_αβ                 what α says about β, parent to child,
    log b_β  = (Σ_α log M_αβ − (c_β − κ_β) log b̂_β) / (n_β + κ_β),   λ_αβ = log b_β − log M_αβ,

n_β being the number of parents (Heskes, Albers, Kappen 2003, section 5). κ = c and nothing else is
the plain single loop. The part c − κ of the counting number that would make the problem non-convex
is linearised at an anchor b̂: moved along after every update it damps the single loop; held until
the rest has converged it is the double loop, which cannot cycle.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.random import Generator

from icgi.approx.fixed_point import Outcome, deadline, fixed_point
from icgi.approx.regions import RegionGraph, cycles, mini_buckets, region_graph
from icgi.approx.support import supported
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray
from icgi.model.wiring import Wiring, wiring

Algorithm: TypeAlias = Literal["auto", "parent-to-child", "double-loop"]
Choice: TypeAlias = Literal["factors", "loops", "clusters"]

FLOOR = -1e8  # of finite log tables below their largest entry: far sums keep their precision
TINY = 1e-100  # linear marginals below it are summed again in logarithms
WINDOW = 50  # sweeps after which progress is judged
PROGRESS = 0.8  # of the residual, in two windows, or the next remedy is tried
SOLVED = 0.1  # disagreement, in steps from the anchor, below which the inner loop is solved
RUNAWAY = 1e-3  # weight of disagreement in logarithms: a belief may vanish, but not move on
LONGEST = 16.0  # leap of an anchor, in steps
LIMIT = 1e12  # of log messages: even a run that diverges stays finite
INNER = 100  # sweeps at most between two anchors of the double loop


@dataclass(frozen=True, slots=True)
class GeneralisedBP:
    """Kikuchi's approximation on regions by the cluster variation method; `log_z` is Kikuchi's.

    Regions are the factors, or cycles up to a length, or clusters of up to ibound + 1 variables;
    with a junction tree of clusters the answer is exact. Converged means that all regions agree
    on their intersections, and that no undamped update would move a belief, by more than the
    tolerance.
    """

    regions: Choice = "loops"
    loop: int = 4  # longest cycle that is a region, in variables
    ibound: int = 4  # clusters have up to ibound + 1 variables
    algorithm: Algorithm = "auto"  # auto: parent-to-child, and the double loop where it stalls
    damping: float = 0.3  # share of the old messages, geometrically; raised when progress stalls
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 <= self.damping < 1:
            raise IcgiError(f"damping={self.damping}: give a share of at least 0 and below 1")
        if self.loop < 3 or self.ibound < 1:
            raise IcgiError(
                f"loop={self.loop}, ibound={self.ibound}: a cycle has at least 3 variables, and "
                "ibound is at least 1"
            )

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Build the regions, sweep until they agree or the budget is spent."""
        until = deadline(budget)
        part = supported(model)
        graph, stats = self.region_graph(part.model)
        tables = compile_regions(part.model, graph, budget, self._advice())
        state = initial_state(tables)
        run = _Run(graph, tables, state, self, budget.iterations, until)
        outcome = run.exact() if graph.junction_tree else run.approximate()
        finish(tables, state)
        disagreement, log_z = consistency(tables, state), kikuchi(tables, state)
        status = _status(graph, outcome, disagreement, self.tolerance)
        stats |= {
            "sweeps": outcome.sweeps,
            "residual": outcome.residual,
            "consistency": disagreement,
            "kikuchi_log_z": log_z,  # also where it is not stationary
            "damping": run.damping,
            "double_loop": run.double,
            "largest_region_entries": int(np.diff(tables.entry_start).max(initial=0)),
        }
        found = Marginals(
            variable_marginals(part.model, graph, tables, state),
            status,
            log_z if status is not Status.BUDGET_SPENT else None,
            stats=stats,
        )
        return lift(found, part.alive)

    def region_graph(self, model: FactorGraph) -> tuple[RegionGraph, dict[str, float]]:
        """Regions of these settings, and how many there are."""
        stats: dict[str, float] = {}
        if self.regions == "loops":
            found = cycles(model, self.loop)
            stats = {
                "loops": len(found.regions),
                "loops_found": found.found,
                "loops_cut": found.cut,  # the search was ended early
            }
            graph = region_graph(model, found.regions)
        elif self.regions == "clusters":
            graph = region_graph(model, mini_buckets(model, self.ibound))
        else:
            graph = region_graph(model, [])
        stats |= {
            "regions": len(graph.outer) + len(graph.inner),
            "maximal_regions": len(graph.outer),
            "junction_tree": graph.junction_tree,
        }
        return graph, stats

    def _advice(self) -> str:
        if self.regions == "clusters":
            return f"use ibound below {self.ibound}"
        if self.regions == "loops" and self.loop > 3:
            return f"use loop below {self.loop}, or regions=factors"
        return "raise --memory, or use --engine lbp"


def _status(graph: RegionGraph, outcome: Outcome, gap: float, tolerance: float) -> Status:
    if not outcome.converged or not gap <= tolerance:
        return Status.BUDGET_SPENT
    return Status.EXACT if graph.junction_tree and gap <= 1e-9 else Status.CONVERGED


class Tables(NamedTuple):
    """Regions as compiled sweeps read them; entries that zeros exclude are not stored."""

    constant: float  # log Z of constants and of the largest entries
    entry_start: IntArray  # a+1   where each maximal region's entries begin
    theta: FloatArray  # log table of each entry, at most 0
    code: IntArray  # number of each entry in the full table, the last variable fastest
    state_start: IntArray  # b+1   where each inner region's states begin
    state_code: IntArray  # number of each state in the full table
    counting: FloatArray  # b     c_β
    link_start: IntArray  # b+1   where each inner region's links to its parents begin
    link_outer: IntArray  # l     parent of each link
    map_start: IntArray  # l     where each link's map begins in `maps`
    maps: "np.ndarray"  # state of the inner region, for each entry of the parent
    message_start: IntArray  # l+1   where each link's multipliers begin
    outer_start: IntArray  # a+1   where each maximal region's links begin in `outer_link`
    outer_link: IntArray  # l


class State(NamedTuple):
    """What a run changes; everything is written in place by the sweeps."""

    messages: FloatArray  # λ_αβ, laid out by `Tables.message_start`
    joint: FloatArray  # b_α, laid out by `Tables.entry_start`
    log_belief: FloatArray  # log b_β, laid out by `Tables.state_start`
    belief: FloatArray  # b_β
    anchor: FloatArray  # log b̂_β
    counter: IntArray  # sweeps made, sweeps since the anchor moved, moves since extrapolating
    earlier: FloatArray  # 2 ·   anchors of the double loop: two moves ago, and without the leap
    leap: FloatArray  # Kikuchi log Z before the last extrapolation, and how far the next may go
    work: FloatArray  # 2 ·   marginals of all parents of one region, and their logarithms
    line: FloatArray  # 3 ·   one region's states
    logs: FloatArray  # log table of one maximal region


def compile_regions(model: FactorGraph, graph: RegionGraph, budget: Budget, advice: str) -> Tables:
    """Flat tables of all regions; `BudgetError` before anything large is allocated."""
    cards = model.cards.tolist()
    shapes = [tuple([cards[i] for i in r]) for r in graph.outer]
    sizes = [math.prod(s) for s in shapes]
    place = [{i: a for a, i in enumerate(r)} for r in graph.outer]
    pattern: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    used, needed = 0, 24 * sum(sizes)
    link_outer: list[int] = []
    map_start: list[int] = []
    for region, parents in zip(graph.inner, graph.parents, strict=True):
        for a in parents:
            key = (shapes[a], tuple([place[a][i] for i in region]))
            if key not in pattern:
                pattern[key] = used
                used += sizes[a]
            link_outer.append(a)
            map_start.append(pattern[key])
    if any(np.isneginf(t).any() for t in model.log_tables):
        needed += 4 * sum(sizes[a] for a in link_outer)  # each link then has a map of its own
    if needed + 4 * used > budget.table_bytes:
        raise BudgetError(
            f"the tables of {len(sizes)} regions need {needed + 4 * used:.3g} bytes (the largest "
            f"has {max(sizes):.3g} entries), the budget is {budget.table_bytes}; {advice}"
        )
    maps = np.empty(used, np.int32)
    for (shape, axes), begin in pattern.items():
        maps[begin : begin + math.prod(shape)] = _projection(shape, axes)
    entry_start = _starts(sizes)
    theta, constant = _log_tables(wiring(model), graph, entry_start)
    states = [math.prod([cards[i] for i in r]) for r in graph.inner]
    counts = [len(p) for p in graph.parents]
    outers = np.array(link_outer, np.int64)
    tables = Tables(
        constant,
        entry_start,
        theta,
        np.concatenate([np.arange(s) for s in sizes]) if sizes else np.empty(0, np.int64),
        _starts(states),
        np.concatenate([np.arange(s) for s in states]) if states else np.empty(0, np.int64),
        graph.counting,
        _starts(counts),
        outers,
        np.array(map_start, np.int64),
        maps,
        _starts(np.repeat(np.array(states, np.int64), counts)),
        _starts(np.bincount(outers, minlength=len(sizes))),
        np.argsort(outers, kind="stable"),
    )
    return without_zeros(tables) if np.isneginf(theta).any() else tables


def without_zeros(t: Tables) -> Tables:
    """Only entries and states that are possible in every region that knows of them."""
    alive = np.asarray(t.theta > -np.inf)
    state_alive = np.ones(t.state_start[-1], bool)
    _propagate(t, alive, state_alive)
    entries = _counts(t.entry_start, alive)
    if (entries == 0).any():
        raise EvidenceError(
            "no configuration has non-zero probability: a region is left without a possible "
            "state; check the evidence against the zeros of the model"
        )
    states = _counts(t.state_start, state_alive)
    maps, map_start = _compress(t, alive, state_alive, entries)
    return t._replace(
        entry_start=_starts(entries),
        theta=t.theta[alive],
        code=t.code[alive],
        state_start=_starts(states),
        state_code=t.state_code[state_alive],
        map_start=map_start,
        maps=maps,
        message_start=_starts(np.repeat(states, np.diff(t.link_start))),
    )


def initial_state(t: Tables) -> State:
    """Messages of one, uniform beliefs."""
    states = np.diff(t.state_start)
    log_belief = np.repeat(-np.log(np.maximum(states, 1)), states)
    width = int((states * np.diff(t.link_start)).max(initial=1))
    return State(
        np.zeros(t.message_start[-1]),
        np.empty(t.entry_start[-1]),
        log_belief,
        np.exp(log_belief),
        log_belief.copy(),
        np.zeros(3, np.int64),
        np.empty((2, len(log_belief))),
        np.array([-np.inf, LONGEST]),
        np.empty((2, width)),
        np.empty((3, int(states.max(initial=1)))),
        np.empty(int(np.diff(t.entry_start).max(initial=1))),
    )


def restart(t: Tables, s: State) -> None:
    """Back to the initial state, sweeps counted on."""
    fresh = initial_state(t)
    for name in ("messages", "log_belief", "belief", "anchor", "leap"):
        getattr(s, name)[:] = getattr(fresh, name)
    s.counter[1:] = 0


@dataclass(slots=True, eq=False)
class _Run:
    """One call of the engine: which remedy is on, and what is left of the budget."""

    graph: RegionGraph
    tables: Tables
    state: State
    settings: GeneralisedBP
    sweeps: int
    until: float
    damping: float = 0.0
    double: bool = False

    def exact(self) -> Outcome:
        """Collect and distribute along a junction tree; a third sweep finds nothing to change."""
        return self._go(self.tables.counting, self.sweeps)

    def approximate(self) -> Outcome:
        """Single loop with as much damping as it takes, double loop where that is not enough."""
        damped, convex = single_loop(self.graph, self.tables), double_loop(self.graph, self.tables)
        given, done = self.settings.damping, 0
        remedies = {
            "auto": [(damped, given, False), (convex, given, False), (convex, 0.0, True)],
            "parent-to-child": [(damped, given, False), (convex, given, False)],
            "double-loop": [(convex, 0.0, True)],
        }[self.settings.algorithm]
        for remaining, remedy in zip(range(len(remedies))[::-1], remedies, strict=True):
            kept, self.damping, self.double = remedy
            if done:
                restart(self.tables, self.state)
            best, stalled = math.inf, 0
            while stalled < 2 or not remaining:
                outcome = self._go(kept, min(WINDOW, self.sweeps - done))
                done += outcome.sweeps
                if outcome.converged or outcome.sweeps < WINDOW or done == self.sweeps:
                    return replace(outcome, sweeps=done)
                stalled = 0 if outcome.residual < PROGRESS * best else stalled + 1
                best = min(best, outcome.residual)
        raise AssertionError("the last remedy ends with the budget")

    def _go(self, kept: FloatArray, sweeps: int) -> Outcome:
        def advance(count: int) -> tuple[int, float]:
            made, residual = _advance(
                self.tables, self.state, kept, self.damping, self.double,
                self.settings.tolerance, count,
            )  # fmt: skip
            return int(made), float(residual)

        return fixed_point(advance, sweeps, self.until, self.settings.tolerance)


def single_loop(graph: RegionGraph, t: Tables) -> FloatArray:
    """κ of the single loop: of negative c as much as the entropies of the parents make up for.

    Σ_β A_αβ ≤ 1 and κ_β = −Σ_α A_αβ keep the free energy convex where regions agree (Heskes 2006);
    here every parent gives in proportion to need, A_αβ ∝ |c_β| / n_β.
    """
    counts = np.diff(t.link_start)
    need = np.repeat(np.maximum(-t.counting, 0.0) / np.maximum(counts, 1), counts)  # l
    asked = np.bincount(t.link_outer, need, len(t.entry_start) - 1)  # a
    given = need / np.maximum(asked, 1.0)[t.link_outer]
    region = np.repeat(np.arange(len(counts)), counts)
    share = np.bincount(region, given, len(counts))
    return _hand_down(graph, t.counting, np.maximum(t.counting, -share), 1.0 - counts)


def double_loop(graph: RegionGraph, t: Tables) -> FloatArray:
    """κ ≥ 0 of the double loop: what is left is convex in every belief, its updates converge."""
    convex = np.maximum(t.counting, 0.0)
    return _hand_down(graph, t.counting, convex, np.zeros(len(convex)))


def _hand_down(
    graph: RegionGraph, counting: FloatArray, kept: FloatArray, least: FloatArray
) -> FloatArray:
    """κ with conditional entropies linearised in place of joint ones, wherever κ ≥ least allows.

    H(β) − H(γ) for γ ⊂ β is concave as well, and its tangent leaves the belief of γ free to move.
    """
    kept = kept.copy()
    for b in sorted(range(len(kept)), key=lambda b: -len(graph.inner[b])):
        linear = kept[b] - counting[b]
        for c in graph.children[b]:
            if linear > 0:
                kept[c] = max(kept[c] - linear / len(graph.children[b]), min(least[c], kept[c]))
    return kept


def variable_marginals(model: FactorGraph, graph: RegionGraph, t: Tables, s: State) -> FloatArray:
    """Marginals of all variables, each from the smallest region that contains it."""
    n = model.n_variables
    choice = np.zeros(n, np.int64)  # inner region, or −1 − the maximal region
    size = np.full(n, len(graph.outer) + model.n_variables + 1)
    stride = np.ones(n, np.int64)
    numbered = [(b, r) for b, r in enumerate(graph.inner)]
    numbered += [(-1 - a, r) for a, r in enumerate(graph.outer)]
    for number, region in numbered:
        step = 1
        for i in reversed(region):
            if len(region) < size[i]:
                choice[i], size[i], stride[i] = number, len(region), step
            step *= int(model.cards[i])
    probs = np.zeros((n, model.max_states))
    _read_marginals(t, s, model.cards, choice, stride, probs)
    return probs


def _projection(shape: tuple[int, ...], axes: tuple[int, ...]) -> IntArray:
    """Number of the sub-configuration on some axes, for each entry of a table."""
    index = np.zeros(shape, np.int64)
    for a in axes:
        steps = np.arange(shape[a]).reshape([-1 if b == a else 1 for b in range(len(shape))])
        index *= shape[a]
        index += steps
    return index.ravel()


def _starts(lengths: "np.ndarray | list[int]") -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])


def _counts(start: IntArray, alive: BoolArray) -> IntArray:
    before = _starts(alive.astype(np.int64))
    return np.asarray(before[start[1:]] - before[start[:-1]])


def _log_tables(w: Wiring, graph: RegionGraph, entry_start: IntArray) -> tuple[FloatArray, float]:
    """θ_α: sum of the factors at home in each region, largest entry of each factor taken out."""
    theta = np.zeros(entry_start[-1])
    scope_start = _starts([len(r) for r in graph.outer])
    scope = np.fromiter((i for r in graph.outer for i in r), np.int64, int(scope_start[-1]))
    constant = _add_factors(
        w.cards, w.scope_start, w.scope, w.table_start, w.values,
        np.array(graph.home, np.int64), scope_start, scope, entry_start, theta,
    )  # fmt: skip
    return theta, float(constant)


@numba.njit(cache=True, nogil=True)
def _add_factors(  # type: ignore[no-untyped-def]
    cards, scope_start, scope, table_start, values, home, region_start, region, entry_start, theta
):
    constant = 0.0
    digit, stride = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for f in range(len(home)):
        top = values[table_start[f] : table_start[f + 1]].max()
        constant += top
        a = home[f]
        if a < 0:
            continue
        begin, arity = region_start[a], region_start[a + 1] - region_start[a]
        for v in range(arity):
            digit[v], stride[v], step = 0, 0, 1
            for u in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
                if scope[u] == region[begin + v]:
                    stride[v] = step
                step *= cards[scope[u]]
        at = table_start[f]
        for k in range(entry_start[a], entry_start[a + 1]):
            if values[at] == -np.inf:
                theta[k] = -np.inf
            else:
                theta[k] += max(values[at] - top, FLOOR)
            v = arity - 1
            while v >= 0:
                digit[v] += 1
                at += stride[v]
                if digit[v] < cards[region[begin + v]]:
                    break
                at -= digit[v] * stride[v]
                digit[v] = 0
                v -= 1
    return constant


@numba.njit(cache=True, nogil=True)
def _propagate(t, alive, state_alive):  # type: ignore[no-untyped-def]
    """Remove states that some parent excludes, and entries that some inner region excludes."""
    support = np.empty(len(state_alive), np.bool_)
    changed = True
    while changed:
        changed = False
        for b in range(len(t.counting)):
            begin, end = t.state_start[b], t.state_start[b + 1]
            for link in range(t.link_start[b], t.link_start[b + 1]):
                a, shift = t.link_outer[link], t.map_start[link]
                first = t.entry_start[a]
                support[begin:end] = False
                for k in range(first, t.entry_start[a + 1]):
                    if alive[k]:
                        x = begin + t.maps[shift + k - first]
                        if state_alive[x]:
                            support[x] = True
                        else:
                            alive[k] = False
                            changed = True
                for x in range(begin, end):
                    if state_alive[x] and not support[x]:
                        state_alive[x] = False
                        changed = True


@numba.njit(cache=True, nogil=True)
def _compress(t, alive, state_alive, entries):  # type: ignore[no-untyped-def]
    """Maps between what is alive, one for each link."""
    rank = np.empty(len(state_alive), np.int32)
    for b in range(len(t.counting)):
        count = 0
        for x in range(t.state_start[b], t.state_start[b + 1]):
            rank[x] = count
            count += state_alive[x]
    map_start = np.zeros(len(t.link_outer), np.int64)
    total = 0
    for link in range(len(t.link_outer)):
        map_start[link] = total
        total += entries[t.link_outer[link]]
    maps = np.empty(total, np.int32)
    for b in range(len(t.counting)):
        for link in range(t.link_start[b], t.link_start[b + 1]):
            a, at = t.link_outer[link], map_start[link]
            shift = t.map_start[link] - t.entry_start[a]
            for k in range(t.entry_start[a], t.entry_start[a + 1]):
                if alive[k]:
                    maps[at] = rank[t.state_start[b] + t.maps[shift + k]]
                    at += 1
    return maps, map_start


@numba.njit(cache=True, nogil=True)
def _advance(t, s, kept, damping, double, tolerance, count):  # type: ignore[no-untyped-def]
    """Make up to `count` sweeps, alternating in direction; how many, and the last residual."""
    residual = np.inf
    for done in range(count):
        _refresh(t, s)
        gap, drift, moved, runaway = _sweep(t, s, kept, damping, not double, s.counter[0] % 2 == 0)
        residual = max(gap, drift, RUNAWAY * runaway)
        s.counter[0] += 1
        s.counter[1] += 1
        if double and (gap <= SOLVED * moved or s.counter[1] >= INNER):
            _move_anchor(t, s)
        if residual <= tolerance:
            # the sweep has met every region before its last update: look again at the end
            _refresh(t, s)
            residual = max(residual, consistency(t, s))
            if residual <= tolerance:
                return done + 1, residual
    return count, residual


@numba.njit(cache=True, nogil=True)
def _move_anchor(t, s):  # type: ignore[no-untyped-def]
    """Bring the anchor to the beliefs; every second time, beyond them (Varadhan, Roland 2008).

    The double loop creeps where many regions anchor one belief. A leap that lowers log Z is taken
    back, and the next one is shorter.
    """
    s.counter[1] = 0
    log_z = kikuchi(t, s)
    if s.counter[2] == 2:
        s.counter[2] = 0
        if log_z < s.leap[0] - 1e-7 * max(abs(s.leap[0]), 1.0):
            s.leap[1] = max(1.0, s.leap[1] / 4)
            s.anchor[:] = s.earlier[1]
            return
        s.leap[1] = min(LONGEST, 2 * s.leap[1])
    s.counter[2] += 1
    if s.counter[2] == 1:
        s.earlier[0] = s.anchor
        s.anchor[:] = s.log_belief
        return
    first, bend = 0.0, 0.0
    for x in range(len(s.anchor)):
        r = s.anchor[x] - s.earlier[0, x]
        v = s.log_belief[x] - s.anchor[x] - r
        first, bend = first + s.belief[x] * r * r, bend + s.belief[x] * v * v
    length = min(max(math.sqrt(first / max(bend, 1e-300)), 1.0), s.leap[1])
    s.leap[0] = log_z
    s.earlier[1] = s.log_belief
    for b in range(len(t.counting)):
        top = -np.inf
        for x in range(t.state_start[b], t.state_start[b + 1]):
            r = s.anchor[x] - s.earlier[0, x]
            v = s.log_belief[x] - s.anchor[x] - r
            s.anchor[x] = s.earlier[0, x] + 2 * length * r + length * length * v
            top = max(top, s.anchor[x])
        mass = 0.0
        for x in range(t.state_start[b], t.state_start[b + 1]):
            mass += math.exp(s.anchor[x] - top)
        for x in range(t.state_start[b], t.state_start[b + 1]):
            s.anchor[x] -= top + math.log(mass)


@numba.njit(cache=True, nogil=True)
def _sweep(t, s, kept, damping, moving, forward):  # type: ignore[no-untyped-def]
    """Update every inner region once.

    Largest disagreement of parents with beliefs; distance of beliefs to anchors, in units of an
    undamped step and as it is; largest disagreement in logarithms, where vanishing beliefs show.
    """
    gap, drift, moved, runaway = 0.0, 0.0, 0.0, 0.0
    regions = len(t.counting)
    for step in range(regions):
        b = step if forward else regions - 1 - step
        begin, size = t.state_start[b], t.state_start[b + 1] - t.state_start[b]
        first, n = t.link_start[b], t.link_start[b + 1] - t.link_start[b]
        total = s.line[0]
        for x in range(size):
            total[x] = (kept[b] - t.counting[b]) * s.anchor[begin + x]
        for p in range(n):
            _marginal(t, s, first + p, size, p * size)
            at = t.message_start[first + p]
            for x in range(size):
                total[x] += s.work[1, p * size + x] - s.messages[at + x]
        top = -np.inf
        for x in range(size):
            total[x] /= n + kept[b]
            top = max(top, total[x])
        mass = 0.0
        for x in range(size):
            s.line[1, x] = math.exp(total[x] - top)
            mass += s.line[1, x]
        shift = top + math.log(mass)
        # damping must not pass for convergence
        scale = (n + kept[b]) / max(abs(n + t.counting[b]), 1.0)
        for x in range(size):
            value, log_value = s.line[1, x] / mass, total[x] - shift
            if kept[b] != t.counting[b]:
                step_made = abs(value - math.exp(s.anchor[begin + x]))
                moved, drift = max(moved, step_made), max(drift, scale * step_made)
                runaway = max(runaway, abs(log_value - s.anchor[begin + x]))
            s.belief[begin + x], s.log_belief[begin + x] = value, log_value
            if moving:
                s.anchor[begin + x] = log_value
        for p in range(n):
            a, at = t.link_outer[first + p], t.message_start[first + p]
            ratio, unsafe = s.line[2], False
            for x in range(size):
                linear = s.work[0, p * size + x]
                gap = max(gap, abs(linear - s.belief[begin + x]))
                change = s.log_belief[begin + x] - s.work[1, p * size + x]
                runaway = max(runaway, abs(change))
                change *= 1.0 - damping
                s.messages[at + x] = min(max(s.messages[at + x] + change, -LIMIT), LIMIT)
                unsafe = unsafe or linear < TINY
                ratio[x] = math.exp(min(change, 600.0))
            if unsafe:
                _refresh_one(t, s, a)
                continue
            shift_map = t.map_start[first + p] - t.entry_start[a]
            for k in range(t.entry_start[a], t.entry_start[a + 1]):
                s.joint[k] *= ratio[t.maps[shift_map + k]]
    return gap, drift, moved, runaway


@numba.njit(cache=True, nogil=True)
def _marginal(t, s, link, size, at):  # type: ignore[no-untyped-def]
    """Belief of a link's parent about the inner region into work[0], its logarithm into work[1]."""
    linear, logs = s.work[0, at : at + size], s.work[1, at : at + size]
    a = t.link_outer[link]
    begin, end = t.entry_start[a], t.entry_start[a + 1]
    shift = t.map_start[link] - begin
    linear[:] = 0.0
    for k in range(begin, end):
        linear[t.maps[shift + k]] += s.joint[k]
    mass, lowest = 0.0, np.inf
    for x in range(size):
        mass += linear[x]
        lowest = min(lowest, linear[x])
    if lowest >= TINY and mass < 1e100:
        for x in range(size):
            linear[x] /= mass
            logs[x] = math.log(linear[x])
        return
    _log_table(t, s, a)
    logs[:] = -np.inf
    for k in range(begin, end):
        x = t.maps[shift + k]
        logs[x] = max(logs[x], s.logs[k - begin])
    linear[:] = 0.0
    for k in range(begin, end):
        x = t.maps[shift + k]
        linear[x] += math.exp(s.logs[k - begin] - logs[x])
    top = -np.inf
    for x in range(size):
        logs[x] += math.log(linear[x])
        top = max(top, logs[x])
    mass = 0.0
    for x in range(size):
        mass += math.exp(logs[x] - top)
    top += math.log(mass)
    for x in range(size):
        logs[x] -= top
        linear[x] = math.exp(logs[x])


@numba.njit(cache=True, nogil=True)
def _log_table(t, s, a):  # type: ignore[no-untyped-def]
    """θ_α + Σ_β λ_αβ into `logs`; the largest entry."""
    begin, end = t.entry_start[a], t.entry_start[a + 1]
    for k in range(begin, end):
        s.logs[k - begin] = t.theta[k]
    for e in range(t.outer_start[a], t.outer_start[a + 1]):
        link = t.outer_link[e]
        at, shift = t.message_start[link], t.map_start[link]
        for k in range(end - begin):
            s.logs[k] += s.messages[at + t.maps[shift + k]]
    top = -np.inf
    for k in range(end - begin):
        top = max(top, s.logs[k])
    return top


@numba.njit(cache=True, nogil=True)
def _refresh_one(t, s, a):  # type: ignore[no-untyped-def]
    top = _log_table(t, s, a)
    begin, mass = t.entry_start[a], 0.0
    for k in range(t.entry_start[a + 1] - begin):
        s.joint[begin + k] = math.exp(s.logs[k] - top)
        mass += s.joint[begin + k]
    for k in range(begin, t.entry_start[a + 1]):
        s.joint[k] /= mass


@numba.njit(cache=True, nogil=True)
def _refresh(t, s):  # type: ignore[no-untyped-def]
    """Set b_α ∝ exp(θ_α + Σ_β λ_αβ) for all maximal regions; products alone would drift."""
    for a in range(len(t.entry_start) - 1):
        _refresh_one(t, s, a)


@numba.njit(cache=True, nogil=True)
def finish(t, s):  # type: ignore[no-untyped-def]
    """Beliefs of the maximal regions from the last messages."""
    _refresh(t, s)


@numba.njit(cache=True, nogil=True)
def consistency(t, s):  # type: ignore[no-untyped-def]
    """Largest difference between a region's belief and what a parent says about it."""
    gap = 0.0
    for b in range(len(t.counting)):
        begin, size = t.state_start[b], t.state_start[b + 1] - t.state_start[b]
        for link in range(t.link_start[b], t.link_start[b + 1]):
            _marginal(t, s, link, size, 0)
            for x in range(size):
                gap = max(gap, abs(s.work[0, x] - s.belief[begin + x]))
    return gap


@numba.njit(cache=True, nogil=True)
def kikuchi(t, s):  # type: ignore[no-untyped-def]
    """Energy and entropy of all regions, each as often as it counts."""
    log_z = t.constant
    for k in range(len(t.theta)):
        if s.joint[k] > 0.0:
            log_z += s.joint[k] * (t.theta[k] - math.log(s.joint[k]))
    for b in range(len(t.counting)):
        for x in range(t.state_start[b], t.state_start[b + 1]):
            if s.belief[x] > 0.0:
                log_z -= t.counting[b] * s.belief[x] * s.log_belief[x]
    return log_z


@numba.njit(cache=True, nogil=True)
def _read_marginals(t, s, cards, choice, stride, probs):  # type: ignore[no-untyped-def]
    for i in range(len(cards)):
        b = choice[i]
        if b >= 0:
            for x in range(t.state_start[b], t.state_start[b + 1]):
                probs[i, t.state_code[x] // stride[i] % cards[i]] += s.belief[x]
        else:
            for k in range(t.entry_start[-1 - b], t.entry_start[-b]):
                probs[i, t.code[k] // stride[i] % cards[i]] += s.joint[k]
        probs[i] /= probs[i].sum()
