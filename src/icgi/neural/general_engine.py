"""The network for q states as part of an engine: models in, concentrations of their states out."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.random import Generator

from icgi.clock import Deadline
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural import doubt
from icgi.neural.general import GeneralNetwork
from icgi.neural.general_algebra import ABSENT
from icgi.neural.general_batch import (
    LEAST_VARIABLES,
    MOST_STATES,
    Edges,
    PairForm,
    assemble,
    listed,
    pair_form,
)
from icgi.neural.pace import OutOfTime, unary_beliefs
from icgi.neural.possible import possible_states

CORE_STATES = 4096  # configurations of the core, all of which are summed
MOST_TOKENS = 2048  # variables, auxiliaries included, times states; a minute on one core
QUICK_TOKENS = 1024  # up to which several orders are tried
LARGEST_BATCH = 256
SINGLE = 4  # bytes
MESSAGES = 0.2  # share of the time for belief propagation
SWEEPS = 50
NEVER = Deadline()


def general_marginals(
    network: GeneralNetwork,
    models: Sequence[FactorGraph],
    orders: int = 1,
    rngs: Sequence[Generator] | None = None,
    core_states: int = CORE_STATES,
    table_bytes: int = 2**32,
    device: str = "cpu",
    deadline: Deadline = NEVER,
) -> list[Marginals]:
    """Dirichlet concentrations of each model, averaged over elimination orders.

    Past the deadline: the orders so far, or belief propagation on the pairs, or the fields.

    Large models take the first order only. States found impossible get exactly zero, so a variable
    with one possible state has one positive concentration. Models of similar size share a batch.

    Parameters
    ----------
    rngs
        A stream for each model, to draw further orders from; needed where `orders` is above one.
    core_states
        Bound on the configurations of the variables that are left at the end.
    table_bytes
        Memory that one batch may take; `BudgetError` where a single model needs more.
    """
    for model in models:
        refuse_early(model)
    answers: dict[int, Marginals] = {}
    forms: dict[int, PairForm] = {}
    for m, model in enumerate(models):
        alive = possible_states(model, deadline)
        answers[m] = _prior(unary_beliefs(model, alive))
        try:
            form = pair_form(model, alive=alive, deadline=deadline)
        except OutOfTime:
            continue
        forms[m] = _checked(form, core_states, table_bytes)
    for chosen in _batches(forms, core_states, table_bytes):
        parts = [forms[m] for m in chosen]
        try:
            edges = listed(parts)
            known = pair_beliefs(edges, deadline.share(MESSAGES))
            for m, p in zip(chosen, known, strict=True):
                answers[m] = _prior(_spread_out(models[m], forms[m], p))
            batch = assemble(edges, device, deadline=deadline)
        except OutOfTime:
            continue
        core = core_size(batch.unary.shape[2], batch.unary.shape[1], core_states)
        more = orders - 1 if batch.unary[0].numel() <= QUICK_TOKENS else 0
        jitters = [None, *torch.exp(0.5 * _noise(forms, chosen, rngs, more).to(batch.real))]
        alphas: list[FloatArray] = []
        with torch.no_grad():
            for jitter in jitters:
                try:
                    alphas.append(network.run(batch, core, jitter, deadline).double().cpu().numpy())
                except OutOfTime:
                    break
        for b, m in enumerate(chosen):
            if alphas:
                each = [_spread_out(models[m], forms[m], alpha[b]) for alpha in alphas]
                answers[m] = _answer(models[m], each, answers[m].probs, len(alphas) == len(jitters))
    return [answers[m] for m in range(len(models))]


def refuse_early(model: FactorGraph) -> None:
    """Refuse what is surely too large, before anything is computed."""
    if model.n_variables > MOST_TOKENS:
        raise UnsupportedModelError(
            f"icgi:fast takes models that are not binary and pairwise up to {MOST_TOKENS} states "
            f"in all, this one has {model.n_variables} variables; use the engine lbp or pt"
        )
    wide = [
        (scope, table)
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
        if len(scope) > 2 and table.size > MOST_STATES * max(table.shape)
    ]
    # zeros may make it smaller: then it is read first
    if wide and not any(np.isneginf(table).any() for table in model.log_tables):
        scope, table = wide[0]
        raise UnsupportedModelError(
            f"icgi:fast takes factors that leave up to {MOST_STATES} configurations of all "
            f"but one of their variables, the factor on {len(scope)} variables has "
            f"{table.size} entries; use the engine lbp or pt"
        )


def _answer(
    model: FactorGraph, alphas: list[FloatArray], before: FloatArray, done: bool
) -> Marginals:
    """What the orders say together; `before` (n k) is what was known without the network."""
    alpha = np.mean(alphas, 0)
    each = np.stack([a / a.sum(1, keepdims=True) for a in alphas])
    spread = each.std(0, ddof=1) if len(alphas) > 1 else np.zeros_like(alpha)
    change = np.abs(alpha / alpha.sum(1, keepdims=True) - before)
    signs = doubt.Signs(alpha, spread, change, *doubt.strengths_of(model))
    alpha, error = doubt.stated("general" if len(alphas) > 1 else "general, one order", signs)
    return Marginals(
        alpha / alpha.sum(1, keepdims=True),
        Status.ESTIMATED if done else Status.BUDGET_SPENT,
        concentration=alpha,
        std_error=error,
        stats={"orders": float(len(alphas))},
    )


def _prior(p: FloatArray) -> Marginals:
    p = p / p.sum(1, keepdims=True)
    alpha, error = doubt.unknown(p)
    return Marginals(
        p, Status.BUDGET_SPENT, concentration=alpha, std_error=error, stats={"orders": 0.0}
    )


def pair_beliefs(edges: Edges, deadline: Deadline) -> FloatArray:
    """Beliefs (b n k) of damped belief propagation on pair tables, as far as time goes."""
    exists = edges.unary > 0.5 * ABSENT
    b, n, k = edges.unary.shape
    size = len(edges.model)
    source = np.concatenate([edges.model * n + edges.first, edges.model * n + edges.second])
    target = np.concatenate([edges.model * n + edges.second, edges.model * n + edges.first])
    tables = np.exp(np.clip(np.concatenate([edges.tables.swapaxes(1, 2), edges.tables]), -60, 30))
    back = np.roll(np.arange(2 * size), size)
    message = np.zeros((2 * size, k))
    unary = np.where(exists, edges.unary, -np.inf).reshape(-1, k).astype(np.float64)

    def total() -> FloatArray:
        field = unary.copy()
        np.add.at(field, target, message)
        return field

    for _ in range(SWEEPS if size else 0):
        if deadline.passed:
            break
        cavity = total()[source] - message[back]
        cavity -= cavity.max(1, keepdims=True)
        new = np.log(np.einsum("exy,ey->ex", tables, np.exp(cavity)) + 1e-300)
        new -= new.max(1, keepdims=True)
        moved = np.abs(new - message).max()
        message = 0.5 * (message + new)
        if moved < 1e-6:
            break
    field = total()
    weight = np.exp(field - field.max(1, keepdims=True))
    return np.asarray((weight / weight.sum(1, keepdims=True)).reshape(b, n, k))


def _noise(
    forms: Mapping[int, PairForm],
    chosen: Sequence[int],
    rngs: Sequence[Generator] | None,
    orders: int,
) -> torch.Tensor:
    """Normal draws (o b n), from each model's own stream."""
    n = max([LEAST_VARIABLES, *(len(forms[m].cards) for m in chosen)])
    noise = np.zeros((orders, len(chosen), n), np.float32)
    if rngs is not None:
        for b, m in enumerate(chosen):
            size = len(forms[m].cards)
            noise[:, b, :size] = rngs[m].standard_normal((orders, size))
    return torch.from_numpy(noise)


