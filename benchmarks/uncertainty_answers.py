r"""Keep an engine's answers to calibration models, so that promises are made from them elsewhere.

    python benchmarks/uncertainty_answers.py record --engine auto --set hard --models calibrate \
        --seconds 0.5 --most-seconds 8 --part 1/2 -o auto-1.answers
    python benchmarks/uncertainty_answers.py calibrate auto-*.answers -o auto.json
    python benchmarks/uncertainty_answers.py fresh auto-busy-*.answers --calibration auto.json \
        -o benchmarks/results/uncertainty-auto-busy.jsonl

`record` takes time and quiet processors; several parts may run side by side. `calibrate` writes the
file that `icgi calibrate` with the same settings would write, and its lines; `fresh` compares what
is promised about answers to fresh models with the truth. Both take their models from their names.
"""

import argparse
import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uncertainty

from icgi.answer import Answer
from icgi.calibration import make
from icgi.calibration.file import read, write
from icgi.calibration.identity import approximating
from icgi.calibration.measure import Line, answered, line_of
from icgi.calibration.scales import own_error
from icgi.calibration.sets import Case, Known, cases, drawn_model
from icgi.engines import parse_engine
from icgi.inference import Budget, Marginals, Status

KEPT = "large"  # families of this name have references that take seconds: they are kept, too


def numbers(rows: np.ndarray, digits: int) -> list:
    """Plain numbers of a vector."""
    return [float(f"{v:.{digits}g}") for v in rows.tolist()]


def short(probs: np.ndarray, cards: np.ndarray) -> list[float]:
    """Probabilities of all states but the last of every variable, one after the other."""
    return numbers(probs[np.arange(probs.shape[1]) < cards[:, None] - 1], 8)


def whole(values: Sequence[float], cards: np.ndarray) -> np.ndarray:
    """Marginals n k from their short form."""
    probs = np.zeros((len(cards), int(cards.max())))
    probs[np.arange(probs.shape[1]) < cards[:, None] - 1] = values
    probs[np.arange(len(cards)), cards - 1] = np.maximum(1.0 - probs.sum(1), 0.0)
    return probs / probs.sum(1, keepdims=True)


def models(name: str, which: str) -> list[Case]:
    """Models that calibrate (those to tune on first), or fresh ones."""
    if which == "calibrate":
        return list(cases(name, ("tune", "calibrate")))
    return list(uncertainty.fresh(name))


def record(options: argparse.Namespace) -> None:
    """Append the answers that are not in the file yet."""
    chosen = models(options.set, options.models)
    if options.count:
        chosen = chosen[: options.count]
    part, parts = map(int, options.part.split("/"))
    have = {line["name"] for line in lines_of([options.output])} if options.output.exists() else {}
    todo = [case for case in chosen[part - 1 :: parts] if case.name not in have]
    engine, budget = (
        parse_engine(approximating(options.engine)),
        Budget(options.iterations, options.seconds),
    )
    with options.output.open("a") as file:
        for case, known, found, seconds in answered(todo, engine, budget, 0, options.most_seconds):
            about = {"engine": options.engine, "set": options.set, "seconds": options.seconds,
                     "most": options.most_seconds, "iterations": options.iterations}  # fmt: skip
            line = about | entry(case, known, found) | {"took": round(seconds, 3)}
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            file.flush()
            print(f"{case.name} {line['status']} {seconds:.2f} s", flush=True)


def entry(case: Case, known: Known, found: Marginals | str) -> dict[str, Any]:
    """All that promises need of an answer."""
    line: dict[str, Any] = {"name": case.name, "family": case.family, "role": case.role}
    if isinstance(found, str):
        return line | {"status": "refused", "why": found}
    line["status"] = found.status.value
    if case.family.startswith(KEPT):
        line["truth"] = short(known.probs, known.model.cards)
    if found.status is Status.EXACT:
        return line
    line |= {"stats": {k: float(f"{v:.4g}") for k, v in found.stats.items()}, "note": found.note}
    line["probs"] = short(found.probs, known.model.cards)
    own = own_error(found)
    for name, values in (("own", own), ("deviation", found.deviation)):
        if values is not None:
            line[name] = numbers(values, 4)
    return line


