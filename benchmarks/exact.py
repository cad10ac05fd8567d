"""Exact marginals: icgi against the peers that pip can install, in one run.

    ICGI_DATA=… python benchmarks/exact.py [--all] [--only NAME …] [--limit SECONDS]

Every (solver, instance) runs in a process of its own with a time and a memory limit. Timed: model
in memory → all single-variable marginals, order search included, parsing excluded; best of several
runs after a warm-up on a small model. Every answer is compared with that of icgi.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.model.condition import condition

SHORT = (
    "Grids_12", "Grids_11", "DBN_11", "Segmentation_11", "Segmentation_12", "ObjectDetection_11",
    "ObjectDetection_12", "Pedigree_11", "Pedigree_12", "Alchemy_11", "Promedus_11", "Promedus_13",
    "Promedus_15", "Promedus_22", "Promedus_26", "Promedus_34", "CSP_12", "CSP_13", "relational_2",
    "relational_5", "BN_31", "pdb1not", "pdb1rh4", "pdb1ajj", "pdb1fna",
)  # fmt: skip
MEMORY = 16 * 2**30
RESULT = "RESULT "


def made() -> dict[str, icgi.FactorGraph]:
    """Instances that are not in the collection."""
    rng = np.random.default_rng
    return {
        "ising-10x10": FAMILIES["ea2d"].sample(rng(1), L=10),
        "ising-20x20": FAMILIES["ea2d"].sample(rng(2), L=20),
        "er-100-0.05": FAMILIES["er"].sample(rng(3), n=100, p=0.05),
        "tree-1000": FAMILIES["tree"].sample(rng(4), n=1000),
    }


def load(name: str) -> tuple[icgi.FactorGraph, dict[int, int]]:
    own = made()
    if name in own:
        return own[name], {}
    folder = data_folder()
    for instance in instances(folder) if folder else ():
        if instance.name == name:
            return instance.model(), dict(instance.evidence())
    raise SystemExit(f"unknown instance {name}; is ICGI_DATA set?")


def solve_icgi(model, evidence):
    budget = icgi.Budget(table_bytes=MEMORY)
    return lambda: icgi.marginals(model, evidence, "jt", budget).probs


def solve_pyagrum(model, evidence):
    """Shafer-Shenoy on a Markov random field built through the API, tables scaled to maximum 1."""
    import pyagrum as gum

    conditioned = condition(model, evidence)
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for scope, table in zip(conditioned.model.scopes, conditioned.model.log_tables, strict=True):
        if not scope:
            continue
        axes = np.argsort(scope)
        key = tuple(scope[a] for a in axes)
        tables[key] = tables.get(key, 0.0) + table.transpose(axes)
    field = gum.MarkovRandomField()
    cards = conditioned.model.cards
    for i in sorted({i for key in tables for i in key}):
        field.add(gum.LabelizedVariable(f"v{i}", "", int(cards[i])))
    for key, table in tables.items():
        factor = field.addFactor([f"v{i}" for i in key])
        # pyAgrum's numpy view has the first variable of the factor as the last axis
        order = [key.index(int(v.name()[1:])) for v in reversed(factor.variablesSequence())]
        factor[:] = np.exp(table - table.max()).transpose(order)

    def run():
        engine = gum.ShaferShenoyMRFInference(field)
        engine.makeInference()
        probs = np.zeros((len(cards), conditioned.model.max_states))
        probs[:, 0] = 1.0
        for name in field.names():
            i = int(name[1:])
            probs[i, : cards[i]] = engine.posterior(name).toarray()
        loose = [i for i in range(len(cards)) if cards[i] > 1 and f"v{i}" not in field.names()]
        for i in loose:
            probs[i, : cards[i]] = 1.0 / cards[i]
        full = np.zeros(conditioned.alive.shape)
        full[conditioned.alive] = probs[np.arange(probs.shape[1]) < cards[:, None]]
        return full

    return run


def solve_cotengra(model, evidence):
    """Contraction of Z along a searched tree; all marginals by differentiation (torch)."""
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
        optimizer = ctg.RandomGreedyOptimizer(max_repeats=64, seed=0, parallel=False)
        tree = ctg.array_contract_tree(inputs, (), sizes, optimize=optimizer)
        if tree.max_size() > 2**28:
            raise MemoryError(f"largest intermediate 2^{math.log2(tree.max_size()):.0f}")
        unary = [torch.ones(sizes[str(i)], dtype=torch.float64, requires_grad=True) for i in used]
        tree.contract([*tables, *unary]).log().backward()
        probs = np.zeros((small.n_variables, small.max_states))
        probs[:, 0] = 1.0
        for i in range(small.n_variables):
            probs[i, : small.cards[i]] = 1.0 / small.cards[i]
        for i, one in zip(used, unary, strict=True):
            probs[i, : small.cards[i]] = one.grad.numpy()
        full = np.zeros(conditioned.alive.shape)
        full[conditioned.alive] = probs[np.arange(probs.shape[1]) < small.cards[:, None]]
        return full

    return run


SOLVERS = {"icgi": solve_icgi, "pyagrum": solve_pyagrum, "cotengra": solve_cotengra}


def one(solver: str, name: str, limit: float) -> None:
    """Child process: time one solver on one instance and print the result as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2**33, MEMORY + 2**33))
    SOLVERS[solver](FAMILIES["ea2d"].sample(np.random.default_rng(0), L=4), {})()
    model, evidence = load(name)
    run = SOLVERS[solver](model, evidence)
    if solver == "icgi":  # the warm-up model is too small to load every kernel
        icgi.marginals(FAMILIES["ea2d"].sample(np.random.default_rng(0), L=15), engine="jt")
    began = time.perf_counter()
    times = []
    while not times or (len(times) < 20 and time.perf_counter() - began < min(2.0, limit / 4)):
        start = time.perf_counter()
        probs = run()
        times.append(time.perf_counter() - start)
    path = Path(os.environ["ICGI_BENCH_OUT"])
    np.save(path, probs)
    print(RESULT + json.dumps({"seconds": min(times), "runs": len(times)}))


