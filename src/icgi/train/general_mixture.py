"""Random models of q states, higher order and with zeros to train on, with exact marginals.

Graphs are those of the paper's training families: grids, trees, Erdős–Rényi; factor graphs and
constraint problems join variables at random. Only models whose junction tree is small are kept, so
every label is exact.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi.approx.lbp import LoopyBP
from icgi.data.families import FAMILIES
from icgi.data.families.disorder import random_couplings, random_fields, random_tables
from icgi.data.families.lattice import lattice_edges
from icgi.data.families.random_graphs import erdos_renyi_edges
from icgi.exact.junction_tree import solve
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import potts_model
from icgi.model.ordering import find_order
from icgi.neural.general_batch import Edges, Float32Array, PairForm, listed, pair_form

CHUNK = 64  # models that one worker draws from one stream
LARGEST_TABLE = 19.0  # log₂ of the entries of a junction tree's largest table
FIELDS = (0.05, 0.1, 0.3, 0.5)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Models that share a batch: padded to so many variables, auxiliaries included, and states."""

    variables: int
    states: int
    smallest: int  # variables of a model
    largest: int
    fewest: int  # states of its variables, where all have the same
    most: int
    ternary: int  # states of variables in factors of three


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """Models, exact marginals of their possible states, and which kind each is."""

    edges: Edges
    reference: Float32Array  # b n k    zero for auxiliaries
    kind: NDArray[np.int64]  # b    index into KINDS
    lbp: NDArray[np.float64]  # b    MAE of loopy belief propagation, NaN where not asked for


