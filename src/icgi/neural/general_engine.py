"""The network for q states as part of an engine: models in, concentrations of their states out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import Generator

from icgi.errors import BudgetError, UnsupportedModelError
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural.general import GeneralNetwork
from icgi.neural.general_batch import LEAST_VARIABLES, PairForm, collate, pair_form
from icgi.neural.possible import possible_states

CORE_STATES = 4096  # configurations of the core, all of which are summed
MOST_TOKENS = 2048  # variables, auxiliaries included, times states; a minute on one core
QUICK_TOKENS = 1024  # up to which several orders are tried
LARGEST_BATCH = 256
SINGLE = 4  # bytes


def general_concentrations(
    network: GeneralNetwork,
    models: Sequence[FactorGraph],
    orders: int = 1,
    rngs: Sequence[Generator] | None = None,
    core_states: int = CORE_STATES,
    table_bytes: int = 2**32,
    device: str = "cpu",
) -> list[FloatArray]:
    """Dirichlet concentrations (n k) of each model, averaged over elimination orders.

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
    forms = [
        _checked(pair_form(model, alive=possible_states(model)), core_states, table_bytes)
        for model in models
    ]
    answers: dict[int, FloatArray] = {}
    for chosen in _batches(forms, core_states, table_bytes):
        batch = collate([forms[m] for m in chosen]).to(device)
        core = core_size(batch.unary.shape[2], batch.unary.shape[1], core_states)
        with torch.no_grad():
            alpha = network(batch, core)
            more = orders - 1 if batch.unary[0].numel() <= QUICK_TOKENS else 0
            for draw in _noise(forms, chosen, rngs, more).to(batch.real):
                alpha = alpha + network(batch, core, torch.exp(0.5 * draw))
        for m, found in zip(chosen, (alpha / (1 + more)).double().cpu().numpy(), strict=True):
            answers[m] = _spread_out(models[m], forms[m], found)
    return [answers[m] for m in range(len(models))]


def _noise(
    forms: Sequence[PairForm], chosen: Sequence[int], rngs: Sequence[Generator] | None, orders: int
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
            f"{states}; use --engine lbp or pt"
        )
    need = bytes_needed(size, states, core_states)
    if need > table_bytes:
        raise BudgetError(
            f"icgi:fast needs {need / 1e6:.0f} MB for {size} variables and large factors of up to "
            f"{states} states, the budget is {table_bytes / 1e6:.0f} MB; raise --memory, or use "
            "--engine lbp"
        )
    return form


def _batches(forms: Sequence[PairForm], core_states: int, table_bytes: int) -> list[list[int]]:
    """Models of similar size and states together, each batch within the memory."""
    shape = [(int(f.cards.max(initial=1)), len(f.cards)) for f in forms]
    groups: list[list[int]] = []
    largest = (0, 0)
    for m in sorted(range(len(forms)), key=lambda m: shape[m], reverse=True):
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
