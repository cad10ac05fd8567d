"""Planar Ising models without fields: log Z and edge marginals as a Pfaffian (Kasteleyn).

Fix a reference configuration. Every other one differs from it by a cut, cuts of a planar graph are
the even subgraphs of its dual, and with x_e = exp(−2 J_e) (J in the gauge of the reference)

    Z = 2 exp(Σ_e J_e) P,    P = Σ_{even subgraphs} Π_e x_e = |Pf A| Π_e x_e,

where A has one row per side of an edge: ±1/x_e between the two sides of an edge, ±1 between sides
that look at the same face, the signs making every even subgraph count +1. Leaving edges out of A
leaves the Pfaffian of the smaller dual graph, so eliminating edges in *any* order meets pivots
x_e p_e = P_k / P_{k−1} ≥ 1: no pivoting is needed, and the order is free to be a sparse one.
A = Lᵀ D L is then a sparse (multifrontal) elimination, and P(s_i = s_j) is an entry of A⁻¹.

Cold frustrated models cancel more digits than a double has. The elimination is therefore done in
two orders, whose difference is the error; where it is too large, decimals of as many digits as
are needed take the place of doubles, in the same code.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    localcontext,
)
from typing import Any

import networkx as nx
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.sparse.linalg import splu
from scipy.special import expit

from icgi.clock import Deadline
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import BoolArray, FactorGraph, FloatArray, IntArray, variable_name
from icgi.model.ising import IsingArrays, as_ising
from icgi.units import readable_bytes

NO_FIELD = 1e-13  # fields this small against the couplings are rounding of tables that cancel
FACE = 4  # larger faces are split by edges of zero coupling: k edges make a k × k block
SAFE_GROWTH = 650.0  # e^650 times the smallest double is still far below rounding
EMBEDDING_SECONDS = 2e-4  # of an edge: planarity, faces, signs; a cautious guess, not measured
DECIMAL_SECONDS = 1e-6  # for a product and a sum of 100 digits, measured high

Numbers = NDArray[Any]
"""Floats, or objects: decimals and the integer 0."""


@dataclass(frozen=True, slots=True)
class Pfaffian:
    """Exact log Z and edge marginals (`pairs`) of a planar Ising model without fields.

    Every single-variable marginal is ½ by symmetry. `tolerance` is the difference between two
    elimination orders, in log Z and in edge marginals, above which digits are added.
    """

    tolerance: float = 1e-10

    def __call__(self, model: FactorGraph, budget: Budget, rng: Generator) -> Marginals:
        """Eliminate the edges of each two-connected part of the graph."""
        deadline = budget.deadline()
        spins = _without_fields(model)
        # the embedding cannot be interrupted; without the time for it, symmetry is all there is
        started = len(spins.edges) * EMBEDDING_SECONDS <= deadline.left
        parts = _parts(spins) if started else []
        answers = [_solve(part, self.tolerance, budget, deadline) for part in parts]
        done = started and all(answer.difference <= self.tolerance for answer in answers)
        return Marginals(
            _halves(model),
            Status.EXACT if done else Status.BUDGET_SPENT,
            _log_z(spins, answers) if done else None,
            pairs=_pairs(spins, answers) if done else None,
            stats={
                "parts": len(answers),
                "digits": max((answer.digits for answer in answers), default=16),
                "width": max((answer.width for answer in answers), default=0),
                "difference": max((answer.difference for answer in answers), default=0.0),
            },
        )


def _without_fields(model: FactorGraph) -> IsingArrays:
    spins = as_ising(model)
    if spins is None:
        raise UnsupportedModelError(
            "pfaffian: this is not an Ising model (two states per variable, factors of at most "
            "two variables, no zeros); use jt"
        )
    scale = 1.0 + np.abs(spins.couplings).max(initial=0.0)
    strong = np.flatnonzero(np.abs(spins.fields) > NO_FIELD * scale)
    if len(strong):
        raise UnsupportedModelError(
            f"pfaffian: {len(strong)} variables have a field, the first is variable "
            f"{variable_name(model, int(strong[0]))} with {spins.fields[strong[0]]:.3g}; the "
            "method needs zero fields (evidence on a neighbour is one too); use jt"
        )
    return spins


def _halves(model: FactorGraph) -> FloatArray:
    probs = np.zeros((model.n_variables, model.max_states))
    probs[model.cards == 1, :1] = 1.0
    probs[model.cards == 2] = 0.5
    return probs


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A two-connected part of the graph, in the gauge of its reference configuration."""

    number: IntArray  # e        which edges of the model
    n: int  # spins
    couplings: FloatArray  # e + a    of its edges, then zeros of those added to split faces
    flipped: BoolArray  # e        whether the gauge changed the coupling's sign
    signs: IntArray  # e + a    of the entries ±1/x
    faces: list[list[int]]  # around each face its sides; 2e and 2e + 1 are the sides of edge e


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """What is known of a part, and how far two ways to compute it differ."""

    number: IntArray  # e        which edges of the model
    log_mean: float  # log(Z / 2ⁿ)
    alike: FloatArray  # e        P(s_i = s_j)
    difference: float = math.inf
    digits: int = 16
    width: int = 0


