"""Models of other libraries: pgmpy, pyAgrum, dimod, Potts arrays and networkx, and the way back."""

import itertools
from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from icgi.errors import ModelFormatError
from icgi.extras import require_extra
from icgi.model.formats.network import assemble, conditionals
from icgi.model.graph import (
    FactorGraph,
    assembled,
    check_size,
    real_array,
    state_names,
    variable_name,
)
from icgi.model.ising import ising_model, potts_model


def from_pyagrum(network: Any) -> FactorGraph:
    """Model of a pyAgrum `BayesNet` or `MarkovRandomField`: names, labels and double precision."""
    try:
        names = [network.variable(node).name() for node in sorted(network.nodes())]
        states = {name: network.variableFromName(name).labels() for name in names}
        if hasattr(network, "cpt"):
            tensors = [network.cpt(name) for name in names]
        else:
            tensors = [network.factor(scope) for scope in network.factors()]
        factors = [(tensor.names[::-1], tensor.toarray()) for tensor in tensors]
    except AttributeError as error:
        raise ModelFormatError(
            f"{type(network).__name__} is no BayesNet or MarkovRandomField of pyAgrum ({error})"
        ) from error
    return assemble(states, [_child_first(*factor) for factor in factors])


def _child_first(scope: Any, table: Any) -> tuple[list[str], np.ndarray]:
    """Scope and table with the last axis of pyAgrum's array, the variable itself, in front."""
    return [scope[-1], *scope[:-1]], np.moveaxis(np.asarray(table, np.float64), -1, 0)


def to_pyagrum(model: FactorGraph, title: str = "pyAgrum") -> Any:
    """`BayesNet` of pyAgrum, for a model that is a Bayesian network."""
    gum = require_extra("pyagrum", "bn", "a network of pyAgrum")
    network = gum.BayesNet()
    tables = conditionals(model, title)
    names = [variable_name(model, i) for i in range(model.n_variables)]
    for i, name in enumerate(names):
        network.add(gum.LabelizedVariable(name, name, list(state_names(model, i))))
    for each in tables:
        for parent in each.parents:
            network.addArc(names[parent], names[each.child])
    for each in tables:
        cpt = network.cpt(names[each.child])
        scope = [*(names[i] for i in each.parents), names[each.child]]
        axes = [scope.index(name) for name in cpt.names[::-1]]  # of its arrays
        cpt[:] = np.ascontiguousarray(each.table.transpose(axes))
    return network


def from_pgmpy(network: Any) -> FactorGraph:
    """Model of a pgmpy Bayesian or Markov network, with its names of states."""
    try:
        if hasattr(network, "get_cpds"):
            factors = [cpd.to_factor() for cpd in network.get_cpds()]
        else:
            factors = network.get_factors()
        states: dict[str, list[str]] = {}
        named = {node: str(node) for node in network.nodes}
        if hasattr(network, "get_factors") and not hasattr(network, "get_cpds"):
            named = {node: name for node, name in named.items() if not hasattr(node, "scope")}
        for factor in factors:
            for node in factor.variables:
                labels = list(map(str, factor.state_names[node]))
                if states.setdefault(named[node], labels) != labels:
                    raise ModelFormatError(
                        f"two tables give variable {node!r} different states: {labels} and "
                        f"{states[named[node]]}; give them in one order"
                    )
        missing = [node for node in named if named[node] not in states]
    except AttributeError as error:
        raise ModelFormatError(
            f"{type(network).__name__} is no Bayesian or Markov network of pgmpy ({error})"
        ) from error
    if missing:
        raise ModelFormatError(
            f"variable {missing[0]!r} of the network has no table; add its CPD or factor"
        )
    ordered = {name: states[name] for name in named.values()}
    return assemble(
        ordered, [([named[node] for node in f.variables], np.array(f.values)) for f in factors]
    )


def from_dimod(bqm: Any, beta: float = 1.0) -> FactorGraph:
    """p(x) ∝ exp(−β E(x)) of a binary quadratic model of dimod; constants are part of log Z.

    dimod minimises its energy, so low energies are likely. State 0 is dimod's smaller value (−1 of
    a spin, 0 of a binary variable), and the states are called as dimod's values.
    """
    try:
        values = (-1.0, 1.0) if bqm.vartype.name == "SPIN" else (0.0, 1.0)
        labels = list(bqm.variables)
        linear = np.array([bqm.linear[v] for v in labels], np.float64)
        quadratic = [(u, v, float(b)) for (u, v), b in bqm.quadratic.items()]
        offset = float(bqm.offset)
    except AttributeError as error:
        raise ModelFormatError(
            f"{type(bqm).__name__} is no binary quadratic model of dimod ({error})"
        ) from error
    if not np.isfinite(beta):
        raise ModelFormatError(f"beta is {beta}; give a finite number")
    number = {v: i for i, v in enumerate(labels)}
    x = np.array(values)
    pairs = [(u, v, b) for u, v, b in quadratic if b]
    tables = [-beta * linear[i] * x for i in range(len(labels)) if linear[i]]
    tables += [-beta * b * np.outer(x, x) for _, _, b in pairs]
    scopes: list[tuple[int, ...]] = [(i,) for i in range(len(labels)) if linear[i]]
    scopes += [(number[u], number[v]) for u, v, _ in pairs]
    return FactorGraph(
        np.full(len(labels), 2),
        (*scopes, ()),
        (*tables, np.asarray(-beta * offset)),
        names=tuple(map(str, labels)),
        states=tuple([tuple(str(int(v)) for v in values)] * len(labels)),
    )


