"""Parts of the paper's network and of its loss: trained without them, on equal terms.

    python benchmarks/ablations.py train FOLDER [--seconds S] [--processes P]
    python benchmarks/ablations.py measure FOLDER    errors of what was trained; lines are kept
    python benchmarks/ablations.py table             print the tables

`parts`: the network without one part, exact labels. `loss`: γ and M_eff of the paper's loss alone,
on labels of short chains, so that their deviation ŝ means something; on exact labels ŝ = 0 and γ
changes nothing. All runs of all seeds have the same models, batches and steps, side by side in as
many processes as are asked for; the steps are what fits the seconds. γ and M_eff are looked at on
validation models of the training families only. A second call leaves out what is there already.
"""

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icgi.conformal.metrics import calibration_error, class_bins
from icgi.kernels import cache_folder
from icgi.neural.batch import spins_of
from icgi.neural.networks import network_class
from icgi.train import evaluate, together
from icgi.train.config import TrainConfig
from icgi.train.examples import Examples, Recipe, made, workers
from icgi.train.presets import PLAIN, PRESETS
from icgi.train.task import Task, answers

RESULTS = Path(__file__).parent / "results"
LINES = RESULTS / "ablations.jsonl"
SEEDS = (42, 123, 456)
PARTS = ("paper-short", "paper-star", "paper-laplacian", "paper-random-order")
GAMMAS, EFFECTIVES = (0.0, 1.0, 5.0, 10.0), (100.0, 1000.0, 10_000.0)
SETS = ("mix N ≤ 24", "EA 2D L=8 β=1", "SK N=50 β=1 h=0.1", "BA N=60 m=3 β=1")
CHAINS, BURN, SWEEPS = 4, 20, 60  # of labels whose deviation means something
CHUNK = 8192  # models whose chains run together
RESERVE = 25.0  # seconds for checks and writing


def configurations(group: str) -> dict[str, TrainConfig]:
    """Runs of a group by name."""
    if group == "parts":
        return {name: PRESETS[name] for name in PARTS}
    pairs = [(g, 1000.0) for g in GAMMAS] + [(5.0, m) for m in EFFECTIVES if m != 1000.0]
    return {
        f"γ={g:g} M={m:g}": dataclasses.replace(PLAIN, loss="paper", gamma=g, effective=m)
        for g, m in pairs
    }


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def training_models(count: int, processes: int) -> Examples:
    """Models with exact labels, made once and kept in the cache."""
    bucket = PLAIN.buckets[0]
    recipe = Recipe(bucket.mixture, bucket.limits, count, PLAIN.data_seed)
    cache = cache_folder().parent / "training"
    with workers(processes) as pool:
        return made(recipe, True, pool, device(), cache)


def validation_models(count: int) -> Examples:
    cache = cache_folder().parent / "training"
    return evaluate.validation_sets("wide", count, True, device(), cache)["wide"]


@torch.no_grad()
def chain_labels(data: Examples, seed: int = 0) -> Examples:
    """The same models labelled by a few short heat-bath chains from random starts."""
    rng = torch.Generator(data.reference.device).manual_seed(seed)
    up, spread = [], []
    whole = torch.arange(len(data), device=data.reference.device)
    for part in torch.split(whole, CHUNK):
        spins = spins_of(data.batch[part])
        b, n = spins.fields.shape
        s = torch.rand((b, CHAINS, n), generator=rng, device=rng.device).round() * 2 - 1
        total = torch.zeros_like(s)
        for sweep in range(BURN + SWEEPS):
            for i in range(n):
                field = spins.fields[:, None, i] + (s @ spins.couplings[:, :, i, None])[..., 0]
                p = torch.sigmoid(2.0 * field)
                drawn = torch.rand(p.shape, generator=rng, device=rng.device)
                s[:, :, i] = torch.where(drawn < p, 1.0, -1.0)
                if sweep >= BURN:
                    total[:, :, i] += p
        chains = total / SWEEPS
        up.append(chains.mean(1))
        spread.append(chains.std(1))
    p = torch.where(data.asked > 0, torch.cat(up), 1.0)
    reference = torch.stack([p, 1.0 - p], -1)
    return dataclasses.replace(data, reference=reference, spread=torch.cat(spread) * data.asked)


