"""Deviations of the networks: coefficients of neural/doubt.py, and what their 90 % bands contain.

    python benchmarks/network_doubt.py --collect development.npz [--engines ENGINE …]
    python benchmarks/network_doubt.py --fit development.npz         coefficients, to be copied
    python benchmarks/network_doubt.py --collect held-out.npz --held-out --seeds 4
    python benchmarks/network_doubt.py --report held-out.npz         lines and table

With --pieces models are lattices, long strips and sparse graphs of hundreds of variables, and
networks sum none of them whole, as if it were too wide: the time (--seconds) is such that they cut
them into pieces. Several files can be given to --fit and --report.

Any engine of networks can be named; the kind of its doubt is the name of its network (that of a
file of weights too: icgi:weights=FILE), or `ensemble`. Models are drawn from eight families at β
from 0.3 to 5, small enough for the engine jt; answers are found once, with what tells their error.
The lines in benchmarks/results/network_doubt.jsonl hold, for a kind of answer, a family and a β:
pairs of variable and possible state, the share whose band contains the true probability, the median
width of the bands, the mean error.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit

import icgi
from icgi.data.families import FAMILIES
from icgi.data.families.disorder import random_couplings, random_fields, spin_glass
from icgi.data.families.lattice import lattice_edges
from icgi.engines import parse_engine
from icgi.errors import BudgetError, UnsupportedModelError
from icgi.inference import Budget, Engine
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import potts_model
from icgi.neural import doubt
from icgi.neural.rest import ExactRest

LINES = Path(__file__).parent / "results" / "network_doubt.jsonl"
MODELS: dict[str, dict[str, int | float]] = {
    "ea2d": {"L": 8},
    "er": {"n": 40, "p": 0.1},
    "ba": {"n": 40, "m": 2},
    "ws": {"n": 40, "k": 4},
    "sk": {"n": 20},
    "potts": {"L": 5},
    "factor": {"n": 30, "density": 1.0},
    "csp": {"n": 24, "density": 1.5},
}
PIECES: dict[str, Callable[[np.random.Generator, float], FactorGraph]] = {
    "strip": lambda rng, beta: strip(rng, (10, 60), beta),
    "strip, 3D": lambda rng, beta: strip(rng, (3, 3, 64), beta),
    "er, sparse": lambda rng, beta: FAMILIES["er"].sample(rng, n=600, p=0.003, beta=beta),
    "potts, strip": lambda rng, beta: potts_strip(rng, (4, 150), 4, beta),
    "factor, sparse": lambda rng, beta: FAMILIES["factor"].sample(
        rng, n=700, density=0.45, beta=beta
    ),
    "csp, sparse": lambda rng, beta: FAMILIES["csp"].sample(rng, n=700, density=0.35, beta=beta),
    "lattice": lambda rng, beta: strip(rng, (18, 18), beta),
    "potts, many states": lambda rng, beta: potts_strip(rng, (5, 12), 14, beta),
}
REAL = ("real: objectdetection", "real: linkage")  # answered in pieces in four seconds
BETAS = (0.3, 1.0, 2.0, 3.0, 5.0)
ENGINES = (
    "icgi", "icgi:orders=1", "icgi:paper", "gnn-bp", "bpnn", "direct-gnn", "ensemble",
)  # fmt: skip
DEVELOPMENT, HELD_OUT = 0, 1
LEVEL = 0.94  # of the fit: a margin over 0.9, since no family was drawn often
RIDGE, SMOOTH = 1e-3, 0.05


def models(stream: int, seeds: int) -> Iterator[tuple[int, FactorGraph, FloatArray]]:
    """Number of family and β, model, exact marginals; `seeds` of each family and β in turn."""
    for f, (family, parameters) in enumerate(MODELS.items()):
        for b, beta in enumerate(BETAS):
            for seed in range(seeds):
                rng = np.random.default_rng([stream, f, b, seed])
                model = FAMILIES[family].sample(rng, beta=beta, **parameters)
                yield f * len(BETAS) + b, model, icgi.marginals(model, engine="jt").probs


def large_models(stream: int, seeds: int) -> Iterator[tuple[int, FactorGraph, FloatArray]]:
    """Models that are answered in pieces, as `models`; those too wide for jt are left out."""
    for b, beta in enumerate(BETAS):
        for f, sample in enumerate(PIECES.values(), len(MODELS)):
            for seed in range(seeds):
                rng = np.random.default_rng([stream, f, b, seed])
                model = sample(rng, beta)
                try:
                    exact = icgi.marginals(model, engine="jt").probs
                except BudgetError:
                    continue
                yield f * len(BETAS) + b, model, exact


def real_models(stream: int) -> Iterator[tuple[int, FactorGraph, FloatArray]]:
    """Published models that are answered in pieces, of one half of `networks_real.py`."""
    from networks_real import referenced, truth

    for instance, development in referenced():
        family = "real: " + instance.family.partition("-")[2]
        if family in REAL and development == (stream == DEVELOPMENT):
            group = len(MODELS) + len(PIECES) + REAL.index(family)
            yield group * len(BETAS), instance.model(), truth(instance)


def strip(rng: np.random.Generator, shape: tuple[int, ...], beta: float) -> FactorGraph:
    return spin_glass(rng, int(np.prod(shape)), lattice_edges(shape), beta, 0.3, "gaussian")


def potts_strip(
    rng: np.random.Generator, shape: tuple[int, ...], states: int, beta: float
) -> FactorGraph:
    edges, n = lattice_edges(shape), int(np.prod(shape))
    fields = random_fields(rng, (n, states), 0.3)
    return potts_model(edges, random_couplings(rng, len(edges), "gaussian"), fields, beta=beta)


def answers(
    engine: Engine, model: FactorGraph, seconds: float = np.inf
) -> tuple[icgi.inference.Marginals, str, doubt.Signs] | None:
    """Answer of a network, the kind of its doubt and the signs; none where it is exact."""
    kept, named = [], []
    stated, kind_of = doubt.stated, doubt.kind_of

    def watched(kind, signs, answered=None):  # type: ignore[no-untyped-def]
        kept.append((kind, signs))
        return stated(kind, signs, answered)

    def named_so(name, orders):  # type: ignore[no-untyped-def]
        named.append(name)  # not `kind_of`'s answer: nothing was fitted yet where it is another's
        return kind_of(name, orders)

    doubt.stated, doubt.kind_of = watched, named_so
    try:
        found = engine(model, Budget(seconds=seconds), np.random.default_rng(0))
    finally:
        doubt.stated, doubt.kind_of = stated, kind_of
    if not kept:
        return None  # exact: nothing to be doubted
    kind, signs = kept[-1]
    return found, named[-1] if named else kind, signs


@contextmanager
def nothing_summed_whole() -> Iterator[None]:
    """Networks answer models that they would sum, which alone have exact references."""
    split = ExactRest.split
    ExactRest.split = lambda self, models, worth: ({}, list(range(len(models))))  # type: ignore
    try:
        yield
    finally:
        ExactRest.split = split  # type: ignore[method-assign]


def collect(
    engines: Sequence[str],
    source: Iterator[tuple[int, FactorGraph, FloatArray]],
    seconds: float = np.inf,
    pieces: bool = False,
) -> Iterator[dict[str, FloatArray]]:
    """Rows for each kind of answer: signs, error, number of family and β, p, strength nearby.

    All that there are so far, after each model.
    """
    made = [parse_engine(text) for text in engines]
    rows: dict[str, list[FloatArray]] = {}
    for group, model, exact in source:
        for engine in made:
            try:
                with nothing_summed_whole() if pieces else nullcontext():
                    given = answers(engine, model, seconds)
            except UnsupportedModelError:
                continue  # pairs or spins only: fitted on what the network takes
            if given is None:
                continue
            found, kind, signs = given
            p, error = signs.alpha / signs.alpha.sum(1, keepdims=True), found.probs - exact
            parts = [np.abs(error), np.full(p.shape, group), p]
            parts += [np.broadcast_to(signs.nearby[:, None], p.shape)]
            used = (p > 0) & ((p > 0).sum(1, keepdims=True) > 1)
            values = [doubt.logarithms(signs), np.stack(parts, -1)]
            rows.setdefault(kind, []).append(np.concatenate(values, -1)[used])
        yield {kind: np.concatenate(parts) for kind, parts in rows.items()}


def fit(rows: FloatArray) -> FloatArray:
    """Coefficients of the LEVEL quantile of log(error), each family and β with the same weight."""
    rows = rows[rows[:, -1] <= doubt.CHECKED]
    signs, error, group = rows[:, :-4], rows[:, -4], rows[:, -3].astype(int)
    weight = 1.0 / np.bincount(group)[group]
    weight /= weight.sum()
    mean, scale = signs.mean(0), signs.std(0)
    mean[0], scale[0] = 0.0, 1.0
    used = scale > 1e-9  # the spread of one order is none
    x = (signs[:, used] - mean[used]) / scale[used]
    y = np.log(error + doubt.TINY)

    def loss(given: FloatArray) -> tuple[float, FloatArray]:
        short = y - x @ given
        pinball = LEVEL * short + SMOOTH * np.logaddexp(0.0, -short / SMOOTH)
        slope = -x.T @ (weight * (LEVEL - expit(-short / SMOOTH)))
        slope[1:] += 2.0 * RIDGE * given[1:]
        return float(weight @ pinball + RIDGE * given[1:] @ given[1:]), slope

    bounds = [(None, None), *[(0.0, None)] * (x.shape[1] - 1)]  # no sign makes a band narrower
    found = minimize(loss, np.zeros(x.shape[1]), jac=True, bounds=bounds, method="L-BFGS-B").x
    coefficients = np.zeros(signs.shape[1])
    coefficients[used] = found / scale[used]
    coefficients[0] -= (coefficients * mean)[1:].sum()
    return coefficients


def report(stored: Mapping[str, FloatArray]) -> list[dict]:
    """One line for each kind of answer, family and β."""
    lines = []
    for kind in (kind for kind in doubt.COEFFICIENTS if kind in stored):
        rows = stored[kind]
        error, group, p, nearby = rows[:, -4:].T
        half = doubt.NINETY * doubt.deviations(kind, rows[:, :-4], nearby)
        width = np.minimum(p + half, 1.0) - np.maximum(p - half, 0.0)
        for g in np.unique(group).astype(int):
            own = group == g
            line = {"kind": kind, "family": [*MODELS, *PIECES, *REAL][g // len(BETAS)]}
            real = line["family"] in REAL
            line |= {"beta": None if real else BETAS[g % len(BETAS)], "pairs": int(own.sum())}
            line |= {"inside": round(float((error <= half + 1e-9)[own].mean()), 3)}
            line |= {"width": round(float(np.median(width[own])), 4)}
            lines.append(line | {"error": round(float(error[own].mean()), 4)})
    return lines


def table(lines: list[dict]) -> str:
    """Markdown: a row for each kind and family; width and mean error at each β."""
    head = ["answer", "family", "inside", *(f"β = {beta:g}" for beta in BETAS)]
    text = [" | ".join(["", *head, ""]).strip(), "|" + "---|" * len(head)]
    for kind in doubt.COEFFICIENTS:
        for family in [*MODELS, *PIECES, *REAL]:
            own = [x for x in lines if (x["kind"], x["family"]) == (kind, family)]
            if own:
                inside = sum(x["inside"] * x["pairs"] for x in own) / sum(x["pairs"] for x in own)
                cells = [f"{x['width']:.3f} ({x['error']:.3f})" for x in own]
                text.append(" | ".join(["", kind, family, f"{inside:.2f}", *cells, ""]).strip())
    return "\n".join(text)


def main() -> None:
    """Collect, fit or report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--collect", metavar="FILE")
    for name in ("--fit", "--report"):
        parser.add_argument(name, metavar="FILE", nargs="+")
    parser.add_argument("--pieces", action="store_true", help="large models")
    parser.add_argument("--real", action="store_true", help="published models instead")
    parser.add_argument("--held-out", action="store_true", help="other random streams")
    parser.add_argument("--engines", nargs="+", default=ENGINES, metavar="ENGINE")
    parser.add_argument("--seeds", type=int, default=4, help="models of each family and β")
    parser.add_argument("--seconds", type=float, default=np.inf, help="time of an answer")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.collect:
        stream = HELD_OUT if given.held_out else DEVELOPMENT
        source = large_models if given.pieces else models
        asked = real_models(stream) if given.real else source(stream, given.seeds)
        for found in collect(given.engines, asked, given.seconds, given.pieces):
            np.savez_compressed(given.collect, **found)
    if given.fit:
        for kind, rows in joined(given.fit).items():
            numbers = ", ".join(f"{c:.3f}" for c in fit(rows))
            print(f'    "{kind}": ({numbers}),')
    if given.report:
        new = report(joined(given.report))
        kinds = {line["kind"] for line in new}
        kept = LINES.read_text().splitlines() if LINES.exists() else []
        lines = [x for x in map(json.loads, kept) if x["kind"] not in kinds] + new
        LINES.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        print(table(lines))


def joined(paths: Sequence[str]) -> dict[str, FloatArray]:
    """Rows of several files by kind."""
    found: dict[str, list[FloatArray]] = {}
    for path in paths:
        with np.load(path) as stored:
            for kind in stored.files:
                found.setdefault(kind, []).append(stored[kind])
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


if __name__ == "__main__":
    main()
