"""`auto` on real and hard models: score, who is left without an answer, time against error, cost.

    ICGI_DATA=… python benchmarks/auto.py score [--seconds 20] [--family dbn]
    ICGI_DATA=… python benchmarks/auto.py answers [--seconds 20] [--memory 8]
    ICGI_DATA=… python benchmarks/auto.py references [--only sk-500] [--reference 120]
    ICGI_DATA=… python benchmarks/auto.py modes [--only grid80x80]      of the long runs
    ICGI_DATA=… python benchmarks/auto.py hard [--only sk-500] [--seconds 1,5] [--engines auto]
    ICGI_DATA=… python benchmarks/auto.py compared      errors anew, where references have changed
    ICGI_DATA=… python benchmarks/auto.py core          10 s on one processor, beside `pt` alone
    python benchmarks/auto.py glasses                   the same on dense models, 2 s
    ICGI_DATA=… python benchmarks/auto.py overhead [--only CSP_12]    beside the chosen engine
    python benchmarks/auto.py           prints the goals and all tables, writes docs/hard.md

`score` meets every instance with a trustworthy reference, and where exact inference does not fit it
also runs the single engines, for the best in hindsight. `answers` meets every instance of the
collection. `hard` meets models that no exact method reaches (or some that one does, with exact
inference switched off, for then the error is known), with each engine and several times; the
reference is the mean of two long runs of `pt` from different seeds (`references`, which also runs
`pa`, a method of its own), exact, or for the torus of 20 × 20 spins its transfer operator
(benchmarks/torus.py); nine models have runs of a device (benchmarks/hard_references.py). One JSON
line per answer goes to benchmarks/results/auto.jsonl; a stopped run goes on where it was, and
`--again` puts new lines in the place of old ones. References are kept in the folder ICGI_STUDY, and
so are the answers of `hard`, which `compared` compares anew. With ICGI_CLOCK=processor seconds are
those of processors, whatever else the machine does (lines say so);
`core`, `glasses` and `overhead` ask for it.
"""

import argparse
import datetime
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hard_references
import numpy as np

import icgi
from icgi import clock
from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.metrics import mean_absolute_error, uai_2022_score

ROOT = Path(__file__).parent
LINES = ROOT / "results" / "auto.jsonl"
TORUS_LINES = ROOT / "results" / "torus.jsonl"
PAGE = ROOT.parent / "docs" / "hard.md"
SINGLE = ("lbp", "ttve", "pt")
TODAY = datetime.datetime.now(datetime.UTC).date().isoformat()
WRONG = 0.05  # mean error beyond which an answer called trustworthy is wrong


Loaded = Callable[[], tuple[icgi.FactorGraph, dict]]


def _made(family: str, **settings: float) -> Loaded:
    return lambda: (FAMILIES[family].sample(np.random.default_rng(2026), **settings), {})


def _published(name: str) -> Loaded:
    def load() -> tuple[icgi.FactorGraph, dict]:
        found = next(each for each in collection() if each.name == name)
        return found.model(), dict(found.evidence())

    return load


def _network(name: str) -> Loaded:
    return lambda: (icgi.load(_folder() / "bn" / f"{name}.bif.gz"), {})


