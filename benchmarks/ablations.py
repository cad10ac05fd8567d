"""Parts of the paper's network and of its loss: trained without them, on equal terms.

    python benchmarks/ablations.py train FOLDER [--seconds S] [--processes P]
    python benchmarks/ablations.py measure FOLDER    errors of what was trained; lines are kept
    python benchmarks/ablations.py table             print the tables

`parts`: the network without one part, exact labels. `ranges`: one size or rate changed within the
ranges that the paper searched, looked at on validation models only. `loss`: γ and M_eff of the
paper's loss alone, on labels of short chains, so that their deviation ŝ means something; on exact
labels ŝ = 0 and γ changes nothing. All runs of all seeds have the same models, batches and steps,
or seconds, each in a process of its own (recorded runs on streams of one process do not get on with
each other). γ and M_eff are looked at on validation models of the training families only. A second
call leaves out what is there already.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icgi.conformal.metrics import calibration_error, class_bins
from icgi.data.jobs.executors import executor
from icgi.kernels import cache_folder
from icgi.neural.batch import spins_of
from icgi.neural.weights import load_weights
from icgi.train import evaluate
from icgi.train.config import TrainConfig
from icgi.train.examples import Examples, Recipe, made
from icgi.train.loop import run_task
from icgi.train.presets import PLAIN, PRESETS
from icgi.train.task import Task, answers

RESULTS = Path(__file__).parent / "results"
LINES = RESULTS / "ablations.jsonl"
SEEDS = (42, 123, 456)
PARTS = ("paper-short", "paper-star", "paper-laplacian", "paper-random-order")
GAMMAS, EFFECTIVES = (0.0, 1.0, 5.0, 10.0), (100.0, 1000.0, 10_000.0)
SETS = ("mix N ≤ 24", "EA 2D L=8 β=1", "SK N=50 β=1 h=0.1", "BA N=60 m=3 β=1")
RANGES: dict[str, tuple[float, ...]] = {
    "rank": (4, 16, 64),
    "features": (32, 128),
    "layers": (1, 6),
    "heads": (2, 8),
    "rate": (3e-4, 1e-3, 5e-3),
}
CHAINS, BURN, SWEEPS = 4, 20, 60  # of labels whose deviation means something
CHUNK = 8192  # models whose chains run together


def configurations(group: str) -> dict[str, TrainConfig]:
    """Runs of a group by name."""
    if group == "parts":
        return {name: PRESETS[name] for name in PARTS}
    if group == "ranges":
        found = {"plain": PLAIN}
        for name, values in RANGES.items():
            for value in values:
                found[f"{name}={value:g}"] = (
                    dataclasses.replace(PLAIN, rate=value)
                    if name == "rate"
                    else dataclasses.replace(
                        PLAIN, settings=dataclasses.replace(PLAIN.settings, **{name: int(value)})
                    )
                )
        return found
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
    place = executor("here" if processes > 1 else "serial", processes)
    return made(recipe, True, place, device(), cache)


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


def train(given: argparse.Namespace) -> None:
    """Start a process for each run, so many at once, and keep a line of each that ends."""
    began = time.time()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    before = [*read(folder / "lines.jsonl"), *(read(given.kept) if given.kept else [])]
    kept = {(x["group"], x["variant"], x["seed"]) for x in before}
    todo = jobs(given.groups, given.seeds, kept)
    training_models(given.models, given.processes)
    validation_models(given.validation)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the processes need it
    print(f"models are there after {time.time() - began:.0f} s", flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(job: tuple[str, str, int, TrainConfig]) -> int:
        command = [
            sys.executable, __file__, "one", str(folder), "--job", *map(str, job[:3]),
            "--models", str(given.models), "--validation", str(given.validation),
            "--steps", str(given.steps), "--batch", str(given.batch),
            "--seconds", str(given.seconds),
        ]  # fmt: skip
        return subprocess.run(command, env=environment, check=False).returncode

    with ThreadPoolExecutor(given.processes) as pool:
        bad = [code for code in pool.map(start, todo) if code]
    print(f"{time.time() - began:.0f} s, exit codes that are not 0: {bad}", flush=True)


def one(given: argparse.Namespace) -> None:
    """Train one run; its weights and its log are kept in a folder of its own."""
    torch.set_num_threads(1)
    group, name, seed = given.job[0], given.job[1], int(given.job[2])
    data, error = training_models(given.models, 1), 0.0
    validation = validation_models(given.validation)
    if group == "loss":
        chains = chain_labels(data)
        error = float((chains.reference - data.reference).abs().sum(-1)[data.asked > 0].mean())
        data = chains
    config = dataclasses.replace(
        configurations(group)[name], seed=seed, batch=given.batch, steps=given.steps,
        seconds=given.seconds,
    )  # fmt: skip
    task = Task(config, [data], [validation])
    began = time.time()
    result = run_task(task, run_folder(given.folder, group, name, seed))
    line = {
        "group": group, "variant": name, "seed": seed, "steps": result.steps,
        "models": given.models, "batch": given.batch, "label_error": round(error, 5),
        "validation": quality(result.network, validation),
        "history": [[x["step"], round(x["mae"][0], 6)] for x in result.history],
        "seconds": round(time.time() - began, 1), "device": hardware(),
    }  # fmt: skip
    with (given.folder / "lines.jsonl").open("a") as file:
        file.write(text(line))
    print(f"{group} {name} {seed}: {line['validation']['mae']:.5f}", flush=True)


def run_folder(folder: Path, group: str, name: str, seed: int) -> Path:
    return folder / f"{group}-{name}-seed{seed}".replace(" ", "-").replace("=", "")


def hardware() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


# --- measuring and printing


def networks(folder: Path) -> Iterator[tuple[str, int, Any]]:
    """Trained networks of a folder: variant, seed, network."""
    for line in read(folder / "lines.jsonl"):
        path = run_folder(folder, line["group"], line["variant"], line["seed"])
        if line["group"] == "parts":
            yield line["variant"], line["seed"], load_weights(path / "weights.safetensors")


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
    print("\n| one thing changed | MAE on validation models | of the first | seconds |")
    print("|---|---|---|---|")
    ranges = [x for x in lines if x.get("group") == "ranges"]
    plain = [x["validation"]["mae"] for x in ranges if x["variant"] == "plain"]
    for name in dict.fromkeys(x["variant"] for x in ranges):
        rows = [x for x in ranges if x["variant"] == name]
        mae = [x["validation"]["mae"] for x in rows]
        seconds = np.mean([x["seconds"] for x in rows])
        ratio = np.mean(mae) / np.mean(plain) if plain else math.nan
        print(f"| {name} | {spread(mae)} | {ratio:.2f} | {seconds:.0f} |")
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
    "one": one,
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
    parser.add_argument("--seconds", type=float, default=math.inf, help="of each run")
    parser.add_argument("--processes", type=int, default=1, help="runs at once")
    parser.add_argument("--kept", type=Path, help="lines of an earlier call, not made again")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--count", type=int, default=40, help="models of each set")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what != "table" and given.folder is None:
        parser.error("give a folder")
    COMMANDS[given.what](given)


if __name__ == "__main__":
    main()
