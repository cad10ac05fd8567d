"""The paper's network as part of an engine: any models in, Dirichlet concentrations out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from icgi.clock import Deadline
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import lift
from icgi.model.graph import BoolArray, FactorGraph, FloatArray
from icgi.model.reduce import restrict
from icgi.neural import doubt
from icgi.neural.encoder_paper import EDGE
from icgi.neural.graphs import LARGEST_TABLE, make_batch
from icgi.neural.pace import OutOfTime, unary_beliefs
from icgi.neural.paper import PaperConfig, plan
from icgi.neural.possible import possible_states
from icgi.neural.selection import gumbel

if TYPE_CHECKING:
    from icgi.neural.paper import Outcome, PaperNetwork

MOST_DENSE = 512  # variables; beyond, pairs are lists: no attention and no elimination
LARGEST_BATCH = 128
SINGLE = 4  # bytes
NEVER = Deadline()


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A model without impossible states, and how it will run."""

    model: FactorGraph
    alive: BoolArray  # states of the original that are left
    dense: bool
    bytes: int

    @property
    def shape(self) -> tuple[bool, int, int]:
        """What models of one batch should have in common."""
        return self.dense, self.model.max_states, self.model.n_variables


def paper_marginals(
    network: "PaperNetwork",
    models: Sequence[FactorGraph],
    budget: Budget,
    rng: Generator,
    steps: int | None = None,
    device: str = "cpu",
    deadline: Deadline = NEVER,
) -> list[Marginals]:
    """Marginals of many models, in batches as large as the memory of the budget allows.

    States that cannot occur, as far as `possible_states` finds them, get exactly zero. Models of
    more than 512 variables run without attention and elimination, and their stats say so. Past the
    deadline: what the tokens say after the layers so far, or the fields.

    Parameters
    ----------
    steps
        Most variables to eliminate of each model; as the network was trained if absent.
    """
    network = network.to(device).eval()
    for model in models:
        refuse_early(model)
    jobs = [_job(network.config, model, budget, deadline) for model in models]
    seeds = torch.Generator().manual_seed(int(rng.integers(2**63 - 1)))
    answers: dict[int, Marginals] = {}
    for chosen in _batches(jobs, budget):
        batch = [jobs[k] for k in chosen]
        try:
            graphs = make_batch([job.model for job in batch], batch[0].dense, deadline=deadline)
        except OutOfTime:
            answers |= {k: _unread(jobs[k]) for k in chosen}
            continue
        graphs = graphs.to(device)
        noise = None
        if network.config.order == "random":
            noise = gumbel((*graphs.real.shape[:1], 64, graphs.real.shape[1]), seeds).to(device)
        with torch.no_grad():
            found = network.run(graphs, noise, steps=steps, early=True, deadline=deadline)
        parts = [found.alpha, *_disagreement(found)]
        arrays = [x.double().cpu().numpy() for x in parts]
        gone = found.eliminated.tolist()
        for b, k in enumerate(chosen):
            mine = [x[b] for x in arrays]
            answers[k] = _answer(network.config.layers, jobs[k], mine, float(gone[b]), found)
    return [answers[k] for k in range(len(models))]


def bytes_needed(config: PaperConfig, model: FactorGraph, dense: bool) -> int:
    """Predict the memory of one model: tables, messages, tokens, the largest predicted factor."""
    n, k = max(model.n_variables, 1), max(model.max_states, 1)
    d, h, r = config.features, config.heads, config.rank
    tokens = n * k * d * (6 + 2 * config.expansion)
    listed = [len(s) for s in model.scopes if len(s) > (2 if dense else 1)]
    lists = sum(k**a * (2 + h) + 8 * a * k * h for a in listed)
    pairs = 0
    if dense:
        _, at_once = plan(config, n)
        w = min(config.width, n)
        messages = n * n * (k * k * (6 + 2 * h) + 7 * k * h + h * (config.layers + 6))
        factor = at_once * w * k * (3 * r * r + 4 * config.hidden + 6 * w * (k + r))
        if config.blocks:
            factor = factor * k // 2
        if config.attention == "states":
            messages += (n * k) ** 2 * (6 * h + 4 * EDGE)
        pairs = messages + factor + config.rounds * 2 * n * n
    return int(SINGLE * (tokens + lists + pairs))


