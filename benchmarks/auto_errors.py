"""How wrong is `auto` when time is short, and does it know? The study behind `portfolio/doubt.py`.

    ICGI_STUDY=… python benchmarks/auto_errors.py run --set dev [--minutes 5] [--first 0]
    ICGI_STUDY=… python benchmarks/auto_errors.py fit           factors for portfolio/doubt.py
    ICGI_STUDY=… python benchmarks/auto_errors.py judge --set dev     one line per answer
    python benchmarks/auto_errors.py sure       what answers are worth that state tiny errors
    python benchmarks/auto_errors.py                            the table of docs/engines/auto.md

Models that are too large for dense tables within `ttve` and small enough for an exact reference;
each is answered a few times, by approximations only, with 0.15 to 2 seconds. `run` keeps all that
the routes found in ICGI_STUDY, a folder of your choice. `judge` combines it again, with the factors
in place and without them, so that a change of the rule needs no new run; its lines go to
benchmarks/results/auto_errors.jsonl. Of the development set every family is judged by factors that
were fitted on the others. Models of both sets have seeds of their own, and six families are in the
held-out set only.
"""

import argparse
import json
import os
import pickle
import time
import zlib
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy.optimize import lsq_linear

import icgi
from icgi.calibration.sets import drawn_model
from icgi.clock import Deadline
from icgi.conformal.metrics import rank_correlation
from icgi.data.families import FAMILIES
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget, Marginals, Status, infer
from icgi.model.interactions import bonds
from icgi.model.reduce import components
from icgi.portfolio import doubt
from icgi.portfolio.approximate import approximations
from icgi.portfolio.combine import Route, combine

LINES = Path(__file__).parent / "results" / "auto_errors.jsonl"
COVERAGE = Path(__file__).parent / "results" / "coverage.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "engines" / "auto.md"
ALIKE = (
    "large grid", "large er", "large sk", "large ea3d", "large potts", "large factor", "large csp",
    "torus", "er wide",
)  # fmt: skip
ELSEWHERE = ("ba", "ws", "cold", "wide", "tight", "larger")  # held out altogether
SETS = {"dev": ALIKE, "held": ALIKE + ELSEWHERE}
SECONDS = (0.15, 2.0)
REPEATED = 3
FEWEST = 10  # answers of a row of the table
Z, WRONG, LEVEL = 1.645, 0.05, 0.9
ROUNDING = 1e-6  # of answers kept in single precision
RIDGE = 0.03  # of factors, in units of the residual
SAMPLED = 20  # variables of an answer that the regression sees


def draw(family: str, rng: Generator) -> icgi.FactorGraph:
    """A random model of one of the families that calibration does not have."""
    beta, field = float(np.exp(rng.uniform(np.log(0.3), np.log(2.5)))), float(rng.uniform(0.1, 0.8))
    common, whole = {"beta": beta, "field": field}, rng.integers
    n = int(whole(60, 75))
    settings = {
        "torus": lambda: ("ea2d", {"L": 10, "periodic": True} | common),
        "er wide": lambda: ("er", {"n": n, "p": 6.0 / (n - 1)} | common),
        "ba": lambda: ("ba", {"n": int(whole(70, 110)), "m": 2} | common),
        "ws": lambda: ("ws", {"n": int(whole(80, 120)), "k": 4} | common),
        "cold": lambda: ("grid", {"rows": 18, "columns": 18, "field": field,
                                  "beta": float(rng.uniform(4, 8))}),
        "wide": lambda: ("factor", {"n": int(whole(24, 30)), "density": 1.0, "arity": 4,
                                    "states": 4, "beta": beta}),
        "tight": lambda: ("csp", {"n": int(whole(40, 50)), "density": 2.0, "tightness": 0.4,
                                  "beta": 1.0}),
        "larger": lambda: ("ea2d", {"L": 20} | common),
    }  # fmt: skip
    generator, parameters = settings[family]()
    return FAMILIES[generator].sample(rng, **parameters)