# Models that no exact method reaches, then those whose answers are known with exact inference off.
HARD = {
    "grid20x20.f5.wrap": _published("grid20x20.f5.wrap"),
    "grid40x40.f10.wrap": _published("grid40x40.f10.wrap"),
    "grid80x80.f10": _published("grid80x80.f10"),
    "sk-500 β=2 h=0.5": _made("sk", n=500, beta=2.0, h=0.5),
    "sk-500 β=2 h=0.1": _made("sk", n=500, beta=2.0, h=0.1),
    "sk-1000 β=1 h=0.5": _made("sk", n=1000, beta=1.0, h=0.5),
    "sk-2000 β=1 h=0.5": _made("sk", n=2000, beta=1.0, h=0.5),
    "ea3d L=8 β=1": _made("ea3d", L=8, beta=1.0),
    "ea3d L=8 β=3": _made("ea3d", L=8, beta=3.0),
    "ea3d L=12 β=1": _made("ea3d", L=12, beta=1.0),
    "ea3d L=12 β=3": _made("ea3d", L=12, beta=3.0),
    "pdb1b25": _published("pdb1b25"),
    "didNotconverge7": _published("didNotconverge7"),
    "linkage_11": _published("linkage_11"),
}
SOLVED = {
    "BN_12": _published("BN_12"),
    "munin": _network("munin"),
    "linkage_24": _published("linkage_24"),
    "or_chain_113.fg": _published("or_chain_113.fg"),
}
TORUS = "grid20x20.f5.wrap"
LONG = (("pt", 101), ("pt", 102), ("pa", 201))  # runs for a reference: engine and seed
BESIDE = (("ttve", 301),)  # to compare likeliest states with (`modes`)
# Exact instances whose overhead is measured, and settings under which one route soon vouches.
EXACT = ("Alchemy_11", "CSP_12", "Grids_11", "Pedigree_11", "Promedus_11", "pdb1not")
SETTLED = {
    "ea2d L=20 β=1": _made("ea2d", L=20, beta=1.0),
    "er n=60 β=0.5": _made("er", n=60, p=0.1, beta=0.5),
    "sk n=24 β=1": _made("sk", n=24, beta=1.0),
    # the rule of who has to be confirmed was not chosen on these
    "ea2d L=16 β=2": _made("ea2d", L=16, beta=2.0),
    "grid 25×12 β=1": _made("grid", rows=25, columns=12, beta=1.0),
    "ws n=80 β=1": _made("ws", n=80, k=4, beta=1.0),
    "ba n=80 β=1": _made("ba", n=80, m=2, beta=1.0),
    "ea3d L=4 β=0.5": _made("ea3d", L=4, beta=0.5),
}


# Dense frustrated models: whether the rule of the glimpse was chosen with a look at them.
GLASSES = {
    "sk n=100 β=2": (True, _made("sk", n=100, beta=2.0, h=0.1)),
    "sk n=200 β=2": (True, _made("sk", n=200, beta=2.0, h=0.1)),
    "er n=200 p=0.1 β=1": (True, _made("er", n=200, p=0.1, beta=1.0)),
    "sk n=150 β=1": (False, _made("sk", n=150, beta=1.0, h=0.1)),
    "sk n=300 β=1.5": (False, _made("sk", n=300, beta=1.5, h=0.1)),
    "er n=120 p=0.2 β=2": (False, _made("er", n=120, p=0.2, beta=2.0)),
}
GLASS_SECONDS, GLASS_REFERENCE, SEEDS = 2.0, 8.0, (1, 2, 3)


def _folder() -> Path:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    return folder


def collection() -> list[Instance]:
    return list(instances(_folder()))


def lines() -> list[dict]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.is_file() else []


def keep(line: dict) -> None:
    """Append a line, in the place of one of the same question.

    Time against error is kept for several times; of the rest the last one counts.
    """
    question = ("task", "name", "engine", "seed", *(("asked",) if line["task"] == "hard" else ()))
    before = lines()
    rest = [x for x in before if any(x.get(k) != line.get(k) for k in question)]
    if len(rest) < len(before):
        text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in rest)
        LINES.write_text(text)
    with LINES.open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    shown = {k: v for k, v in line.items() if k not in ("task", "version")}
    print(json.dumps(shown, ensure_ascii=False), flush=True)


def answer(
    line: dict, model, evidence, engine: str, seconds: float, memory: float, seed: int = 1
) -> dict:
    """One line: how an engine did; its marginals under `probs`."""
    budget = icgi.Budget(seconds=seconds, table_bytes=int(memory * 1e9))
    line = line | {"engine": engine, "asked": seconds, "version": icgi.__version__, "day": TODAY}
    began, cpu = clock.now(), time.process_time()
    try:
        found = icgi.marginals(model, evidence, engine, budget, seed=seed)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    error = found.std_error
    free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
    return line | {
        "status": found.status.value,
        "seconds": round(clock.now() - began, 2),
        "cpu": round(time.process_time() - cpu, 2),
        "expected": 0.0 if error is None else float(error[free].max(1).mean()),
        "note": found.marginals.note,
        "sweeps": found.marginals.stats.get("pt_sweeps", found.marginals.stats.get("sweeps", 0.0)),
        "clock": "processor" if clock.BY_PROCESSOR else "wall",
        "probs": found.probs[free],
    }


def padded(rows: list, model: icgi.FactorGraph) -> np.ndarray:
    full = np.zeros((model.n_variables, model.max_states))
    for i, row in enumerate(rows):
        full[i, : len(row)] = row
    return full


def answered(task: str, options: argparse.Namespace) -> set[tuple[str, str]]:
    """Instances and engines that need not be asked: of `--again` those since the day it names."""
    since = options.again or ""
    return {(x["name"], x["engine"]) for x in lines()
            if x["task"] == task and x.get("day", "") >= since}  # fmt: skip


