"""The public API: load or build a model, ask for its marginals."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from icgi import clock
from icgi.answer import Answer, Promise
from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.engines import engine_of
from icgi.errors import EvidenceError, ModelFormatError
from icgi.inference import Budget, Engine, Marginals, budget_of, infer
from icgi.model.condition import Evidence, resolve_evidence
from icgi.model.findings import Findings, enter, resolve
from icgi.model.formats import read, write
from icgi.model.formats.evidence import read_findings
from icgi.model.formats.uai import read_evidence
from icgi.model.graph import FactorGraph, check_size, log_of, real_array
from icgi.model.ising import ising_model
from icgi.portfolio.impossible import explained
from icgi.randomness import generator

GivenEvidence = Mapping[int | str, int | str] | Mapping[int, int] | None
GivenLikelihood = Mapping[Any, ArrayLike | Mapping[Any, float]] | None
GivenExclusion = Mapping[Any, Iterable[Any] | int | str] | None


def load(path: str | Path) -> FactorGraph:
    """Model of a file in the format of its ending, packed with gzip or not (docs/formats.md)."""
    return read(path)


def load_evidence(path: str | Path, model: FactorGraph | None = None) -> Evidence:
    """Observations of a `.evid`, `.json` or `.csv` file; names need the model."""
    if model is None:
        return read_evidence(path)
    found = read_findings(path, model)
    if found.likelihood or found.excluded:
        raise EvidenceError(
            f"{path}: holds likelihoods or excluded states; give the file to `icgi marginals -e`, "
            "or its parts to `marginals(likelihood=…, exclude=…)`"
        )
    return found.observed


def save(model: FactorGraph, path: str | Path) -> list[str]:
    """Write a model in the format of the ending; return what that format could not hold."""
    return write(model, path)


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


def marginals(
    model: FactorGraph,
    evidence: GivenEvidence = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    on_answer: Callable[[Answer], None] | None = None,
    *,
    likelihood: GivenLikelihood = None,
    exclude: GivenExclusion = None,
    workers: int | None = None,
    cluster: str | None = None,
    pieces: int | None = None,
) -> Answer:
    """Every single-variable marginal of p(x | evidence).

    Parameters
    ----------
    evidence
        {variable: state}, each by number or by name.
    likelihood
        Soft (virtual) evidence, {variable: weights}: the model is multiplied by a non-negative
        weight for each state, given in order or as {state: weight}.
    exclude
        {variable: state or states} that are impossible.
    engine
        A name with options, such as ``"lbp:damping=0.5"``, or a settings object.
    on_answer
        Called with every complete answer of an engine that improves on its own (`auto`).
    workers, cluster, pieces
        Divide the work among so many processes, or on a cluster (docs/scale.md), into so many
        pieces, which decide the answer; as many as workers where they are not given.
    """
    chosen = engine_of(engine)
    if workers is not None or cluster is not None or pieces is not None:
        from icgi.workers import Shared

        chosen = Shared(chosen, workers, pieces, cluster)
    given = budget_of(budget)
    began, deadline = clock.now(), given.deadline()
    findings = resolve(model, evidence, likelihood, exclude)
    known = seed if isinstance(seed, int) else None

    def whole(found: Marginals) -> Answer:
        seconds = clock.now() - began
        return Answer(
            model,
            findings.observed,
            found,
            repr(chosen),
            seconds,
            given,
            known,
            findings=findings,
            settings=chosen,
            promise=promised_of,
        )

    forward = None if on_answer is None else (lambda found: on_answer(whole(found)))
    entered = enter(model, findings)
    try:
        left = given.until(deadline)
        return whole(infer(entered, findings.observed, chosen, left, generator(seed), forward))
    except EvidenceError as error:
        raise explained(model, findings, error, given) from error


@overload
def marginals_batch(
    models: PairwiseBatch,
    evidences: None = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    threads: int | None = None,
) -> ManyMarginals: ...


@overload
def marginals_batch(
    models: FactorGraph | Sequence[FactorGraph],
    evidences: Sequence[GivenEvidence] | None = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    threads: int | None = None,
) -> list[Answer]: ...


def marginals_batch(
    models: FactorGraph | Sequence[FactorGraph] | PairwiseBatch,
    evidences: Sequence[GivenEvidence] | None = None,
    engine: str | Engine = "auto",
    budget: Budget | None = None,
    seed: int | Generator | None = 0,
    threads: int | None = None,
) -> list[Answer] | ManyMarginals:
    """Answers to many questions: one model with many evidences, many models, or arrays of models.

    Each question gets its own random stream, so answers do not depend on `threads`.
    Engines that can share work over a batch (an elimination order for all evidences of one model,
    one compiled run over all models) do so; the seconds of the budget are then those of an answer
    on average. Arrays (`ising_batch`, `potts_batch`) are answered by arrays; there the seconds are
    those of all models together for `jt`, of a model on average for `lbp`.
    """
    from icgi.batch import run_arrays, run_batch

    if isinstance(models, PairwiseBatch):
        if evidences is not None:
            raise EvidenceError("a batch of arrays takes no evidence; give models one by one")
        settings = engine_of(engine)
        return run_arrays(models, settings, budget_of(budget), generator(seed), threads)
    shared = isinstance(models, FactorGraph)
    given = list(evidences) if evidences is not None else [None] * (1 if shared else len(models))  # type: ignore[arg-type]
    each = [models] * len(given) if isinstance(models, FactorGraph) else list(models)
    if len(each) != len(given):
        raise ModelFormatError(
            f"{len(each)} models but {len(given)} evidences; give one evidence per model"
        )
    chosen = engine_of(engine)
    questions = [(m, resolve_evidence(m, e)) for m, e in zip(each, given, strict=True)]
    try:
        found = run_batch(questions, chosen, budget_of(budget), generator(seed), threads, shared)
    except EvidenceError as error:
        for number, (m, observed) in enumerate(questions):
            named = explained(m, Findings(observed), error, budget)
            if named is not error:
                raise EvidenceError(f"question {number}: {named}") from error
        raise
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
