"""What structure does to approximate engines, at equal work: sweeps and attempts, not seconds.

    ICGI_DATA=… python benchmarks/structure_others.py [--parts reduced,causes] [--seeds 2]
    python benchmarks/structure_others.py --render          prints the tables of the stored lines

`reduced`: copies merged and products split, on models that are exact. `causes`: random
noisy-or networks whose chains are summed out, so that only the causes are sampled. A chain that
was observed as present is 1 − Π_k q_k(d_k), which is a sum of positive products, too, one for each
cause that is the first to act; the number of that cause is a variable with positive tables.

Exact inference gives the reference; errors are those of the causes, or of all free variables.
`lbp` runs to rest or 2,000 sweeps, `ttve` makes one attempt at rank 16, `pt` 400 sweeps.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT.parent / "tests"))

import structured  # noqa: E402
from icgi.approx.lbp import LoopyBP  # noqa: E402
from icgi.data.collection import data_folder, instances  # noqa: E402
from icgi.elimination.engine import TensorTrainElimination  # noqa: E402
from icgi.errors import IcgiError  # noqa: E402
from icgi.exact.forms import AlongBest, best_forecast, reduced_form  # noqa: E402
from icgi.inference import Budget, Engine  # noqa: E402
from icgi.model.condition import condition  # noqa: E402
from icgi.model.graph import FactorGraph, FloatArray  # noqa: E402
from icgi.model.structure.collapse import Collapsed, collapse  # noqa: E402
from icgi.sampling.tempering import ParallelTempering  # noqa: E402

LINES = ROOT / "results" / "structure_others.jsonl"
ENGINES: dict[str, tuple[Engine, Budget]] = {
    "lbp": (LoopyBP(), Budget(iterations=2000)),
    "ttve": (
        TensorTrainElimination(escalate=False, exact_entries=0, halving=False, samples=0),
        Budget(seconds=60),
    ),
    "pt": (ParallelTempering(threads=1), Budget(seconds=60, iterations=400)),
}
DEVELOPMENT = ("linkage_16",)
REPORT = "linkage_13", "linkage_22", "Pedigree_12", "Pedigree_13"
NETWORKS = ((0.1, 100, 8, 20), (0.01, 100, 8, 20), (0.1, 200, 12, 40))
Line = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="reduced,causes")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        for part in options.parts.split(","):
            for line in {"reduced": reduced, "causes": causes}[part](options.seeds):
                print(json.dumps(line), flush=True)
                with LINES.open("a") as file:
                    file.write(json.dumps({"part": part, **line}) + "\n")
    render()


def stored() -> list[Line]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def known(part: str) -> set[tuple[object, ...]]:
    """What is measured already: a run that was stopped goes on."""
    return {(x["model"], x["form"], x["engine"]) for x in stored() if x["part"] == part}


def exactly(model: FactorGraph) -> FloatArray:
    rng = np.random.default_rng(0)
    return AlongBest(best_forecast(model, Budget(), rng))(model, Budget(), rng).probs


def reduced(seeds: int) -> Iterator[Line]:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder of the instances")
    done = known("reduced")
    for each in instances(folder):
        wanted = {(each.name, form, name) for form in ("as it is", "reduced") for name in ENGINES}
        if each.name not in DEVELOPMENT + REPORT or wanted <= done:
            continue
        model = condition(each.model(), dict(each.evidence())).model
        truth, free = exactly(model), np.flatnonzero(model.cards > 1)
        merged, small = reduced_form(model)
        for form, part, back in (("as it is", model, None), ("reduced", small, merged)):
            for name in ENGINES:
                if (each.name, form, name) in done:
                    continue
                line = {"model": each.name, "development": each.name in DEVELOPMENT}
                yield line | measured(name, form, part, back, truth, free, seeds)


def causes(seeds: int) -> Iterator[Line]:
    done = known("causes")
    for prior, many, effects, fan_in in NETWORKS:
        title = f"{many} causes at {prior:g}, {effects} effects of {fan_in}"
        if {(title, form, name) for form in ("as it is", "causes") for name in ENGINES} <= done:
            continue
        rng = np.random.default_rng([many, effects])
        cards, factors, ends = structured.rare_network(rng, many, effects, fan_in, prior)
        hidden, seen, _ = structured.hide(rng, cards, factors, dict.fromkeys(ends, 1))
        model = condition(hidden, seen).model
        collapsed = collapse(model)
        assert collapsed is not None
        small = first_causes(collapsed)
        free = np.flatnonzero(small.cards[: model.n_variables] > 1)
        truth = exactly(model)
        for form, part in (("as it is", model), ("causes", small)):
            for name in ENGINES:
                if (title, form, name) in done:
                    continue
                line = {"model": title}
                yield line | measured(name, form, part, None, truth, free, seeds)


def measured(name, form, part, back, truth, free, seeds) -> Line:  # type: ignore[no-untyped-def]
    engine, budget = ENGINES[name]
    line: Line = {"form": form, "engine": name, "variables": int((part.cards > 1).sum())}
    errors, most, statuses, spent = [], [], set(), []
    for seed in range(seeds):
        begin = time.process_time()
        try:
            found = engine(part, budget, np.random.default_rng(seed))
        except IcgiError as refusal:
            return line | {"status": f"refused: {refusal}"[:80]}
        spent.append(time.process_time() - begin)
        found = found if back is None else back.spread(found)
        apart = np.abs(found.probs[free, : truth.shape[1]] - truth[free]).max(1)
        errors.append(float(apart.mean()))
        most.append(float(apart.max()))
        statuses.add(found.status.value)
    return line | {
        "mean": [round(each, 5) for each in errors],
        "most": [round(each, 4) for each in most],
        "status": ", ".join(sorted(statuses)),
        "cpu seconds": round(float(np.median(spent)), 2),
    }


def first_causes(collapsed: Collapsed) -> FactorGraph:
    """Positive model of the causes of noisy-or chains whose ends are observed.

    A group w₀ Π a_k − w₁ Π b_k, b_k ≤ a_k, is w₀ Π a_k [1 − r + r Σ_m Π_{k<m} ρ_k (1 − ρ_m)] with
    ρ_k = b_k / a_k: all terms are positive.
    """
    net, n = collapsed.network, collapsed.model.n_variables
    cards = net.cards.tolist()
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    leaves: dict[int, list[tuple[tuple[int, ...], FloatArray]]] = {
        g: [] for g in range(n, len(cards))
    }
    for f in range(len(net.scope_start) - 1):
        scope = tuple(net.scope[net.scope_start[f] : net.scope_start[f + 1]].tolist())
        table = net.high[net.table_start[f] : net.table_start[f + 1]]
        table = table.reshape([cards[i] for i in scope])
        if scope and scope[-1] >= n:
            leaves[scope[-1]].append((scope[:-1], table))
        else:
            scopes.append(scope)
            tables.append(table)
    for parts in leaves.values():
        _sum_out_ends(parts, scopes, tables, cards)
    for g, parts in leaves.items():
        weight = np.ones(2)
        pairs: dict[int, FloatArray] = {}
        for scope, table in parts:
            if not scope:
                weight = weight * table
            else:
                pairs[scope[0]] = pairs.get(scope[0], 1.0) * table
        for i, table in pairs.items():
            sign = np.sign(table[np.abs(table).argmax(0), [0, 1]])
            pairs[i], weight = table * sign, weight * sign
        if weight[0] < 0:
            weight, pairs = weight[::-1], {i: table[:, ::-1] for i, table in pairs.items()}
        if weight[1] > 0 or any((table < 0).any() for table in pairs.values()):
            raise ValueError("a group is no difference of positive products")
        ratio = -weight[1] / weight[0]
        share = {i: table[:, 1] / table[:, 0] for i, table in pairs.items()}
        ratio *= np.prod([each.max() for each in share.values()])
        share = {i: each / each.max() for i, each in share.items()}
        acting = [i for i in pairs if (share[i] < 1).any()]
        cards[g] = len(acting) + 1
        scopes.append((g,))
        tables.append(np.array([ratio] * len(acting) + [max(1.0 - ratio, 0.0)]))
        for i, table in pairs.items():
            if i not in acting:
                scopes.append((i,))
                tables.append(table[:, 0])
                continue
            own, first = table[:, 0], acting.index(i)
            columns = [own * share[i] if m > first else own for m in range(cards[g] - 1)] + [own]
            columns[first] = own * (1.0 - share[i])
            scopes.append((i, g))
            tables.append(np.stack(columns, 1))
    with np.errstate(divide="ignore"):
        return FactorGraph(np.array(cards), tuple(scopes), tuple(np.log(t) for t in tables))


def _sum_out_ends(parts, scopes, tables, cards) -> None:  # type: ignore[no-untyped-def]
    """Sum out the last link of a chain, whose own table with the group has both signs."""
    for p, (scope, table) in enumerate(parts):
        if not scope or not ((table.min(0) < 0) & (table.max(0) > 0)).any():
            continue
        x = scope[0]
        held = [k for k, each in enumerate(scopes) if x in each]
        pair = next(k for k in held if len(scopes[k]) == 2)
        other = next(i for i in scopes[pair] if i != x)
        factor = tables[pair] if scopes[pair][0] == x else tables[pair].T
        for k in held:
            if k != pair:
                factor = factor * tables[k][:, None]
        for k in sorted(held, reverse=True):
            del scopes[k], tables[k]
        cards[x] = 1
        parts[p] = (other,), np.einsum("xs,xd->ds", table, factor)


def render() -> None:
    for part in ("reduced", "causes"):
        lines = [line for line in stored() if line["part"] == part]
        print(f"\n{part}: mean (largest) error of each seed\n")
        print("| model | engine | form | variables | error | status | cpu seconds |")
        print("|---|---|---|---|---|---|---|")
        for line in sorted(lines, key=lambda each: (each["model"], each["engine"], each["form"])):
            pairs = zip(line.get("mean", []), line.get("most", []), strict=True)  # type: ignore[call-overload]
            errors = ", ".join(f"{mean:.2g} ({most:.2g})" for mean, most in pairs)
            cells = (line["model"], line["engine"], line["form"], line["variables"], errors,
                     line["status"], line.get("cpu seconds", ""))  # fmt: skip
            print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
