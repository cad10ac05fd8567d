"""Are calibrated sets and bands worth what they promise? Coverage on fresh models, by group.

    ICGI_DATA=… icgi calibrate --engine pt --iterations 1000 -o pt.json      makes pt.json.lines
    python benchmarks/uncertainty.py keep pt.json                            keeps both
    ICGI_DATA=… python benchmarks/uncertainty.py run --engine pt [--set mixed] [--busy 2]
    ICGI_DATA=… python benchmarks/uncertainty.py run --engine lbp --outside 200   more outside
    ICGI_DATA=… python benchmarks/uncertainty.py networks FOLDER      all of it for new weights
    python benchmarks/uncertainty.py render             fills the tables of docs/uncertainty.md

`keep` puts a calibration file among the shipped ones and its lines, packed, beside the results.
`run` asks the engine about fresh models of the calibrated families and about families that no
calibration has, takes the promise that comes with each answer, and compares it with the truth; one
line per answer in benchmarks/results/uncertainty-ENGINE.jsonl.xz, a stopped run goes on.
"""

import argparse
import json
import lzma
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import stats

import icgi
from icgi.calibration import check, make
from icgi.calibration.apply import groups_of as dividing
from icgi.calibration.apply import guarantee
from icgi.calibration.classifier import told_apart
from icgi.calibration.features import NAMES
from icgi.calibration.file import Calibration, read
from icgi.calibration.groups import COUPLINGS, SIZES, Answered, Groups
from icgi.calibration.identity import approximating
from icgi.calibration.measure import MASSES, drawn_seconds, quantiles, rounded, route_of
from icgi.calibration.scales import TINY, own_error
from icgi.calibration.sets import (
    COUNTS,
    FAMILIES_OF,
    OUTSIDE,
    Case,
    Known,
    cases,
    count_of,
    made,
    most_of,
)
from icgi.conformal.bands import EXCEPTIONS, band_score
from icgi.conformal.groups import conditional_quantile
from icgi.conformal.metrics import (
    calibration_error,
    class_bins,
    rank_correlation,
    set_coverage,
    set_size,
    top_bins,
    worst_group,
)
from icgi.conformal.quantiles import Atoms, hierarchical_quantile, largest_of_most
from icgi.conformal.scores import SCORES, state_atoms
from icgi.conformal.shift import support
from icgi.model.condition import condition

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
SHIPPED = ROOT.parent / "src" / "icgi" / "calibration" / "shipped"
ALPHAS = (0.05, 0.1, 0.2)
OUTSIDE_COUNT, LARGER_COUNT = 24, 4  # models of each family outside the sets
VISIBLE = 1e-4  # half-width of a band, below which four digits are right anyway
ROUNDING = 2e-6  # of published references


def lines_of(path: Path) -> list[dict]:
    """Packed lines, and those of a run that was stopped before it packed its own."""
    found: dict[str, dict] = {}
    for opened, name in ((lzma.open, path.with_name(path.name + ".xz")), (open, path)):
        if name.exists():
            with opened(name, "rt") as file:
                lines = [json.loads(text) for text in file]
            found |= {line.get("name", ""): line for line in lines}  # heads have no name
    return list(found.values())


def pack(path: Path, lines: Sequence[dict]) -> None:
    with lzma.open(path.with_name(path.name + ".xz"), "wt", preset=9) as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def calibrated_as(name: str) -> str:
    """Name of the calibration behind a name of results."""
    return name.removesuffix(BUSY)


@lru_cache
def calibration_of(name: str) -> Calibration:
    """Calibration of an engine: the shipped one, else that of its kept lines."""
    path = SHIPPED / f"{calibrated_as(name)}.json"
    if path.exists():
        return read(path)
    head, *lines = lines_of(RESULTS / f"calibrate-{calibrated_as(name)}.jsonl")
    seconds, most = head["budget"]["seconds"], head["budget"].get("most_seconds")
    budget = icgi.Budget(head["budget"]["iterations"], seconds or float("inf"))
    making = make.Making(head["engine"], head["set"], budget, head["seed"], most)
    return make.calibration(making, lines)