def _log_z(spins: IsingArrays, answers: list[_Answer]) -> float:
    """Z / 2ⁿ is the product over parts: a spin that two of them share is uniform in both."""
    free = len(spins.fields) * math.log(2.0)
    return math.fsum([spins.constant, free, *(answer.log_mean for answer in answers)])


def _pairs(spins: IsingArrays, answers: list[_Answer]) -> dict[tuple[int, int], FloatArray]:
    pairs = {}
    for answer in answers:
        same = np.clip(answer.alike, 0.0, 1.0) / 2
        tables = np.stack([same, 0.5 - same, 0.5 - same, same], 1).reshape(-1, 2, 2)  # e k k
        edges = spins.edges[answer.number].tolist()
        pairs.update({(i, j): table for (i, j), table in zip(edges, tables, strict=True)})
    return pairs


class _Late(Exception):
    """The deadline has passed within an elimination."""


def _solve(part: _Part, tolerance: float, budget: Budget, deadline: Deadline) -> _Answer:
    """Two orders in doubles; if they differ, decimals of more and more digits."""
    try:
        return _solved(part, tolerance, budget, deadline)
    except _Late:
        return _unknown(part)


def _solved(part: _Part, tolerance: float, budget: Budget, deadline: Deadline) -> _Answer:
    if len(part.number) == 1:
        k = np.where(part.flipped, -part.couplings, part.couplings)
        log_cosh = float(np.logaddexp(k, -k)[0]) - math.log(2.0)
        return _Answer(part.number, log_cosh, np.asarray(expit(2 * k)), 0.0)
    plan = _plan(part, deadline, reverse=False)
    _check_memory(plan, 8.0, budget)
    answer = _compared(
        _doubles(part, plan, deadline),
        _doubles(part, _plan(part, deadline, reverse=True), deadline),
    )
    # a small difference counts the digits lost, and 24 more are enough; otherwise a guess is
    # made from the strongest unsatisfied edge, and raised until two answers agree
    known = answer.difference < 1e-3
    digits = 40 if known else 40 - int(part.couplings.min())
    while answer.difference > tolerance:
        _check_memory(plan, 120.0 + digits / 2, budget)
        seconds = plan.products * DECIMAL_SECONDS * (1.0 + (digits / 100) ** 1.5)
        if seconds > deadline.left:
            break
        finer = _decimals(part, plan, digits, deadline)
        lost = answer.difference * 1e-24 if known else _difference(finer, answer)
        answer = replace(finer, difference=lost, digits=digits)
        digits += digits // 2
    return replace(answer, width=plan.width)


