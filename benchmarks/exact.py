"""Exact marginals: icgi against other programs, on the tractable instances.

    ICGI_DATA=… python benchmarks/exact.py [--all] [--only NAME …] [--programs DIR]
    python benchmarks/exact.py --render          prints the table from the stored lines

Peers are packages that pip installs, and the executables of a folder (--programs, or ICGI_PROGRAMS;
`exact_peers.py` says what such a program does). Every (solver, instance) runs in a process of its
own with a time and a memory limit. Timed: model in memory → all single-variable marginals, order
search included, parsing excluded; the best of several runs, and the first call on the model in the
process, after a small model has loaded what the program loads. Every solver has one core and one
thread: a program that waits for its other threads in a loop would seem slower than it is. Compared
are CPU seconds, which stay about the same on a busy machine. Every answer is compared with that of
icgi; a peer whose answer differs by more than 1e-6 did not finish. One JSON line per (instance,
solver) goes to benchmarks/results/exact.jsonl as soon as it is known; a stopped run goes on where
it was.
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
from exact_peers import MEMORY, PACKAGES, SOLVERS, ask_program, programs

import icgi
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES

RESULTS = Path(__file__).parent / "results" / "exact.jsonl"
SHORT = (
    "pdb1not", "pdb2fdn", "Pedigree_11", "Pedigree_12", "Pedigree_13", "CSP_12", "Promedus_13",
    "Segmentation_11", "pdb1hoe", "pdb1fna", "ObjectDetection_11", "DBN_11", "DBN_16", "CSP_13",
    "ObjectDetection_14", "Grids_11", "Promedus_11", "Promedus_17", "Alchemy_11", "relational_2",
    "relational_5", "BN_31", "pdb1rh4",
)  # fmt: skip
SLIGHT = 1e-3  # seconds of the best peer below which a ratio says little
AGREES = 1e-6
ENOUGH = 1.0  # CPU seconds of repeated runs
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


def one(solver: str, name: str, limit: float, folder: Path | None) -> None:
    """Child process: time one solver on one instance and print the result as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2**33, MEMORY + 2**33))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    model, evidence = load(name)
    if solver in SOLVERS:
        found, probs = time_package(solver, model, evidence, limit)
    else:
        end_after(limit)  # the program inherits it, and reads the model meanwhile
        program = programs(folder)[solver]
        found, probs = ask_program(program, model, evidence, min(ENOUGH, limit / 4))
        end_after(math.inf)
    if solver != "icgi":
        ours = SOLVERS["icgi"](model, evidence)()
        gap = float(np.abs(probs - ours).max())
        found["difference"] = gap if math.isfinite(gap) else None
    print(RESULT + json.dumps(found), flush=True)


def time_package(
    solver: str, model: icgi.FactorGraph, evidence: dict[int, int], limit: float
) -> tuple[dict[str, object], np.ndarray]:
    """Seconds of the first call and of the best one, and the marginals."""
    small = FAMILIES["ea2d"].sample(np.random.default_rng(0), L=4)
    SOLVERS[solver](small, {})()
    if solver == "icgi":  # that model is too small, and has too few zeros, to load every kernel
        icgi.marginals(FAMILIES["ea2d"].sample(np.random.default_rng(0), L=15), engine="jt")
        icgi.marginals(FAMILIES["csp"].sample(np.random.default_rng(0)), {0: 1}, engine="jt")
    run = SOLVERS[solver](model, evidence)
    end_after(limit)
    spent: list[float] = []
    while not spent or sum(spent) < min(ENOUGH, limit / 4):
        began = time.thread_time()  # that of a process with a limit ticks in hundredths
        probs = run()
        spent.append(time.thread_time() - began)
    end_after(math.inf)
    return {"seconds": min(spent), "first": spent[0], "runs": len(spent)}, probs


def end_after(seconds: float) -> None:
    """Let the kernel end this process, and those it starts, after so many more CPU seconds."""
    most = resource.RLIM_INFINITY
    if math.isfinite(seconds):
        most = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def measure(solver: str, name: str, limit: float, folder: Path | None) -> dict:
    """One line of the results."""
    line = {"instance": name, "solver": solver, "limit": limit}
    line["version"] = version(PACKAGES[solver]) if solver in PACKAGES else ""
    line |= {"cpu": cpu(), "cores": os.cpu_count()}
    command = [sys.executable, __file__, "--one", solver, name, "--limit", str(limit)]
    command += ["--programs", str(folder)] if folder else []
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
    words |= {"bad_alloc": "memory", "Unable to allocate": "memory", "TimeoutError": "timeout"}
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


def stored(path: Path) -> dict[tuple[str, str], dict]:
    """Latest line of every (instance, solver)."""
    text = path.read_text() if path.is_file() else ""
    return {(x["instance"], x["solver"]): x for x in map(json.loads, text.splitlines())}