def keep(path: Path) -> None:
    shutil.copy(path, SHIPPED / path.name)
    lines = [json.loads(text) for text in Path(f"{path}.lines").read_text().splitlines()]
    pack(RESULTS / f"calibrate-{path.stem}.jsonl", lines)


def fresh(source: str, outside: int, calibrated: Iterable[str]) -> Iterable[Case]:
    """Calibrated families and others in turn, so that a stopped run has some of all; then real."""
    known = {f.removeprefix("real: ") for f in calibrated if f.startswith("real: ")}
    every = list(cases(source, ("report",), real=sorted(known)))
    real = [case for case in every if case.family.startswith("real")]
    for k in range(max(most_of(source, "report"), outside)):
        yield from (made(f, "report", k) for f in FAMILIES_OF[source] if k < count_of(f, "report"))
        yield from real[k :: COUNTS["report"]] if k < COUNTS["report"] else ()
        if k < outside:
            yield from (made(f, "report", k) for f in OUTSIDE if f != "larger" or k < LARGER_COUNT)


def run(options: argparse.Namespace) -> None:
    name = options.engine.replace(":", "-") + ("" if options.busy is None else BUSY)
    calibration, path = calibration_of(name), RESULTS / f"uncertainty-{name}.jsonl"
    lines = lines_of(path)
    have = {line["name"] for line in lines}
    budget, most = budget_of(calibration)
    engine = approximating(options.engine)
    with path.open("a") as file, beside(options.busy or 0):
        for case in fresh(options.set, options.outside, calibration.families):
            known = case.family in FAMILIES_OF[options.set]
            inside = known or case.family in calibration.families
            if case.name in have or (options.inside and not inside):
                continue
            if known and not options.first <= number(case) < (options.count or np.inf):
                continue
            given = budget if most is None else drawn_seconds(budget, most, case.name)
            line = measure(case, engine, given, calibration)
            file.write(json.dumps(line) + "\n")
            file.flush()
            lines.append(line)
            print(case.name, line["status"], line.get("kind", ""), flush=True)
    pack(path, lines)
    path.unlink()


def number(case: Case) -> int:
    return int(case.name.rpartition("-")[2])


