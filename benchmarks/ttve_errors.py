"""Error bars of `ttve`: the regression behind them, and how often they hold the truth.

    python benchmarks/ttve_errors.py --set development      answers and signals, kept in a folder
    python benchmarks/ttve_errors.py --fit                  factors for icgi/elimination/errors.py
    python benchmarks/ttve_errors.py --set report           other models, with the factors in place
    python benchmarks/ttve_errors.py                        coverage and rank correlation of these

Models of every family, weak to strong couplings, of sizes where `jt` is exact; `ttve` without dense
tables, at low and at usual rank, with much time and with too little. One JSON line per answer goes
to benchmarks/results/ttve_errors.jsonl; signals of the development models stay in --folder. Counted
are the states of all variables but the first, as `benchmarks/coverage.py` does.
"""

import argparse
import json
import math
import pickle
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

import icgi.elimination.engine as engine_module
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.elimination import errors
from icgi.elimination.engine import TensorTrainElimination
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Status, infer
from icgi.model.reduce import components

LINES = Path(__file__).parent / "results" / "ttve_errors.jsonl"
Z = 1.6449
ROUNDING = 1e-9
SEEDS = {"development": (1, 2, 3, 4), "report": (301, 302)}
BETAS = (0.3, 0.7, 1.0, 1.5, 2.0, 3.0)
PLANS = {
    "sk": [{"n": n, "beta": b} for b in BETAS for n in (16, 22)],
    "ea2d": [{"L": s, "beta": b} for b in BETAS for s in (8, 14)],
    "ea3d": [{"L": s, "beta": b} for b in BETAS for s in (3, 4)],
    "grid": [{"rows": s, "columns": s, "beta": b} for b in BETAS for s in (8, 12)],
    "er": [{"n": n, "beta": b} for b in BETAS for n in (40, 64)],
    "ba": [{"n": n, "m": 3, "beta": b} for b in BETAS for n in (30, 50)],
    "ws": [{"n": n, "k": 6, "beta": b} for b in BETAS for n in (30, 60)],
    "potts": [{"L": s, "q": 3, "beta": b} for b in BETAS for s in (5, 7)],
    "factor": [{"n": n, "beta": b} for b in BETAS for n in (20, 30)],
    "csp": [{"n": n, "density": d, "beta": b} for d in (1.0, 1.5) for b in (0.0, 1.0)
            for n in (20, 30)],
}  # fmt: skip
REAL = {
    "development": ("Grids_12", "CSP_12", "Promedus_15", "Pedigree_11", "DBN_12", "pdb1akg"),
    "report": ("Grids_11", "Promedus_21", "Segmentation_11", "DBN_13", "pdb1etl", "pdb1pen"),
}
# (rank, most rank, seconds): usual; starved of rank; starved of time
SETTINGS = ((16, 64, 3.0), (4, 4, 3.0), (16, 64, 0.15))


# Nothing is known of these: errors in proportion to a power of √(p(1 − p)), so that a state that is
# all but certain has a band that says so.
WIDTH = {"fixed point": 0.2, "messages": 0.2, "unary": 0.2}


def models(which: str):
    """Family, name, model and evidence, in an order of which any beginning is a fair sample."""
    plans = [(f, p, s) for s in SEEDS[which] for f, plan in PLANS.items() for p in plan]
    for k in np.random.default_rng(0).permutation(len(plans)):
        family, parameters, seed = plans[k]
        model = FAMILIES[family].sample(np.random.default_rng(seed), **parameters)
        if which == "development":  # signals are of connected parts
            model = max((part.model for part in components(model)), key=lambda m: m.n_variables)
        yield family, f"{family} {parameters} {seed}", model, {}
    folder = data_folder()
    if folder is not None:
        for each in instances(folder):
            if each.name in REAL[which]:
                yield "real", each.name, each.model(), each.evidence()


def answer(which: str, model, evidence, rank: int, most: int, seconds: float):
    """Answer, and the signals of every error bar that was made on the way."""
    made: list = []
    plain = errors.standard_errors

    def listening(signals):
        out = plain(signals)
        made.append((signals, out))
        return out

    engine_module.standard_errors = listening
    try:
        steps = 0 if which == "development" else None  # signals are of what is left
        engine = TensorTrainElimination(rank=rank, max_rank=most, exact_entries=0, steps=steps)
        budget = Budget(seconds=seconds)
        found = infer(model, evidence, engine, budget, np.random.default_rng(0))
    finally:
        engine_module.standard_errors = plain
    return found, made


def run(which: str, folder: Path, seconds: float) -> None:
    until = time.time() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    done = {(x["name"], tuple(x["setting"])) for x in stored()}
    for family, name, model, evidence in models(which):
        truth = None
        for setting in SETTINGS:
            if (name, setting) in done:
                continue
            if time.time() > until:
                return
            if truth is None:
                truth = infer(model, evidence, JunctionTree(), Budget(seconds=20.0),
                              np.random.default_rng(0))  # fmt: skip
            if truth.status is not Status.EXACT:
                break
            began = time.perf_counter()
            found, made = answer(which, model, evidence, *setting)
            line = {"set": which, "family": family, "name": name, "setting": setting,
                    "seconds": round(time.perf_counter() - began, 2),
                    **judged(found, truth.probs, model.cards)}  # fmt: skip
            if which == "development" and found.std_error is not None:
                file = folder / f"{len(list(folder.glob('*.pickle'))):05}.pickle"
                file.write_bytes(pickle.dumps((line, found, truth.probs, made)))
            with LINES.open("a") as out:
                out.write(json.dumps(line) + "\n")


