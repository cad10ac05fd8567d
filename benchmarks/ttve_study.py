"""How well does `ttve` know its own error? Its accounts against the truth on small models.

python benchmarks/ttve_study.py        print the tables from the stored lines
python benchmarks/ttve_study.py run    run what is missing, then print
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import spearmanr

from icgi.data.families import FAMILIES
from icgi.elimination.attempts import SOUND_SPREAD
from icgi.elimination.engine import TensorTrainElimination
from icgi.elimination.run import distance
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget

LINES = Path(__file__).parent / "results" / "ttve_study.jsonl"
CELLS = [
    ("ea2d", {"L": 8, "beta": 1.0}), ("ea2d", {"L": 8, "beta": 3.0}),
    ("ea3d", {"L": 3, "beta": 1.0}), ("ea3d", {"L": 3, "beta": 3.0}),
    ("ws", {"n": 40, "k": 6}), ("ba", {"n": 30, "m": 3}), ("er", {"n": 30, "p": 0.2}),
    ("sk", {"n": 16, "beta": 1.0, "h": 0.1}), ("sk", {"n": 16, "beta": 2.0, "h": 0.5}),
    ("sk", {"n": 16, "beta": 3.0, "h": 0.5}), ("potts", {"L": 7}), ("factor", {"n": 24}),
]  # fmt: skip
SEEDS = range(3000, 3008)  # the engine's rule was chosen on these
HELD_OUT = range(4000, 4004)
RANKS = (2, 4, 8)
SIGNALS = (
    "spread", "eps_sum", "eps_max", "drift", "halving", "change", "negative", "angle",
    "sample_share", "sample_gap",
)  # fmt: skip
WRONG = 0.05  # mean L1 error that a sound answer must not have


def run() -> None:
    done = {(x["family"], x["parameters"], x["seed"], x["rank"]) for x in stored()}
    LINES.parent.mkdir(exist_ok=True)
    for seed in (*SEEDS, *HELD_OUT):
        for family, parameters in CELLS:
            text = " ".join(f"{k}={v}" for k, v in parameters.items())
            missing = [r for r in RANKS if (family, text, seed, r) not in done]
            if not missing:
                continue
            model = FAMILIES[family].sample(np.random.default_rng(seed), **parameters)
            exact = JunctionTree()(model, Budget(), np.random.default_rng(0))
            for rank in missing:
                engine = TensorTrainElimination(rank, exact_entries=0, escalate=False)
                found = engine(model, Budget(), np.random.default_rng(seed))
                line = {
                    "family": family, "parameters": text, "seed": seed, "rank": rank,
                    "error": _short(distance(found.probs, exact.probs)),
                    "worst": _short(np.abs(found.probs - exact.probs).sum(1).max()),
                    "log_z_error": _short(abs((found.log_z or np.nan) - exact.log_z)),
                    "status": found.status.value,
                    **{k: _short(found.stats[k]) for k in SIGNALS if k in found.stats},
                }  # fmt: skip
                with LINES.open("a") as out:
                    out.write(json.dumps(line) + "\n")


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None


def stored() -> list[dict]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def tables() -> str:
    lines = [x for x in stored() if "spread" in x]  # those that used a train at all
    error = np.array([x["error"] for x in lines])
    out = [
        f"{len(lines)} runs, {len({(x['family'], x['parameters'], x['seed']) for x in lines})} "
        f"models; error > {WRONG} in {np.mean(error > WRONG):.0%}", "",
        "| signal | rank correlation with the error | within a family and rank, mean |",
        "|---|---|---|",
    ]  # fmt: skip
    cells = {}
    for k, x in enumerate(lines):
        cells.setdefault((x["family"], x["parameters"], x["rank"]), []).append(k)
    for signal in SIGNALS:
        value = np.array([_signal(x, signal) for x in lines])
        inside = [spearmanr(value[c], error[c]).statistic for c in map(np.array, cells.values())
                  if np.ptp(value[c]) > 0 and np.ptp(error[c]) > 0]  # fmt: skip
        out.append(
            f"| `{signal}` | {spearmanr(value, error).statistic:.2f} | {np.nanmean(inside):.2f} |"
        )
    held = np.array([x["seed"] in HELD_OUT for x in lines])
    for name, some in (("seeds the rule was chosen on", ~held), ("other seeds", held)):
        chosen = [x for x, mine in zip(lines, some, strict=True) if mine]
        out += ["", f"Rules, {name}:", "", *_rules(chosen, error[some])]
    out += ["", *_bound(lines, error)]
    return "\n".join(out)


def _signal(x: dict, name: str) -> float:
    """Signal that grows with the error expected; missing means infinitely bad."""
    value = x.get(name)
    if value is None:
        return np.inf
    return {"drift": abs(value), "sample_share": -value, "angle": -value}.get(name, value)


def _rules(lines: list[dict], error: np.ndarray) -> list[str]:
    plain = np.array([x["negative"] == 0.0 for x in lines])
    spread = np.array([_signal(x, "spread") for x in lines])
    change = np.array([_signal(x, "change") for x in lines])
    halving = np.array([_signal(x, "halving") for x in lines])
    share = np.array([x.get("sample_share") or 0.0 for x in lines])
    rules = {
        "no negative probability": plain,
        f"… and spread ≤ {SOUND_SPREAD}": plain & (spread <= SOUND_SPREAD),
        f"… and change ≤ {SOUND_SPREAD} (the engine's)": plain
        & (np.maximum(spread, change) <= SOUND_SPREAD),
        "… and halving ≤ 0.1": plain
        & (np.maximum(spread, change) <= SOUND_SPREAD)
        & (halving <= 0.1),
        "sample share > 0.1 alone": share > 0.1,
    }
    out = [
        f"| rule | passes | of these error > {WRONG} | of these error > 0.2 | "
        "rejected with error < 0.01 |",
        "|---|---|---|---|---|",
    ]
    for name, passed in rules.items():
        wrong = int((error[passed] > WRONG).sum())
        out.append(
            f"| {name} | {passed.sum()} | {wrong} ({wrong / max(passed.sum(), 1):.1%}) | "
            f"{int((error[passed] > 0.2).sum())} | {int((error[~passed] < 0.01).sum())} |"
        )
    return out


def _bound(lines: list[dict], error: np.ndarray) -> list[str]:
    """Theorem error-prop bounds the error by Σ ε_t: how often that is so."""
    total = np.array([_signal(x, "eps_sum") for x in lines])
    worst = np.array([x["worst"] for x in lines])
    cut = np.array([(x["eps_sum"] or 0.0) > 1e-9 for x in lines])
    rows = ["| Σ ε_t bounds | holds | median Σ ε_t / error |", "|---|---|---|"]
    for name, value in (("mean L1 error", error), ("largest L1 error", worst)):
        ratio = total[cut] / np.maximum(value[cut], 1e-300)
        rows.append(f"| {name} | {np.mean(ratio >= 1):.1%} | {np.median(ratio):.1f} |")
    return rows


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    print(tables())