@contextmanager
def beside(count: int) -> Iterator[None]:
    """Run so many loops that do nothing at the same time, as other programs would."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()


def budget_of(made: Calibration) -> tuple[icgi.Budget, float | None]:
    """Budget of the calibration, and the most seconds where each answer has a time of its own."""
    least = icgi.Budget(made.budget["iterations"], made.budget["seconds"] or float("inf"))
    return least, made.budget.get("most_seconds")


def measure(case: Case, engine: str, budget: icgi.Budget, calibration: Calibration) -> dict:
    """What was promised about one answer, and what is true."""
    known = case.load()
    line = {"name": case.name, "family": case.family}
    try:
        answer = icgi.marginals(known.model, known.evidence, engine, budget)
    except icgi.IcgiError as refusal:
        return line | {"status": "refused", "why": str(refusal)[:160]}
    return line | judged_answer(known, answer, calibration)


def judged_answer(known: Known, answer: icgi.Answer, calibration: Calibration) -> dict:
    """What was promised about an answer, and what is true."""
    line: dict = {"status": answer.status.value, "seconds": round(answer.seconds, 3)}
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
        "work": rounded([answer.stats.get("work", -1.0)])[0],
        "stated": -1.0 if own is None else rounded([own[free].mean()])[0],
        "route": route_of(answer.marginals),
        "rank": 0.0 if own is None else rounded([rank_correlation(own[free], gap)])[0],
        "top": top_bins(predicted, truth).round(5).tolist(),
        "class": class_bins(predicted, truth, states).round(5).tolist(),
    }
    # where nothing is promised: what the nearest group's thresholds would have been worth
    spoken = found if found.kind != "none" else guarantee(answer, calibration, anyway=True)
    line |= {"structure": spoken.structure, "features": rounded(spoken.features)}
    if spoken.scale is not None:
        line["score"] = rounded([band_score(predicted, truth, spoken.scale[free], least=TINY)])[0]
        line["law"] = quantiles(state_atoms(predicted, truth, SCORES[calibration.score]))
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


ENGINES = (
    "lbp", "pt", "ttve", "auto", "auto-busy", "icgi-fast", "icgi-paper", "ensemble",
)  # fmt: skip
BUSY = "-busy"  # end of the name of results that other programs were run beside
NETWORKS = ("icgi:fast", "icgi:paper", "ensemble")
SETS = {"icgi:fast": "wider"}  # it is exact on smaller models; others `mixed`
SURE = 0.05  # chance of a flag where the promise is kept


def promised_lines(lines: Sequence[dict], alpha: float, promised: bool = True) -> list[dict]:
    """Answers that were given a promise at a level (or would have been)."""
    return [x for x in lines if str(alpha) in x and (x["kind"] != "none" or not promised)]


def kept(line: dict, alpha: float) -> bool:
    """Whether enough variables were within their bands."""
    return bool(line[str(alpha)][2] >= 1 - EXCEPTIONS - 1e-9)


def cell(lines: Sequence[dict], alpha: float, models: int) -> tuple[str, str, bool, bool]:
    """Share of bands that kept the promise, mean coverage of sets; whether either is too low.

    Bands that keep a promise of exactly 1 − α on n fresh models, given K calibration models, are
    beta-binomial: K + 1 − l and l successes and failures, l = ⌊α (K + 1)⌋. For sets the standard
    errors of both means are added.
    """
    good = sum(kept(x, alpha) for x in lines)
    below = max(int(alpha * (models + 1)), 1)
    chance = stats.betabinom(len(lines), models + 1 - below, below).cdf(good)
    inside = np.array([x[str(alpha)][0] for x in lines])
    error = inside.std() * np.sqrt(1 / len(inside) + 1 / models)
    low = inside.mean() + 1.645 * error < 1 - alpha
    return f"{good / len(lines):.2f}", f"{inside.mean():.3f}", bool(chance < SURE), bool(low)


def groups_of(line: dict) -> list[str]:
    of = dict(zip(NAMES, line["features"], strict=True))
    trusted = icgi.Status(line["status"]).trusted
    size = int(np.searchsorted(SIZES, of["variables"], side="right"))
    strength = int(np.searchsorted(COUPLINGS, of["coupling of a variable"], side="right"))
    return [
        f"{line['family']}",
        f"size {size + 1} of {len(SIZES) + 1}",
        f"coupling {strength + 1} of {len(COUPLINGS) + 1}",
        "vouched for" if trusted else "not vouched for",
    ]


def coverage_table(engine: str, lines: Sequence[dict], made: Calibration) -> list[str]:
    """Rows of families, sizes, couplings and status: bands kept and sets covered at every level."""
    families = set(made.families)
    grouped = defaultdict(list)
    for line in lines:
        if line.get("features") and line["family"] in families:
            for name in groups_of(line):
                grouped[name].append(line)
    sizes = defaultdict(int)
    for k in range(len(made)):
        status = "converged" if made.trusted[k] else "budget spent"
        line = {"features": made.features[k], "family": made.families[k], "status": status}
        for name in groups_of(line):
            sizes[name] += 1
    rows = []
    order = sorted(grouped, key=lambda g: (g not in families, g))
    flags = cells = 0
    for name in order:
        answered = grouped[name]
        refused = np.mean([x["kind"] == "none" for x in answered])
        parts = []
        for alpha in ALPHAS:
            chosen = promised_lines(answered, alpha)
            if len(chosen) < 3:
                parts += ["–", "–"]
                continue
            bands, sets, *low = cell(chosen, alpha, max(sizes[name], 10))
            cells += 2
            flags += sum(low)
            parts += [bands + (" *" if low[0] else ""), sets + (" *" if low[1] else "")]
        rows.append(
            f"| `{engine}` | {name} | {sizes[name]} | {len(answered)} | {refused:.2f} | "
            + " | ".join(parts) + " |"
        )  # fmt: skip
    rows.append(f"| `{engine}` | cells below nominal beyond chance | | | | {flags} of {cells} "
                "| | | | | |")  # fmt: skip
    return rows


def outside_table(engine: str, lines: Sequence[dict], made: Calibration) -> list[str]:
    """Families outside: answers, refused, failing at 90 %, failing with the refusal."""
    rows, totals = [], np.zeros(4, int)
    grouped = defaultdict(list)
    for line in lines:
        if "kind" in line and line["family"] not in set(made.families):
            name = "real models" if line["family"].startswith("real") else line["family"]
            grouped[name].append(line)
    for name, answered in sorted(grouped.items()):
        measured = promised_lines(answered, 0.1, promised=False)
        failing = [x for x in measured if not kept(x, 0.1)]
        counts = np.array([
            len(answered), sum(x["kind"] == "none" for x in answered), len(failing),
            sum(x["kind"] == "none" for x in failing),
        ])  # fmt: skip
        totals += counts
        rows.append(f"| `{engine}` | {name} | " + " | ".join(map(str, counts)) + " |")
    failing, told = int(totals[2]), int(totals[3])
    low, high = stats.binomtest(told, failing).proportion_ci() if failing else (0.0, 1.0)
    share = f" ({told / max(failing, 1):.0%}; {low:.0%} to {high:.0%})" if failing else ""
    rows.append(f"| `{engine}` | **all** | " + " | ".join(map(str, totals)) + share + " |")
    return rows


def width_row(engine: str, lines: Sequence[dict], made: Calibration) -> str:
    """Median half-width at 90 %, against bands whose scale is each model's true mean error."""
    chosen = [x for x in promised_lines(lines, 0.1) if x["family"] in set(made.families)]
    ours = np.array([x["0.1"][3] for x in chosen])
    calibration = [
        x for x in lines_of(RESULTS / f"calibrate-{calibrated_as(engine)}.jsonl")[1:]
        if x["role"] == "calibrate" and "bands" in x
    ]  # fmt: skip
    scores = [Atoms(np.log([known_ratio(x)]), np.ones(1)) for x in calibration]
    groups, members = dividing(made)
    filled = members.any(0)
    found: dict[bytes, float] = {}
    known = []
    for line in chosen:
        new = groups.members(answered_of([line]))[0]
        if new.tobytes() not in found:
            q = conditional_quantile(scores, members[:, filled], new[filled], 0.1)
            found[new.tobytes()] = float(np.exp(q))
        known.append(min(found[new.tobytes()] * known_scale(line), 1.0))
    ratio = ours / np.array(known)
    rank = np.mean([x["rank of scale"] for x in chosen])
    own = np.mean([x["rank"] for x in chosen])
    return (
        f"| `{engine}` | {len(chosen)} | {np.median(ours):.2g} | {np.median(known):.2g} | "
        f"{np.median(ours) / np.median(known):.2f} | {np.median(ratio):.2f} | "
        f"{typical(ratio):.2f} | {seen(ratio, known)} | {own:.2f} | {rank:.2f} |"
    )