def run(options: argparse.Namespace) -> None:
    """Answer models until the minutes are over; those that are kept are not answered again."""
    folder, families = store(options.set), SETS[options.set]
    folder.mkdir(parents=True, exist_ok=True)
    end, k = time.monotonic() + 60 * options.minutes, options.first
    while time.monotonic() < end:
        family = families[k % len(families)]
        name = f"{family}-{options.set}-{k}"
        target = folder / f"{name.replace(' ', '_')}.pickle"
        k += 1
        if not target.exists():
            target.write_bytes(pickle.dumps(studied(family, name)))
            print(name, flush=True)


def studied(family: str, name: str) -> dict | None:
    """What the routes found, every time anything new was known; None without a reference."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    model = drawn_model(name, family)[0] if family.startswith("large ") else draw(family, rng)
    try:
        truth = infer(model, {}, JunctionTree(), Budget(seconds=20.0, table_bytes=2**31), rng)
    except icgi.IcgiError:
        return None
    part = max(components(model), key=lambda each: len(each.variables))
    runs = []
    for _ in range(REPEATED):
        seconds = float(np.exp(rng.uniform(*np.log(SECONDS))))
        found = approximations(part.model, Budget(), Deadline.after(seconds), rng)
        runs.append({"seconds": seconds, "steps": [list(map(kept, f.routes)) for f in found]})
    probs = truth.probs[part.variables, : part.model.max_states]
    return {"family": family, "name": name, "model": part.model, "truth": probs, "runs": runs}


def kept(route: Route) -> dict:
    answer = route.answer
    error = None if answer.std_error is None else answer.std_error.max(1).astype(np.float32)
    return {"name": route.name, "status": answer.status.value, "stats": dict(answer.stats),
            "probs": answer.probs.astype(np.float32), "error": error}  # fmt: skip


def answer_of(found: dict) -> Marginals:
    probs = found["probs"].astype(np.float64)
    error = found["error"]
    wide = None if error is None else np.repeat(error[:, None], probs.shape[1], 1).astype(float)
    return Marginals(probs, Status(found["status"]), std_error=wide, stats=found["stats"])


def store(which: str) -> Path:
    given = os.environ.get("ICGI_STUDY")
    if given is None:
        raise SystemExit("set ICGI_STUDY to a folder for the answers of this study")
    return Path(given) / which


def studies(which: str) -> list[dict]:
    loaded = [pickle.loads(file.read_bytes()) for file in sorted(store(which).glob("*.pickle"))]
    return [each for each in loaded if each is not None]


def learnt(all_studies: list[dict]) -> dict[str, list]:
    """Families, features and errors of the answers of each kind."""
    rows: dict[str, list] = defaultdict(list)
    rng = np.random.default_rng(0)
    for each in all_studies:
        strength, seen = bonds(each["model"]), set()
        for found in (f for run in each["runs"] for step in run["steps"] for f in step):
            answer, digest = answer_of(found), hash(found["probs"].tobytes())
            of = doubt.kind(found["name"], answer)
            if of in (None, "lbp, no sweep") or (of, digest) in seen:
                continue
            seen.add((of, digest))
            gap = np.abs(answer.probs - each["truth"]).max(1)
            some = rng.permutation(len(gap))[:SAMPLED]
            rows[of].append((each["family"], doubt.features(of, answer, strength)[some], gap[some]))
    return rows


def fit(options: argparse.Namespace) -> None:
    """Factors of every kind, and the share of the errors of each family within the band."""
    for of, found in sorted(learnt(studies("dev")).items()):
        factors, x, gap = fitted(found)
        answers = Counter(family for family, *_ in found)
        print(f'    "{of}": ({", ".join(f"{a:.3f}" for a in factors)}),  # {len(found)} answers')
        held = gap <= Z * np.exp(x @ factors) + ROUNDING
        family = np.concatenate([np.full(len(g), f, object) for f, _, g in found])
        print("   #", *(f"{f} {held[family == f].mean():.2f}" for f in sorted(answers)))


def fitted(found: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nine-of-ten quantile of log errors given the features; every answer counts the same."""
    x = np.concatenate([f for _, f, _ in found])
    gap = np.concatenate([g for *_, g in found])
    answers = Counter(family for family, *_ in found)
    weight = [np.full(len(g), len(g) ** -1.0 * answers[f] ** -0.5) for f, _, g in found]
    y = np.log(np.maximum(gap, ROUNDING) / Z)
    return quantile(x, y, np.concatenate(weight), LEVEL), x, gap


