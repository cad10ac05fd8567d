"""All that is known about variables: observed states, likelihoods of states, excluded states.

A likelihood L of variable i is virtual evidence (Pearl): the model is multiplied by L(x_i), as by
the table of an observed child. Only ratios of L matter for marginals; log Z is that of the product.
An excluded state has likelihood zero, the others one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icgi.errors import EvidenceError
from icgi.model.condition import Evidence, resolve_evidence
from icgi.model.graph import (
    BoolArray,
    FactorGraph,
    FloatArray,
    assembled,
    state_names,
    variable_name,
)
from icgi.model.reduce import all_states, propagate
from icgi.wording import shown, some

_MOST_TRIES = 64  # questions that the search for a contradiction may ask
_LISTED = 6  # findings that a message lists


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What is known, by number."""

    observed: Evidence = field(default_factory=dict)
    likelihood: Mapping[int, FloatArray] = field(default_factory=dict)  # a weight for each state
    excluded: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def resolve(
    model: FactorGraph,
    evidence: Mapping[Any, Any] | None = None,
    likelihood: Mapping[Any, ArrayLike | Mapping[Any, float]] | None = None,
    exclude: Mapping[Any, Iterable[Any] | int | str] | None = None,
) -> Findings:
    """Findings by number from findings by name or number.

    Parameters
    ----------
    likelihood
        A non-negative weight for each state of a variable: in order, or by state.
    exclude
        One state of a variable, or several.
    """
    weights = {}
    for key, given in (likelihood or {}).items():
        i = _variable(model, key)
        if i in weights:
            raise EvidenceError(f"variable {_called(model, i)} has two likelihoods; give one")
        weights[i] = _weights(model, i, given)
    left_out: dict[int, tuple[int, ...]] = {}
    for key, states in (exclude or {}).items():
        i = _variable(model, key)
        listed = [states] if isinstance(states, str | int | np.integer) else list(states)
        numbers = {_state(model, i, state) for state in listed}
        left_out[i] = tuple(sorted(numbers.union(left_out.get(i, ()))))
        if len(left_out[i]) == model.cards[i]:
            raise EvidenceError(
                f"all states of variable {_called(model, i)} are excluded; leave one of them"
            )
    return Findings(resolve_evidence(model, evidence), weights, left_out)


def enter(model: FactorGraph, found: Findings) -> FactorGraph:
    """Model with a factor for every likelihood and every variable with excluded states."""
    if not found.likelihood and not found.excluded:
        return model
    scopes, tables = [], []
    with np.errstate(divide="ignore"):
        for i, weights in found.likelihood.items():
            scopes.append((i,))
            tables.append(np.log(weights))
        for i in found.excluded:
            scopes.append((i,))
            tables.append(np.log(_left(model, i, found).astype(np.float64)))
    for table in tables:
        table.flags.writeable = False
    return assembled(
        model.cards,
        (*model.scopes, *scopes),
        (*model.log_tables, *tables),
        model.names,
        model.states,
    )


def contradiction(
    model: FactorGraph,
    found: Findings,
    error: EvidenceError,
    possible: Callable[[Findings], bool] | None = None,
) -> EvidenceError:
    """Name a smallest set of findings that exclude each other; the given error where none do.

    `possible` decides where the zeros of single factors do not show it (an exact engine).
    """
    n, cards = model.n_variables, model.cards
    if not all(0 <= i < n and 0 <= x < cards[i] for i, x in found.observed.items()):
        return error  # which says so
    known = _Known(model, found)

    def by_zeros(chosen: Sequence[int]) -> bool:
        return known.agree(chosen)

    def by_engine(chosen: Sequence[int]) -> bool:
        return known.agree(chosen) and possible is not None and possible(known.part(chosen))

    everything = list(range(len(known.labels)))
    test = by_zeros if not by_zeros(everything) else by_engine
    if not everything or (test is by_engine and possible is None):
        return error
    tries = 0

    def counted(chosen: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= _MOST_TRIES and test(chosen)

    if not test([]):
        return EvidenceError(
            "the model has no configuration of non-zero probability, whatever is observed; check "
            "the zeros of its tables"
        )
    if test(everything):
        return error
    clash = _smallest([], everything, counted)
    return EvidenceError(_words(known, clash, everything, counted))


def _words(
    known: "_Known",
    clash: list[int],
    everything: list[int],
    possible: Callable[[Sequence[int]], bool],
) -> str:
    named = [known.labels[k] for k in clash]
    if len(clash) == 1:
        return f"{named[0]} is impossible in this model, alone; correct or remove it"
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) <= _LISTED else some(named, 6)
    text = f"no configuration has non-zero probability: {listed} contradict each other"
    if len(clash) < len(everything):
        cured = [k for k in clash if possible([j for j in everything if j != k])]
        if cured:
            return f"{text}; without {known.labels[cured[-1]]} the rest is possible"
    return f"{text}; correct or remove one of them"


