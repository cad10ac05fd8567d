"""Exact marginals by icgi, by the programs that pip can install, and by those of a folder.

A peer gets the model that icgi's preparation leaves: evidence entered, states that zeros exclude
removed, tables scaled to a largest entry of one. That is more than its users would give it. What
it builds from that (its own objects) is not timed.

Programs that pip cannot install (libDAI, Merlin) are executables of a folder, one a peer, called as
`PROGRAM MODEL.uai SECONDS`. Each reads the model, answers it again and again until the CPU seconds
are spent, and prints one line of JSON: {"first": s, "best": s, "runs": n, "marginals": {"0": [p,
...], ...}}, the seconds being those of its thread for the order, the tree, both passes and the
marginals (the clock of a process that has a limit ticks in hundredths). That takes a main function
of some thirty lines around the library.
"""

import json
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import icgi
from icgi.model.condition import Conditioned, condition
from icgi.model.ising import as_ising

MEMORY = 10 * 2**30  # bytes that each solver may take
Solver = Callable[[icgi.FactorGraph, dict[int, int]], Callable[[], np.ndarray]]


class NotForIt(Exception):
    """The model is outside what the program can express."""


def solve_icgi(model, evidence):
    budget = icgi.Budget(table_bytes=MEMORY)
    return lambda: icgi.marginals(model, evidence, "jt:threads=1", budget).probs


def spread(conditioned: Conditioned, known: dict[int, np.ndarray]) -> np.ndarray:
    """Marginals of the whole model from those of the variables that a peer was given."""
    cards = conditioned.model.cards
    probs = np.zeros((len(cards), conditioned.model.max_states))
    for i, card in enumerate(cards.tolist()):
        probs[i, :card] = known.get(i, 1.0 / card)
    full = np.zeros(conditioned.alive.shape)
    full[conditioned.alive] = probs[np.arange(probs.shape[1]) < cards[:, None]]
    return full


def solve_pyagrum(model, evidence):
    """Shafer-Shenoy on a Markov random field built through the API."""
    import pyagrum as gum

    gum.setNumberOfThreads(1)
    conditioned = condition(model, evidence)
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for scope, table in zip(conditioned.model.scopes, conditioned.model.log_tables, strict=True):
        if scope:
            axes = np.argsort(scope)
            key = tuple(scope[a] for a in axes)
            tables[key] = tables.get(key, 0.0) + table.transpose(axes)
    field = gum.MarkovRandomField()
    for i in sorted({i for key in tables for i in key}):
        field.add(gum.LabelizedVariable(f"v{i}", "", int(conditioned.model.cards[i])))
    for key, table in tables.items():
        factor = field.addFactor([f"v{i}" for i in key])
        # pyAgrum's numpy view has the first variable of the factor as the last axis
        order = [key.index(int(v.name()[1:])) for v in reversed(factor.variablesSequence())]
        factor[:] = np.ascontiguousarray(np.exp(table - table.max()).transpose(order))

    def run():
        engine = gum.ShaferShenoyMRFInference(field)
        engine.makeInference()
        known = {int(name[1:]): engine.posterior(name).toarray() for name in field.names()}
        return spread(conditioned, known)

    return run


def solve_cotengra(model, evidence, repeats=32):
    """Contraction of Z along the best of `repeats` trees (0: greedy), then differentiation."""
    import cotengra as ctg
    import torch

    conditioned = condition(model, evidence)
    small = conditioned.model
    pairs = [(s, t) for s, t in zip(small.scopes, small.log_tables, strict=True) if s]
    used = sorted({i for s, _ in pairs for i in s})
    inputs = [tuple(map(str, s)) for s, _ in pairs] + [(str(i),) for i in used]
    sizes = {str(i): int(small.cards[i]) for i in used}
    tables = [torch.from_numpy(np.exp(t - t.max())) for _, t in pairs]

    def run():
        searched = ctg.RandomGreedyOptimizer(max_repeats=repeats, seed=0, parallel=False)
        optimizer = searched if repeats else "greedy"
        tree = ctg.array_contract_tree(inputs, (), sizes, optimize=optimizer)
        if tree.max_size() > 2**28:
            raise MemoryError(f"largest intermediate 2^{math.log2(tree.max_size()):.0f}")
        unary = [torch.ones(sizes[str(i)], dtype=torch.float64, requires_grad=True) for i in used]
        tree.contract([*tables, *unary]).log().backward()
        known = {i: one.grad.numpy() for i, one in zip(used, unary, strict=True)}
        return spread(conditioned, known)

    return run


