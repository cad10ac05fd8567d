"""Are calibrated sets and bands worth what they promise? Coverage on fresh models, by group.

    ICGI_DATA=… icgi calibrate --engine pt --iterations 1000 -o pt.json      makes pt.json.lines
    python benchmarks/uncertainty.py keep pt.json                            keeps both
    ICGI_DATA=… python benchmarks/uncertainty.py run --engine pt [--set mixed]
    python benchmarks/uncertainty.py render             writes docs/uncertainty_results.md and .png

`keep` puts a calibration file among the shipped ones and its lines, packed, beside the results.
`run` asks the engine about fresh models of the calibrated families and about families that no
calibration has, takes the promise that comes with each answer, and compares it with the truth; one
line per answer in benchmarks/results/uncertainty-ENGINE.jsonl.xz, a stopped run goes on.
"""

import argparse
import json
import lzma
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

import icgi
from icgi.calibration.apply import guarantee, kinds_of
from icgi.calibration.classifier import told_apart
from icgi.calibration.features import NAMES
from icgi.calibration.file import Calibration, read
from icgi.calibration.groups import COUPLINGS, SIZES, membership
from icgi.calibration.identity import approximating
from icgi.calibration.measure import MASSES, rounded
from icgi.calibration.scales import own_error
from icgi.calibration.sets import OUTSIDE, Case, cases, made
from icgi.conformal.bands import EXCEPTIONS
from icgi.conformal.groups import conditional_quantile
from icgi.conformal.metrics import (
    calibration_error,
    class_bins,
    rank_correlation,
    set_coverage,
    set_size,
    top_bins,
)
from icgi.conformal.quantiles import Atoms, hierarchical_quantile, largest_of_most
from icgi.conformal.shift import support
from icgi.model.condition import condition

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
SHIPPED = ROOT.parent / "src" / "icgi" / "calibration" / "shipped"
PAGE = ROOT.parent / "docs" / "uncertainty_results.md"
ALPHAS = (0.05, 0.1, 0.2)
OUTSIDE_COUNT = {"larger": 4}  # models of each family outside, 24 where none is said
ROUNDING = 2e-6  # of published references


def lines_of(path: Path) -> list[dict]:
    for opened, name in ((lzma.open, path.with_name(path.name + ".xz")), (open, path)):
        if name.exists():
            with opened(name, "rt") as file:
                return [json.loads(text) for text in file]
    return []


def pack(path: Path, lines: Sequence[dict]) -> None:
    with lzma.open(path.with_name(path.name + ".xz"), "wt", preset=9) as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def keep(path: Path) -> None:
    shutil.copy(path, SHIPPED / path.name)
    lines = [json.loads(text) for text in Path(f"{path}.lines").read_text().splitlines()]
    pack(RESULTS / f"calibrate-{path.stem}.jsonl", lines)


def fresh(source: str) -> Iterable[Case]:
    yield from cases(source, ("report",))
    for family in OUTSIDE:
        yield from (made(family, "report", k) for k in range(OUTSIDE_COUNT.get(family, 24)))


def run(options: argparse.Namespace) -> None:
    name = options.engine.replace(":", "-")
    calibration, path = read(SHIPPED / f"{name}.json"), RESULTS / f"uncertainty-{name}.jsonl"
    lines = lines_of(path)
    have = {line["name"] for line in lines}
    budget = icgi.Budget(
        calibration.budget["iterations"], calibration.budget["seconds"] or float("inf")
    )
    engine = approximating(options.engine)
    with path.open("a") as file:
        for case in fresh(options.set):
            if case.name in have:
                continue
            line = measure(case, engine, budget, calibration)
            file.write(json.dumps(line) + "\n")
            file.flush()
            lines.append(line)
            print(case.name, line["status"], line.get("kind", ""), flush=True)
    pack(path, lines)
    path.unlink()


def measure(case: Case, engine: str, budget: icgi.Budget, calibration: Calibration) -> dict:
    """What was promised about one answer, and what is true."""
    known = case.load()
    line = {"name": case.name, "family": case.family}
    try:
        answer = icgi.marginals(known.model, known.evidence, engine, budget)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    line |= {"status": answer.status.value, "seconds": round(answer.seconds, 3)}
    if answer.status is icgi.Status.EXACT:
        return line
    found = guarantee(answer, calibration)
    free = condition(known.model, known.evidence).model.cards > 1
    predicted, truth = answer.probs[free], known.probs[free]
    states = np.arange(truth.shape[1]) < known.model.cards[free][:, None]
    gap = np.abs(predicted - truth).max(1)
    own = own_error(answer.marginals)
    line |= {
        "kind": found.kind,
        "why": found.refusal,
        "far": found.unfamiliar and rounded([found.unfamiliar])[0],
        "nearest": found.nearest,
        "error": rounded([gap.mean(), np.median(gap), largest_of_most(gap, EXCEPTIONS)]),
        "mae": rounded([np.abs(predicted - truth).sum(1).mean()])[0],
        "rank": 0.0 if own is None else rounded([rank_correlation(own[free], gap)])[0],
        "top": top_bins(predicted, truth).round(5).tolist(),
        "class": class_bins(predicted, truth, states).round(5).tolist(),
    }
    # where nothing is promised: what the nearest group's thresholds would have been worth
    spoken = found if found.kind != "none" else guarantee(answer, calibration, anyway=True)
    line |= {"structure": spoken.structure, "features": rounded(spoken.features)}
    if spoken.scale is not None:
        line["rank of scale"] = rounded([rank_correlation(spoken.scale[free], gap)])[0]
    for alpha in ALPHAS:
        sets, band = spoken.sets(1 - alpha), spoken.bands(1 - alpha)
        if sets is None or band is None:
            continue
        low, high = band[0][free] - ROUNDING, band[1][free] + ROUNDING
        line[str(alpha)] = rounded([
            set_coverage(sets[free], truth),
            set_size(sets[free]),
            ((low <= truth) & (truth <= high)).all(1).mean(),
            np.median((high - low).max(1) / 2),
        ])  # fmt: skip
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    keeping = verbs.add_parser("keep")
    keeping.add_argument("file", type=Path)
    running = verbs.add_parser("run")
    running.add_argument("--engine", required=True)
    running.add_argument("--set", default="mixed")
    verbs.add_parser("render")
    options = parser.parse_args()
    if options.verb == "keep":
        keep(options.file)
    elif options.verb == "run":
        run(options)


if __name__ == "__main__":
    main()
