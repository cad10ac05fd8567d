"""The public API: load or build a model, ask for its marginals."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from icgi import clock
from icgi.answer import Answer, Promise
from icgi.engines import parse_engine
from icgi.errors import ModelFormatError
from icgi.inference import Budget, Engine, Marginals, infer
from icgi.model.condition import Evidence, condition, resolve_evidence
from icgi.model.formats import read
from icgi.model.graph import FactorGraph, check_size, log_of, real_array
from icgi.model.ising import ising_model
from icgi.model.uai import read_evidence, write_model
from icgi.randomness import generator

if TYPE_CHECKING:
    from icgi.elimination.sampling import Samples

GivenEvidence = Mapping[int | str, int | str] | Mapping[int, int] | None


def load(path: str | Path) -> FactorGraph:
    """Model from a `.uai` file or a Bayesian network from a `.bif` file (also gzipped)."""
    return read(path)


def load_evidence(path: str | Path, model: FactorGraph | None = None) -> Evidence:
    """Evidence from a `.evid` file, checked against the model where one is given."""
    return read_evidence(path, model)


def save(model: FactorGraph, path: str | Path) -> None:
    """Write a model as a `.uai` file."""
    write_model(model, path)


def from_factors(
    factors: Iterable[tuple[Sequence[Hashable], ArrayLike]],
    *,
    states: Mapping[Hashable, Sequence[str]] | None = None,
    log: bool = False,
) -> FactorGraph:
    """Model from (scope, table) pairs.

    Parameters
    ----------
    factors
        Scopes name variables by number or by any name; with names, variables are numbered in
        order of first appearance. Tables are non-negative potentials, one axis per variable.
    states
        Names of the states of some or all variables.
    log
        Tables are logarithms already (−inf for zero).
    """
    pairs = [_pair(f, factor) for f, factor in enumerate(factors)]
    mentioned = dict.fromkeys(v for scope, _ in pairs for v in scope)
    numbered = all(isinstance(v, int | np.integer) for v in mentioned)
    if numbered:
        number = {v: int(v) for v in mentioned}  # type: ignore[call-overload]
        n = max(number.values(), default=-1) + 1
        check_size(n, 1)
    else:
        number = {v: i for i, v in enumerate(mentioned)}
        n = len(number)
    cards = np.ones(n, np.int64)
    seen: dict[int, int] = {}
    tables = []
    for f, (scope, table) in enumerate(pairs):
        if table.ndim != len(scope):
            raise ModelFormatError(
                f"factor {f} has {len(scope)} variables but a table of {table.ndim} axes"
            )
        for v, size in zip(scope, table.shape, strict=True):
            if not size:
                raise ModelFormatError(f"factor {f} gives variable {v!r} no states")
            if seen.setdefault(number[v], size) != size:
                raise ModelFormatError(
                    f"factor {f} gives variable {v!r} {size} states, an earlier factor "
                    f"{seen[number[v]]}"
                )
        tables.append(_log_table(table, f"factor {f}", log))
    for i, size in seen.items():
        if i < 0:
            raise ModelFormatError(f"variable numbers count from 0, found {i}")
        cards[i] = size
    return FactorGraph(
        cards,
        tuple(tuple(number[v] for v in scope) for scope, _ in pairs),
        tuple(tables),
        names=None if numbered else tuple(map(str, mentioned)),
        states=_all_states(cards, number, states),
    )


def _pair(f: int, factor: Any) -> tuple[tuple[Hashable, ...], np.ndarray]:
    """Scope and table of one given factor."""
    try:
        scope, table = factor
        scope = tuple(scope)
        hash(scope)
    except (TypeError, ValueError) as error:
        raise ModelFormatError(
            f"factor {f} is no pair of scope and table ({error}); give a list of variables and an "
            "array with one axis for each"
        ) from error
    return scope, real_array(table, f"the table of factor {f}")


def _log_table(table: np.ndarray, what: str, log: bool) -> np.ndarray:
    logs = table.copy() if log else log_of(table, what)
    logs.flags.writeable = False
    return logs


def _all_states(
    cards: np.ndarray,
    number: Mapping[Hashable, int],
    states: Mapping[Hashable, Sequence[str]] | None,
) -> tuple[tuple[str, ...], ...] | None:
    if states is None:
        return None
    full = [tuple(str(x) for x in range(card)) for card in cards.tolist()]
    for v, names in states.items():
        if v not in number:
            raise ModelFormatError(f"states are given for {v!r}, which no factor names")
        if len(names) != cards[number[v]]:
            raise ModelFormatError(
                f"{len(names)} names for the {cards[number[v]]} states of variable {v!r}; give one "
                "per state"
            )
        full[number[v]] = tuple(map(str, names))
    return tuple(full)


def from_ising(couplings: Any, fields: ArrayLike | None = None, beta: float = 1.0) -> FactorGraph:
    """Ising model p(s) ∝ exp β(Σ_{i<j} J_ij s_i s_j + Σ_i h_i s_i).

    State 0 is s = −1, state 1 is s = +1.

    Parameters
    ----------
    couplings
        Symmetric matrix J, dense or scipy sparse.
    """
    return ising_model(couplings, fields, beta)


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


def marginals(
    model: FactorGraph,
    evidence: GivenEvidence = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    heard: Callable[[Answer], None] | None = None,
) -> Answer:
    """Every single-variable marginal of p(x | evidence).

    Parameters
    ----------
    evidence
        {variable: state}, each by number or by name.
    engine
        A name with options, such as ``"lbp:damping=0.5"``, or a settings object.
    heard
        Called with every complete answer of an engine that improves on its own (`auto`).
    """
    chosen = parse_engine(engine) if isinstance(engine, str) else engine
    resolved = resolve_evidence(model, evidence)
    given = budget or Budget()
    began = clock.now()
    known = seed if isinstance(seed, int) else None

    def whole(found: Marginals) -> Answer:
        took = clock.now() - began
        return Answer(model, resolved, found, repr(chosen), took, given, known, promise=promised_of)

    told = None if heard is None else (lambda found: heard(whole(found)))
    return whole(infer(model, resolved, chosen, given, generator(seed), told))


def marginals_batch(
    models: FactorGraph | Sequence[FactorGraph],
    evidences: Sequence[GivenEvidence] | None = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    threads: int | None = None,
) -> list[Answer]:
    """Answers to many questions: one model with many evidences, or many models.

    Each question gets its own random stream, so answers do not depend on `threads`.
    Engines that can share work over a batch (an elimination order for all evidences of one model,
    one compiled run over all models) do so; the seconds of the budget are then those of an answer
    on average.
    """
    from icgi.batch import run_batch

    shared = isinstance(models, FactorGraph)
    given = list(evidences) if evidences is not None else [None] * (1 if shared else len(models))  # type: ignore[arg-type]
    each = [models] * len(given) if isinstance(models, FactorGraph) else list(models)
    if len(each) != len(given):
        raise ModelFormatError(
            f"{len(each)} models but {len(given)} evidences; give one evidence per model"
        )
    chosen = parse_engine(engine) if isinstance(engine, str) else engine
    questions = [(m, resolve_evidence(m, e)) for m, e in zip(each, given, strict=True)]
    found = run_batch(questions, chosen, budget or Budget(), generator(seed), threads, shared)
    return [replace(answer, promise=promised_of) for answer in found]


def promised_of(answer: Answer) -> Promise:
    """What the calibration that comes with icgi promises about an answer."""
    from icgi.calibration.apply import guarantee

    return guarantee(answer)


def calibrated(answer: Answer, path: str | Path) -> Answer:
    """Same answer with the promises of a calibration file of its engine (`icgi calibrate`)."""
    from icgi.calibration.apply import calibrated as with_promises
    from icgi.calibration.file import read as read_calibration

    return with_promises(answer, read_calibration(Path(path)))


def sample(
    model: FactorGraph,
    n: int,
    evidence: GivenEvidence = None,
    seed: int | Generator | None = 0,
    rank: int = 16,
) -> "Samples":
    """Independent configurations from p(x | evidence), nearly, each with its exact probability.

    They are drawn from q, an elimination with tensor trains of the given rank. `weights` turn
    averages over q into averages over p, `log_z` is an unbiased estimate of Z with `log_z_error`,
    and `share` says how close q is to p: one where elimination is exact, near zero where a larger
    rank is needed.
    """
    from icgi.elimination.sampling import sample as draw

    conditioned = condition(model, resolve_evidence(model, evidence))
    drawn = draw(conditioned.model, n, generator(seed), rank)
    kept = np.argsort(~conditioned.alive, axis=1, kind="stable")  # n k  kept states come first
    return replace(drawn, states=kept[np.arange(model.n_variables), drawn.states])