def solve_dwave(model, evidence):
    """Tree-decomposition sampler, one sample: exact marginals of Ising models."""
    import dimod
    from dwave.samplers import TreeDecompositionSampler

    conditioned = condition(model, evidence)
    spins = as_ising(conditioned.model)
    if spins is None:
        raise NotForIt("not an Ising model")
    fields = dict(enumerate((-spins.fields).tolist()))
    links = {tuple(e): -j for e, j in zip(spins.edges.tolist(), spins.couplings, strict=True)}
    quadratic = dimod.BinaryQuadraticModel(fields, links, 0.0, "SPIN")
    sampler = TreeDecompositionSampler()

    def run():
        info = sampler.sample(quadratic, beta=1.0, num_reads=1, marginals=True, seed=0).info
        up = info["variable_marginals"]
        free = [i for i in up if conditioned.model.cards[i] == 2]
        return spread(conditioned, {i: np.array([1 - up[i], up[i]]) for i in free})

    return run


SOLVERS: dict[str, Solver] = {
    "icgi": solve_icgi,
    "pyagrum": solve_pyagrum,
    "cotengra": solve_cotengra,
    "cotengra-0": partial(solve_cotengra, repeats=0),  # no search: small models are sooner done
    "dwave": solve_dwave,
}
PACKAGES = {
    "icgi": "icgi",
    "pyagrum": "pyagrum",
    "cotengra": "cotengra",
    "cotengra-0": "cotengra",
    "dwave": "dwave-samplers",
}


def programs(folder: Path | None) -> dict[str, Path]:
    """Executables of a folder by name; none without a folder."""
    if folder is None:
        return {}
    found = (
        each for each in sorted(folder.iterdir()) if each.is_file() and os.access(each, os.X_OK)
    )
    return {each.name: each for each in found}


def ask_program(
    program: Path, model: icgi.FactorGraph, evidence: dict[int, int], seconds: float
) -> tuple[dict[str, float], np.ndarray]:
    """Its times, and its marginals of the whole model."""
    conditioned = condition(model, evidence)
    small = conditioned.model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.uai"
        scaled = [np.asarray(table - table.max()) for table in small.log_tables]
        write_scaled(path, small, scaled)
        done = subprocess.run(
            [program, path, f"{seconds:g}"], capture_output=True, text=True, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == -signal.SIGXCPU:
        raise TimeoutError("timeout")
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise (
            MemoryError(why)
            if "emory" in done.stderr or "bad_alloc" in done.stderr
            else (RuntimeError(why))
        )
    found = json.loads(lines[-1])
    known = {int(i): np.array(p) for i, p in found["marginals"].items()}
    times = {"seconds": found["best"], "first": found["first"], "runs": found["runs"]}
    return times, spread(conditioned, known)


def write_scaled(path: Path, model: icgi.FactorGraph, tables: list[np.ndarray]) -> None:
    """UAI file with all digits, without factors of no variables."""
    pairs = [(s, t) for s, t in zip(model.scopes, tables, strict=True) if s]
    lines = ["MARKOV", str(model.n_variables), " ".join(map(str, model.cards)), str(len(pairs))]
    lines += [" ".join(map(str, (len(s), *s))) for s, _ in pairs]
    for _, table in pairs:
        lines += [str(table.size), " ".join(f"{x:.17g}" for x in np.exp(table).ravel())]
    path.write_text("\n".join(lines) + "\n")