def _compared(answer: _Answer, other: _Answer) -> _Answer:
    return replace(answer, difference=_difference(answer, other))


def _difference(answer: _Answer, other: _Answer) -> float:
    with np.errstate(invalid="ignore"):
        gap = float(np.abs(answer.alike - other.alike).max())
    shift = abs(answer.log_mean - other.log_mean) - 1e-15 * abs(answer.log_mean)
    return max(gap, shift) if math.isfinite(gap + shift) else math.inf


def _doubles(part: _Part, plan: "_Plan", deadline: Deadline) -> _Answer:
    """Run in doubles; NaN where they are out of range.

    Overflow ends as NaN by itself. What underflows is lost for good only if unsatisfied edges,
    whose pivots are small, can make it large again.
    """
    growth = -2.0 * np.minimum(part.couplings, 0.0).sum()
    try:
        with np.errstate(all="ignore", under="raise" if growth > SAFE_GROWTH else "ignore"):
            return _eliminated(part, plan, part.couplings, np.exp, deadline)
    except FloatingPointError:
        return _unknown(part)


def _decimals(part: _Part, plan: "_Plan", digits: int, deadline: Deadline) -> _Answer:
    """Run in decimals; NaN where so many digits cancelled that a pivot is zero."""
    couplings = np.array([Decimal(float(k)) for k in part.couplings], dtype=object)
    try:
        with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            exp = np.frompyfunc(Decimal.exp, 1, 1)
            return _eliminated(part, plan, couplings, exp, deadline)
    except (DivisionByZero, InvalidOperation):
        return _unknown(part)


def _unknown(part: _Part) -> _Answer:
    return _Answer(part.number, math.nan, np.full(len(part.number), math.nan))


def _eliminated(
    part: _Part,
    plan: "_Plan",
    k: Numbers,
    exp: Callable[[Numbers], Numbers],
    deadline: Deadline,
) -> _Answer:
    """Weights, elimination, and back from the gauge.

    Rows of satisfied edges (J > 0) are scaled by √x, so that neither entry nor scale exceeds 1.
    """
    down, up = np.minimum(k, 0 * k), np.maximum(k, 0 * k)
    pivots, alike = _eliminate(plan, exp(2 * down) * part.signs, exp(-up), deadline)
    log_p = [_log(pivot) for pivot in pivots]  # of x p for J > 0, of p otherwise
    unscaled = -2.0 * np.minimum(part.couplings, 0.0)
    log_mean = math.fsum([(1 - part.n) * math.log(2.0), *part.couplings, *log_p, *unscaled])
    found = alike[: len(part.number)].astype(np.float64)
    return _Answer(part.number, log_mean, np.where(part.flipped, 1.0 - found, found))


def _log(pivot: Any) -> float:
    if not isinstance(pivot, Decimal):
        return float(np.log(np.abs(pivot)))
    exponent = pivot.adjusted()  # beyond the range of floats in cold models
    return math.log(abs(float(pivot.scaleb(-exponent)))) + exponent * math.log(10.0)


