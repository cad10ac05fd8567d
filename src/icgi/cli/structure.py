"""What can be seen in a model before any inference: sizes, zeros, parts, symmetry, orders."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from icgi.cli.question import Question
from icgi.exact.forecast import Forecast, along
from icgi.inference import Budget
from icgi.model.graph import FactorGraph
from icgi.model.ising import as_ising
from icgi.model.ordering import greedy_order, neighbours
from icgi.model.reduce import has_zeros
from icgi.portfolio.auto import Auto
from icgi.randomness import generator

GREEDY = ("min-fill", "weighted-min-fill", "min-degree", "min-weight", "smallest-front")
_NO_FIELD = 1e-12  # relative to the largest coupling: files have fifteen digits


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of a model and of what evidence and zeros leave of it."""

    variables: int
    factors: int
    observed: int
    states: dict[int, int]  # states -> variables
    arity: dict[int, int]  # variables in scope -> factors
    table_entries: int
    largest_table: int
    zero_entries: int
    one_state_variables: int
    states_removed_by_zeros: int
    free_variables: int  # more than one state left after evidence and zeros
    components: int  # of the free variables
    largest_component: int


def sizes(question: Question) -> Sizes:
    """Count everything that `icgi info` prints."""
    model, left = question.model, question.conditioned
    cards = model.cards.tolist()
    tables = [table.size for table in model.log_tables]
    parts = _component_sizes(left.model)
    observed = list(question.evidence)
    kept = int(left.alive.sum())
    possible = sum(cards) - sum(cards[i] - 1 for i in observed)
    return Sizes(
        variables=model.n_variables,
        factors=model.n_factors,
        observed=len(observed),
        states=dict(sorted(Counter(cards).items())),
        arity=dict(sorted(Counter(map(len, model.scopes)).items())),
        table_entries=sum(tables),
        largest_table=max(tables, default=0),
        zero_entries=sum(int(np.isneginf(table).sum()) for table in model.log_tables),
        one_state_variables=cards.count(1),
        states_removed_by_zeros=possible - kept,
        free_variables=int((left.model.cards > 1).sum()),
        components=len(parts),
        largest_component=max(parts, default=0),
    )


def best(question: Question, budget: Budget, seed: int) -> Forecast:
    """Cost of exact inference as `auto` forecasts it, structure of the factors included."""
    left = budget.until(question.deadline)
    return Auto().forecast(question.conditioned.model, left, generator(seed))


def greedy(question: Question, chosen: Forecast, budget: Budget) -> list[Forecast]:
    """Cost of exact inference along several greedy orders, besides the one that was chosen."""
    # where every elimination was forced (a forest, a ring) the rules have nothing to choose
    rules = () if (chosen.plain or chosen).order.heuristic == "forced" else GREEDY
    model, share = question.conditioned.model, budget.until(question.deadline).seconds
    share /= len(rules) + 1
    return [along(model, greedy_order(model, rule, seconds=share)) for rule in rules]


def spin_flip(model: FactorGraph) -> bool:
    """Whether all spins may be flipped at once: binary pairwise without field, every marginal ½."""
    spins = as_ising(model)
    if spins is None or not len(spins.couplings):
        return False
    largest = float(np.abs(spins.couplings).max())
    return bool((np.abs(spins.fields) <= _NO_FIELD * max(largest, 1.0)).all())


def planar(model: FactorGraph) -> bool:
    """Whether the model can be drawn in the plane without crossing edges."""
    start, neighbour = neighbours(model)
    edges = len(neighbour) // 2
    if edges > max(3 * model.n_variables - 6, 1):  # Euler: too many edges to be planar
        return False
    import networkx as nx

    graph: Any = nx.Graph()
    source = np.repeat(np.arange(model.n_variables), np.diff(start))
    graph.add_edges_from(zip(source.tolist(), neighbour.tolist(), strict=True))
    return bool(nx.check_planarity(graph)[0])


def kind(model: FactorGraph) -> str:
    """What sort of model it is, and the symmetry that follows."""
    if as_ising(model) is None:
        zeros = has_zeros(model)
        return (
            f"up to {model.max_states} states, factors of up to "
            f"{max(map(len, model.scopes), default=0)} variables, {'with' if zeros else 'no'} zeros"
            "; not an Ising model"
        )
    if not spin_flip(model):
        return "Ising model (binary, pairwise, no zeros) with fields"
    flat = planar(model)
    pairs = "; engine pfaffian gives log Z and pairs" if flat else ""
    return (
        f"{'planar ' if flat else ''}Ising model without field: flipping all spins changes "
        f"nothing, so every marginal is exactly ½ by symmetry{pairs}"
    )


def _component_sizes(model: FactorGraph) -> list[int]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    start, neighbour = neighbours(model)
    n = model.n_variables
    graph = csr_array((np.ones(len(neighbour), np.int8), neighbour, start), shape=(n, n))
    label = connected_components(graph, directed=False)[1][model.cards > 1] if n else []
    return list(Counter(np.asarray(label).tolist()).values())
