"""Many evidences on one network: icgi against pyAgrum's incremental engine (lazy propagation).

    ICGI_DATA=… python benchmarks/evidences.py [NAME …]     the lines of results/evidences.txt

Two kinds of 1,000 questions, all of them possible (drawn from the network): sets of five findings
that have nothing to do with each other, and a session in which each question adds, changes or
withdraws one of at most ten findings. pyAgrum is told of the differences only. Processor time of
one thread each, all marginals of every question, searches of orders included; not included are
reading the file, and loading code (by a question on a small network). A program stops after
`--limit` seconds, or before its next chunk, and the mean is of what it has done by then. The
largest difference of a marginal is over these questions. Both get rows that add up to one.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyagrum as gum

import icgi
from icgi.data.collection import data_folder
from icgi.data.families import FAMILIES
from icgi.model.adapters import from_pyagrum, to_pyagrum

RESULTS = Path(__file__).parent / "results" / "evidences.txt"
NAMES = ("alarm", "munin1", "pigs")
COUNT, FINDINGS, MOST = 1000, 5, 10
CHUNKS = (1, 10, 100, 1000)  # questions that icgi is given at once, one chunk after the other
Evidence = dict[int, int]


def network(name: str) -> tuple[icgi.FactorGraph, "gum.BayesNet"]:
    """The same network for both, rows normalised."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("ICGI_DATA is not set")
    other = to_pyagrum(icgi.load(folder / "bn" / f"{name}.bif.gz"))
    for i in other.nodes():
        other.cpt(i).normalizeAsCPT()
    return from_pyagrum(other), other


def drawn(other: "gum.BayesNet", count: int) -> np.ndarray:
    """Configurations drawn from the network."""
    gum.initRandom(1)
    generator = gum.BNDatabaseGenerator(other)
    generator.drawSamples(count)
    order = [generator.varOrderNames().index(other.variable(i).name()) for i in other.nodes()]
    return np.array([[generator.samplesAt(q, k) for k in order] for q in range(count)])


def apart(draws: np.ndarray, rng: np.random.Generator) -> list[Evidence]:
    """Findings that change altogether from question to question."""
    return [
        {int(i): int(row[i]) for i in rng.choice(len(row), FINDINGS, replace=False)}
        for row in draws
    ]


def session(draws: np.ndarray, rng: np.random.Generator) -> list[Evidence]:
    """Findings of which one is added, or withdrawn, or the configuration of all is another one."""
    found, current = [], {}
    row = draws[0]
    for _ in range(len(draws)):
        i = int(rng.integers(len(row)))
        if len(current) == MOST or (current and rng.random() < 0.3):
            current.pop(int(rng.choice(list(current))))
        else:
            current[i] = int(row[i])
        if not current:
            row = draws[int(rng.integers(len(draws)))]
        found.append(dict(current))
    return found


def ours(model: icgi.FactorGraph, asked: list[Evidence], limit: float) -> tuple[float, list]:
    """Seconds of a question, and the marginals."""
    began, answers = time.process_time(), []
    for chunk in CHUNKS:
        part = asked[len(answers) : len(answers) + chunk]
        answers += icgi.marginals_batch(model, part, engine="jt:threads=1", threads=1)
        spent = time.process_time() - began
        if spent * CHUNKS[1] > limit:  # the next chunk is ten times as long
            break
    return spent / len(answers), [answer.probs for answer in answers]


def theirs(other: "gum.BayesNet", asked: list[Evidence], limit: float) -> tuple[float, list]:
    """The same of pyAgrum, told what differs from the question before."""
    began, answers, before = time.process_time(), [], {}
    engine = gum.LazyPropagation(other)
    for evidence in asked:
        for i in before.keys() - evidence.keys():
            engine.eraseEvidence(i)
        for i, x in evidence.items():
            if i not in before:
                engine.addEvidence(i, x)
            elif before[i] != x:
                engine.chgEvidence(i, x)
        engine.makeInference()
        answers.append([engine.posterior(i).toarray() for i in other.nodes()])
        before = evidence
        spent = time.process_time() - began
        if spent > limit:
            break
    return spent / len(answers), answers


def gap(first: list, second: list) -> float:
    """Largest difference of a probability, over the questions that both answered."""
    return max(
        float(np.abs(row - one[i, : len(row)]).max())
        for one, other in zip(first, second, strict=False)
        for i, row in enumerate(other)
    )


def lines(name: str, limit: float) -> Iterator[str]:
    model, other = network(name)
    draws = drawn(other, COUNT)
    for kind in (apart, session):
        asked = kind(draws, np.random.default_rng(0))
        mine, first = ours(model, asked, limit)
        peer, second = theirs(other, asked, limit)
        yield (
            f"{name:8}{kind.__name__:9}{1e3 * mine:10.3f}{len(first):6}{1e3 * peer:12.3f}"
            f"{len(second):6}{peer / mine:9.1f}{gap(first, second):11.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a program")
    options = parser.parse_args()
    gum.setNumberOfThreads(1)
    small, _ = network("survey")
    icgi.marginals_batch(small, [{0: 0}, {1: 0}, {}], engine="jt:threads=1", threads=1)
    icgi.marginals(FAMILIES["ea2d"].sample(np.random.default_rng(0), L=15), engine="jt:threads=1")
    head = f"{'network':8}{'kind':9}{'icgi ms':>10}{'of':>6}{'pyAgrum ms':>12}{'of':>6}"
    rows = [head + f"{'ratio':>9}{'difference':>11}"]
    print(rows[0])
    for name in options.names:
        for line in lines(name, options.limit):
            print(line, flush=True)
            rows.append(line)
    if tuple(options.names) == NAMES:
        RESULTS.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main())
