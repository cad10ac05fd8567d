"""What each route of `auto` finds on models with a reference: the study behind its rules.

    ICGI_DATA=… python benchmarks/routes.py run [--set development|held-out] [--seconds 5]
    python benchmarks/routes.py judge [--set held-out]

`run` answers every model with every route alone, exact inference switched off, and keeps all
marginals under ICGI_STUDY (a folder of your choice; some 30 MB). `judge` applies the rule of
`portfolio/combine.py` to what was kept, and prints for every family: mean error of each route, of
the rule and of the best route in hindsight; how well the stated error ranks and covers the true
one; how many answers called trustworthy are wrong by more than 0.05 in the mean.

Development and held-out models share no family of real models and no seed of generated ones.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import data_folder, instances
from icgi.data.families import FAMILIES
from icgi.inference import Marginals, Status
from icgi.portfolio.combine import Route, combine

ROUTES = ("lbp", "ttve:exact_entries=0", "pt", "gbp", "icgi")
DEVELOPMENT = ("grids", "promedus", "csp", "sidechain", "segmentation")  # families of real models
LARGEST_REFERENCE = 2**31  # bytes of tables of an exact reference
GENERATED = {
    "ea2d": [{"L": 12, "beta": b} for b in (0.5, 1.0, 2.0, 3.0)],
    "ea3d": [{"L": 4, "beta": b} for b in (0.5, 1.0, 2.0)],
    "er": [{"n": 60, "p": 0.1, "beta": b} for b in (0.5, 1.0)],
    "ba": [{"n": 60, "m": 3, "beta": b} for b in (0.5, 1.0)],
    "ws": [{"n": 60, "k": 6, "beta": b} for b in (0.5, 1.0)],
    "sk": [{"n": 20, "beta": b} for b in (0.5, 1.0, 2.0, 3.0)],
    "potts": [{}],
    "factor": [{}],
    "csp": [{}],
}
SEEDS = {"development": (1, 2), "held-out": (11, 12)}


def models(which: str) -> Iterator[tuple[str, str, icgi.FactorGraph, dict, np.ndarray]]:
    """Family, name, model, evidence and exact marginals."""
    for family, settings in GENERATED.items():
        for setting in settings:
            for seed in SEEDS[which]:
                model = FAMILIES[family].sample(np.random.default_rng(seed), **setting)
                words = "-".join(f"{k}{v}" for k, v in setting.items())
                try:
                    exact = icgi.marginals(
                        model, engine="jt", budget=icgi.Budget(table_bytes=LARGEST_REFERENCE)
                    )
                except icgi.IcgiError as refusal:
                    print(f"{family} {words}: {refusal}", file=sys.stderr)
                    continue
                yield family, f"{family}-{words}-{seed}", model, {}, exact.probs
    folder = data_folder()
    for each in instances(folder) if folder else ():
        family = each.family.partition("-")[2]
        if not each.has_reference or (family in DEVELOPMENT) != (which == "development"):
            continue
        model, rows = each.model(), each.reference() or []
        probs = np.zeros((model.n_variables, model.max_states))
        for i, row in enumerate(rows):
            probs[i, : len(row)] = row
        yield family, each.name, model, dict(each.evidence()), probs


def run(options: argparse.Namespace, store: Path) -> None:
    for family, name, model, evidence, truth in models(options.set):
        for engine in options.engines.split(","):
            target = store / options.set / f"{family}~{name}~{engine.partition(':')[0]}.npz"
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            budget = icgi.Budget(seconds=options.seconds)
            try:
                found = icgi.marginals(model, evidence, engine, budget, seed=1)
            except icgi.IcgiError as refusal:
                np.savez_compressed(target, truth=truth, refused=str(refusal)[:200])
                continue
            hidden = np.setdiff1d(np.arange(model.n_variables), list(evidence))
            error = found.marginals.std_error
            np.savez_compressed(
                target,
                truth=truth[hidden],
                probs=found.probs[hidden],
                status=found.status.value,
                seconds=found.seconds,
                log_z=np.nan if found.log_z is None else found.log_z,
                stats=json.dumps(dict(found.stats)),
                **({} if error is None else {"std_error": error[hidden]}),
            )
            gap = np.abs(found.probs - truth)[hidden].max(1).mean()
            print(f"{name:<28}{engine:<24}{found.status.value:<14}{gap:.5f}", flush=True)


def load(store: Path, which: str) -> dict[tuple[str, str], tuple[np.ndarray, list[Route]]]:
    found: dict[tuple[str, str], tuple[np.ndarray, list[Route]]] = {}
    for path in sorted((store / which).glob("*.npz")):
        family, name, engine = path.stem.split("~")
        data = np.load(path)
        if "probs" not in data:
            continue
        answer = Marginals(
            data["probs"],
            Status(str(data["status"])),
            std_error=data.get("std_error"),
            stats=json.loads(str(data["stats"])),
        )
        found.setdefault((family, name), (data["truth"], []))[1].append(Route(engine, answer))
    return found


def judge(options: argparse.Namespace, store: Path) -> None:
    wanted = options.engines.split(",")
    wanted = [w.partition(":")[0] for w in wanted]
    rows: dict[str, list[dict]] = defaultdict(list)
    for (family, name), (truth, routes) in load(store, options.set).items():
        used = [r for r in routes if r.name in wanted]
        if not used:
            continue
        errors = {r.name: float(np.abs(r.answer.probs - truth).max(1).mean()) for r in used}
        made = combine(used)
        gap = np.abs(made.chosen.answer.probs - truth).max(1)
        row = {
            "name": name, "family": family, **errors, "rule": float(gap.mean()),
            "best": min(errors.values()), "chosen": made.chosen.name,
            "expected": made.expected, "status": made.status.value,
            "covered": float((gap <= 1.645 * made.error + 1e-6).mean()),
        }  # fmt: skip
        rows[family].append(row)
        if options.verbose:
            print(json.dumps(row))
    print(f"{'family':<18}{'n':>4}" + "".join(f"{w:>9}" for w in [*wanted, "rule", "best"])
          + f"{'expected':>10}{'covered':>9}{'trusted':>9}{'wrong':>7}")  # fmt: skip
    everything = [row for group in rows.values() for row in group]
    for family, group in [*sorted(rows.items()), ("all", everything)]:
        cells = [
            f"{np.mean([r[w] for r in group if w in r] or [np.nan]):9.4f}"
            for w in [*wanted, "rule", "best"]
        ]
        trusted = [r for r in group if r["status"] in ("exact", "converged")]
        print(
            f"{family:<18}{len(group):>4}" + "".join(cells)
            + f"{np.mean([r['expected'] for r in group]):>10.4f}"
            + f"{np.mean([r['covered'] for r in group]):>9.2f}"
            + f"{len(trusted):>9}{sum(r['rule'] > 0.05 for r in trusted):>7}"
        )  # fmt: skip
    ranks = [np.argsort(np.argsort([r[k] for r in everything])) for k in ("rule", "expected")]
    print(f"rank correlation of expected and true error: {np.corrcoef(*ranks)[0, 1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("run", "judge"))
    parser.add_argument("--set", choices=("development", "held-out"), default="development")
    parser.add_argument("--engines", default=",".join(ROUTES))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    given = os.environ.get("ICGI_STUDY")
    if given is None:
        raise SystemExit("set ICGI_STUDY to a folder for the marginals of this study")
    {"run": run, "judge": judge}[options.task](options, Path(given))


if __name__ == "__main__":
    main()