def solvers(known: dict[tuple[str, str], dict]) -> list[str]:
    """Solvers with a line, icgi first, packages before programs."""
    found = {solver for _, solver in known}
    return [s for s in SOLVERS if s in found] + sorted(found - set(SOLVERS))


def cell(line: dict | None) -> str:
    if line is None:
        return "–"
    if "problem" in line:
        return line["problem"] if len(line["problem"]) < 12 else "failed"
    wrong = line["solver"] != "icgi" and not right(line)
    return f"{line['seconds']:.3g}" + (" wrong" if wrong else "")


def right(line: dict) -> bool:
    """Whether a peer ended with the right marginals."""
    gap = line.get("difference")
    return "seconds" in line and gap is not None and gap <= AGREES


def best(name: str, known: dict[tuple[str, str], dict], which: str = "seconds") -> float | None:
    """Seconds of the best peer; None where no peer ended."""
    lines = [line for (n, solver), line in known.items() if n == name and solver != "icgi"]
    return min([line[which] for line in lines if right(line) and which in line], default=None)


def ratio(name: str, known: dict[tuple[str, str], dict], which: str = "seconds") -> float | None:
    """Seconds of the best peer over those of icgi; None where no peer, or not icgi, ended."""
    ours, theirs = known.get((name, "icgi"), {}).get(which), best(name, known, which)
    return theirs / ours if theirs and ours else None


def row(name: str, known: dict[tuple[str, str], dict]) -> str:
    shown = []
    for which in ("seconds", "first"):
        found = ratio(name, known, which)
        shown.append(
            "only icgi" if found is None else f"{found:.2g}" if found < 10 else f"{found:.0f}"
        )
    cells = [cell(known.get((name, solver))) for solver in solvers(known)]
    return f"| {name} | {' | '.join([*cells, *shown])} |"


def render(known: dict[tuple[str, str], dict]) -> str:
    """Markdown table of all stored lines, and the means of the ratios."""
    names = list(dict.fromkeys(name for name, _ in known))
    versions = {solver: line["version"] for (_, solver), line in known.items()}
    some = next(iter(known.values()))
    limits = sorted({f"{line['limit']:g}" for line in known.values()}, key=float)
    columns = solvers(known)
    head = " | ".join(f"{solver} {versions.get(solver, '')}".strip() for solver in columns)
    ratios = {name: found for name in names if (found := ratio(name, known)) is not None}
    firsts = [found for name in names if (found := ratio(name, known, "first")) is not None]
    if not ratios:
        return "no instance that both icgi and a peer finished"
    worst = min(ratios, key=lambda name: ratios[name])
    slow = [name for name in ratios if ratios[name] < 1]
    under = [name for name in ratios if ratios[name] < 3 and (best(name, known) or 0) > SLIGHT]
    return "\n".join(
        [
            f"CPU seconds for all marginals, best of several runs ({some['cpu']}, {some['cores']} "
            f"cores, one thread each; limit {' or '.join(limits)} s and {MEMORY / 2**30:g} GiB).",
            "",
            f"| instance | {head} | best peer / icgi | first call |",
            "|---|" + "---:|" * (len(columns) + 2),
            *(row(name, known) for name in names),
            "",
            "Best peer's time over icgi's: geometric mean "
            f"{mean(list(ratios.values())):.1f} (first call {mean(firsts):.1f}), worst "
            f"{ratios[worst]:.2f} ({worst}), over the "
            f"{len(ratios)} of {len(names)} instances that a peer finished.",
            f"A peer is faster on: {', '.join(slow) or 'none'}. Under 3 where a peer takes more "
            f"than {1e3 * SLIGHT:g} ms: {', '.join(under) or 'none'}.",
        ]
    )


def mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return math.exp(float(np.mean(np.log(ratios)))) if ratios else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="every tractable instance")
    parser.add_argument("--only", nargs="*", help="these instances, again even if known")
    parser.add_argument("--solvers", nargs="*", help="these only")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU seconds per solver")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds of this run")
    given = os.environ.get("ICGI_PROGRAMS")
    parser.add_argument(
        "--programs",
        type=Path,
        default=Path(given) if given else None,
        help="folder of executables",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the lines")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.one:
        one(*options.one, options.limit, options.programs)
        return
    began = time.perf_counter()
    asked = options.solvers or [*SOLVERS, *programs(options.programs)]
    for name in [] if options.render else wanted(options):
        for solver in asked:
            if (name, solver) in stored(options.results) and not options.only:
                continue
            if time.perf_counter() - began > options.stop_after:
                print("stopped; the same command goes on from here")
                return
            with options.results.open("a") as file:
                line = measure(solver, name, options.limit, options.programs)
                file.write(json.dumps(line) + "\n")
        print(row(name, stored(options.results)), flush=True)
    print(render(stored(options.results)))


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
