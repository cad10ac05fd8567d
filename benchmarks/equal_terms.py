"""Networks on equal terms: five seeds, families of training and others, and what each part does.

    python benchmarks/equal_terms.py [--models 100] [--only SET ...] [--engines TEXT ...]
                                                                    measure; lines are kept
    python benchmarks/equal_terms.py switches [--models 100]        parts of the paper's network
    python benchmarks/equal_terms.py references --only SET … [--seconds S]
                                    make references of spin models on a CUDA device, by pt-gpu
    python benchmarks/equal_terms.py table                          print the tables

Every shipped network was trained on the same 100,000 models of 10 to 24 spins with exact labels,
twice, in batches of 128 (`icgi train NETWORK --seed S`). Sets, references (exact up to junction
trees of 2^23 entries, tempering beyond) and models are the same for all; `lbp` has the best damping
of {0, 0.3, 0.5} of each set. Interrupted runs go on where they stopped; --processes P works on so
many of them at once.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from icgi.approx.lbp import LoopyBP
from icgi.clock import Deadline
from icgi.data.families import FAMILIES
from icgi.data.labels import Labelling, label
from icgi.engines import parse_engine
from icgi.inference import Budget
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural.engine import switched
from icgi.neural.network_engine import network_marginals
from icgi.neural.networks import network_class
from icgi.neural.weights import shipped
from icgi.sampling.gpu import GpuTempering
from icgi.train.kinds import Limits
from icgi.train.mixture import draw

LINES = Path(__file__).parent / "results" / "equal_terms.jsonl"
SEEDS = (42, 123, 456, 789, 1024)
NETWORKS = ("paper", "gnn-bp", "gnn-bp:published", "bpnn", "direct-gnn")
SWITCHES: dict[str, dict[str, object]] = {
    "predicted bond states": {"factors": "star"},
    "all corrections of a step": {"corrected": False, "factors": "star"},
    "distances": {"positions": "none"},
    "dynamic distances": {"positions": "static"},
    "learned order instead of least loss": {"order": "learned"},
    "least degree instead of least loss": {"order": "min-degree"},
    "random order instead of least loss": {"order": "random"},
    "distribute": {"distribute": False},
    "first pass": {"two_passes": False},
}
LARGE = "SK N=100 β=1 h=0.1"  # takes the others minutes a model
SWITCHED = ("mix N ≤ 24", "EA 2D L=8 β=1", "BA N=60 m=3 β=1")
Sample = Callable[[np.random.Generator], FactorGraph]


def family(name: str, **parameters: object) -> Sample:
    return lambda rng: FAMILIES[name].sample(rng, **parameters)


SETS: dict[str, Sample] = {
    "mix N ≤ 24": lambda rng: draw(rng, "wide", Limits(10, 24, 2.5)),
    "SK N=50 β=1 h=0.1": family("sk", n=50, beta=1.0, h=0.1),
    "SK N=100 β=1 h=0.1": family("sk", n=100, beta=1.0, h=0.1),
    "EA 2D L=8 β=1": family("ea2d", L=8, beta=1.0),
    "EA 2D L=8 β=3": family("ea2d", L=8, beta=3.0),
    "EA 3D L=4 β=1": family("ea3d", L=4, beta=1.0),
    "ER N=60 p=0.1 β=1": family("er", n=60, p=0.1, beta=1.0, field=0.3),
    "BA N=60 m=3 β=1": family("ba", n=60, m=3, beta=1.0, field=0.3),
    "WS N=60 k=6 β=1": family("ws", n=60, k=6, p=0.1, beta=1.0, field=0.3),
}


def models_of(name: str, count: int) -> tuple[list[FactorGraph], list[FloatArray], float]:
    """Models of a set, their references, and the references' mean standard error."""
    rng = np.random.default_rng([4711, *name.encode()])
    models = [SETS[name](rng) for _ in range(count)]
    kept = kept_at(name)
    known: list[FloatArray] = []
    errors: list[float] = []
    if kept.exists():
        with np.load(kept) as stored:
            known = [stored[f"p{m}"] for m in range(len(stored.files) - 1)]
            errors = stored["errors"].tolist()
    new = models[len(known) :]
    for model in new:
        found = label(model, Labelling(log2_table=23.0, seconds=4.0), rng)
        known.append(found.probs)
        errors.append(0.0 if found.std_error is None else float(found.std_error.mean()))
    if new:
        np.savez(kept, errors=errors, **{f"p{m}": p for m, p in enumerate(known)})
    return models, known[:count], float(np.mean(errors[:count]))