def draw_many(
    seed: int, sizes: Sizes, count: int, pool: Executor | None = None, lbp: bool = False
) -> Set:
    """Many labelled models; the same for any pool of workers, or none."""
    streams = np.random.SeedSequence(seed).spawn(-(-count // CHUNK))
    counts = [min(CHUNK, count - CHUNK * c) for c in range(len(streams))]
    work = partial(_chunk, sizes, lbp)
    return _joined(list((map if pool is None else pool.map)(work, streams, counts)))


def _chunk(sizes: Sizes, lbp: bool, stream: np.random.SeedSequence, count: int) -> Set:
    rng = np.random.default_rng(stream)
    forms: list[PairForm] = []
    kinds: list[int] = []
    errors = np.full(count, np.nan)
    reference = np.zeros((count, sizes.variables, sizes.states), np.float32)
    while len(forms) < count:
        kind = int(rng.choice(len(KINDS), p=SHARES))
        model = KINDS[list(KINDS)[kind]](rng, sizes)
        found = labelled(rng, model, sizes)
        if found is None:
            continue
        form, probs = found
        m = len(forms)
        for i, states in enumerate(form.alive):
            reference[m, i, : states.sum()] = probs[i, states]
        if lbp:
            guess = LoopyBP(restarts=0)(model, Budget(), rng).probs
            errors[m] = np.abs(guess - probs).sum(1).mean()
        forms.append(form)
        kinds.append(kind)
    edges = listed(forms, sizes.variables, sizes.states)
    return Set(edges, reference, np.array(kinds, dtype=np.int64), errors)


def labelled(
    rng: Generator, model: FactorGraph, sizes: Sizes
) -> tuple[PairForm, FloatArray] | None:
    """Pair tables and exact marginals, or None where the model is too large for either."""
    form = pair_form(model)
    if len(form.cards) > sizes.variables or form.cards.max() > sizes.states:
        return None
    order = find_order(model, rng, restarts=0)
    if order.log2_table > LARGEST_TABLE:
        return None
    return form, solve(model, order, Budget()).probs


def _joined(parts: list[Set]) -> Set:
    """One set of many, the models numbered on."""
    starts = np.cumsum([0, *(len(p.kind) for p in parts[:-1])])
    values = {
        f.name: np.concatenate([getattr(p.edges, f.name) for p in parts]) for f in fields(Edges)
    }
    values["model"] = np.concatenate(
        [p.edges.model + start for p, start in zip(parts, starts, strict=True)]
    )
    return Set(
        Edges(**values),
        np.concatenate([p.reference for p in parts]),
        np.concatenate([p.kind for p in parts]),
        np.concatenate([p.lbp for p in parts]),
    )


def _size(rng: Generator, sizes: Sizes, share: float = 1.0) -> int:
    return int(rng.integers(sizes.smallest, max(sizes.smallest, int(share * sizes.largest)) + 1))


def _graph(rng: Generator, sizes: Sizes) -> tuple[int, IntArray]:
    """Grid or Erdős–Rényi graph: number of variables, edges."""
    if rng.random() < 0.4:
        rows = int(rng.integers(3, max(4, int(sizes.largest**0.5) + 1)))
        least = max(3, -(-sizes.smallest // rows))
        columns = int(rng.integers(least, max(least, sizes.largest // rows) + 1))
        return rows * columns, lattice_edges((rows, columns))
    n = _size(rng, sizes)
    return n, erdos_renyi_edges(rng, n, float(rng.choice([0.1, 0.2, 0.4])))


def _scopes(edges: IntArray) -> list[tuple[int, ...]]:
    return [(i, j) for i, j in edges.tolist()]


def _potts(rng: Generator, sizes: Sizes) -> FactorGraph:
    n, edges = _graph(rng, sizes)
    q = int(rng.integers(max(3, sizes.fewest), sizes.most + 1))
    couplings = random_couplings(rng, len(edges), "bimodal" if rng.random() < 0.3 else "gaussian")
    fields_ = random_fields(rng, (n, q), float(rng.choice(FIELDS)))
    return potts_model(edges, couplings, fields_, beta=float(rng.uniform(0.5, 4.0)))


def _tables(rng: Generator, sizes: Sizes) -> FactorGraph:
    n, edges = _graph(rng, sizes)
    cards = rng.integers(2, sizes.most + 1, n)
    beta = float(rng.uniform(0.5, 2.5))
    return random_tables(rng, cards, _scopes(edges), beta, float(rng.choice(FIELDS)))


def _dense(rng: Generator, sizes: Sizes) -> FactorGraph:
    """All pairs joined, tables scaled so that their sum at one variable does not grow with n."""
    q = int(rng.integers(2, sizes.most + 1))
    most = min(sizes.largest, int(LARGEST_TABLE / np.log2(q)))
    n = int(rng.integers(min(5, most), most + 1))
    edges = erdos_renyi_edges(rng, n, 1.0)
    beta = float(rng.uniform(0.5, 3.0)) / (n - 1) ** 0.5
    if q > 2 and rng.random() < 0.5:
        couplings = random_couplings(rng, len(edges), "gaussian") - float(rng.uniform(0.0, 1.0))
        return potts_model(edges, 2.0 * couplings, random_fields(rng, (n, q), 0.5), beta=beta)
    return random_tables(rng, np.full(n, q), _scopes(edges), beta, float(rng.choice(FIELDS)))


def _factor(rng: Generator, sizes: Sizes) -> FactorGraph:
    return FAMILIES["factor"].sample(
        rng,
        n=_size(rng, sizes, 0.75),
        density=float(rng.uniform(0.6, 1.4)),
        arity=3,
        states=sizes.ternary,
        beta=float(rng.uniform(0.5, 2.5)),
        field=float(rng.choice(FIELDS)),
    )


def _tree(rng: Generator, sizes: Sizes) -> FactorGraph:
    beta = float(rng.uniform(0.5, 2.5))
    n, field = _size(rng, sizes, 0.75), float(rng.choice(FIELDS))
    return FAMILIES["tree"].sample(rng, n=n, arity=3, states=sizes.ternary, beta=beta, field=field)


def _csp(rng: Generator, sizes: Sizes) -> FactorGraph:
    """Constraints on three variables."""
    return FAMILIES["csp"].sample(
        rng,
        n=_size(rng, sizes, 0.6),
        density=float(rng.uniform(0.5, 1.2)),
        arity=3,
        states=sizes.ternary,
        tightness=float(rng.uniform(0.12, 0.45)),
        beta=float(rng.choice([0.0, 0.5, 1.0])),
    )


def _pair_csp(rng: Generator, sizes: Sizes) -> FactorGraph:
    """Constraints on two variables."""
    return FAMILIES["csp"].sample(
        rng,
        n=_size(rng, sizes),
        density=float(rng.uniform(1.0, 2.2)),
        arity=2,
        states=int(rng.integers(sizes.fewest, sizes.most + 1)),
        tightness=float(rng.uniform(0.1, 0.45)),
        beta=float(rng.choice([0.0, 0.5, 1.0])),
    )


KINDS: dict[str, Callable[[Generator, Sizes], FactorGraph]] = {
    "Potts": _potts,
    "random tables": _tables,
    "factors of three": _factor,
    "constraints on three": _csp,
    "constraints on two": _pair_csp,
    "factor trees": _tree,
    "dense tables": _dense,
}

SHARES = np.array([4, 4, 5, 4, 4, 1, 4]) / 26  # trees are exact untrained: they teach precision
