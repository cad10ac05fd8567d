"""Where the variables of a model are drawn: its interaction graph, or the part around one."""

import itertools
from collections import deque
from typing import Any

import networkx as nx
import numpy as np

from icgi.model.graph import FactorGraph, variable_name

WHOLE = 300  # variables up to which the whole graph is drawn
AROUND = 40  # variables of a neighbourhood
_MOST_EDGES = 3000
_CAREFUL = 60  # variables up to which distances follow those in the graph, and names are drawn
_ROUNDS = 300


def interactions(model: FactorGraph) -> dict[int, set[int]]:
    """Neighbours of every variable: those it shares a factor with."""
    near: dict[int, set[int]] = {i: set() for i in range(model.n_variables)}
    for scope in model.scopes:
        for i in scope:
            near[i].update(scope)
    for i, others in near.items():
        others.discard(i)
    return near


def graph(model: FactorGraph, around: int | None = None) -> dict[str, Any]:
    """Nodes with places in the unit square, and edges, of the whole graph or around a variable.

    `complete` says whether all neighbours of the drawn variables are drawn, too.
    """
    near = interactions(model)
    if around is None and model.n_variables <= WHOLE:
        chosen = list(near)
    else:
        chosen = _nearest(near, around or 0)
    inside = set(chosen)
    edges = sorted({(min(i, j), max(i, j)) for i in chosen for j in near[i] & inside})
    places = _places(chosen, edges)
    if len(chosen) <= _CAREFUL:
        places = _apart(places, [variable_name(model, i) for i in chosen])
    number = {i: k for k, i in enumerate(chosen)}
    return {
        "around": None if around is None else variable_name(model, around),
        "nodes": [
            {
                "variable": variable_name(model, i),
                "x": round(float(x), 4),
                "y": round(float(y), 4),
                "hidden": len(near[i] - inside),
            }
            for i, (x, y) in zip(chosen, places, strict=True)
        ],
        "edges": [[number[i], number[j]] for i, j in edges[:_MOST_EDGES]],
        "complete": len(chosen) == model.n_variables and len(edges) <= _MOST_EDGES,
    }


def _nearest(near: dict[int, set[int]], start: int) -> list[int]:
    """Breadth first, the first `AROUND` variables."""
    if not near:
        return []
    seen, queue = {start: None}, deque([start])
    while queue and len(seen) < AROUND:
        for j in sorted(near[queue.popleft()]):
            if j not in seen and len(seen) < AROUND:
                seen[j] = None
                queue.append(j)
    return list(seen)


def _places(nodes: list[int], edges: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Places in the unit square; connected parts side by side, the largest with most room."""
    made = nx.Graph()
    made.add_nodes_from(nodes)
    made.add_edges_from(edges)
    parts = sorted(nx.connected_components(made), key=lambda part: (-len(part), min(part)))
    found: dict[int, np.ndarray] = {}
    for box, part in zip(_boxes([len(part) for part in parts]), parts, strict=True):
        inside = _part(made.subgraph(sorted(part)))
        for i, place in inside.items():
            found[i] = box[:2] + box[2:] * (0.04 + 0.92 * place)
    return [(float(found[i][0]), float(found[i][1])) for i in nodes]


def _part(part: Any) -> dict[int, np.ndarray]:
    """Places of a connected part in the unit square."""
    nodes = list(part)
    if len(nodes) == 1:
        return {nodes[0]: np.array([0.5, 0.5])}
    start = nx.circular_layout(part)
    if len(nodes) <= _CAREFUL:
        raw = nx.kamada_kawai_layout(part, pos=start)
    else:
        raw = nx.spring_layout(part, pos=nx.spectral_layout(part), iterations=80, seed=0)
    at = np.array([raw[i] for i in nodes])
    low, span = at.min(0), np.ptp(at, axis=0)
    span[span < 1e-9] = 1.0
    flat = np.ptp(at, axis=0) < 1e-9
    at = np.where(flat, 0.5, (at - low) / span)
    return dict(zip(nodes, at, strict=True))


def _apart(places: list[tuple[float, float]], names: list[str]) -> list[tuple[float, float]]:
    """Places pushed apart until no disc or name covers another, as far as there is room."""
    few = len(names) <= 25  # as in graph.js: sizes of letters and discs, in units of the drawing
    letter, most, radius = (1.8, 14, 3.2) if few else (1.3, 8, 14 / np.sqrt(len(names)))
    half = np.array([max(letter * min(len(name), most), 2 * radius) / 2 + 0.5 for name in names])
    room = np.stack([half[:, None] + half, np.full((len(half),) * 2, 2 * radius + 2 * letter)]) / 88
    at = np.array(places).T  # 2 n
    same = np.eye(len(names), dtype=bool)
    for _ in range(_ROUNDS):
        away = at[:, :, None] - at[:, None, :]
        missing = np.where(same, 0.0, room - np.abs(away)).clip(0)  # 2 n n
        covered = (missing > 0).all(0)
        if not covered.any():
            break
        shorter = np.argmin(missing / room, axis=0) == np.arange(2)[:, None, None]
        aside = np.where(
            away != 0, np.sign(away), np.sign(np.subtract.outer(*[range(len(half))] * 2))
        )
        push = np.where(covered & shorter, 0.25 * missing * aside, 0.0).sum(2)
        at = (at + push).clip(0, 1)
    return [(float(x), float(y)) for x, y in at.T]


def _boxes(sizes: list[int]) -> list[np.ndarray]:
    """Boxes (x, y, width, height) in rows of the unit square, larger ones for larger parts."""
    if not sizes:
        return []
    if len(sizes) == 1:
        return [np.array([0.0, 0.0, 1.0, 1.0])]
    main = 0.55 if sizes[0] > 3 * sizes[1] else 0.5
    boxes = [np.array([0.0, 0.0, main, 1.0])]
    columns = max(1, int(np.ceil(np.sqrt(len(sizes) - 1))))
    rows = -(-(len(sizes) - 1) // columns)
    for k in range(len(sizes) - 1):
        row, column = divmod(k, columns)
        size = np.array([(1 - main) / columns, 1.0 / rows])
        boxes.append(np.array([main + column * size[0], row * size[1], *size]))
    return boxes


def cliques(scopes: tuple[tuple[int, ...], ...]) -> set[tuple[int, int]]:
    """Pairs of variables that share a factor."""
    return {(min(pair), max(pair)) for scope in scopes for pair in itertools.combinations(scope, 2)}
