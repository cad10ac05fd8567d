"""Exact marginals: icgi against the peers that pip can install, on the tractable instances.

    ICGI_DATA=… python benchmarks/exact.py [--all] [--only NAME …] [--limit SECONDS]
    python benchmarks/exact.py --render          prints the table from the stored lines

Every (solver, instance) runs in a process of its own with a time and a memory limit. Timed: model
in memory → all single-variable marginals, order search included, parsing excluded; mean of several
runs after a warm-up on a small model. Every solver has one core and one thread: a program that
waits for its other threads in a loop would seem slower than it is. Compared are CPU seconds, which
stay about the same on a busy machine. Every answer is compared with that of icgi; a peer whose
answer differs by more than 1e-6 did not finish. One JSON line per (instance, solver) goes to
benchmarks/results/exact.jsonl as soon as it is known; a stopped run goes on where it was.
"""

import argparse
import json
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from exact_peers import MEMORY, PACKAGES, SOLVERS

import icgi
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES

RESULTS = Path(__file__).parent / "results" / "exact.jsonl"
SHORT = (
    "Grids_12", "Grids_11", "DBN_11", "Segmentation_11", "Segmentation_12", "ObjectDetection_11",
    "ObjectDetection_12", "Pedigree_11", "Pedigree_12", "Alchemy_11", "Promedus_11", "Promedus_13",
    "Promedus_15", "Promedus_22", "Promedus_26", "Promedus_34", "CSP_12", "CSP_13", "relational_2",
    "relational_5", "BN_31", "pdb1not", "pdb1rh4", "pdb1ajj", "pdb1fna",
)  # fmt: skip
PEERS = tuple(solver for solver in SOLVERS if solver != "icgi")
AGREES = 1e-6
ENOUGH = 1.0  # CPU seconds of repeated runs; the clock may tick in hundredths
RESULT = "RESULT "
MADE = {
    "ising-10x10": ("ea2d", 1, {"L": 10}),
    "ising-20x20": ("ea2d", 2, {"L": 20}),
    "er-100-0.05": ("er", 3, {"n": 100, "p": 0.05}),
    "tree-1000": ("tree", 4, {"n": 1000}),
}


def load(name: str) -> tuple[icgi.FactorGraph, dict[int, int]]:
    if name in MADE:
        family, seed, size = MADE[name]
        return FAMILIES[family].sample(np.random.default_rng(seed), **size), {}
    folder = data_folder()
    for instance in instances(folder) if folder else ():
        if instance.name == name:
            return instance.model(), dict(instance.evidence())
    raise SystemExit(f"unknown instance {name}; is ICGI_DATA set?")