def score(options: argparse.Namespace) -> None:
    known = answered("score", options)
    solved = {x["name"] for x in lines() if x["task"] == "score" and x["status"] == "exact"}
    for each in collection():
        if not each.has_reference or options.family not in each.family:
            continue
        model, evidence = each.model(), dict(each.evidence())
        free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
        truth = padded(each.reference() or [], model)[free]
        exact = each.name in solved and (each.name, "auto") in known
        for engine in ("auto", *SINGLE):
            if (each.name, engine) in known or (engine != "auto" and exact):
                continue
            head = {"task": "score", "name": each.name, "family": each.family}
            line = answer(head, model, evidence, engine, options.seconds, options.memory)
            probs = line.pop("probs", None)
            if probs is not None:
                cards = model.cards[free]
                line["score"] = float(uai_2022_score(probs, truth, cards))
                line["error"] = float(mean_absolute_error(probs, truth))
            exact = exact or (engine == "auto" and line["status"] == "exact")
            keep(line)


def answers(options: argparse.Namespace) -> None:
    known = answered("answers", options)
    scored = {x["name"]: x for x in lines() if x["task"] == "score" and x["engine"] == "auto"
              and (x["name"], "auto") in answered("score", options)
              and x["asked"] == options.seconds}  # fmt: skip
    for each in collection():
        if (each.name, "auto") in known or options.family not in each.family:
            continue
        head = {"task": "answers", "name": each.name, "family": each.family}
        if each.name in scored:  # the same question
            keep(scored[each.name] | head)
            continue
        line = answer(
            head, each.model(), dict(each.evidence()), "auto", options.seconds, options.memory
        )
        line.pop("probs", None)
        keep(line)


def study(name: str, what: str) -> Path:
    """Where marginals of a model are kept."""
    if "ICGI_STUDY" not in os.environ:
        raise SystemExit("set ICGI_STUDY to a folder for the references")
    store = Path(os.environ["ICGI_STUDY"])
    store.mkdir(parents=True, exist_ok=True)
    return store / f"{name.replace(' ', '_').replace('=', '')}-{what}.npy"


def references(options: argparse.Namespace) -> None:
    """Long runs of `pt` and of `pa`."""
    for name, load in HARD.items():
        if not any(part in name for part in options.only.split(",")):
            continue
        model, evidence = load()
        for engine, seed in LONG + BESIDE:
            target = study(name, f"{engine}-{seed}")
            if engine not in options.engines.split(",") or (target.is_file() and not options.again):
                continue
            head = {"task": "reference", "name": name, "seed": seed}
            line = answer(
                head, model, evidence, engine, options.reference, options.memory, seed=seed
            )
            np.save(target, line.pop("probs"))
            keep(line | {"load": round(os.getloadavg()[0], 1)})


def has_reference(name: str) -> bool:
    """Whether there is anything to compare answers with."""
    if name in SOLVED or hard_references.kept(name) is not None:
        return True
    return any(study(name, what).is_file() for what in ("torus", "pt-102"))


def reference(name: str, load: Loaded) -> tuple[np.ndarray, dict]:
    """Marginals of the free variables, and what is known of them.

    `apart`: of the two runs of `pt`, those of a device where there are any; `methods_apart`: their
    mean and `pa`; `reference`: seconds of a run, 0 where it is exact.
    """
    model, evidence = load()
    free = np.setdiff1d(np.arange(model.n_variables), list(evidence))
    if name in SOLVED:
        if not (path := study(name, "exact")).is_file():
            np.save(path, icgi.marginals(model, evidence, "exact").probs[free])
        return np.load(path), {"apart": 0.0, "reference": 0.0}
    runs = {path: np.load(path) for path in (study(name, f"{e}-{s}") for e, s in LONG)
            if path.is_file()}  # fmt: skip
    tempered = [probs for path, probs in runs.items() if "-pt-" in path.name]
    about: dict = {}
    mean = None
    if (known := hard_references.kept(name)) is not None:
        mean, about = known
    elif len(tempered) > 1:
        mean = sum(tempered) / len(tempered)
        about["apart"] = float(mean_absolute_error(*tempered[:2]))
        long = [x for x in lines() if x["task"] == "reference" and x["name"] == name]
        about["reference"] = max(x["asked"] for x in long if x["engine"] == "pt")
    if mean is not None:
        for probs in (p for path, p in runs.items() if "-pa-" in path.name):
            about["methods_apart"] = float(mean_absolute_error(probs, mean))
    if name == TORUS and (zero := study(name, "torus")).is_file():
        exact = np.load(zero)
        if mean is not None:
            about["methods_apart"] = float(mean_absolute_error(mean, exact))
        return exact, about | {"apart": 0.0, "reference": 0.0, "by": "transfer operator"}
    if mean is None:
        raise SystemExit(f"{name}: no reference yet; run `references` first")
    return mean, about