def measure(solver: str, name: str, limit: float, folder: Path) -> tuple[float | None, str, Path]:
    """(seconds, or None; what happened; file of the marginals)."""
    path = folder / f"{name}-{solver}.npy"
    command = [sys.executable, __file__, "--one", solver, name, "--limit", str(limit)]
    environment = {**os.environ, "ICGI_BENCH_OUT": str(path)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit + 30, env=environment
        )
    except subprocess.TimeoutExpired:
        return None, "timeout", path
    for line in done.stdout.splitlines():
        if line.startswith(RESULT):
            return float(json.loads(line[len(RESULT) :])["seconds"]), "", path
    reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return None, "memory" if "emory" in reason or "bad_alloc" in reason else reason[:40], path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2)
    parser.add_argument("--all", action="store_true", help="every tractable instance")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per solver")
    options = parser.parse_args()
    if options.one:
        one(*options.one, options.limit)
        return
    names = list(made())
    folder = data_folder()
    if folder is None:
        print("ICGI_DATA is not set: only generated instances")
    else:
        wanted = [i.name for i in instances(folder) if i.tractable]
        names += wanted if options.all else [n for n in SHORT if n in wanted]
    names = [n for n in names if not options.only or n in options.only]

    import tempfile

    head = ("icgi", "pyagrum", "cotengra", "best peer/icgi")
    print(f"{'instance':<20}{head[0]:>10}{head[1]:>12}{head[2]:>12}{head[3]:>16}  agreement")
    ratios = []
    with tempfile.TemporaryDirectory() as out:
        for name in names:
            row = {s: measure(s, name, options.limit, Path(out)) for s in SOLVERS}
            ours = row["icgi"]
            cells = [f"{s[0]:.4f}" if s[0] is not None else s[1] for s in row.values()]
            differences = [
                f"{peer} {np.abs(np.load(row[peer][2]) - np.load(ours[2])).max():.0e}"
                for peer in ("pyagrum", "cotengra")
                if row[peer][0] is not None and ours[0] is not None
            ]
            peers = [row[p][0] for p in ("pyagrum", "cotengra") if row[p][0] is not None]
            ratio = min(peers) / ours[0] if peers and ours[0] else None
            if ratio is not None:
                ratios.append(ratio)
            shown = f"{ratio:.1f}" if ratio is not None else "only icgi"
            print(
                f"{name:<20}{cells[0]:>10}{cells[1]:>12}{cells[2]:>12}{shown:>16}  "
                + ", ".join(differences),
                flush=True,
            )
    if ratios:
        mean = math.exp(np.mean(np.log(ratios)))
        print(
            f"\nbest peer's time over icgi's: geometric mean {mean:.1f}, worst {min(ratios):.2f} "
            f"({len(ratios)} instances that a peer finished within {options.limit:.0f} s)"
        )


if __name__ == "__main__":
    main()