def metrics_row(engine: str, lines: Sequence[dict], made: Calibration) -> str:
    chosen = [x for x in lines if "mae" in x and x["family"] in set(made.families)]
    top = calibration_error(np.sum([x["top"] for x in chosen], 0))
    each = calibration_error(np.sum([x["class"] for x in chosen], 0))
    sets = [x["0.1"][1] for x in promised_lines(chosen, 0.1)]
    coverage = defaultdict(list)
    for x in promised_lines(chosen, 0.1):
        coverage[x["family"]].append(x["0.1"][0])
    worst = worst_group(coverage)
    return (
        f"| `{engine}` | {len(chosen)} | {np.mean([x['mae'] for x in chosen]):.2g} | {top:.2g} | "
        f"{each:.2g} | {np.mean(sets):.2f} | {worst[1]:.3f} ({worst[0]}) |"
    )


def scale_rows() -> list[str]:
    found = {
        engine: calibration_of(engine) for engine in available() if calibrated_as(engine) == engine
    }
    names = list(next(iter(found.values())).widths)
    head = [
        "| scale | " + " | ".join(f"`{e}`" for e in found) + " |",
        "|---" * (len(found) + 1) + "|",
    ]
    return head + [
        f"| {name} | "
        + " | ".join(
            f"{m.widths[name]:.2g}{' (chosen)' * (m.scale == name)}" for m in found.values()
        )
        + " |"
        for name in names
    ]