def modes(options: argparse.Namespace) -> None:
    """Log weights of the states that the long runs prefer, improved one variable at a time.

    Where one run's is far below another's, it has sampled a part of the model that hardly counts.
    """
    for name, load in HARD.items():
        if not any(part in name for part in options.only.split(",")):
            continue
        model, evidence = load()
        if evidence:
            raise SystemExit(f"{name} has evidence: not written for that")
        for engine, seed in LONG + BESIDE:
            if not (path := study(name, f"{engine}-{seed}")).is_file():
                continue
            x = _improved(model, np.load(path).argmax(1))
            tables = zip(model.scopes, model.log_tables, strict=True)
            weight = sum(float(table[tuple(x[list(scope)])]) for scope, table in tables)
            keep({"task": "modes", "name": name, "engine": engine, "seed": seed, "weight": weight})


def _improved(model: icgi.FactorGraph, x: np.ndarray) -> np.ndarray:
    """Configuration that no change of a single variable makes likelier."""
    around: list[list] = [[] for _ in range(model.n_variables)]
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        for i in scope:
            around[i].append((scope, table))
    moved = True
    while moved:
        moved = False
        for i, near in enumerate(around):
            here = (tuple(slice(None) if j == i else x[j] for j in s) for s, _ in near)
            values = sum(table[index] for index, (_, table) in zip(here, near, strict=True))
            best = int(np.argmax(values))
            if np.ndim(values) and values[best] > values[x[i]] + 1e-9:
                x[i], moved = best, True
    return x


def hard(options: argparse.Namespace) -> None:
    since = options.again or ""
    known = {(x["name"], x["engine"], x["asked"]) for x in lines()
             if x["task"] == "hard" and x.get("day", "") >= since}  # fmt: skip
    if clock.BY_PROCESSOR:
        _one_processor()
    wanted = options.engines.split(",")
    for name, load in (HARD | SOLVED).items():
        if not any(part in name for part in options.only.split(",")):
            continue
        model, evidence = load()
        for engine in wanted:
            asked = f"{engine}:exact=false" if engine == "auto" and name in SOLVED else engine
            if engine == "ttve" and name in SOLVED:
                asked = "ttve:exact_entries=0"
            for seconds in map(float, options.seconds_list.split(",")):
                if (name, engine, seconds) in known:
                    continue
                head = {"task": "hard", "name": name}
                line = answer(head, model, evidence, asked, seconds, options.memory)
                line |= {"engine": engine, "load": round(os.getloadavg()[0], 1)}
                probs = line.pop("probs", None)
                if probs is not None:
                    np.save(study(name, _answer_of(line)), probs)
                keep(line)
    compared(options)


def _answer_of(line: dict) -> str:
    return f"hard-{line['engine']}-{line['asked']:g}"


def compared(options: argparse.Namespace) -> None:
    """Errors of the answers that are kept, by the references that there are now."""
    for name, load in (HARD | SOLVED).items():
        if not any(part in name for part in options.only.split(",")):
            continue
        here = [x for x in lines() if x["task"] == "hard" and x["name"] == name]
        kept = [(x, path) for x in here if (path := study(name, _answer_of(x))).is_file()]
        if not kept or not has_reference(name):
            continue
        truth, about = reference(name, load)
        for line, path in kept:
            keep(line | {"error": float(mean_absolute_error(np.load(path), truth)), **about})


def core(options: argparse.Namespace) -> None:
    """SK N=500 on one processor: `auto` and `pt` alone, in turn, from several seeds."""
    _one_processor()
    names = [x for x in ("sk-500 β=2 h=0.5", "sk-500 β=2 h=0.1") if options.only in x]
    for name in names:
        truth, about = reference(name, HARD[name])
        _in_turn("core", name, HARD[name], 10.0, truth, about, options)