def quantile(x: np.ndarray, y: np.ndarray, weight: np.ndarray, level: float) -> np.ndarray:
    """Factors of the linear quantile: a share `level` of y below x·a, by iterated squares.

    All factors but the first are not negative. What is at the floor of rounding may be lower, so it
    counts only where the prediction is above.
    """
    least, most = np.full(x.shape[1], 0.0), np.full(x.shape[1], np.inf)
    least[0] = -np.inf
    ridge = RIDGE * np.eye(x.shape[1])[1:]
    low = y <= np.log(ROUNDING / Z) + 1e-9
    a = np.zeros(x.shape[1])
    for step in 10.0 ** np.linspace(0.5, -2, 25):
        gap = y - x @ a
        w = weight * np.where(gap > 0, level, 1 - level) / np.maximum(np.abs(gap), step)
        w = np.where(low & (gap > 0), 0.0, w)
        root = np.sqrt(w / w.sum())[:, None]
        design = np.concatenate([x * root, ridge])
        aim = np.concatenate([y * root[:, 0], np.zeros(len(ridge))])
        a = lsq_linear(design, aim, (least, most)).x
    return np.asarray(a)


def judge(options: argparse.Namespace) -> None:
    """Combine the last word of every run again, without and with the regression.

    Of the development set every family is judged by factors that were fitted on the others.
    """
    found = studies(options.set)
    rows = learnt(found) if options.set == "dev" else {}
    usual, lines = doubt.FACTORS, [x for x in known() if x["set"] != options.set]
    for family in dict.fromkeys(each["family"] for each in found):
        if rows:
            others = {of: [x for x in each if x[0] != family] for of, each in rows.items()}
            fresh = {of: tuple(fitted(each)[0]) for of, each in others.items()}
            doubt.FACTORS = {**usual, **fresh}
        for each in found:
            if each["family"] == family:
                lines += judged(each, options.set)
    doubt.FACTORS = usual
    LINES.write_text("".join(json.dumps(x) + "\n" for x in lines))
    show()


def judged(each: dict, which: str) -> list[dict]:
    lines, strength = [], bonds(each["model"])
    for run in each["runs"]:
        if not run["steps"]:
            continue
        answers = [(f["name"], answer_of(f)) for f in run["steps"][-1]]
        plain = combine([Route(name, answer) for name, answer in answers])
        informed = combine(
            [Route(name, a, doubt.told_error(name, a, strength)) for name, a in answers]
        )
        if informed.status is Status.EXACT:
            continue
        line = {"set": which, "family": each["family"], "name": each["name"],
                "seconds": round(run["seconds"], 3)}  # fmt: skip
        for word, made in (("before", plain), ("now", informed)):
            line[word] = compared(made, each["truth"])
        lines.append(line)
    return lines


def compared(made, truth: np.ndarray) -> dict:
    gap = np.abs(made.chosen.answer.probs - truth).max(1)
    error = np.maximum(made.error, ROUNDING)
    score = float(np.quantile(gap / error, 0.9, method="higher"))
    known = float(np.quantile(gap, 0.9, method="higher"))
    numbers = {"expected": made.expected, "error": gap.mean(), "most": known, "score": score,
               "median": np.median(error), "covered": (gap <= Z * error + ROUNDING).mean(),
               "rank": rank_correlation(error, gap)}  # fmt: skip
    return {"chosen": made.chosen.name, "status": made.status.value} | {
        key: float(f"{value:.4g}") for key, value in numbers.items()
    }


def known() -> list[dict]:
    return [json.loads(x) for x in LINES.read_text().splitlines()] if LINES.is_file() else []


