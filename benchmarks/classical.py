"""Sweeps of message passing and mean field: icgi against peers that pip can install, in one run.

    ICGI_DATA=… python benchmarks/classical.py [--pgmax PYTHON]
    python benchmarks/classical.py --render         prints the table from the stored lines

Per sweep: compiled or vectorised updates alone, best of several repetitions after a warm-up. Until
rest: the call a person makes, from a model in memory to all marginals. Every run replaces
benchmarks/results/classical.jsonl. `--pgmax` names an interpreter that has PGMax and JAX, which do
not belong to the environment of this project. libDAI's figures were taken elsewhere and are printed
for orientation only.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import icgi
from icgi.approx import mean_field, messages
from icgi.approx.flat import compile_models, initial_state, reweight
from icgi.approx.mean_field_sweeps import ascend
from icgi.approx.support import supported
from icgi.approx.trbp import appearance
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.model.condition import condition

RESULTS = Path(__file__).parent / "results" / "classical.jsonl"
UAI = ("Promedus_13", "linkage_14")
LIBDAI = {  # milliseconds per sweep, sequential, on another machine of two cores
    "grid 50×50": 22.0,
    "SK 100": 6500 / 151,
    "Promedus_13": 2.7,
    "linkage_14": 1.9,
}
GOAL = {"grid 50×50": 20, "SK 100": 20, "Promedus_13": 5, "linkage_14": 5}
REPEATS = 7
PEERS = ("quimb HV1BP", "quimb HD1BP", "PGMax")


def models() -> dict[str, icgi.FactorGraph]:
    """Models without observed variables and impossible states, which is where sweeps begin."""
    rng = np.random.default_rng
    found = {
        "grid 50×50": FAMILIES["ea2d"].sample(rng(0), L=50, beta=1.0),
        "SK 100": FAMILIES["sk"].sample(rng(0), n=100, beta=1.0, h=0.1),
    }
    folder = data_folder()
    for instance in instances(folder) if folder else ():
        if instance.name in UAI:
            reduced = condition(instance.model(), instance.evidence()).model
            found[instance.name] = supported(reduced).model
    return found


def best(sweeps: Callable[[], int]) -> float:
    """Milliseconds per sweep of a function that says how many it made."""
    sweeps()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        made = sweeps()
        times.append((time.perf_counter() - began) / made)
    return 1e3 * min(times)


def ours(model: icgi.FactorGraph) -> dict[str, float]:
    """Milliseconds per sweep of each of our engines."""
    flat = compile_models([model])
    trees = reweight(flat, appearance(flat, [np.random.default_rng(0)]))
    endless, go = np.array([10**9]), np.zeros(1, np.uint8)

    def passing(which, schedule: int) -> Callable[[], int]:
        def run() -> int:
            state = initial_state(which)
            messages.advance(which, state, schedule, 0.0, 0.0, endless, 60, 0, 1, go)
            return int(state.sweeps[0])

        return run

    def ascending() -> int:
        q, made = mean_field.starting_point(flat, [np.random.default_rng(0)]), np.zeros(1, np.int64)
        soft, rest = np.array([mean_field.SOFT]), np.array([np.inf])
        ascend(flat, q, soft, 0.0, endless, 60, 0, 1, made, rest, go)
        return int(made[0])

    return {
        "lbp, flooding": best(passing(flat, messages.FLOODING)),
        "lbp, sequential": best(passing(flat, messages.SEQUENTIAL)),
        "trbp, sequential": best(passing(trees, messages.SEQUENTIAL)),
        "mf": best(ascending),
    }


def quimb(model: icgi.FactorGraph) -> tuple[str, float, np.ndarray]:
    """Name, milliseconds per sweep and marginals of belief propagation on a tensor network.

    HV1BP stacks tensors of the same rank and so needs variables of one cardinality.
    """
    import quimb.tensor as qtn
    from quimb.tensor.belief_propagation import HD1BP, HV1BP
    from quimb.tensor.belief_propagation import hv1bp as dense

    tensors = [
        qtn.Tensor(np.exp(table - table.max()), [f"x{i}" for i in scope])
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
        if scope
    ]
    network = qtn.TensorNetwork(tensors)
    even = len(set(model.cards[model.cards > 1].tolist())) == 1
    kind = HV1BP if even else HD1BP
    smudge = 0.0 if even else 1e-12  # divisions of zero by zero
    runner = kind(network, smudge_factor=smudge)

    def run() -> int:
        for _ in range(5):
            runner.iterate(tol=0.0)
        return 5

    milliseconds = best(run)
    runner = kind(network, smudge_factor=smudge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not converge
        runner.run(tol=1e-9, tol_rolling_diff=0.0, max_iterations=500 if even else 20)
    found = runner.get_messages_dense() if even else runner.messages
    marginals = dense.compute_all_index_marginals_from_messages(runner.tn, found)
    probs = np.full((model.n_variables, model.max_states), np.nan)
    for i in range(model.n_variables):
        if f"x{i}" in marginals:
            probs[i, : model.cards[i]] = marginals[f"x{i}"]
    return f"quimb {kind.__name__}", milliseconds, probs if runner.converged else probs * np.nan


# the second line mends what PGMax 0.6.1 expects of an older JAX
PGMAX = """
import sys, time, types, jax, numpy as np
jax.lib.xla_bridge = types.SimpleNamespace(get_backend=lambda: jax.devices()[0])
from pgmax import fgraph, fgroup, infer, vgroup
data = np.load(sys.argv[1])
spins = vgroup.NDVarArray(num_states=2, shape=(len(data["fields"]),))
graph = fgraph.FactorGraph(variable_groups=[spins])
pairs = [[spins[int(i)], spins[int(j)]] for i, j in data["edges"]]
graph.add_factors(fgroup.PairwiseFactorGroup(
    variables_for_factors=pairs, log_potential_matrix=data["tables"]))
