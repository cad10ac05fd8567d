"""Fifteen features of a model: a pure function of the factor graph.

They decide which calibration models a model is compared with, and whether it is like them at all.
Variables with one state (observed ones, after conditioning) are left out; shift and scale of the
tables do not matter.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.interactions import floored, main_effects
from icgi.model.ordering import greedy_order

NAMES = (
    "variables",  # that are not observed
    "degree",  # mean number of neighbours
    "largest degree",  # over the mean
    "clustering",  # share of paths of two edges that are closed
    "cycles",  # independent cycles of the factor graph, per variable
    "spectrum",  # largest eigenvalue of the adjacency matrix, over the mean degree
    "coupling",  # root mean square of the interaction in a table, mean over factors
    "largest coupling",
    "coupling of a variable",  # sum over its factors, mean over variables
    "field",  # root mean square of the main effects on a variable, mean over variables
    "states",  # mean
    "most states",
    "factor size",  # variables of a factor, mean
    "zeros",  # share of table entries
    "width",  # log2 of the largest table of a greedy elimination
)
_OFFSETS = np.array([1, 0.5, 0.5, 0.05, 0.1, 0.5, 0.05, 0.05, 0.1, 0.1, 1, 1, 1, 0.02, 2])
_POWER_STEPS = 60
DENSE = 0.5  # share of all pairs that are neighbours
MANY_STATES = 8
FEW_CYCLES = 0.3  # per variable
SEARCHED = 1000  # variables up to which the width is that of a careful order, which takes long


@dataclass(frozen=True, slots=True, eq=False)
class Portrait:
    """Features of a model, and the kind of structure it belongs to."""

    values: FloatArray  # d       in the order of NAMES
    structure: str
    couplings: FloatArray  # n    of every variable: sum over its factors

    def __getitem__(self, name: str) -> float:
        return float(self.values[NAMES.index(name)])


def scaled(values: FloatArray) -> FloatArray:
    """Features (… d) as logarithms, so that distances mean ratios."""
    return np.asarray(np.log(values + _OFFSETS))


def portrait(model: FactorGraph) -> Portrait:
    """Features of a model with at least one variable that is not observed."""
    free = model.cards > 1
    n = max(int(free.sum()), 1)
    size = model.cards[free] if free.any() else np.ones(1, np.int64)
    tables = _interactions(model)
    graph = _primal(model.n_variables, tables.pairs)
    degree = np.asarray(graph.sum(1)).ravel()[free] if free.any() else np.zeros(1)
    mean = float(degree.mean())
    largest = float(tables.coupling.max(initial=0.0))
    values = np.array([
        n,
        mean,
        float(degree.max()) / mean if mean else 1.0,
        _clustering(graph, degree),
        tables.cycles / n,
        _largest_eigenvalue(graph) / mean if mean else 1.0,
        float(tables.coupling.mean()) if len(tables.coupling) else 0.0,
        largest,
        float(tables.of_variable[free].mean()) if free.any() else 0.0,
        float(tables.field[free].mean()) if free.any() else 0.0,
        float(size.mean()),
        float(size.max()),
        float(tables.arity.mean()) if len(tables.arity) else 1.0,
        tables.zeros,
        greedy_order(model, "min-fill" if n <= SEARCHED else "reverse-cuthill-mckee").log2_table,
    ])  # fmt: skip
    return Portrait(
        values, _structure(values, int(tables.arity.max(initial=1)), degree), tables.of_variable
    )


def _structure(values: FloatArray, arity: int, degree: FloatArray) -> str:
    """Kind of a model, by rules on what it is made of; the first that fits."""
    of = dict(zip(NAMES, values.tolist(), strict=True))
    if of["most states"] > MANY_STATES:
        return "many states"
    if of["zeros"] > 0:
        return "tables with zeros, few cycles" if of["cycles"] < FEW_CYCLES else "tables with zeros"
    if of["cycles"] == 0:
        return "tree"
    if arity > 2:
        return "factors of three or more"
    if of["most states"] > 2:
        return "pairs of several states"
    if of["degree"] > DENSE * (of["variables"] - 1):
        return "spins, dense"
    if of["clustering"] == 0 and degree.max() <= 6:
        return "spins on a lattice"
    return "spins, sparse"


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """What the tables of factors with two or more variables that are not observed look like."""

    coupling: FloatArray  # f
    arity: IntArray  # f
    of_variable: FloatArray  # n     sum of the couplings of its factors
    field: FloatArray  # n
    pairs: IntArray  # p 2   variables that share a factor
    cycles: float
    zeros: float


def _interactions(model: FactorGraph) -> _Tables:
    n, k = model.n_variables, max(model.max_states, 1)
    of_variable, effects = np.zeros(n), np.zeros((n, k))
    couplings, arities, pairs = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
    links = [np.zeros((0, 2), np.int64)]
    zeros = entries = factors = 0
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for f, table in enumerate(model.log_tables):
        if table.size > 1:
            alike[table.shape].append(f)
    for shape, members in alike.items():
        wide = [a for a, size in enumerate(shape) if size > 1]
        scopes = np.array([model.scopes[f] for f in members])[:, wide]  # f a
        tables = np.stack([model.log_tables[f] for f in members])
        tables = tables.reshape(len(members), *(shape[a] for a in wide))
        zeros += int(np.isneginf(tables).sum())
        entries += tables.size
        rest = floored(tables)
        for axis, main in enumerate(main_effects(rest)):
            np.add.at(effects, (scopes[:, axis, None], np.arange(main.shape[1])), main)
            spread = [1] * len(wide)
            spread[axis] = main.shape[1]
            rest = rest - main.reshape(len(members), *spread)
        if len(wide) < 2:
            continue
        size = np.sqrt((rest.reshape(len(members), -1) ** 2).mean(1))
        couplings.append(size)
        arities.append(np.full(len(members), len(wide)))
        numbers = factors + np.arange(len(members))
        factors += len(members)
        for a in range(len(wide)):
            np.add.at(of_variable, scopes[:, a], size)
            links.append(np.stack([scopes[:, a], numbers], 1))
            pairs += [scopes[:, [a, b]] for b in range(a + 1, len(wide))]
    return _Tables(
        np.concatenate(couplings),
        np.concatenate(arities),
        of_variable,
        _spread(effects, model.cards),
        np.concatenate(pairs),
        _cycles(n, factors, np.concatenate(links)),
        zeros / entries if entries else 0.0,
    )


def _spread(effects: FloatArray, cards: IntArray) -> FloatArray:
    """Root mean square over each variable's states (n)."""
    return np.asarray(np.sqrt((effects**2).sum(1) / cards))


def _primal(n: int, pairs: IntArray) -> "sparse.csr_array":
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    graph = sparse.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    graph.data[:] = 1.0
    return graph


def _clustering(graph: "sparse.csr_array", degree: FloatArray) -> float:
    paths = float((degree * (degree - 1)).sum())
    return float((graph @ graph).multiply(graph).sum()) / paths if paths else 0.0


def _cycles(n: int, factors: int, links: IntArray) -> float:
    """Independent cycles of the graph of variables and factors."""
    if not len(links):
        return 0.0
    ends = (links[:, 0], n + links[:, 1])
    graph = sparse.coo_array((np.ones(len(links)), ends), shape=(n + factors, n + factors))
    parts = connected_components(graph, directed=False)[0]
    return float(len(links) - (n + factors) + parts)


def _largest_eigenvalue(graph: "sparse.csr_array") -> float:
    """Largest eigenvalue of a symmetric non-negative matrix, by powers of A + 1."""
    vector = np.ones(graph.shape[0])
    for _ in range(_POWER_STEPS):
        vector = graph @ vector + vector
        vector /= np.linalg.norm(vector)
    return float(vector @ (graph @ vector))