def shift_rows(engine: str) -> list[str]:
    """Hold one structure out: plain conformal, and weights from half of its models."""
    lines = [
        x for x in lines_of(RESULTS / f"calibrate-{calibrated_as(engine)}.jsonl")[1:]
        if x["role"] == "calibrate" and "bands" in x
    ]  # fmt: skip
    scale_name = calibration_of(engine).scale
    rows = []
    for target in ("spins on a lattice", "spins, dense", "spins, sparse", "many states"):
        there = [x for x in lines if x["structure"] == target]
        here = [x for x in lines if x["structure"] != target]
        if len(there) < 30:
            continue
        fit, test = there[::2], there[1::2]
        features = [np.array([x["features"] for x in part]) for part in (here, fit, test)]
        domain = told_apart(features[0], features[1], target)
        laws = [Atoms(np.array(x["sets"]["least-ambiguous"]), MASSES) for x in here]
        bands = [Atoms(np.array([x["bands"][scale_name]]), np.ones(1)) for x in here]
        own = domain.ratio(features[2])
        effective = support(domain.odds, float(np.median(own))).effective
        for alpha in (0.1, 0.2):
            plain = [
                hierarchical_quantile(a, np.ones(len(here)), 1.0, alpha) for a in (laws, bands)
            ]
            results: dict[str, list[list[float]]] = {"plain": [], "weighted": []}
            refused = 0
            for x, w in zip(test, own.tolist(), strict=True):
                results["plain"].append(judged(x, plain[0], plain[1], scale_name))
                if not support(domain.odds, w).suffices(alpha):
                    refused += 1
                    continue
                found = [hierarchical_quantile(a, domain.odds, w, alpha) for a in (laws, bands)]
                results["weighted"].append(judged(x, found[0], found[1], scale_name))
            mean = {
                k: [f"{v:.2f}" for v in np.mean(r, 0)] if r else ["–", "–"]
                for k, r in results.items()
            }
            rows.append(
                f"| `{engine}` | {target} | {1 - alpha:g} | {' | '.join(mean['plain'])} | "
                f"{' | '.join(mean['weighted'])} | {domain.auc:.2f} | {effective:.0f} | "
                f"{refused} of {len(test)} |"
            )
    return rows


def half_rows(engine: str) -> list[str]:
    """What thresholds from every second calibration model are worth on the others."""
    rows = []
    for family, (count, *shares) in calibration_of(engine).kept.items():
        pairs = [f"{v:.{2 + k % 2}f}" if v >= 0 else "–" for k, v in enumerate(shares)]
        cells = [
            cell for k in range(len(check.LEVELS) - 1, -1, -1) for cell in pairs[2 * k : 2 * k + 2]
        ]
        rows.append(f"| `{engine}` | {family} | {count:.0f} | " + " | ".join(cells) + " |")
    return rows


def half_width_row(engine: str) -> str:
    """Half-widths at 90 % on the same halves, against scales that are the true mean errors."""
    name, parts = calibration_of(engine).scale, halves(engine)
    members, tested = half_members(engine, parts)
    ratios = [known_ratio(x) for x in parts[0]]
    scores = [np.log([max(x["bands"][name], 1e-12) for x in parts[0]]), np.log(ratios)]
    found: dict[bytes, list[float]] = {}
    ours, known = [], []
    for x, new in zip(parts[1], tested, strict=True):
        if new.tobytes() not in found:
            filled = members.any(0) | (new != 0)
            found[new.tobytes()] = [
                float(np.exp(conditional_quantile(
                    [Atoms(s[None], np.ones(1)) for s in law], members[:, filled], new[filled], 0.1
                ))) for law in scores
            ]  # fmt: skip
        q, best = found[new.tobytes()]
        if np.isfinite(q) and np.isfinite(best):
            ours.append(min(q * x["sigma"][name], 1.0))
            known.append(min(best * known_scale(x), 1.0))
    ratio = np.array(ours) / np.array(known)
    return (
        f"| `{engine}` | {len(ours)} | {np.median(ours):.2g} | {np.median(known):.2g} | "
        f"{np.median(ours) / np.median(known):.2f} | {np.median(ratio):.2f} | "
        f"{typical(ratio):.2f} | {seen(ratio, known)} |"
    )