def core_size(states: int, variables: int, core_states: int = CORE_STATES) -> int:
    """Most variables of so many states whose configurations number up to `core_states`."""
    size = LEAST_VARIABLES
    while states ** (size + 1) <= core_states:
        size += 1
    return min(size, variables)


def bytes_needed(variables: int, states: int, core_states: int = CORE_STATES) -> int:
    """Predict the memory of one model: the largest step, what is kept of all, and the core."""
    pairs = (variables * states) ** 2
    step = 60 * pairs + 8 * variables * states**3 + 120 * variables * states**2 + 6 * states**4
    core = 4 * states ** core_size(states, variables, core_states)
    return int(SINGLE * (step + pairs + core))


def _checked(form: PairForm, core_states: int, table_bytes: int) -> PairForm:
    size, states = len(form.cards), int(form.cards.max(initial=1))
    if size * states > MOST_TOKENS:
        raise UnsupportedModelError(
            f"icgi:fast takes up to {MOST_TOKENS} states in all, every variable and every factor "
            f"of more than two counted with as many as the largest; this model has {size} of "
            f"{states}; use the engine lbp or pt"
        )
    need = bytes_needed(size, states, core_states)
    if need > table_bytes:
        raise BudgetError(
            f"icgi:fast needs {need / 1e6:.0f} MB for {size} variables and large factors of up to "
            f"{states} states, the budget is {table_bytes / 1e6:.0f} MB; give a "
            "larger memory budget, or use the engine lbp"
        )
    return form


def _batches(forms: Mapping[int, PairForm], core_states: int, table_bytes: int) -> list[list[int]]:
    """Models of similar size and states together, each batch within the memory."""
    shape = {m: (int(f.cards.max(initial=1)), len(f.cards)) for m, f in forms.items()}
    groups: list[list[int]] = []
    largest = (0, 0)
    for m in sorted(forms, key=lambda m: shape[m], reverse=True):
        k, n = max(largest[0], shape[m][0]), max(largest[1], shape[m][1])
        # within half again of the waste-free size, and not so many that memory runs out
        alike = bool(groups) and largest[0] <= shape[m][0] + 1 and n * 2 <= 3 * shape[m][1]
        fits = (
            bool(groups) and (len(groups[-1]) + 1) * bytes_needed(n, k, core_states) <= table_bytes
        )
        if alike and fits and len(groups[-1]) < LARGEST_BATCH:
            groups[-1].append(m)
            largest = (k, n)
        else:
            groups.append([m])
            largest = shape[m]
    return groups


def _spread_out(model: FactorGraph, form: PairForm, found: FloatArray) -> FloatArray:
    """Concentrations of all states of a model from those of its possible states."""
    alpha = np.zeros((model.n_variables, model.max_states))
    variable, state = np.nonzero(form.alive)
    first = np.concatenate([[0], np.cumsum(form.alive.sum(1))])
    alpha[variable, state] = found[variable, np.arange(len(variable)) - first[variable]]
    return alpha