def show() -> None:
    """Table: how well the stated error ranks, covers and warns, before and now."""
    head = ("models", "answers", "", "error", "expected", "off by", "rank", "within", "covered",
            "trusted", "wrong", "right", "doubted", "width")  # fmt: skip
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for which in SETS:
        lines = [x for x in known() if x["set"] == which]
        names = sorted({x["family"] for x in lines})
        groups = [(f, [x for x in lines if x["family"] == f]) for f in names]
        if which == "dev":
            groups = [("**development, all**", lines)]
        else:
            others = [x for x in lines if x["family"] in ELSEWHERE]
            groups += [("families not fitted on", others), ("**fresh, all**", lines)]
        for family, group in groups:
            for word in ("before", "now") if len(group) >= FEWEST else ():
                cells = [family, str(len(group)), *row(group, word)]
                text.append("| " + " | ".join(cells) + " |")
    page = PAGE.read_text()
    begin, end = (page.index(f"<!-- {mark} -->") for mark in ("short", "end of short"))
    PAGE.write_text(page[:begin] + "\n".join(["<!-- short -->", "", *text, "", page[end:]]))
    print("\n".join(text))


def sure(options: argparse.Namespace) -> None:
    """Trusted answers of elimination by what they state: how many, and the largest mean error.

    Besides those of this study those of benchmarks/coverage.py.
    """
    told = [(x["now"]["expected"], x["now"]["error"]) for x in known()
            if x["now"]["chosen"] == "ttve" and x["now"]["status"] == "converged"]  # fmt: skip
    other = [json.loads(x) for x in COVERAGE.read_text().splitlines()]
    stated = [(x["stated"], x["error"]) for x in other
              if x["engine"].startswith("ttve") and x["status"] == "converged"]  # fmt: skip
    print("| stated, at most | of `auto_errors` | largest error | of `coverage` | largest error |")
    print("|---" * 5 + "|")
    for most in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        cells = [f"{most:.0e}"]
        for found in (told, stated):
            errors = [error for said, error in found if said <= most]
            cells += [str(len(errors)), f"{max(errors, default=0.0):.1e}"]
        print("| " + " | ".join(cells) + " |")


def row(group: list[dict], word: str) -> list[str]:
    each = [x[word] for x in group]
    error, expected = (np.array([x[key] for x in each]) for key in ("error", "expected"))
    trusted = np.array([x["status"] == "converged" for x in each])
    right = error <= 0.01
    return [
        word,
        f"{error.mean():.4f}",
        f"{expected.mean():.4f}",
        f"{np.exp(np.mean(np.abs(np.log(at_least(expected) / at_least(error))))):.1f}",
        f"{rank_correlation(error + 1e-12 * expected, expected):.2f}" if len(each) > 2 else "–",
        f"{np.median([x['rank'] for x in each]):.2f}",
        f"{np.mean([x['covered'] for x in each]):.2f}",
        str(trusted.sum()),
        str((trusted & (error > WRONG)).sum()),
        str(right.sum()),
        str((right & ~trusted).sum()),
        f"{width(each):.1f}",
    ]


def at_least(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, ROUNDING)


def width(each: list[dict]) -> float:
    """Geometric mean over answers: conformal bands, over those of the true mean error as scale.

    Half-widths at 90 %, each with one factor for all answers of a group; the latter are the
    narrowest that a scale for every answer gives.
    """
    error, most, median, score = (
        np.array([x[key] for x in each]) for key in ("error", "most", "median", "score")
    )
    ours = np.quantile(score, 0.9, method="higher") * median
    best = np.quantile(most / at_least(error), 0.9, method="higher") * at_least(error)
    return float(np.exp(np.mean(np.log(np.minimum(ours, 1.0) / np.minimum(best, 1.0)))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", choices=("run", "fit", "judge", "sure"))
    parser.add_argument("--set", choices=tuple(SETS), default="dev")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    options = parser.parse_args()
    if options.task is None:
        show()
    else:
        {"run": run, "fit": fit, "judge": judge, "sure": sure}[options.task](options)


if __name__ == "__main__":
    main()