def from_potts(
    fields: ArrayLike,
    couplings: ArrayLike,
    beta: float = 1.0,
    names: Any = None,
    states: Sequence[str] | None = None,
) -> FactorGraph:
    """p(x) ∝ exp β(Σ_i h[i, x_i] + Σ_{i<j} J[i, j, x_i, x_j]), as direct-coupling analysis has it.

    Parameters
    ----------
    fields
        h, L × q; positive means likely.
    couplings
        J, L × L × q × q: with J[j, i] = J[i, j]ᵀ, each pair counting once, or one triangle of it.
        Pairs whose block is zero get no factor.
    names, states
        Names of the variables, and of the q states of each, such as "ACDEFGHIKLMNPQRSTVWY-".
    """
    h, J = real_array(fields, "the fields"), real_array(couplings, "the couplings")
    if h.ndim != 2 or J.shape != (h.shape[0],) * 2 + (h.shape[1],) * 2:
        raise ModelFormatError(
            f"fields of shape {h.shape} and couplings of shape {J.shape}; give h[L, q] and "
            "J[L, L, q, q]"
        )
    n, q = h.shape
    check_size(n, q)
    if J[np.arange(n), np.arange(n)].any():
        raise ModelFormatError("couplings of a variable with itself; set the blocks J[i, i] to 0")
    mirrored = J.transpose(1, 0, 3, 2)
    lower = J[np.tril_indices(n, -1)].any()
    upper = J[np.triu_indices(n, 1)].any()
    if lower and upper and not np.allclose(J, mirrored, rtol=1e-12, atol=0):
        raise ModelFormatError(
            "J[j, i] is not the transpose of J[i, j]; give a symmetric array, or one triangle with "
            "the other left zero"
        )
    blocks = J if upper else mirrored
    pairs = [(i, j) for i, j in itertools.combinations(range(n), 2) if blocks[i, j].any()]
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    tables = blocks[edges[:, 0], edges[:, 1]]
    made = potts_model(edges, tables, h, beta=beta, names=names)
    if states is None:
        return made
    if len(set(states)) != q or len(states) != q:
        raise ModelFormatError(f"{len(states)} names for {q} states; give {q} different ones")
    every = (tuple(map(str, states)),) * n
    return assembled(made.cards, made.scopes, made.log_tables, made.names, every)


def to_networkx(model: FactorGraph) -> nx.Graph:
    """Bipartite networkx graph: variables by name (or number), factors as `("factor", f)`.

    Nodes have `kind` ("variable" or "factor"); variables `states` and factors `scope` and
    `log_table`. Variables alone, with an edge for each pair in a common factor, are its projection.
    """
    graph = nx.Graph()
    labels: list[Any] = list(model.names) if model.names else list(range(model.n_variables))
    for i, label in enumerate(labels):
        graph.add_node(label, kind="variable", bipartite=0, states=tuple(state_names(model, i)))
    for f, (scope, table) in enumerate(zip(model.scopes, model.log_tables, strict=True)):
        called = tuple(labels[i] for i in scope)
        graph.add_node(("factor", f), kind="factor", bipartite=1, scope=called, log_table=table)
        graph.add_edges_from((("factor", f), label) for label in called)
    return graph


def from_networkx(
    graph: Any, coupling: str = "weight", field: str = "field", beta: float = 1.0
) -> FactorGraph:
    """Ising model on a networkx graph: J from edge attributes (or 1), h from nodes (or 0)."""
    nodes = list(graph.nodes)
    number = {v: i for i, v in enumerate(nodes)}
    try:
        links = [
            (number[u], number[v], float(j)) for u, v, j in graph.edges(data=coupling, default=1)
        ]
        h = np.array([float(x) for _, x in graph.nodes(data=field, default=0)])
    except (TypeError, ValueError) as error:
        raise ModelFormatError(
            f"the graph's {coupling!r} of edges and {field!r} of nodes should be numbers: {error}"
        ) from error
    if any(a == b for a, b, _ in links):
        raise ModelFormatError("the graph has a loop from a node to itself; remove it first")
    edges = np.array([link[:2] for link in links], dtype=np.int64).reshape(-1, 2)
    values = np.array([link[2] for link in links], dtype=np.float64)
    return ising_model((edges, values), h, beta, names=tuple(map(str, nodes)))