def _smallest(
    kept: list[int], doubted: list[int], possible: Callable[[Sequence[int]], bool]
) -> list[int]:
    """Smallest part of `doubted` that together with `kept` is impossible (QuickXplain)."""
    if kept and not possible(kept):
        return []
    if len(doubted) == 1:
        return doubted
    half = len(doubted) // 2
    first, second = doubted[:half], doubted[half:]
    later = _smallest([*kept, *first], second, possible)
    return [*_smallest([*kept, *later], first, possible), *later]


@dataclass(slots=True, init=False)
class _Known:
    """Findings as a list: what each is called, and the states that it leaves."""

    model: FactorGraph
    found: Findings
    keys: list[tuple[str, int]]
    labels: list[str]
    masks: list[BoolArray]

    def __init__(self, model: FactorGraph, found: Findings) -> None:
        self.model, self.found = model, found
        self.keys = [("observed", i) for i in found.observed]
        self.keys += [("excluded", i) for i in found.excluded]
        self.keys += [("likelihood", i) for i, w in found.likelihood.items() if not w.all()]
        self.labels, self.masks = [], []
        for kind, i in self.keys:
            names = state_names(model, i)
            if kind == "observed":
                mask = np.arange(model.cards[i]) == found.observed[i]
                label = f"the observation {_called(model, i)}={shown(names[found.observed[i]])}"
            elif kind == "excluded":
                mask = _left(model, i, found)
                label = f"the exclusion of {_called(model, i)}=" + some(
                    names[x] for x in found.excluded[i]
                )
            else:
                mask = found.likelihood[i] > 0
                label = f"the likelihood of {_called(model, i)}"
            self.masks.append(mask)
            self.labels.append(label)

    def agree(self, chosen: Sequence[int]) -> bool:
        """Whether zeros of single factors leave every variable a state."""
        alive = all_states(self.model)
        for k in chosen:
            i = self.keys[k][1]
            alive[i, : self.model.cards[i]] &= self.masks[k]
        if not alive.any(1).all():
            return False
        try:
            propagate(self.model, alive)
        except EvidenceError:
            return False
        return True

    def part(self, chosen: Sequence[int]) -> Findings:
        """Only some of the findings."""
        keys = {self.keys[k] for k in chosen}
        return Findings(
            {i: x for i, x in self.found.observed.items() if ("observed", i) in keys},
            {i: w for i, w in self.found.likelihood.items() if ("likelihood", i) in keys},
            {i: x for i, x in self.found.excluded.items() if ("excluded", i) in keys},
        )


def _left(model: FactorGraph, i: int, found: Findings) -> BoolArray:
    return ~np.isin(np.arange(model.cards[i]), found.excluded[i])


def _called(model: FactorGraph, i: int) -> str:
    return shown(variable_name(model, i))


def _variable(model: FactorGraph, key: Any) -> int:
    ((i, _),) = resolve_evidence(model, {key: 0}).items()
    if not 0 <= i < model.n_variables:
        raise EvidenceError(
            f"evidence names variable {i}, but the model has variables 0 to {model.n_variables - 1}"
        )
    return i


def _state(model: FactorGraph, i: int, state: Any) -> int:
    (x,) = resolve_evidence(model, {i: state}).values()
    if not 0 <= x < model.cards[i]:
        raise EvidenceError(
            f"variable {_called(model, i)} has no state {state!r}; its states are: "
            f"{some(state_names(model, i))}"
        )
    return x


def _weights(model: FactorGraph, i: int, given: Any) -> FloatArray:
    names, card = state_names(model, i), int(model.cards[i])
    if isinstance(given, Mapping):
        by_state = {_state(model, i, state): weight for state, weight in given.items()}
        missing = [names[x] for x in range(card) if x not in by_state]
        if missing:
            raise EvidenceError(
                f"the likelihood of variable {_called(model, i)} says nothing about "
                f"{some(missing)}; give a weight for every state, 0 for an impossible one"
            )
        given = [by_state[x] for x in range(card)]
    try:
        weights = np.array(given, np.float64)
    except (TypeError, ValueError) as error:
        raise EvidenceError(
            f"the likelihood of variable {_called(model, i)} is no list of numbers ({error})"
        ) from error
    if weights.shape != (card,):
        raise EvidenceError(
            f"the likelihood of variable {_called(model, i)} has {weights.size} weights for "
            f"{card} states ({some(names)}); give one for each"
        )
    if not (weights.min() >= 0 and 0 < weights.max() < np.inf):
        raise EvidenceError(
            f"the likelihood of variable {_called(model, i)} should be finite, non-negative and "
            f"not zero everywhere, found {weights.tolist()}"
        )
    return weights
