"""References of hard models of docs/hard.md by `pt-gpu`: two independent runs of each.

    ICGI_DATA=… PYTHONPATH=src python benchmarks/hard_references.py run --out FOLDER --seed 101 \
        [--seconds 500] [--only ea3d]
    python benchmarks/hard_references.py keep FOLDER

The first command needs a CUDA device and CuPy. It is given once for each of the seeds 101 and 102
(side by side: a run of one model fills half of a large device) and writes a file per model to
FOLDER as soon as the model is done; seconds are those of the whole command. The second keeps the
marginals of both in benchmarks/results/hard_references.npz, where `benchmarks/auto.py` finds them.
All models have two states a variable; what is kept is the probability of the second.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icgi.engines import parse_engine
from icgi.inference import Budget
from icgi.metrics import mean_absolute_error

KEPT = Path(__file__).parent / "results" / "hard_references.npz"
SEEDS = (101, 102)


class Plan(NamedTuple):
    """Share of the time, and the hottest level of the ladder."""

    share: float
    hottest: float = 0.1


# grid80x80.f10 was tried, too: no replica changed its place, and two runs were 0.24 apart
PLANS = {
    "ea3d L=8 β=1": Plan(1.0),
    "ea3d L=8 β=3": Plan(1.5, 0.2),
    "sk-500 β=2 h=0.5": Plan(1.0),
    "sk-500 β=2 h=0.1": Plan(2.0),
    "sk-1000 β=1 h=0.5": Plan(2.0),
    "ea3d L=12 β=1": Plan(1.5),
    "grid20x20.f5.wrap": Plan(1.0, 0.02),
    "ea3d L=12 β=3": Plan(5.0, 0.2),
    "grid40x40.f10.wrap": Plan(4.0, 0.01),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="one run of every model, on a device")
    runs.add_argument("--out", type=Path, required=True, help="folder to write to")
    runs.add_argument("--seed", type=int, choices=SEEDS, required=True)
    runs.add_argument("--seconds", type=float, default=500.0, help="of the whole command")
    runs.add_argument("--only", default="", help="models with this in their name")
    keeps = commands.add_parser("keep", help="keep the runs of a folder")
    keeps.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.out, given.seed, given.seconds, [n for n in PLANS if given.only in n])
    else:
        keep(given.folder)


def run(out: Path, seed: int, seconds: float, names: list[str]) -> None:
    from auto import HARD  # which reads what is kept here

    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    for at, name in enumerate(names):
        plan = PLANS[name]
        left = ends - time.monotonic()
        own = max(1.0, left * plan.share / sum(PLANS[other].share for other in names[at:]))
        model, _ = HARD[name]()
        engine = parse_engine(
            f"pt-gpu:replicas=32,ensembles=64,segments=32,probe=4096,hottest={plan.hottest}"
        )
        began = time.monotonic()
        found = engine(model, Budget(10**9, own, table_bytes=2**35), np.random.default_rng(seed))
        stats = {key: float(value) for key, value in found.stats.items()}
        about = {
            "model": name, "seed": seed, "engine": repr(engine), "status": found.status.value,
            "seconds": round(time.monotonic() - began, 1), "stats": stats,
        }  # fmt: skip
        np.savez_compressed(
            out / f"{at:02}-{seed}.npz",
            about=np.array(json.dumps(about, ensure_ascii=False)),
            up=found.probs[:, 1].astype(np.float32),
            error=found.std_error[:, 1].astype(np.float32),
        )
        print(
            f"{name} | {seed} | {found.status.value}, stated {found.std_error.sum(1).mean():.1e}, "
            f"R-hat {stats.get('rhat', np.nan):.3f}, trips {stats.get('round_trips_min', -1):.0f}, "
            f"swaps {stats.get('swap_rate_min', -1):.2f}, {stats.get('sweeps', -1):.0f} sweeps, "
            f"{about['seconds']} s",
            flush=True,
        )


def keep(folder: Path) -> None:
    runs: dict[str, list[tuple[dict[str, Any], np.ndarray, np.ndarray]]] = {}
    for path in sorted(folder.glob("*-10[12].npz")):
        with np.load(path) as saved:
            about = json.loads(str(saved["about"]))
            if about["model"] not in PLANS:
                continue
            runs.setdefault(about["model"], []).append((about, saved["up"], saved["error"]))
    arrays: dict[str, np.ndarray] = {}
    abouts: dict[str, list[dict[str, Any]]] = {}
    for k, (name, both) in enumerate(runs.items()):
        if len(both) < len(SEEDS):
            print(f"{name}: one run only, not kept")
            continue
        abouts[name] = [about for about, _, _ in both]
        for part, (_, up, error) in enumerate(both):
            arrays |= {f"{k}-{part}-up": up, f"{k}-{part}-error": error}
        abouts[name][0]["array"] = k
        one, two = (np.stack([1 - up, up], 1) for _, up, _ in both)
        stated = [2 * float(error.mean()) for _, _, error in both]
        print(f"{name}: apart {mean_absolute_error(one, two):.1e}, stated {stated}")
    text = json.dumps(abouts, ensure_ascii=False)
    np.savez_compressed(KEPT, about=np.array(text), **arrays)


def kept(name: str) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Mean of both runs (n 2) and what is known of it; None where there are none."""
    if not KEPT.is_file():
        return None
    with np.load(KEPT) as saved:
        about = json.loads(str(saved["about"]))
        if name not in about:
            return None
        k = about[name][0]["array"]
        one, two = (np.stack([1.0 - up, up], 1) for up in
                    (saved[f"{k}-{part}-up"].astype(float) for part in (0, 1)))  # fmt: skip
    return 0.5 * (one + two), {
        "apart": float(mean_absolute_error(one, two)),
        "reference": max(each["seconds"] for each in about[name]),
        "device": True,
    }


if __name__ == "__main__":
    main()