def lines_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    found = []
    for path in paths:
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
            found += [json.loads(text) for text in file if text.endswith("\n")]
    return found


def known_of(line: dict[str, Any], case: Case) -> Known:
    """The model of a line with the truth about it."""
    if "truth" not in line:
        return case.load()
    model, _ = drawn_model(case.name, case.family)
    return Known(model, {}, whole(line["truth"], model.cards))


def marginals_of(line: dict[str, Any], known: Known) -> Marginals | str:
    """The answer of a line."""
    if line["status"] == "refused":
        return str(line["why"])
    status = Status(line["status"])
    if status is Status.EXACT:
        return Marginals(known.probs, status)
    own, deviation = (np.array(line[k]) if k in line else None for k in ("own", "deviation"))
    return Marginals(
        whole(line["probs"], known.model.cards), status,
        std_error=None if own is None else own[:, None], deviation=deviation,
        stats=line["stats"], note=line["note"],
    )  # fmt: skip


def replayed(lines: Sequence[dict[str, Any]], which: str) -> Iterator[tuple[Any, ...]]:
    """Line, case, known model and answer, in the order of the set."""
    by_name = {line["name"]: line for line in lines}
    for case in models(lines[0]["set"], which):
        if case.name in by_name:
            line = by_name[case.name]
            known = known_of(line, case)
            yield line, case, known, marginals_of(line, known)


def calibrate(options: argparse.Namespace) -> None:
    """Write the lines and the file of a calibration from recorded answers."""
    lines = lines_of(options.answers)
    head = lines[0]
    budget = Budget(head["iterations"], head["seconds"])
    making = make.Making(head["engine"], head["set"], budget, 0, head["most"])
    found: list[Line] = []
    scales: dict[str, Any] = {}
    for line, case, known, answer in replayed(lines, "calibrate"):
        if case.role != "tune" and not scales:
            scales = make.scales_of(found)
        found.append(line_of(case, known, answer, line["took"], scales))
    kept = Path(f"{options.output}.lines")
    kept.write_text("".join(json.dumps(x) + "\n" for x in [making.head(), *found]))
    write(make.calibration(making, found), options.output)


def fresh(options: argparse.Namespace) -> None:
    """Compare what a calibration promises about recorded answers with the truth."""
    calibration, lines, found = read(options.calibration), lines_of(options.answers), []
    for line, case, known, answer in replayed(lines, "fresh"):
        row = {"name": case.name, "family": case.family}
        if isinstance(answer, str):
            found.append(row | {"status": "refused", "why": answer})
            continue
        budget = Budget(line["iterations"], line["seconds"])
        whole_answer = Answer(
            known.model, known.evidence, answer, calibration.engine, line["took"], budget
        )
        found.append(row | uncertainty.judged_answer(known, whole_answer, calibration))
    uncertainty.pack(options.output, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("--engine", required=True)
    recording.add_argument("--set", default="mixed")
    recording.add_argument("--models", choices=("calibrate", "fresh"), required=True)
    recording.add_argument("--seconds", type=float, default=float("inf"))
    recording.add_argument("--most-seconds", type=float)
    recording.add_argument("--iterations", type=int)
    recording.add_argument("--part", default="1/1")
    recording.add_argument("--count", type=int, help="only the first so many models")
    recording.add_argument("--output", "-o", type=Path, required=True)
    for verb in (calibrate, fresh):
        each = verbs.add_parser(verb.__name__)
        each.add_argument("answers", nargs="+", type=Path)
        each.add_argument("--output", "-o", type=Path, required=True)
    verbs.choices["fresh"].add_argument("--calibration", type=Path, required=True)
    options = parser.parse_args()
    {"record": record, "calibrate": calibrate, "fresh": fresh}[options.verb](options)


if __name__ == "__main__":
    main()