def glasses(options: argparse.Namespace) -> None:
    """Dense models on one processor: `auto` and `pt` alone, against two longer runs of `pt`."""
    _one_processor()
    for name, (development, load) in GLASSES.items():
        met = {x["seed"] for x in lines() if x["task"] == "glasses" and x["name"] == name}
        if met == set(SEEDS) and not options.again:
            continue
        model, evidence = load()
        budget = icgi.Budget(seconds=GLASS_REFERENCE)
        long = [icgi.marginals(model, evidence, "pt", budget, seed=s).probs for s in (101, 102)]
        about = {"apart": float(mean_absolute_error(*long)), "development": development}
        _in_turn("glasses", name, load, GLASS_SECONDS, sum(long) / 2, about, options)


def _in_turn(
    task: str, name: str, load: Loaded, seconds: float, truth, about: dict,
    options: argparse.Namespace,
) -> None:  # fmt: skip
    known = {(x["name"], x["engine"], x.get("seed")) for x in lines() if x["task"] == task}
    model, evidence = load()
    for seed in SEEDS:
        for engine in ("auto", "pt"):
            if (name, engine, seed) in known and not options.again:
                continue
            head = {"task": task, "name": name, "seed": seed}
            line = answer(head, model, evidence, engine, seconds, options.memory, seed)
            line |= {"error": float(mean_absolute_error(line.pop("probs"), truth)), **about}
            keep(line | {"load": round(os.getloadavg()[0], 1)})


def _one_processor() -> None:
    if not clock.BY_PROCESSOR:
        raise SystemExit("set ICGI_CLOCK=processor, so that others on the machine do not matter")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def overhead(options: argparse.Namespace) -> None:
    """`auto` and the chosen engine alone, in turn; the least of each of three runs counts.

    By processor time of one processor, which others on the machine do not change; with several,
    routes run side by side and a person waits for less.
    """
    _one_processor()
    published = {each.name: each for each in collection() if each.name in EXACT}
    todo = [(name, _published(name), "exact") for name in EXACT if name in published]
    todo += [(name, load, "") for name, load in SETTLED.items()]
    known = {x["name"] for x in lines() if x["task"] == "overhead" and not options.again}
    for name, load, alone in todo:
        if name in known or not any(part in name for part in options.only.split(",")):
            continue
        model, evidence = load()
        ours, budget = "auto" if alone else "auto:exact=false", icgi.Budget(seconds=20.0)
        found = icgi.marginals(model, evidence, ours, budget, seed=1)  # compiles what is needed
        alone = alone or found.marginals.note.partition(";")[0]
        exact = alone == "exact"
        spent: dict[str, list[float]] = {ours: [], alone: []} | ({"jt": []} if exact else {})
        for _ in range(3):
            for engine, taken in list(spent.items()):
                cpu = time.process_time()
                try:
                    icgi.marginals(model, evidence, engine, budget, seed=1)
                except icgi.IcgiError:  # a junction tree alone does not fit
                    del spent[engine]
                    continue
                taken.append(time.process_time() - cpu)
        line = {"task": "overhead", "name": name, "engine": alone, "exact": exact}
        line |= {"auto": min(spent[ours]), "alone": min(spent[alone])}
        line |= {"jt": min(spent["jt"])} if "jt" in spent else {}
        keep(line | {"load": round(os.getloadavg()[0], 1)})


def render() -> None:
    found = lines()
    by = {task: [x for x in found if x["task"] == task] for task in (*TASKS, "reference")}
    text = [
        "# Hard models: time against error",
        "",
        "What `auto` reaches, on models that no exact method solves and on all that have a "
        "reference. Everything here is printed by `python benchmarks/auto.py` from the lines in "
        "`benchmarks/results/auto.jsonl`.",
        "",
        "## Goals",
        "",
        *_goals(by),
        "",
        "## Time against error",
        "",
        *_hard(by["hard"], by["modes"]),
        "",
        "## Dense frustrated models",
        "",
        *_glasses(by["core"] + by["glasses"]),
        "",
        "## UAI-2022 score",
        "",
        *_score(by["score"]),
        "",
        "## Overhead",
        "",
        *_overhead(by["overhead"]),
    ]
    PAGE.write_text("\n".join(text) + "\n")
    print(PAGE.read_text())