def counted(found, cards) -> np.ndarray:
    """States whose band says something: not the first, not known exactly, not impossible."""
    k = found.probs.shape[1]
    inside = (np.arange(k) > 0) & (np.arange(k) < cards[:, None])
    return inside & (found.std_error > 0)


def judged(found, truth, cards) -> dict:
    gap = np.abs(found.probs - truth)
    out = {
        "status": found.status.value,
        "error": float(gap.sum(1).mean()),
        "way": "messages" if found.stats.get("messages") or found.stats.get("passes") == 0.0
        else "branches" if found.stats.get("branches", 1.0) > 1 else "train",
    }  # fmt: skip
    if found.std_error is not None:
        mask = counted(found, cards)
        held = gap[mask] <= Z * found.std_error[mask] + ROUNDING
        out |= {
            "stated": errors.estimated_error(found.std_error),
            "held": int(held.sum()),
            "states": int(mask.sum()),
            "rank": ranks(found.std_error[mask], gap[mask]),
        }
    return out


def ranks(first, second) -> float | None:
    """Rank correlation."""
    if len(first) < 5 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    a, b = np.argsort(np.argsort(first)), np.argsort(np.argsort(second))
    return round(float(np.corrcoef(a, b)[0, 1]), 3)


def fit(folder: Path) -> None:
    """Nine-of-ten quantile of log errors given log signals; every family counts the same."""
    rows: dict[str, list] = defaultdict(list)
    for file in sorted(folder.glob("*.pickle")):
        line, _, truth, made = pickle.loads(file.read_bytes())
        for signals, _ in made:
            if signals.probs.shape != truth.shape:
                continue  # of a part of the model: a core, a leaf, a component
            gap = np.abs(signals.probs - truth)[:, 1:]
            mask = (signals.probs[:, 1:] > 0) & (signals.probs[:, 1:] < 1)
            # what is less known about an answer than here follows from the same answers
            subsets = {tuple(sorted(signals.moved))}
            if signals.way == "train":
                subsets |= {
                    less for less in ((), ("change",), ("halving",)) if {*less} <= {*signals.moved}
                }
            for less in subsets if mask.any() else ():
                known = replace(signals, moved={name: signals.moved[name] for name in less})
                features = known.features()[:, 1:][mask]
                rows[known.kind].append((line["family"], features, gap[mask]))
    for kind, found in sorted(rows.items()):
        x = np.concatenate([f for _, f, _ in found])
        gap = np.concatenate([g for *_, g in found])
        answers = Counter(family for family, *_ in found)
        weight = np.concatenate([np.full(len(g), 1 / len(g) / answers[f]) for f, _, g in found])
        family = np.concatenate([np.full(len(g), f, object) for f, _, g in found])
        y = np.log(np.maximum(gap - ROUNDING, 1e-11) / Z)
        if kind in WIDTH:
            x, y = x[:, :2], y - WIDTH[kind] * x[:, 1]
            factors = np.array([quantile(x[:, :1], y, weight, 0.9)[0], WIDTH[kind]])
        else:
            factors = quantile(x, y, weight, 0.9)
        print(f'    "{kind}": ({", ".join(f"{f:.3f}" for f in factors)}),  # {len(found)} answers')
        held = gap <= Z * np.exp(x @ factors) + ROUNDING
        print("   #", *(f"{f} {held[family == f].mean():.2f}" for f in sorted(answers)))


def quantile(x, y, weight, level: float):
    """Factors a of the linear quantile: a share `level` of y below x·a, by iterated squares."""
    a = np.linalg.lstsq(x, y, rcond=None)[0]
    for step in 10.0 ** np.linspace(0.5, -3, 60):
        gap = y - x @ a
        w = weight * np.where(gap > 0, level, 1 - level) / np.maximum(np.abs(gap), step)
        a = np.linalg.solve((x.T * w) @ x + 1e-6 * w.sum() * np.eye(x.shape[1]), (x.T * w) @ y)
    return a


def table() -> None:
    groups = defaultdict(list)
    for x in stored():
        if x["set"] == "report" and "held" in x and x["states"]:
            groups[x["family"], x["status"]].append(x)
    print("Rank correlation of stated and true error: over the states of an answer (median), and")
    print("over answers. The stated error is a standard error, doubled to compare with ‖p − q‖₁.\n")
    print("| family | status | answers | coverage | of states | of answers | stated / true error |")
    print("|---|---|---|---|---|---|---|")
    for (family, status), found in sorted(groups.items(), key=lambda item: item[0][::-1]):
        cover = sum(x["held"] for x in found) / sum(x["states"] for x in found)
        rank = [x["rank"] for x in found if x["rank"] is not None]
        ratio = [2 * x["stated"] / max(x["error"], 1e-12) for x in found]
        middle = np.median(rank) if rank else math.nan
        over = ranks(np.array([x["stated"] for x in found]), np.array([x["error"] for x in found]))
        cells = (family, status, len(found), f"{cover:.3f}", f"{middle:.2f}", over or "–")
        print("|", *(f"{c} |" for c in (*cells, f"{np.median(ratio):.2f}")))


def stored() -> list[dict]:
    return [json.loads(x) for x in LINES.read_text().splitlines()] if LINES.is_file() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SEEDS)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("ttve_errors"))
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="stop after, and go on later"
    )
    options = parser.parse_args()
    if options.fit:
        fit(options.folder)
    elif options.set:
        run(options.set, options.folder, options.seconds)
    else:
        table()


if __name__ == "__main__":
    main()