def _eliminate(
    plan: "_Plan", entries: Numbers, scales: Numbers, deadline: Deadline
) -> tuple[Numbers, Numbers]:
    """Pivots, in order of elimination, and entries · (A⁻¹)₁₀ = P(not in the cut), by edge.

    A front holds two rows for the eliminated edge, then two for each edge that it still meets.
    Up: Schur complement A + (v uᵀ − u vᵀ)/p. Down: A⁻¹ on the same rows (Takahashi).
    """
    count = len(plan.order)
    updates: dict[int, Numbers] = {}
    columns: list[tuple[Numbers, Numbers]] = []
    pivots = np.empty(count, dtype=entries.dtype)
    for t, edge in enumerate(plan.order):
        _check(deadline, t)
        width = 2 + 2 * len(plan.later[t])
        front = np.zeros((width, width), dtype=entries.dtype)
        for c in plan.children[t]:
            front[np.ix_(plan.place[c], plan.place[c])] += updates.pop(c)
        own, column, sign, other = plan.sides[t]
        front[column, own] -= sign * scales[edge] * scales[other]
        pivots[t] = p = front[0, 1] + entries[edge]
        u, v = front[2:, 0], front[2:, 1]
        columns.append((u.copy(), v.copy()))
        if width > 2:
            product = np.multiply.outer(v / p, u)
            updates[t] = front[2:, 2:] + (product - product.T)
    alike = np.empty(count, dtype=entries.dtype)
    inverses: dict[int, Numbers] = {}
    for t in range(count - 1, -1, -1):
        _check(deadline, t)
        (u, v), p, edge = columns[t], pivots[t], plan.order[t]
        inverse = np.zeros((2 + len(u), 2 + len(u)), dtype=entries.dtype)
        rest = 0
        if len(u):
            parent = plan.parent[t]
            known = inverses[parent][np.ix_(plan.place[t], plan.place[t])]
            if t == plan.children[parent][0]:  # children come last to first
                del inverses[parent]
            right, left = known.dot(u) / p, known.dot(v) / p
            inverse[2:, 2:] = known
            inverse[2:, 0], inverse[2:, 1] = -left, right
            inverse[0, 2:], inverse[1, 2:] = left, -right
            rest = v.dot(right)
        corner = (1 + rest) / p
        inverse[0, 1], inverse[1, 0] = -corner, corner
        alike[edge] = entries[edge] * corner
        if plan.children[t]:
            inverses[t] = inverse
    return pivots, alike


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A sparse elimination order and where every number goes; t counts eliminations."""

    order: list[int]  # t        edge
    later: list[list[int]]  # t        eliminations that its front still holds, increasing
    parent: list[int]  # t        the first of them, −1 for none
    children: list[list[int]]  # t        increasing
    place: list[IntArray]  # t        rows of the parent's front that its update goes to
    sides: list[IntArray]  # t        row, column, sign and other edge of its entries ±1
    numbers: int  # most numbers held at once
    products: float  # multiplications of one elimination
    width: int  # rows of the largest front


def _plan(part: _Part, deadline: Deadline, reverse: bool) -> _Plan:
    """Minimum degree order of the edges (from labels reversed, for another one), and its fronts."""
    count = len(part.signs)
    when = _minimum_degree(count, part.faces, reverse)
    later: list[set[int]] = [set() for _ in range(count)]
    meets: list[list[tuple[int, int, int, int]]] = [[] for _ in range(count)]
    for face in part.faces:
        for a, first in enumerate(face):
            for second in face[a + 1 :]:
                one, two, sign = first, second, 1
                if when[one >> 1] > when[two >> 1]:
                    one, two, sign = second, first, -1
                later[when[one >> 1]].add(when[two >> 1])
                meets[when[one >> 1]].append((one & 1, when[two >> 1], two, sign))
    fronts: list[list[int]] = []
    children: list[list[int]] = []
    place: list[IntArray] = []
    sides: list[IntArray] = []
    parent = [-1] * count
    waiting: list[list[int]] = [[] for _ in range(count)]
    for t in range(count):
        _check(deadline, t)
        held = later[t].union(*(later[c] for c in waiting[t]))
        held.discard(t)
        later[t] = held
        row = sorted(held)
        at = {s: 2 + 2 * k for k, s in enumerate(row)} | {t: 0}
        for c in waiting[t]:
            place[c] = np.array([at[s] + side for s in fronts[c] for side in (0, 1)])
        if row:
            parent[t] = row[0]
            waiting[row[0]].append(t)
        fronts.append(row)
        children.append(waiting[t])
        place.append(np.empty(0, np.int64))
        found = [(own, at[s] + (two & 1), sign, two >> 1) for own, s, two, sign in meets[t]]
        sides.append(np.array(found, dtype=np.int64).reshape(-1, 4).T)
    order = np.argsort(when).tolist()
    widths = np.array([2 * len(row) for row in fronts], dtype=np.float64)
    return _Plan(
        order, fronts, parent, children, place, sides,
        _most_numbers(fronts, parent, children),
        float(4 * (widths**2).sum()),
        int(widths.max()) + 2,
    )  # fmt: skip


def _minimum_degree(count: int, faces: list[list[int]], reverse: bool) -> list[int]:
    """When each edge is eliminated; edges meet where they share a face."""
    pairs = np.array([(a >> 1, b >> 1) for face in faces for a in face for b in face])
    if reverse:
        pairs = count - 1 - pairs
    ones = coo_array((np.ones(len(pairs)), pairs.T), shape=(count, count))
    dominant = coo_array((np.full(count, 1e3), (np.arange(count),) * 2), shape=(count, count))
    # the factors are thrown away: SuperLU is here for its ordering
    factors = splu(
        csc_array(ones + dominant),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    when = factors.perm_c[::-1] if reverse else factors.perm_c
    return [int(t) for t in when]


def _check(deadline: Deadline, step: int) -> None:
    if step % 64 == 0 and deadline.passed:
        raise _Late


def _most_numbers(later: list[list[int]], parent: list[int], children: list[list[int]]) -> int:
    """Largest count of numbers that `_eliminate` holds at once."""
    width = [2 * len(row) for row in later]
    stored = held = most = 0
    for t, w in enumerate(width):
        most = max(most, stored + held + 4 * (w + 2) ** 2)
        held += w**2 - sum(width[c] ** 2 for c in children[t])
        stored += 2 * w
    held = 0
    for t in range(len(width) - 1, -1, -1):
        most = max(most, stored + held + 2 * (width[t] + 2) ** 2)
        if parent[t] >= 0 and t == children[parent[t]][0]:
            held -= (width[parent[t]] + 2) ** 2
        if children[t]:
            held += (width[t] + 2) ** 2
    return most


def _check_memory(plan: _Plan, each: float, budget: Budget) -> None:
    needed = plan.numbers * each
    if needed > budget.table_bytes:
        raise BudgetError(
            f"pfaffian: the elimination would hold {readable_bytes(needed)} at once (largest front "
            f"{plan.width} rows), the budget is {readable_bytes(budget.table_bytes)}; give a "
            "larger memory budget"
        )


def _parts(spins: IsingArrays) -> list[_Part]:
    """Two-connected parts of the graph, embedded in the plane."""
    coupled = np.flatnonzero(spins.couplings)
    try:
        return _embedded(spins, np.arange(len(spins.edges)))
    except UnsupportedModelError:
        if len(coupled) == len(spins.edges):
            raise
    return _embedded(spins, coupled)  # zero couplings may cross: their pairs are not computed


def _embedded(spins: IsingArrays, kept: IntArray) -> list[_Part]:
    graph = nx.Graph()
    graph.add_edges_from(
        (i, j, {"number": e})
        for (i, j), e in zip(spins.edges[kept].tolist(), kept.tolist(), strict=True)
    )
    blocks = nx.biconnected_component_edges(graph)
    return [
        _part(spins, np.sort([graph.edges[edge]["number"] for edge in block])) for block in blocks
    ]


def _part(spins: IsingArrays, number: IntArray) -> _Part:
    sites, flat = np.unique(spins.edges[number], return_inverse=True)
    n, edges, couplings = len(sites), flat.reshape(-1, 2), spins.couplings[number]
    reference = _reference(n, edges, couplings)
    gauge = reference[edges].prod(1)
    faces = _faces(n, edges) if len(edges) > 1 else []
    tails = edges.ravel().tolist()  # vertex at which each side begins, going around its face
    faces = _split(faces, tails)
    added = len(tails) // 2 - len(edges)
    return _Part(
        number,
        n,
        np.concatenate([couplings * gauge, np.zeros(added)]),
        gauge < 0,
        _signs(n, faces, tails),
        faces,
    )


def _faces(n: int, edges: IntArray) -> list[list[int]]:
    """Sides around each face: side 2e goes along edge e, side 2e + 1 comes back."""
    graph = nx.Graph(edges.tolist())
    planar, embedding = nx.check_planarity(graph)
    if not planar:
        raise UnsupportedModelError(
            "pfaffian: the graph of the couplings is not planar; use jt, or sampling "
            "where that is too wide"
        )
    side = {}
    for e, (i, j) in enumerate(edges.tolist()):
        side[i, j], side[j, i] = 2 * e, 2 * e + 1
    after = [0] * len(side)
    for v in range(n):
        around = list(embedding.neighbors_cw_order(v))
        for k, u in enumerate(around):
            after[side[u, v]] = side[v, around[k - 1]]
    faces, seen = [], [False] * len(after)
    for start in range(len(after)):
        face, at = [], start
        while not seen[at]:
            seen[at] = True
            face.append(at)
            at = after[at]
        if face:
            faces.append(face)
    return faces


def _split(faces: list[list[int]], tails: list[int]) -> list[list[int]]:
    """Halve faces of more than `FACE` sides by added edges, whose ends are appended to `tails`."""
    small, waiting = [], list(faces)
    while waiting:
        face = waiting.pop()
        if len(face) <= FACE:
            small.append(face)
            continue
        one, two = face[: len(face) // 2], face[len(face) // 2 :]
        across = len(tails)
        tails += [tails[two[0]], tails[one[0]]]
        waiting += [[*one, across], [*two, across + 1]]
    return small


def _signs(n: int, faces: list[list[int]], tails: list[int]) -> IntArray:
    """Signs for which the cut around every vertex, and so every cut, counts +1.

    The cut around v counts −1 for itself, −1 for each face whose list of sides begins at v, −1
    for each edge whose second side leaves v, times the signs of its edges: n conditions on a
    spanning tree, whose sum is Euler's formula.
    """
    count = len(tails) // 2
    odd = [True] * n
    for start in [face[0] for face in faces] + list(range(1, 2 * count, 2)):
        odd[tails[start]] = not odd[tails[start]]
    incident: list[list[int]] = [[] for _ in range(n)]
    for start, v in enumerate(tails):
        incident[v].append(start)
    reached, order, above = {0}, [0], [-1] * n
    for v in order:
        for start in incident[v]:
            u = tails[start ^ 1]
            if u not in reached:
                reached.add(u)
                order.append(u)
                above[u] = start
    signs = np.ones(count, dtype=np.int64)
    for v in reversed(order[1:]):
        if odd[v]:
            signs[above[v] >> 1] = -1
            odd[tails[above[v]]] = not odd[tails[above[v]]]
    return signs


def _reference(n: int, edges: IntArray, couplings: FloatArray) -> FloatArray:
    """Spins of low energy: the strongest tree satisfied, then single flips while they help.

    The lower its energy, the fewer digits cancel; any reference is correct.
    """
    i, j = edges.T
    strength = 1.0 + np.abs(couplings).max() - np.abs(couplings)  # > 0: zero would be no edge
    tree = minimum_spanning_tree(coo_array((strength, (i, j)), shape=(n, n)).tocsr())
    order, above = breadth_first_order(tree, 0, directed=False)
    near: list[dict[int, float]] = [{} for _ in range(n)]
    for a, b, k in zip(i.tolist(), j.tolist(), couplings.tolist(), strict=True):
        near[a][b] = near[b][a] = k
    spin = [1.0] * n
    for v in order[1:].tolist():
        spin[v] = math.copysign(1.0, near[v][int(above[v])]) * spin[int(above[v])]
    for _ in range(100):
        flips = 0
        for v, around in enumerate(near):
            if spin[v] * sum(k * spin[u] for u, k in around.items()) < 0:
                spin[v], flips = -spin[v], flips + 1
        if not flips:
            break
    return np.array(spin)