def references(given: argparse.Namespace) -> None:
    """Two independent runs of all models of a set in one batch; their mean is the reference."""
    for name in given.only or SETS:
        rng = np.random.default_rng([4711, *name.encode()])
        models = [SETS[name](rng) for _ in range(given.models or 100)]
        budget = Budget(10**9, given.seconds / 2, table_bytes=2**35)
        runs = [GpuTempering().run(models, budget, np.random.default_rng(s)) for s in (1, 2)]
        probs = [(a.probs + b.probs) / 2 for a, b in zip(*runs, strict=True)]
        apart = [float(np.abs(a.probs - b.probs).mean()) for a, b in zip(*runs, strict=True)]
        errors = np.array(apart) / 2  # of the mean of two runs
        np.savez(kept_at(name), errors=errors, **{f"p{m}": p for m, p in enumerate(probs)})
        print(f"{name}: mean error of a probability {errors.mean():.1e}, most {errors.max():.1e}")


def kept_at(name: str) -> Path:
    """File of the references of a set."""
    folder = LINES.parent.parent.parent / "runs" / "equal_terms"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name.encode().hex()}.npz"


def errors_of(answers: list[FloatArray], known: list[FloatArray]) -> list[float]:
    return [float(np.abs(a - p).sum(1).mean()) for a, p in zip(answers, known, strict=True)]


def engines() -> Iterator[tuple[str, int]]:
    for network in NETWORKS:
        for seed in SEEDS:
            yield f"{network},seed={seed}" if ":" in network else f"{network}:seed={seed}", seed
    for seed in SEEDS:
        yield f"paper:near=3,seed={seed}", seed
    yield "icgi:fast", 0
    yield "icgi:fast,orders=1", 0
    yield "paper untrained", 0
    for damping in ("0", "0.3", "0.5"):
        yield f"lbp:damping={damping},restarts=0", 0


def answers_of(engine: str, models: list[FactorGraph], device: str = "cpu") -> list[FloatArray]:
    rngs = [np.random.default_rng(m) for m in range(len(models))]
    if engine == "paper untrained":
        torch.manual_seed(0)
        made = network_class("paper")
        network = made(made.settings())
        found = network_marginals(
            network, "paper", models, Budget(), rngs, Deadline(), device=device
        )
        return [a.probs for a in found]
    text = engine
    if engine.startswith("paper:"):
        text = "icgi:paper," + engine.partition(":")[2]
    if device != "cpu" and not engine.startswith(("lbp", "icgi")):
        text += f",device={device}"
    settings = parse_engine(text)
    if isinstance(settings, LoopyBP):
        return [settings(m, Budget(1000), r).probs for m, r in zip(models, rngs, strict=True)]
    return [a.probs for a in settings.batch(models, Budget(), rngs)]


def lines() -> list[dict[str, object]]:
    return [json.loads(x) for x in LINES.read_text().splitlines()] if LINES.exists() else []


def keep(line: dict[str, object]) -> None:
    with LINES.open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def measured(job: tuple[str, str, int, int, str]) -> dict[str, object]:
    """Line of an engine on a set."""
    name, engine, seed, count, device = job
    torch.set_num_threads(1)
    models, known, error = models_of(name, count)
    began = time.process_time()
    found = errors_of(answers_of(engine, models, device), known)
    spent = time.process_time() - began
    return {"set": name, "engine": engine, "seed": seed, "models": count,
            "mae": np.round(found, 6).tolist(), "cpu_seconds": round(spent, 2),
            "reference_error": error}  # fmt: skip


def measure(given: argparse.Namespace) -> None:
    count = given.models or 100
    done = {(x["set"], x["engine"], x["models"]) for x in lines() if "switch" not in x}
    jobs = [
        (name, engine, seed, count, given.device)
        for name in given.only or SETS
        for engine, seed in engines()
        if (name, engine, count) not in done
        and (name != LARGE or engine.startswith(("icgi:fast", "lbp")))
        and any(engine.startswith(x) for x in given.engines or [""])
    ]
    for name in dict.fromkeys(job[0] for job in jobs):
        models_of(name, count)  # references are made once
    for line in each(measured, jobs, given.processes):
        keep(line)
        spent = line["cpu_seconds"]
        print(
            f"{line['set']}: {line['engine']} {np.mean(line['mae']):.4f} ({spent:.0f} s)",
            flush=True,
        )


def each(work: Callable[..., dict[str, object]], jobs: list, processes: int) -> Iterable[dict]:
    """Lines of jobs, as they were asked for."""
    if processes < 2:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(work, jobs)


def switched_line(job: tuple[str, str, int, int, str]) -> dict[str, object]:
    """Line of a trained network one of whose parts is changed."""
    name, switch, seed, count, device = job
    torch.set_num_threads(1)
    models, known, _ = models_of(name, count)
    network = shipped(f"paper-seed{seed}")
    other = switched(network, dict({"as trained": {}, **SWITCHES}[switch]))
    rngs = [np.random.default_rng(m) for m in range(len(models))]
    found = network_marginals(other, "paper", models, Budget(), rngs, Deadline(), device=device)
    error = errors_of([a.probs for a in found], known)
    return {"set": name, "switch": switch, "seed": seed, "models": len(models),
            "mae": np.round(error, 6).tolist()}  # fmt: skip