bp = infer.build_inferer(graph.bp_state, backend="bp")
start = bp.init(evidence_updates={spins: data["fields"]})
def run():
    found = bp.run(start, num_iters=200, damping=0.0, temperature=1.0)
    found.ftov_msgs.block_until_ready()
run()
times = []
for _ in range(5):
    began = time.perf_counter(); run(); times.append((time.perf_counter() - began) / 200)
print("RESULT", 1e3 * min(times))
"""


def pgmax(model: icgi.FactorGraph, python: str) -> float | None:
    """Milliseconds per sweep of PGMax on a binary pairwise model, or None."""
    if model.max_states > 2 or max(map(len, model.scopes)) > 2:
        return None
    fields = np.zeros((model.n_variables, 2))
    edges, tables = [], []
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        if len(scope) == 1:
            fields[scope[0]] += table
        elif len(scope) == 2:
            edges.append(scope)
            tables.append(table)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        np.savez(path, fields=fields, edges=np.array(edges), tables=np.array(tables))
        done = subprocess.run([python, "-c", PGMAX, str(path)], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return float(line.split()[1])
    print("PGMax:", (done.stderr.strip().splitlines() or ["no output"])[-1])
    return None


def batch() -> list[dict]:
    """2,000 models of 10 to 60 variables, one by one and together."""
    rng = np.random.default_rng(0)
    kinds = (("er", {"p": 0.1, "beta": 0.3}), ("tree", {}), ("ba", {"beta": 0.3}))
    many = []
    for k in range(2000):
        family, options = kinds[k % len(kinds)]
        many.append(FAMILIES[family].sample(rng, n=int(rng.integers(10, 61)), **options))

    def alone() -> int:
        return len([icgi.marginals(model, engine="lbp") for model in many])

    def together(threads: int | None) -> Callable[[], int]:
        return lambda: len(icgi.marginals_batch(many, engine="lbp", threads=threads))

    runs = {"one by one": alone, "batch, 1 thread": together(1), "batch": together(None)}
    name = "2,000 models of 10–60 variables"
    return [
        {"what": "batch", "instance": name, "solver": solver, "ms": best(run)}
        for solver, run in runs.items()
    ]


def grids() -> list[dict]:
    """Error and time of loopy and generalised belief propagation on Gaussian spin glasses."""
    lines = []
    for side in (10, 20):
        glasses = [FAMILIES["ea2d"].sample(np.random.default_rng(s), L=side) for s in range(10)]
        exact = [icgi.marginals(model, engine="jt").probs for model in glasses]
        for engine in ("lbp", "gbp"):
            found = [icgi.marginals(model, engine=engine) for model in glasses]
            errors = [np.abs(a.probs - p).sum(1).mean() for a, p in zip(found, exact, strict=True)]
            line = {"what": "glass", "instance": f"{side}×{side}", "solver": engine}
            line |= {
                "mae": float(np.mean(errors)),
                "seconds": float(np.median([a.seconds for a in found])),
                "converged": sum(a.status is icgi.Status.CONVERGED for a in found),
                "of": len(found),
            }
            lines.append(line)
    return lines


def measure(python: str | None) -> None:
    lines: list[dict] = [
        {"what": "machine", "cpu": cpu(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    ]
    for name, model in models().items():
        for solver, ms in ours(model).items():
            lines.append({"what": "sweep", "instance": name, "solver": solver, "ms": ms})
        solver, ms, probs = quimb(model)
        lines.append({"what": "sweep", "instance": name, "solver": solver, "ms": ms})
        if python is not None and (ms := pgmax(model, python)) is not None:
            lines.append({"what": "sweep", "instance": name, "solver": "PGMax", "ms": ms})
        for engine in ("lbp", "lbp:schedule=flooding", "lbp:damping=0.5", "trbp", "mf"):
            icgi.marginals(model, engine=engine, budget=icgi.Budget(iterations=3))
            found = icgi.marginals(model, engine=engine)
            line = {"what": "rest", "instance": name, "solver": engine, "seconds": found.seconds}
            line |= {"status": found.status.value, "sweeps": found.stats["sweeps"]}
            if engine == "lbp" and found.status is icgi.Status.CONVERGED:
                gap = np.nanmax(np.abs(found.probs - probs), initial=-math.inf)
                line["gap"] = float(gap) if gap >= 0 else None
            lines.append(line)
        print(name, "done", flush=True)
    lines += batch() + grids()
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def render() -> str:
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    machine = next(line for line in lines if line["what"] == "machine")
    sweeps = [line for line in lines if line["what"] == "sweep"]
    names = list(dict.fromkeys(line["instance"] for line in sweeps))
    table = {(line["instance"], line["solver"]): line["ms"] for line in sweeps}
    solvers = list(dict.fromkeys(line["solver"] for line in sweeps))
    out = [
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f} at the beginning",
        "\nMilliseconds per sweep, one thread.\n",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for solver in solvers:
        cells = [f"{table[n, solver]:.3f}" if (n, solver) in table else "–" for n in names]
        out.append(f"| {solver} | " + " | ".join(cells) + " |")
    fastest = {n: min(table[n, p] for p in PEERS if (n, p) in table) for n in names}
    flooding = [f"{fastest[n] / table[n, 'lbp, flooding']:.1f}" for n in names]
    out.append("| fastest peer / lbp, flooding (goal 3) | " + " | ".join(flooding) + " |")
    libdai = [f"{LIBDAI[n]:.1f}" for n in names]
    out.append("| libDAI on another machine, for orientation | " + " | ".join(libdai) + " |")
    ratios = [f"{LIBDAI[n] / table[n, 'lbp, sequential']:.0f} (goal {GOAL[n]})" for n in names]
    out.append("| libDAI / lbp, sequential | " + " | ".join(ratios) + " |")
    out += ["\nFrom the model to marginals, at most 1,000 sweeps.\n"]
    out += ["| instance | engine | seconds | sweeps | status | largest difference to quimb |"]
    out += ["|---" * 6 + "|"]
    for line in lines:
        if line["what"] == "rest":
            gap = f"{line['gap']:.0e}" if line.get("gap") is not None else ""
            out.append(
                f"| {line['instance']} | {line['solver']} | {line['seconds']:.4f} | "
                f"{line['sweeps']:.0f} | {line['status']} | {gap} |"
            )
    for line in lines:
        if line["what"] == "batch":
            out.append(f"\n{line['instance']}, {line['solver']}: {line['ms']:.3f} ms per model")
    out.append(
        "\nGaussian spin glasses, β = 1, h = 0.1. libDAI, squares as regions, on another machine"
    )
    out.append("and other instances: error 0.0027 in 1.7 s (10×10), 0.0066 in 20.6 s (20×20); its")
    out.append("loopy belief propagation 0.041 and 0.14.\n")
    out += ["| grid | engine | mean L1 error | half of it | median seconds | converged |"]
    out += ["|---" * 6 + "|"]
    for line in lines:
        if line["what"] == "glass":
            out.append(
                f"| {line['instance']} | {line['solver']} | {line['mae']:.4f} | "
                f"{line['mae'] / 2:.4f} | {line['seconds']:.3f} | "
                f"{line['converged']} of {line['of']} |"
            )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--render", action="store_true", help="print what is stored")
    parser.add_argument("--pgmax", metavar="PYTHON", help="interpreter that has PGMax and JAX")
    options = parser.parse_args()
    if not options.render:
        measure(options.pgmax)
    print(render())


if __name__ == "__main__":
    main()