def one(solver: str, name: str, limit: float) -> None:
    """Child process: time one solver on one instance and print the result as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2**33, MEMORY + 2**33))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    small = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=4)
    SOLVERS[solver](small, {})()
    if solver == "icgi":  # that model is too small to load every kernel
        icgi.marginals(FAMILIES["ea2d"].sample(np.random.default_rng(0), L=15), engine="jt")
    model, evidence = load(name)
    run = SOLVERS[solver](model, evidence)
    used = math.ceil(time.process_time() + limit)  # the kernel ends the process there
    resource.setrlimit(resource.RLIMIT_CPU, (used, resource.RLIM_INFINITY))
    began, runs = time.process_time(), 0
    while time.process_time() - began < min(ENOUGH, limit / 4) or not runs:
        probs = run()
        runs += 1
    spent = time.process_time() - began
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    found: dict[str, object] = {"seconds": spent / runs, "runs": runs}
    if solver != "icgi":
        ours = SOLVERS["icgi"](model, evidence)()
        gap = float(np.abs(probs - ours).max())
        found["difference"] = gap if math.isfinite(gap) else None
    print(RESULT + json.dumps(found), flush=True)


def measure(solver: str, name: str, limit: float) -> dict:
    """One line of the results."""
    line = {"instance": name, "solver": solver, "version": version(PACKAGES[solver])}
    line |= {"limit": limit, "cpu": cpu(), "cores": os.cpu_count()}
    command = [sys.executable, __file__, "--one", solver, name, "--limit", str(limit)]
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=10 * limit + 60,
            env=os.environ | single,
        )
    except subprocess.TimeoutExpired:
        return line | {"problem": "timeout"}
    for line_out in done.stdout.splitlines():
        if line_out.startswith(RESULT):
            return line | json.loads(line_out[len(RESULT) :])
    return line | {"problem": problem(done)}


def problem(done: subprocess.CompletedProcess[str]) -> str:
    """Why a solver gave no answer, in a few words."""
    words = {"NotForIt": "not for it", "treewidth": "too wide", "emory": "memory"}
    words |= {"bad_alloc": "memory", "Unable to allocate": "memory"}
    if done.returncode == -signal.SIGXCPU:
        return "timeout"
    for sign, meaning in words.items():
        if sign in done.stderr:
            return meaning
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:80]


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def stored() -> dict[tuple[str, str], dict]:
    """Latest line of every (instance, solver)."""
    text = RESULTS.read_text() if RESULTS.is_file() else ""
    return {(x["instance"], x["solver"]): x for x in map(json.loads, text.splitlines())}


def cell(line: dict | None) -> str:
    if line is None:
        return "–"
    if "problem" in line:
        return line["problem"] if len(line["problem"]) < 12 else "failed"
    wrong = line["solver"] != "icgi" and not right(line)
    return f"{line['seconds']:.4f}" + (" wrong" if wrong else "")


def right(line: dict) -> bool:
    """Whether a peer ended with the right marginals."""
    gap = line.get("difference")
    return "seconds" in line and gap is not None and gap <= AGREES


def ratio(name: str, known: dict[tuple[str, str], dict]) -> float | None:
    """Seconds of the best peer over those of icgi; None where no peer ended."""
    ours = known.get((name, "icgi"), {}).get("seconds")
    lines = [known[name, peer] for peer in PEERS if (name, peer) in known]
    times = [line["seconds"] for line in lines if right(line)]
    return min(times) / ours if times and ours else None


def row(name: str, known: dict[tuple[str, str], dict]) -> str:
    found = ratio(name, known)
    shown = "only icgi" if found is None else f"{found:.1f}"
    cells = [cell(known.get((name, solver))) for solver in SOLVERS]
    return f"| {name} | {' | '.join(cells)} | {shown} |"


def render(known: dict[tuple[str, str], dict]) -> str:
    """Markdown table of all stored lines, and the mean of the ratios."""
    names = list(dict.fromkeys(name for name, _ in known))
    versions = {solver: line["version"] for (_, solver), line in known.items()}
    some = next(iter(known.values()))
    limits = sorted({f"{line['limit']:g}" for line in known.values()}, key=float)
    head = " | ".join(f"{solver} {versions.get(solver, '')}".strip() for solver in SOLVERS)
    ratios = {name: found for name in names if (found := ratio(name, known)) is not None}
    if not ratios:
        return "no instance that both icgi and a peer finished"
    worst = min(ratios, key=lambda name: ratios[name])
    mean = math.exp(float(np.mean(np.log(list(ratios.values())))))
    return "\n".join(
        [
            f"CPU seconds for all marginals ({some['cpu']}, {some['cores']} cores; limit "
            f"{' or '.join(limits)} s and {MEMORY / 2**30:g} GiB each).",
            "",
            f"| instance | {head} | best peer / icgi |",
            "|---|" + "---:|" * (len(SOLVERS) + 1),
            *(row(name, known) for name in names),
            "",
            f"Best peer's time over icgi's: geometric mean {mean:.1f}, worst {ratios[worst]:.2f} "
            f"({worst}), over the {len(ratios)} of {len(names)} instances that a peer finished.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="every tractable instance")
    parser.add_argument("--only", nargs="*", help="these instances, again even if known")
    parser.add_argument("--solvers", nargs="*", default=list(SOLVERS))
    parser.add_argument("--limit", type=float, default=30.0, help="CPU seconds per solver")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds of this run")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.one:
        one(*options.one, options.limit)
        return
    began = time.perf_counter()
    for name in [] if options.render else wanted(options):
        for solver in options.solvers:
            if (name, solver) in stored() and not options.only:
                continue
            if time.perf_counter() - began > options.stop_after:
                print("stopped; the same command goes on from here")
                return
            with RESULTS.open("a") as file:
                file.write(json.dumps(measure(solver, name, options.limit)) + "\n")
        print(row(name, stored()), flush=True)
    print(render(stored()))


def wanted(options: argparse.Namespace) -> list[str]:
    names, folder = list(MADE), data_folder()
    if folder is None:
        print("ICGI_DATA is not set: only generated instances")
    else:
        tractable = [i.name for i in instances(folder) if i.tractable]
        names += tractable if options.all else [n for n in SHORT if n in tractable]
    return [n for n in names if not options.only or n in options.only]


if __name__ == "__main__":
    main()