def quality(network: Any, data: Examples) -> dict[str, float]:
    """Errors on validation models, and how well α says them."""
    row = evaluate.quality(network, data, 256).row()
    with torch.no_grad():
        alpha = answers(network, data, 256)
    asked = data.asked > 0
    p = (alpha / alpha.sum(-1, keepdim=True))[asked].double().cpu().numpy()
    truth = data.reference[asked].double().cpu().numpy()
    row["ece"] = calibration_error(class_bins(p, truth, np.ones(p.shape, bool)))
    row["largest"] = float(np.abs(p - truth).sum(1).max())
    return {name: round(float(value), 6) for name, value in row.items()}


# --- training


def jobs(groups: list[str], seeds: list[int], kept: set[tuple[str, str, int]]) -> list[Any]:
    """What is still to train: (group, name, seed, configuration)."""
    return [
        (group, name, seed, dataclasses.replace(config, seed=seed))
        for group in groups
        for seed in seeds
        for name, config in configurations(group).items()
        if (group, name, seed) not in kept
    ]


def shares(todo: list[Any], processes: int) -> list[list[Any]]:
    """Jobs of each process; a process has one kind of labels, where there are enough processes."""
    if processes < 2:
        return [todo]
    ordered = sorted(todo, key=lambda job: job[0])
    size = math.ceil(len(ordered) / processes)
    return [ordered[k : k + size] for k in range(0, len(ordered), size)]