def _job(config: PaperConfig, model: FactorGraph, budget: Budget, deadline: Deadline) -> _Job:
    alive = possible_states(model, deadline)
    reduced = restrict(model, alive)
    largest = max([0, *(len(s) for s in reduced.scopes)])
    if largest > 2 and reduced.max_states**largest > LARGEST_TABLE:
        raise UnsupportedModelError(
            f"icgi:paper takes factors of up to {LARGEST_TABLE} padded entries, this model has one "
            f"of {largest} variables and variables of up to {reduced.max_states} states; use "
            "the engine lbp or pt, or jt for an exact answer"
        )
    dense = reduced.n_variables <= MOST_DENSE
    need = bytes_needed(config, reduced, dense)
    if dense and need > budget.table_bytes:  # lists need far less where there are few edges
        dense, need = False, bytes_needed(config, reduced, False)
    if need > budget.table_bytes:
        raise BudgetError(
            f"icgi:paper needs {need / 1e6:.0f} MB for {reduced!r}, the budget is "
            f"{budget.table_bytes / 1e6:.0f} MB; give a larger memory budget, or use the "
            "engine lbp"
        )
    return _Job(reduced, alive, dense, need)


def refuse_early(model: FactorGraph) -> None:
    """Refuse wide factors without zeros, which nothing makes smaller, before anything is done."""
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) > 2 and table.size > LARGEST_TABLE and not np.isneginf(table).any():
            raise UnsupportedModelError(
                f"icgi:paper takes factors of up to {LARGEST_TABLE} padded entries, this model has "
                f"one of {table.size}; use the engine lbp or pt, or jt for an exact answer"
            )


def _unread(job: _Job) -> Marginals:
    p = unary_beliefs(job.model)
    alpha, error = doubt.unknown(p)
    stats = {"variables_eliminated": 0.0, "attention": 0.0, "sweeps": 0.0}
    found = Marginals(p, Status.BUDGET_SPENT, concentration=alpha, std_error=error, stats=stats)
    return lift(found, job.alive)


def _batches(jobs: Sequence[_Job], budget: Budget) -> list[list[int]]:
    """Models of similar size together, each batch within the budget's memory."""
    groups: list[list[int]] = []
    for k in sorted(range(len(jobs)), key=lambda k: jobs[k].shape, reverse=True):
        if groups:
            first = jobs[groups[-1][0]]
            alike = jobs[k].shape[:2] == first.shape[:2] and (
                4 * jobs[k].model.n_variables >= 3 * first.model.n_variables
            )
            room = (len(groups[-1]) + 1) * first.bytes <= budget.table_bytes
            if alike and room and len(groups[-1]) < LARGEST_BATCH:
                groups[-1].append(k)
                continue
        groups.append([k])
    return groups


def _disagreement(found: "Outcome") -> tuple[Tensor, Tensor]:
    """Deviation between the beliefs of heads, most that p changes in later layers (b n k)."""
    p = found.alpha / found.alpha.sum(-1, keepdim=True)
    later = found.early[len(found.early) // 2 :]
    change = torch.zeros_like(p)
    for alpha in later:
        change = torch.maximum(change, (p - alpha / alpha.sum(-1, keepdim=True)).abs())
    return torch.nan_to_num(torch.softmax(found.belief, -2)).std(-1), change


def _answer(
    layers: int, job: _Job, arrays: Sequence[FloatArray], gone: float, found: "Outcome"
) -> Marginals:
    model = job.model
    alpha, spread, change = (x[: model.n_variables, : model.max_states] for x in arrays)
    alpha = np.where(np.arange(model.max_states) < model.cards[:, None], alpha, 0.0)
    stats = {
        "variables_eliminated": gone,
        "attention": float(job.dense),
        "sweeps": float(found.sweeps),
    }
    signs = doubt.Signs(alpha, spread, change, *doubt.strengths_of(model))
    kind: doubt.Kind = "paper" if job.dense and found.complete else "paper, layers only"
    answered = np.full(model.n_variables, found.sweeps >= layers)
    alpha, error = doubt.stated(kind, signs, answered)
    answer = Marginals(
        alpha / alpha.sum(1, keepdims=True),
        # the plan was carried out to its end; a network has no criterion of its own beyond that
        Status.ESTIMATED if found.complete else Status.BUDGET_SPENT,
        concentration=alpha,
        std_error=error,
        stats=stats,
    )
    return lift(answer, job.alive)