def typical(ratio: np.ndarray) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(ratio))))


def seen(ratio: np.ndarray, known: Sequence[float]) -> str:
    """Median ratio of the answers whose bands of known scale can be seen in four digits."""
    large = np.array(known) > VISIBLE
    return f"{np.median(ratio[large]):.2f} ({large.sum()})" if large.any() else "–"


def known_scale(line: dict) -> float:
    """True mean error of an answer; as in scales and scores, none counts below TINY."""
    return max(line["error"][0], TINY)


def known_ratio(line: dict) -> float:
    """Score of an answer's bands with this scale."""
    return max(line["error"][2], TINY) / known_scale(line)


def halves(engine: str) -> tuple[list[dict], list[dict]]:
    """Calibration models of a run, every second one of each family apart."""
    lines = lines_of(RESULTS / f"calibrate-{calibrated_as(engine)}.jsonl")[1:]
    used = [x for x in lines if x["role"] == "calibrate" and "bands" in x]
    first = check.every_second([x["family"] for x in used], [x["name"] for x in used])
    both = list(zip(used, first, strict=True))
    return [x for x, one in both if one], [x for x, one in both if not one]


def half_members(engine: str, parts: tuple[list[dict], list[dict]]) -> list[np.ndarray]:
    """Groups of both halves, divided as the first one is."""
    first, second = map(answered_of, parts)
    groups = Groups.of(first, calibration_of(engine).clocked)
    return [groups.members(first), groups.members(second)]


def answered_of(lines: Sequence[dict]) -> Answered:
    """What groups see of lines."""
    trusted = [icgi.Status(x["status"]).trusted for x in lines]
    return Answered(
        np.array([x["features"] for x in lines]),
        [x["structure"] for x in lines],
        trusted,
        np.array([-1.0 if t else x.get("work", -1.0) for x, t in zip(lines, trusted, strict=True)]),
        np.array([x.get("stated", -1.0) for x in lines]),
        [x.get("route", "") for x in lines],
    )


def judged(line: dict, threshold: float, factor: float, scale_name: str) -> list[float]:
    """Share of true mass within the sets (by its kept quantiles), and whether the bands held."""
    law = np.array(line["sets"]["least-ambiguous"])
    inside = float(MASSES[law <= threshold].sum())
    return [inside, float(line["bands"][scale_name] <= factor)]


def available() -> list[str]:
    return [e for e in ENGINES if (RESULTS / f"uncertainty-{e}.jsonl.xz").exists()]


def render() -> None:
    tables: dict[str, list[str]] = defaultdict(list)
    every = {e: lines_of(RESULTS / f"uncertainty-{e}.jsonl") for e in available()}
    for engine, lines in every.items():
        made = calibration_of(engine)
        tables["coverage"] += coverage_table(engine, lines, made)
        tables["outside"] += outside_table(engine, lines, made)
        tables["width"].append(width_row(engine, lines, made))
        tables["metrics"].append(metrics_row(engine, lines, made))
        if engine == calibrated_as(engine):
            tables["shift"] += shift_rows(engine)
            tables["half widths"].append(half_width_row(engine))
            tables["halves"] += half_rows(engine)
    tables["scales"] = scale_rows()
    text = (ROOT.parent / "docs" / "uncertainty.md").read_text()
    for name, rows in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        body = "\n".join(rows if name == "scales" else [*HEADS[name], *rows])
        text = f"{before}{begin}\n\n{body}\n\n{end}{after}"
    (ROOT.parent / "docs" / "uncertainty.md").write_text(text)
    draw(every)


def _head(*names: str) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