def train(given: argparse.Namespace) -> None:
    """Start the processes, and gather what they leave."""
    began = time.time()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.part"):
        old.unlink()
    for old in folder.glob("pace-*"):
        old.unlink()
    stored = [folder / "lines.jsonl", *([given.kept] if given.kept else [])]
    before = [x for path in stored for x in read(path)]
    (folder / "lines.jsonl").write_text("".join(text(x) for x in before))
    kept = {(x["group"], x["variant"], x["seed"]) for x in before}
    parts = shares(jobs(given.groups, given.seeds, kept), given.processes)
    training_models(given.models, given.processes)
    validation_models(given.validation)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the processes need it
    print(f"models are there after {time.time() - began:.0f} s", flush=True)
    running = []
    for k, part in enumerate(parts):
        plan = folder / f"plan-{k}.part"
        plan.write_text(json.dumps([list(job[:3]) for job in part]))
        command = [
            sys.executable, __file__, "lanes", str(folder), "--plan", str(plan), "--number", str(k),
            "--processes", str(len(parts)), "--models", str(given.models),
            "--validation", str(given.validation), "--steps", str(given.steps),
            "--batch", str(given.batch), "--until", str(began + given.seconds),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        running.append(subprocess.Popen(command, env=environment))
    while any(p.poll() is None for p in running):
        time.sleep(1.0)
    gather(folder)
    bad = [p.returncode for p in running if p.returncode]
    print(f"{time.time() - began:.0f} s, exit codes that are not 0: {bad}", flush=True)


def gather(folder: Path) -> None:
    """One file of lines and one of weights from those of the processes."""
    weights: dict[str, Any] = {}
    if (folder / "weights.npz").exists():
        with np.load(folder / "weights.npz") as stored:
            weights = dict(stored)
    with (folder / "lines.jsonl").open("a") as file:
        for path in sorted(folder.glob("lines-*.part")):
            file.write(path.read_text())
    for path in sorted(folder.glob("weights-*.part")):
        with np.load(path) as stored:
            weights |= dict(stored)
    if weights:
        np.savez_compressed(folder / "weights.npz", **weights)
    for path in [*folder.glob("*.part"), *folder.glob("pace-*")]:
        path.unlink()


def lanes(given: argparse.Namespace) -> None:
    """Train the runs of one process."""
    torch.set_num_threads(1)
    folder: Path = given.folder
    plan = [tuple(job) for job in json.loads(given.plan.read_text())]
    exact = training_models(given.models, 1)
    validation = validation_models(given.validation)
    data: dict[str, Examples] = {"parts": exact}
    errors = {"parts": 0.0}
    if any(group == "loss" for group, _, _ in plan):
        data["loss"] = chain_labels(exact)
        gap = (data["loss"].reference - exact.reference).abs().sum(-1)
        errors["loss"] = float(gap[exact.asked > 0].mean())
    forms: dict[tuple[str, bool], list[Any]] = {}
    found: list[together.Lane] = []
    for group, name, seed in plan:
        config = dataclasses.replace(
            configurations(group)[name], seed=seed, batch=given.batch, steps=given.steps
        )
        key = (group, config.settings.positions == "laplacian")
        task = Task(config, [data[group]], [validation], forms.get(key))
        found += together.lanes([task], lambda line: print(line, flush=True))
        forms[key] = task.forms or []
    print(f"process {given.number}: {len(found)} runs are ready", flush=True)
    steps = agreed_steps(given, found)
    began = time.time()
    together.train(found, steps, going=lambda: time.time() < given.until - RESERVE / 2)
    spent = time.time() - began
    weights = {}
    with (folder / f"lines-{given.number}.part").open("w") as file:
        for (group, name, seed), lane in zip(plan, found, strict=True):
            run = lane.run
            history = [[line["step"], round(line["mae"][0], 6)] for line in run.history]
            line = {
                "group": group, "variant": name, "seed": seed, "steps": run.step,
                "planned": steps, "models": given.models, "batch": given.batch,
                "label_error": round(errors[group], 5), "validation": quality(run.best, validation),
                "history": history, "skipped": int(run.skipped), "seconds": round(spent, 1),
                "beside": len(found), "device": hardware(),
            }  # fmt: skip
            file.write(text(line))
            file.flush()
            print(f"{group} {name} {seed}: {line['validation']['mae']:.5f}", flush=True)
            if group == "parts":
                for key, value in run.best.state_dict().items():
                    weights[f"{name}/{seed}/{key}"] = value.half().cpu().numpy()
    if weights:
        with (folder / f"weights-{given.number}.part").open("wb") as out:
            np.savez(out, **weights)


def agreed_steps(given: argparse.Namespace, found: list[together.Lane]) -> int:
    """Steps that every process has time for; measured while all of them work."""
    if math.isinf(given.until):
        return int(given.steps)
    wait(given, "ready", 0.0)
    pace = together.seconds_per_round(found, min(8.0, 0.05 * (given.until - time.time())))
    slowest = max(wait(given, "seconds", pace))
    left = given.until - time.time() - RESERVE
    steps = max(1, min(given.steps, int(0.93 * left / slowest)))
    print(f"process {given.number}: {pace:.3f} s a round, {steps} steps", flush=True)
    # what little the processes differ in their clocks must not differ in their steps
    return int(min(wait(given, "steps", float(steps))))


def wait(given: argparse.Namespace, what: str, value: float) -> list[float]:
    """Tell the other processes a number, and hear theirs."""
    mine = given.folder / f"pace-{what}-{given.number}"
    mine.with_suffix(".new").write_text(repr(value))
    mine.with_suffix(".new").replace(mine)
    paths = [given.folder / f"pace-{what}-{k}" for k in range(given.processes)]
    until = time.time() + 90.0
    while time.time() < until and not all(p.exists() for p in paths):
        time.sleep(0.2)
    return [float(p.read_text()) for p in paths if p.exists()]


def hardware() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


# --- measuring and printing


def networks(folder: Path) -> Iterator[tuple[str, int, Any]]:
    """Trained networks of a folder: variant, seed, network."""
    with np.load(folder / "weights.npz") as stored:
        weights = dict(stored)
    for name in dict.fromkeys(tuple(key.split("/")[:2]) for key in weights):
        settings = configurations("parts")[name[0]].settings
        network = network_class("paper")(settings)
        prefix = "/".join(name) + "/"
        state = {
            key.removeprefix(prefix): torch.from_numpy(value)
            for key, value in weights.items()
            if key.startswith(prefix)
        }
        network.load_state_dict(state)
        yield name[0], int(name[1]), network.float().eval().requires_grad_(False)


def measure(given: argparse.Namespace) -> None:
    """Keep the lines of a folder, and errors of its networks on sets that nobody trained on."""
    from equal_terms import errors_of, models_of

    from icgi.clock import Deadline
    from icgi.inference import Budget
    from icgi.neural.network_engine import network_marginals

    torch.set_num_threads(1)
    known = read(LINES)
    trained = {(x["group"], x["variant"], x["seed"]) for x in known if "group" in x}
    done = {(x["set"], x["variant"], x["seed"]) for x in known if "set" in x}
    with LINES.open("a") as file:
        for line in read(given.folder / "lines.jsonl"):
            if (line["group"], line["variant"], line["seed"]) not in trained:
                file.write(text(line))
        for name in given.sets:
            models, truth, error = models_of(name, given.count)
            for variant, seed, network in networks(given.folder):
                if (name, variant, seed) in done:
                    continue
                rngs = [np.random.default_rng(m) for m in range(len(models))]
                found = network_marginals(network, "paper", models, Budget(), rngs, Deadline())
                probs = [a.probs for a in found]
                mae = np.round(errors_of(probs, truth), 6).tolist()
                gaps = zip(probs, truth, strict=True)
                largest = [round(float(np.abs(a - p).sum(1).max()), 5) for a, p in gaps]
                file.write(text({"set": name, "variant": variant, "seed": seed, "mae": mae,
                                 "largest": largest, "reference_error": error}))  # fmt: skip
                file.flush()
                print(f"{name}: {variant} seed {seed} {np.mean(mae):.4f}", flush=True)


def table() -> None:
    """Print both tables."""
    lines = read(LINES)
    parts = [x for x in lines if x.get("group") == "parts"]
    sets = list(dict.fromkeys(x["set"] for x in lines if "set" in x))
    if parts:
        steps = [x["steps"] for x in parts]
        print(f"{min(steps)} to {max(steps)} steps of {parts[0]['batch']}\n")
    print("| trained | validation | " + " | ".join(sets) + " |\n|---|---|" + "---|" * len(sets))
    for name in PARTS:
        own = [x for x in lines if x.get("variant") == name]
        cells = [spread([x["validation"]["mae"] for x in own if x.get("group") == "parts"])]
        cells += [difference(lines, name, s) for s in sets]
        print(f"| `{name}` | " + " | ".join(cells) + " |")
    print("\n| loss | MAE | ECE | largest error | within two deviations | rank |")
    print("|---|---|---|---|---|---|")
    loss = [x for x in lines if x.get("group") == "loss"]
    for name in dict.fromkeys(x["variant"] for x in loss):
        rows = [x["validation"] for x in loss if x["variant"] == name]
        keys = ("mae", "ece", "largest", "covered", "rank")
        print(f"| {name} | " + " | ".join(spread([r[key] for r in rows]) for key in keys) + " |")


def difference(lines: list[dict[str, Any]], name: str, models: str) -> str:
    """Error of the first variant; of others, what they differ, with standard errors.

    The first is over models (seeds averaged), the second over seeds (models averaged).
    """
    found = {(x["variant"], x["seed"]): np.array(x["mae"]) for x in lines if x.get("set") == models}
    if name == PARTS[0]:
        return spread([mae.mean() for (variant, _), mae in found.items() if variant == name])
    gaps = np.array(
        [m - found[PARTS[0], seed] for (variant, seed), m in found.items() if variant == name]
    )
    if len(gaps) < 2:
        return "–"
    each = [g.std(ddof=1) / len(g) ** 0.5 for g in (gaps.mean(0), gaps.mean(1))]
    return f"{gaps.mean():+.4f} ± {each[0]:.4f} ± {each[1]:.4f}"


def spread(values: list[Any]) -> str:
    if not values:
        return "–"
    more = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{more}"


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "train": train,
    "lanes": lanes,
    "measure": measure,
    "table": lambda given: table(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*COMMANDS])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--groups", nargs="+", default=["parts", "loss"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--models", type=int, default=50_000, help="training models")
    parser.add_argument("--validation", type=int, default=256)
    parser.add_argument("--steps", type=int, default=PLAIN.steps, help="at most")
    parser.add_argument("--batch", type=int, default=PLAIN.batch)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for everything")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kept", type=Path, help="lines of an earlier call, not made again")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--count", type=int, default=40, help="models of each set")
    for name, kind in (("plan", Path), ("number", int), ("until", float)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what != "table" and given.folder is None:
        parser.error("give a folder")
    COMMANDS[given.what](given)


if __name__ == "__main__":
    main()