def switches(given: argparse.Namespace, seeds: tuple[int, ...] = SEEDS[:3]) -> None:
    done = {(x["set"], x["switch"], x["seed"]) for x in lines() if "switch" in x}
    count = given.models or 100
    jobs = [
        (name, switch, seed, count if name.startswith("mix") else min(count, 40), given.device)
        for name in given.only or SWITCHED
        for seed in seeds
        for switch in ("as trained", *SWITCHES)
        if (name, switch, seed) not in done
    ]
    for line in each(switched_line, jobs, given.processes):
        keep(line)
        error = np.mean(line["mae"])
        print(f"{line['set']}: {line['switch']} seed {line['seed']} {error:.4f}", flush=True)


def table() -> None:
    found = lines()
    names = [n for n in SETS if any(x["set"] == n and "switch" not in x for x in found)]
    print("| network | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for network in NETWORKS:
        cells = []
        for name in names:
            each = [
                np.mean(x["mae"])
                for x in found
                if "switch" not in x
                and x["set"] == name
                and x["engine"].partition("seed")[0][:-1] == network
            ]
            cells.append(
                f"{np.mean(each):.4f} ± {np.std(each, ddof=1):.4f}" if len(each) > 1 else "–"
            )
        print(f"| `{network}` | " + " | ".join(cells) + " |")
    for text, engine in (
        ("`paper:near=3` (40 models)", "paper:near=3"),
        ("`paper`, trained as the others (40 models)", "paper-equal"),
    ):
        print(f"| {text} | " + " | ".join(over_seeds(found, name, engine) for name in names) + " |")
    for engine in ("paper untrained", "icgi:fast", "icgi:fast,orders=1"):
        cells = [one(found, name, lambda e, engine=engine: e == engine) for name in names]
        print(f"| {engine} | " + " | ".join(cells) + " |")
    cells = [one(found, name, lambda e: e.startswith("lbp")) for name in names]
    print("| `lbp`, best damping | " + " | ".join(cells) + " |")
    for text, engine in (
        ("`paper`", "paper:seed="),
        ("`paper:near=3` (40 models)", "paper:near=3"),
    ):
        cells = [gained(found, name, engine) for name in names]
        print(f"| {text}, trained − untrained | " + " | ".join(cells) + " |")
    print(
        "\n| switched off or changed | set | difference ± standard error (seeds) |\n|---|---|---|"
    )
    for switch in SWITCHES:
        for name in SETS:
            pairs = []
            for x in found:
                if x.get("switch") == switch and x["set"] == name:
                    base = next(y for y in found if y.get("switch") == "as trained"
                                and y["set"] == name and y["seed"] == x["seed"])  # fmt: skip
                    pairs.append(np.array(x["mae"]) - np.array(base["mae"]))
            if pairs:
                each = np.concatenate(pairs)
                error = each.std(ddof=1) / len(each) ** 0.5
                print(f"| {switch} | {name} | {each.mean():+.4f} ± {error:.4f} ({len(pairs)}) |")


def over_seeds(found: list[dict[str, object]], name: str, engine: str) -> str:
    """Mean and deviation over the seeds of an engine whose text begins so."""
    each = [
        np.mean(x["mae"])
        for x in found
        if "switch" not in x and x["set"] == name and x["engine"].startswith(engine)
    ]
    return f"{np.mean(each):.4f} ± {np.std(each, ddof=1):.4f}" if len(each) > 1 else "–"


def gained(found: list[dict[str, object]], name: str, engine: str) -> str:
    """Mean difference that training makes on the same models, with its standard error over them."""
    own = [x for x in found if "switch" not in x and x["set"] == name]
    trained = [x["mae"] for x in own if x["engine"].startswith(engine)]
    untrained = [x["mae"] for x in own if x["engine"] == "paper untrained"]
    if not trained or not untrained:
        return "–"
    gap = np.mean(trained, 0)
    gap = gap - np.array(untrained[0])[: len(gap)]  # the first models of a set are the same
    return f"{gap.mean():+.4f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.4f}"


def one(found: list[dict[str, object]], name: str, fits: Callable[[str], bool]) -> str:
    """Least mean error of the engines that fit, with its standard error over models."""
    each = [x["mae"] for x in found if "switch" not in x and x["set"] == name and fits(x["engine"])]
    if not each:
        return "–"
    best = min(each, key=np.mean)
    return f"{np.mean(best):.4f} ({np.std(best, ddof=1) / len(best) ** 0.5:.4f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what", nargs="?", default="measure", choices=["measure", "switches", "references", "table"]
    )
    parser.add_argument("--models", type=int, default=None)
    parser.add_argument("--only", nargs="+", choices=[*SETS])
    parser.add_argument("--engines", nargs="+", help="those that begin so")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the references of a set")
    parser.add_argument("--device", default="cpu", help="of the networks but icgi:fast")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "measure":
        measure(given)
    elif given.what == "references":
        references(given)
    elif given.what == "switches":
        switches(given)
    else:
        table()