HEADS = {
    "coverage": _head(
        "engine", "group", "calibrated on", "fresh", "refused", "bands kept, 95 %", "sets, 95 %",
        "bands, 90 %", "sets, 90 %", "bands, 80 %", "sets, 80 %",
    ),
    "half widths": _head(
        "engine", "tested", "half-width", "with known scale", "ratio of medians", "median ratio",
        "geometric mean", "median ratio above 10⁻⁴",
    ),
    "halves": _head(
        "engine", "family", "tested", "bands, 95 %", "sets, 95 %", "bands, 90 %", "sets, 90 %",
        "bands, 80 %", "sets, 80 %",
    ),
    "outside": _head(
        "engine", "family", "answers", "refused", "failing at 90 %", "of them refused"
    ),
    "width": _head(
        "engine", "fresh models", "half-width", "with known scale", "ratio of medians",
        "median ratio", "geometric mean", "median ratio above 10⁻⁴", "rank correlation, own error",
        "of the scale",
    ),
    "metrics": _head(
        "engine", "fresh models", "mean L1 error", "ECE, top", "ECE, classes", "size of 90 % sets",
        "worst family's coverage at 90 %",
    ),
    "shift": _head(
        "engine", "held out", "level", "sets, plain", "bands, plain", "sets, weighted",
        "bands, weighted", "AUC", "effective models", "refused",
    ),
}  # fmt: skip


def draw(every: dict[str, list[dict]]) -> None:
    """Reliability, and coverage against the level, of every engine."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for engine, lines in every.items():
        families = set(calibration_of(engine).families)
        chosen = [x for x in lines if "top" in x and x["family"] in families]
        top = np.sum([x["top"] for x in chosen], 0)
        top = top[top[:, 0] >= 20]
        left.plot(top[:, 1] / top[:, 0], top[:, 2] / top[:, 0], "o-", ms=4, label=engine)
        levels = [1 - a for a in ALPHAS]
        bands = [np.mean([kept(x, a) for x in promised_lines(chosen, a)]) for a in ALPHAS]
        sets = [np.mean([x[str(a)][0] for x in promised_lines(chosen, a)]) for a in ALPHAS]
        (line,) = right.plot(levels, bands, "o-", label=f"{engine}, bands")
        right.plot(levels, sets, "s--", color=line.get_color(), label=f"{engine}, sets")
    for axes, low in ((left, 0.4), (right, 0.75)):
        axes.plot([low, 1], [low, 1], color="0.7", lw=1)
    left.set(xlabel="stated probability of the likeliest state", ylabel="true probability, mean")
    left.set_title("Reliability on fresh models")
    right.set(xlabel="level", ylabel="models whose bands hold; mass within sets")
    right.set_title("Promised and kept on fresh models")
    left.legend()
    right.legend(fontsize=8)
    figure.savefig(ROOT.parent / "docs" / "figures" / "uncertainty.png", dpi=110)


def networks(options: argparse.Namespace) -> None:
    """Calibrate networks again and measure them: what to do when their weights change."""
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for engine in options.engines:
        name = engine.replace(":", "-")
        path, source = folder / f"{name}.json", SETS.get(engine, "mixed")
        made = [sys.executable, "-m", "icgi", "calibrate", "--engine", engine, "--set", source]
        subprocess.run([*made, "-o", str(path)], check=True)
        keep(path)
        calibration_of.cache_clear()
        (RESULTS / f"uncertainty-{name}.jsonl.xz").unlink(missing_ok=True)  # of other weights
        run(
            argparse.Namespace(
                engine=engine, set=source, busy=None, inside=False, first=0, count=25,
                outside=OUTSIDE_COUNT,
            )
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    keeping = verbs.add_parser("keep")
    keeping.add_argument("file", type=Path)
    running = verbs.add_parser("run")
    running.add_argument("--engine", required=True)
    running.add_argument("--set", default="mixed")
    running.add_argument(
        "--busy", type=int, help="other programs to run beside; 0: the machine has its own"
    )
    running.add_argument("--inside", action="store_true", help="only the calibrated families")
    running.add_argument(
        "--outside", type=int, default=OUTSIDE_COUNT, help="models of each family outside"
    )
    running.add_argument("--first", type=int, default=0, help="number of the first of a family")
    running.add_argument("--count", type=int, help="number after the last")
    again = verbs.add_parser("networks")
    again.add_argument("folder", type=Path, help="for the files and lines of the calibrations")
    again.add_argument("--engines", nargs="+", default=NETWORKS)
    verbs.add_parser("render")
    options = parser.parse_args()
    if options.verb == "keep":
        keep(options.file)
    elif options.verb == "run":
        run(options)
    elif options.verb == "networks":
        networks(options)
    else:
        render()


if __name__ == "__main__":
    main()