def _goals(by: dict[str, list[dict]]) -> list[str]:
    """What was aimed at, and what is measured."""
    rows = [("UAI-2022 score at 20 s, all instances with a trustworthy reference", "≥ 99.8",
             _mean_score(by["score"]))]  # fmt: skip
    every = by["answers"]
    none = [x["name"] for x in every if x["status"] == "refused"]
    asked = Counter(x["asked"] for x in every)
    each = ", ".join(f"{asked[s]} in {s:g} s" for s in sorted(asked, reverse=True))
    words = f"{len(none)} of {len(every)} (asked for an answer with 8 GB, {each})"
    rows.append(("instances without an answer", "0", words))
    for name in dict.fromkeys(x["name"] for x in by["core"]):
        auto, pt = _compared(by["core"], name)
        words = f"`auto` {auto:.4f}, `pt` {pt:.4f} "
        seeds = len({x.get("seed") for x in by["core"] if x["name"] == name})
        words += f"(mean of {seeds} seed{'s' * (seeds > 1)}; {_references(by['core'], name)})"
        rows.append((f"{name}, 10 s of one processor", "no worse than `pt` alone", words))
    rows += _methods(by)
    told = [x for task in ("score", "hard") for x in by[task] if x["engine"] == "auto"]
    told = [x for x in told if x["status"] in ("exact", "converged") and "error" in x]
    wrong = [x["name"] for x in told if x["error"] - x.get("apart", 0.0) > WRONG]
    words = f"{len(wrong)} of {len(told)}" + (f": {', '.join(wrong)}" if wrong else "")
    rows.append((f"called trustworthy but wrong by > {WRONG}", "< 1 %", words))
    for exact, goal in ((True, "≤ 10 %"), (False, "≤ 2×")):
        ratios = [x["auto"] / x["alone"] for x in by["overhead"] if x["exact"] is exact]
        if ratios:
            words = f"median {np.median(ratios):.2f}, most {max(ratios):.2f} times"
            kind = "where exact fits" if exact else "elsewhere, on one processor"
            kind = f"processor time against the chosen engine alone, {kind}"
            rows.append((kind, goal, f"{words} on {len(ratios)} models"))
    return ["| | goal | measured |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]


def _methods(by: dict[str, list[dict]]) -> list[tuple[str, str, str]]:
    """Where independent methods are to agree: how far apart they are."""
    about = {x["name"]: x for x in by["hard"] if "apart" in x}
    rows = []
    for name, goal in (
        (TORUS, "two independent methods agree to 0.01"),
        ("ea3d L=12 β=3", "≤ 0.062, or no reference"),
    ):
        if name not in about:
            continue
        line = about[name]
        long = [x for x in by["reference"] if x["name"] == name]
        seconds = {
            e: max((x["asked"] for x in long if x["engine"] == e), default=0) for e, _ in LONG
        }
        if line.get("by"):
            runs = [x for x in by["hard"] if x["name"] == name and x["engine"] == "pt"]
            longest = max(runs, key=lambda x: x["asked"])
            stated = json.loads(TORUS_LINES.read_text().splitlines()[-1])["error"]
            words = f"its {line['by']} (stated error {stated:.0e}) and `pt` in "
            words += f"{longest['asked']:g} s are {longest['error']:.4f} apart"
        else:
            method = "`pt-gpu`" if line.get("device") else "`pt`"
            words = (
                f"two runs of {method} ({line['reference']:g} s each) are {line['apart']:.3f} apart"
            )
            if "methods_apart" in line:
                words += f", `pa` ({seconds['pa']:g} s) {line['methods_apart']:.3f} from their mean"
            if line["apart"] > WRONG:
                words += "; there is no reference"
            else:
                own = [x for x in by["hard"] if x["name"] == name and x["engine"] == "auto"]
                longest = max(own, key=lambda x: x["asked"])
                words += f"; no second method agrees; `auto` in {longest['asked']:g} s is "
                words += f"{longest['error']:.3f} from their mean"
        rows.append((name, goal, words))
    return rows


def _hard(found: list[dict], weights: list[dict]) -> list[str]:
    asked = sorted({x["asked"] for x in found})
    wall = [x for x in found if x.get("clock") != "processor"]
    out = [
        "Mean L1 error of a marginal against the mean of two runs of `pt` from different seeds "
        "(*reference*: the seconds of each), or against exact marginals (*exact*: `auto` and "
        "`ttve` with exact inference switched off; the torus by `python benchmarks/torus.py`). "
        "*apart*: mean L1 distance of the two runs, below which no error can be told. Then what "
        "the engine expects of itself (mean over variables of the largest standard error of a "
        "state) and its status. Seconds are those of one processor"
        f"{_by_the_wall(wall)}. `python benchmarks/auto.py hard`.",
        "",
        _credible(found),
        *_modes(weights),
        "",
        "| model | reference | apart | engine | " + " | ".join(f"{s:g} s" for s in asked) + " |",
        "|---" * (4 + len(asked)) + "|",
    ]
    for name in dict.fromkeys(x["name"] for x in found):
        for engine in ("auto", *SINGLE):
            row = {x["asked"]: x for x in found if x["name"] == name and x["engine"] == engine}
            if not row:
                continue
            known = next((x for x in row.values() if "apart" in x), None)
            words = "– | –"
            if known is not None:
                seconds = known["reference"]
                where = " of a device" * bool(known.get("device"))
                words = f"{seconds:g} s{where} | {known['apart']:.3f}" if seconds else "exact | 0"
            cells = [_cell(row.get(s)) for s in asked]
            out.append(f"| {name} | {words} | `{engine}` | " + " | ".join(cells) + " |")
    return out


def _by_the_wall(found: list[dict]) -> str:
    """What the cells say that were made before the processor's clock was read."""
    if not found:
        return ""
    loads = [x["load"] for x in found]
    return (
        "; cells with † are by the wall clock, with two processors at a load of "
        f"{min(loads):.1f} to {max(loads):.1f}, where the median run had {_processor(found):.2f} s "
        "of a processor for each of its seconds"
    )


def _credible(found: list[dict]) -> str:
    """Names of the models on which no engine is to be believed, and of those not yet met."""
    nobody = []
    for name in dict.fromkeys(x["name"] for x in found):
        here = [x for x in found if x["name"] == name and "error" in x]
        apart = min((x["apart"] for x in here), default=1.0)
        if not any(x["error"] + apart <= WRONG or _vouched(x, apart) for x in here):
            nobody.append(name)
    text = (
        f"**Nobody is credible** (no answer is within {WRONG} of a reference as good as that, and "
    )
    text += "none vouches for itself without the reference speaking against it) on: "
    text += ", ".join(nobody) or "none"
    missing = [name for name in HARD | SOLVED if name not in {x["name"] for x in found}]
    text += f". **Not met**: {', '.join(missing)}." if missing else "."
    return text


def _modes(found: list[dict]) -> list[str]:
    """Where the likeliest states of the long runs tell which of them is nearer."""
    out = []
    for name in dict.fromkeys(x["name"] for x in found):
        best = {x["engine"]: x["weight"] for x in sorted(found, key=lambda x: x["weight"])
                if x["name"] == name}  # fmt: skip
        words = ", ".join(f"`{engine}` {weight:,.0f}" for engine, weight in best.items())
        out += ["", f"**Log weight of the likeliest state near each answer**, {name}: {words} "
                "(`python benchmarks/auto.py modes`). Runs that are far below another have sampled "
                "a part that hardly counts, and distances from them are no errors."]  # fmt: skip
    return out


def _vouched(line: dict, apart: float) -> bool:
    """Whether an answer is vouched for, and that is not against what the reference knows."""
    return line["status"] in ("exact", "converged") and line["error"] <= WRONG + apart


def _compared(found: list[dict], name: str, key: str = "error") -> tuple[float, float]:
    """Means over seeds of what `auto` and `pt` have."""
    values = {e: [x[key] for x in found if x["name"] == name and x["engine"] == e]
              for e in ("auto", "pt")}  # fmt: skip
    return float(np.mean(values["auto"])), float(np.mean(values["pt"]))


def _references(found: list[dict], name: str) -> str:
    apart = next(x["apart"] for x in found if x["name"] == name)
    return f"the two runs of the reference are {apart:.4f} apart"


def _glasses(found: list[dict]) -> list[str]:
    """`auto` beside `pt` where elimination and belief propagation have nothing to add."""
    if not found:
        return ["Not run."]
    out = [
        "Means over seeds of the mean L1 error, and sweeps of `pt` within `auto` in "
        "units of those that it makes alone, by `python benchmarks/auto.py glasses` (and `core`) "
        "on one processor, in seconds of it. *Errors of seeds*: standard deviation of the "
        "difference between the engines over seeds. *Development*: models that the rule of the "
        "glimpse was chosen with.",
        "",
        "| model | seconds | seeds | apart | `auto` | `pt` | errors of seeds | sweeps | |",
        "|---" * 9 + "|",
    ]
    for name in dict.fromkeys(x["name"] for x in found):
        here = [x for x in found if x["name"] == name]
        errors, known = _compared(here, name), all("sweeps" in x for x in here)
        sweeps = _compared(here, name, "sweeps") if known else (1.0, 1.0)
        by = {(x["engine"], x.get("seed")): x["error"] for x in here}
        gaps = [error - by["pt", s] for (e, s), error in by.items() if e == "auto"]
        spread = f"{np.std(gaps, ddof=1):.4f}" if len(gaps) > 1 else "–"
        kind = "development" if here[0].get("development") else "report"
        cells = [f"{here[0]['asked']:g}", str(len(gaps)), f"{here[0]['apart']:.4f}"]
        cells += [*(f"{e:.4f}" for e in errors), spread]
        cells += [f"{sweeps[0] / sweeps[1]:.2f}" if known else "–", kind]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return out


def _processor(found: list[dict]) -> float:
    """Processor seconds of a second, in the median run."""
    return float(np.median([x["cpu"] / x["seconds"] for x in found if x.get("seconds")] or [1.0]))


def _cell(line: dict | None) -> str:
    if line is None:
        return "–"
    if "error" not in line:
        return line["status"]
    expected = f" ({line['expected']:.3f})" if line["expected"] else ""
    mark = "" if line.get("clock") == "processor" else " †"
    return f"{line['error']:.4f}{expected} {line['status']}{mark}"


def _score(found: list[dict]) -> list[str]:
    if not found:
        return ["Not run."]
    by = {(x["name"], x["engine"]): x for x in found}
    names = list(dict.fromkeys(x["name"] for x in found))
    ours = [by[n, "auto"].get("score", 0.0) for n in names if (n, "auto") in by]
    out = [f"`auto` at {max(x['asked'] for x in found):g} s: {_mean_score(found)}."]
    rest = [n for n in names if (n, "auto") in by and by[n, "auto"]["status"] != "exact"]
    if rest:
        out += ["", "| not exact | auto | " + " | ".join(SINGLE) + " | expected | error | status |"]
        out.append("|---" * (5 + len(SINGLE)) + "|")
    best = []
    for n in rest:
        auto = by[n, "auto"]
        single = [by.get((n, e), {}).get("score") for e in SINGLE]
        best.append(max([s for s in [auto.get("score", 0.0), *single] if s is not None]))
        cells = ["–" if s is None else f"{s:.2f}" for s in single]
        out.append(
            f"| {n} | {auto.get('score', 0.0):.2f} | " + " | ".join(cells)
            + f" | {auto.get('expected', 0):.4f} | {auto.get('error', 0):.4f} | {auto['status']} |"
        )  # fmt: skip
    if rest:
        exact = [100.0] * (len(ours) - len(rest))
        out += ["", f"Best choice in hindsight: {np.mean(exact + best):.2f}."]
    return out


def _mean_score(found: list[dict]) -> str:
    ours = [x for x in found if x["engine"] == "auto"]
    if not ours:
        return "not run"
    exact = sum(x["status"] == "exact" for x in ours)
    mean = np.mean([x.get("score", 0.0) for x in ours])
    return f"{mean:.2f} on {len(ours)} instances (exact on {exact})"


def _overhead(found: list[dict]) -> list[str]:
    """Seconds of `auto` and of the engine that it chose, alone."""
    if not found:
        return ["Not run."]
    out = [
        "Least of three runs each, in turn, by `python benchmarks/auto.py overhead`: seconds of "
        "processor time on one processor; where the answer is not exact, exact inference was "
        "switched off and 20 s were allowed.",
        "",
        "| model | chosen | `auto` | the engine alone | times | `jt` alone |",
        "|---|---|---|---|---|---|",
    ]
    for x in found:
        row = [f"`{x['engine']}`", f"{x['auto']:.4f}", f"{x['alone']:.4f}"]
        row += [f"{x['auto'] / x['alone']:.2f}", f"{x['jt']:.4f}" if "jt" in x else "–"]
        out.append(f"| {x['name']} | " + " | ".join(row) + " |")
    return out


TASKS = {
    "score": score, "answers": answers, "references": references, "hard": hard, "core": core,
    "overhead": overhead, "glasses": glasses, "modes": modes, "compared": compared,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", choices=tuple(TASKS))
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--memory", type=float, default=8.0, help="gigabytes")
    parser.add_argument("--family", default="")
    parser.add_argument("--only", default="", help="parts of names, by commas")
    parser.add_argument(
        "--again", nargs="?", const=TODAY, metavar="DAY",
        help="what is there already, too; of score, answers and hard what is older than a day",
    )  # fmt: skip
    parser.add_argument("--engines", default="auto,lbp,ttve,pt,pa")
    parser.add_argument("--reference", type=float, default=120.0, help="seconds of each run")
    options = parser.parse_args()
    options.seconds_list = options.seconds
    if options.task in ("score", "answers"):
        options.seconds = float(options.seconds)
    if options.task:
        TASKS[options.task](options)
    else:
        render()


if __name__ == "__main__":
    main()
