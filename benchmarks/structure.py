"""What hidden structure is worth: the goals, measured, in one command.

    ICGI_DATA=… python benchmarks/structure.py [--parts promedas,published,widths,counting,none,…]
    python benchmarks/structure.py --render          prints the tables of the stored lines

Each model is answered once before the clock runs, so compiling is not counted; reading the file is
not counted either. Seconds are those of the processor (the median of three answers), since other
programs may share the machine. One JSON line per model goes to benchmarks/results/structure.jsonl.
"""

import argparse
import gzip
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT.parent / "tests"))

import structured  # noqa: E402
from collapsed import CollapsedJunctionTree  # noqa: E402
from icgi.clock import Deadline  # noqa: E402
from icgi.data.collection import Instance, data_folder, instances  # noqa: E402
from icgi.errors import IcgiError  # noqa: E402
from icgi.exact.forecast import along  # noqa: E402
from icgi.exact.forms import AS_IT_IS, LONGEST, QUICK, forms, reduced_form  # noqa: E402
from icgi.exact.junction_tree import JunctionTree  # noqa: E402
from icgi.inference import Budget, Marginals, infer  # noqa: E402
from icgi.model.condition import condition  # noqa: E402
from icgi.model.graph import FactorGraph  # noqa: E402
from icgi.model.ordering import Order, find_order  # noqa: E402
from icgi.model.structure.barren import find_barren, plan_batches  # noqa: E402
from icgi.model.structure.collapse import collapse  # noqa: E402
from icgi.model.structure.count import count_classes  # noqa: E402

LINES = ROOT / "results" / "structure.jsonl"
BUDGET = Budget()
Line = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if not options.render:
        for part in options.parts.split(","):
            measure(part)
    render()


def measure(part: str) -> None:
    old = [line for line in stored() if line["part"] != part]
    new = []
    for line in PARTS[part]():
        new.append({"part": part, **line})
        print(json.dumps(new[-1]), flush=True)
    LINES.write_text("".join(json.dumps(line) + "\n" for line in old + new))


def stored() -> list[Line]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def collection(*families: str) -> Iterator[Instance]:
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder of the instances")
    return (each for each in instances(folder) if each.family in families)


def cpu(action: Callable[[], object], times: int = 3) -> float:
    spent = []
    for _ in range(times):
        begin = time.process_time()
        action()
        spent.append(time.process_time() - begin)
    return float(np.median(spent))


def width(model: FactorGraph) -> Order:
    return find_order(model, np.random.default_rng(0), 5.0)


def answer_line(name: str, model: FactorGraph, evidence: dict[int, int]) -> tuple[Line, Marginals]:
    run = lambda: infer(  # noqa: E731
        model, evidence, CollapsedJunctionTree(), BUDGET, np.random.default_rng(0)
    )
    answer = run()
    conditioned = condition(model, evidence).model
    return {
        "model": name,
        "variables": int((conditioned.cards > 1).sum()),
        "bits before": round(width(conditioned).log2_table, 1),
        "bits after": round(answer.stats["log2_largest_table"], 1),
        "status": answer.status.value,
        "error bound": answer.stats["error_bound"],
        "log10 Z": round(float(answer.log_z or 0.0) / math.log(10), 6),
        "seconds": round(cpu(run), 4),
    }, answer


def promedas() -> Iterator[Line]:
    """The 52 networks of UAI 2012."""
    for each in collection("uai2012-promedas"):
        yield answer_line(each.name, each.model(), dict(each.evidence()))[0]


def published() -> Iterator[Line]:
    """UAI-2014 Promedus, with references, and the or_chain networks of the 2022 list."""
    for each in collection("uai2014-promedus", "uai2022names-promedas"):
        model, evidence = each.model(), dict(each.evidence())
        line, answer = answer_line(each.name, model, evidence)
        reference = each.reference()
        if reference is not None:
            rows = zip(answer.probs, reference, strict=True)
            line["error"] = float(max(np.abs(p[: len(r)] - r).max() for p, r in rows))
        if float(line["bits before"]) < 24:  # type: ignore[arg-type]
            plain = lambda m=model, e=evidence: infer(  # noqa: E731
                m, e, JunctionTree(), BUDGET, np.random.default_rng(0)
            )
            line["against jt"] = float(np.abs(plain().probs - answer.probs).max())
            line["seconds of jt"] = round(cpu(plain), 4)
        yield line


def widths() -> Iterator[Line]:
    """Largest table and all entries, in bits: as it is, reduced, with sums, without barren."""
    chosen = {
        "BN_12",
        "BN_15",
        "BN_31",
        *(f"linkage_{k}" for k in (11, 12, 13, 14, 15, 16, 22, 23, 24)),
    }
    for each in collection("uai2022names-bn", "uai2014-linkage", "uai2014-pedigree"):
        if each.name in chosen or "edigree" in each.name:
            yield width_line(each.name, condition(each.model(), dict(each.evidence())).model)
    folder = data_folder()
    assert folder is not None
    for name in ("munin", "munin1", "link", "pigs", "pathfinder"):
        yield width_line(name, sampled_evidence(read_bif(folder / "bn" / f"{name}.bif.gz")))


def width_line(name: str, model: FactorGraph) -> Line:
    show = lambda order: [round(order.log2_table, 1), round(order.log2_entries, 1)]  # noqa: E731
    line: Line = {"model": name, "as it is": show(width(model))}
    merged, reduced = reduced_form(model)
    line["copies"] = 0 if merged is None else merged.copies
    line["reduced"] = show(width(reduced))
    sums = collapse(reduced)
    line["with sums"] = None if sums is None else show(width(sums.network.skeleton))
    barren = find_barren(model)
    if barren is not None:
        line["barren"] = len(barren.variables)
        line["without barren"] = show(width(reduced_form(barren.model)[1]))
        batches, total = plan_batches(barren, _greedy)
        line["batches"], line["all entries in batches"] = len(batches), round(total, 1)
    return line


def _greedy(part: FactorGraph) -> float:
    reduced = reduced_form(part)[1]
    return find_order(reduced, np.random.default_rng(0), restarts=0).log2_entries


def counting() -> Iterator[Line]:
    """Interchangeable variables counted; `marginals` is the largest difference to the reference."""
    for each in collection("uai2014-alchemy", "uai2014-relational"):
        model = condition(each.model(), dict(each.evidence())).model
        line, probs = counted_line(each.name, model)
        reference = each.reference()
        if reference is not None and probs is not None:
            free = [i for i in range(model.n_variables) if model.cards[i] > 1]
            line["marginals"] = float(max(np.abs(probs[i, : len(reference[i])] - reference[i]).max()
                                          for i in free))  # fmt: skip
        yield line
    for sizes in ([60], [40, 40], [30, 30, 30]):
        rng = np.random.default_rng(sizes)
        cards, factors, _ = structured.exchangeable_network(rng, sizes, 3, 2, order=2)
        name = "random: groups of " + ", ".join(map(str, sizes))
        yield counted_line(name, structured.hide(rng, cards, factors, {})[0])[0]


def counted_line(name: str, model: FactorGraph) -> tuple[Line, np.ndarray | None]:
    before = find_order(model, np.random.default_rng(0), 5.0)
    counted = count_classes(model)
    line: Line = {"model": name, "variables": int((model.cards > 1).sum())}
    line["bits before"] = round(before.log2_table, 1)
    line["seconds of search"] = round(cpu(lambda: count_classes(model)), 3)
    if counted is None:
        return line, None
    line["classes"] = len(counted.counted)
    line["counted"] = sum(counted.counted)
    line["private"] = len(counted.remainder.steps)
    line["bits after"] = round(width(counted.model).log2_table, 1)
    run = lambda: counted.spread(  # noqa: E731
        JunctionTree()(counted.model, BUDGET, np.random.default_rng(0))
    )
    answer = run()
    line["log10 Z"] = round(float(answer.log_z or 0.0) / math.log(10), 6)
    line["seconds"] = round(cpu(run), 4)
    return line, answer.probs


def none() -> Iterator[Line]:
    """Share of the time of an answer that looking for structure in vain takes."""
    names = "grids", "dbn", "alchemy", "csp", "segmentation", "objectdetection"
    families = [f"uai2014-{name}" for name in names]
    seen: dict[str, int] = {}
    for each in collection(*families):
        seen[each.family] = seen.get(each.family, 0) + 1
        if seen[each.family] > 3:
            continue
        model = condition(each.model(), dict(each.evidence())).model
        order = width(model)
        look = lambda m=model, o=order: forms(  # noqa: E731
            m, o, np.random.default_rng(0), Deadline.after(LONGEST)
        )
        found = [form.name for form in look() if form.name != AS_IT_IS]
        line: Line = {"model": each.name, "bits": round(order.log2_table, 1)}
        line["looked for"] = looked = along(model, order).seconds > QUICK  # as `best_forecast` does
        line["seconds"] = round(cpu(look), 5)
        line["found"] = ", ".join(found)
        if order.log2_entries < 27:
            spent = cpu(lambda m=model: JunctionTree()(m, BUDGET, np.random.default_rng(0)), 3)
            line["seconds of jt"] = round(spent, 4)
            line["share"] = round(float(line["seconds"]) / spent, 3) if looked else 0.0  # type: ignore[arg-type]
        yield line


def random() -> Iterator[Line]:
    """Hundreds of causes, up to twenty observed effects of up to forty causes each."""
    for kind, causes, effects, fan_in, states in (
        ("or", 300, 10, 40, 2), ("or", 300, 15, 40, 2), ("or", 300, 20, 40, 2),
        ("max", 200, 8, 20, 3), ("max", 200, 11, 20, 3), ("max", 100, 6, 15, 4),
        ("parity", 300, 10, 40, 2), ("parity", 300, 15, 40, 2), ("parity", 300, 20, 40, 2),
    ):  # fmt: skip
        rng = np.random.default_rng([causes, effects])
        name = f"{kind}: {causes} causes, {effects} effects of {fan_in}, {states} states"
        cards, factors, ends = structured.chain_network(rng, kind, causes, effects, fan_in, states)
        seen = {y: cards[y] - 1 for y in ends}
        model, evidence, _ = structured.hide(rng, cards, factors, seen)
        try:
            yield answer_line(name, model, evidence)[0]
        except Exception as problem:
            yield {"model": name, "status": f"refused: {problem}"[:200]}


def rare() -> Iterator[Line]:
    """Rare causes, noisy-or without leaks, all effects observed as present: most digits cancel."""
    for prior, causes, effects, fan_in in (
        (1e-4, 300, 15, 30), (1e-6, 300, 10, 30), (1e-6, 300, 15, 30), (1e-6, 300, 16, 40),
        (1e-6, 300, 20, 40),
    ):  # fmt: skip
        rng = np.random.default_rng([causes, effects])
        cards, factors, ends = structured.rare_network(rng, causes, effects, fan_in, prior)
        model, evidence, _ = structured.hide(rng, cards, factors, dict.fromkeys(ends, 1))
        name = f"{causes} causes at {prior:g}, {effects} effects of {fan_in}"
        try:
            yield answer_line(name, model, evidence)[0]
        except IcgiError as refusal:
            yield {"model": name, "status": f"refused: {refusal}"[:200]}


def read_bif(path: Path) -> FactorGraph:
    """Just enough of the format for the networks of the bnlearn repository."""
    text = gzip.decompress(path.read_bytes()).decode()
    states: dict[str, list[str]] = {}
    for name, listed in re.findall(r"variable\s+(\S+)\s*\{\s*type[^{]*\{([^}]*)\}", text):
        states[name] = [each.strip() for each in listed.split(",")]
    number = {name: i for i, name in enumerate(states)}
    scopes, tables = [], []
    for head, body in re.findall(r"probability\s*\(([^)]*)\)\s*\{([^}]*)\}", text):
        child, _, given = head.partition("|")
        names = [*(each.strip() for each in given.split(",") if each.strip()), child.strip()]
        table = np.zeros([len(states[name]) for name in names])
        if plain := re.search(r"table\s+([^;]*);", body):
            table[:] = np.array(plain[1].split(","), float).reshape(table.shape)
        for row, numbers in re.findall(r"\(([^)]*)\)\s*([^;]*);", body):
            values = [each.strip() for each in row.split(",")]
            at = tuple(states[n].index(v) for n, v in zip(names, values, strict=False))
            table[at] = np.array(numbers.split(","), float)
        with np.errstate(divide="ignore"):
            tables.append(np.log(table / table.sum(-1, keepdims=True)))
        scopes.append(tuple(number[name] for name in names))
    return FactorGraph(np.array([len(s) for s in states.values()]), tuple(scopes), tuple(tables))


def sampled_evidence(model: FactorGraph, leaves: int = 8) -> FactorGraph:
    """Some leaves of a Bayesian network observed, their states drawn from it."""
    rng = np.random.default_rng(0)
    own = {scope[-1]: f for f, scope in enumerate(model.scopes)}
    drawn: dict[int, int] = {}
    while len(drawn) < model.n_variables:
        for i, f in own.items():
            parents = model.scopes[f][:-1]
            if i not in drawn and all(j in drawn for j in parents):
                row = np.exp(model.log_tables[f][tuple(drawn[j] for j in parents)])
                drawn[i] = int(rng.choice(len(row), p=row / row.sum()))
    used = {j for scope in model.scopes for j in scope[:-1]}
    ends = rng.permutation([i for i in range(model.n_variables) if i not in used])
    return condition(model, {int(i): drawn[int(i)] for i in ends[:leaves]}).model


PARTS: dict[str, Callable[[], Iterator[Line]]] = {
    "promedas": promedas,
    "published": published,
    "widths": widths,
    "counting": counting,
    "none": none,
    "random": random,
    "rare": rare,
}


def render() -> None:
    """Print the goals and one table per part."""
    for part in PARTS:
        lines = [line for line in stored() if line["part"] == part]
        if not lines:
            continue
        columns = list(dict.fromkeys(key for line in lines for key in line if key != "part"))
        print(f"\n{part}: {(PARTS[part].__doc__ or '').strip()}\n")
        if seconds := [float(line["seconds"]) for line in lines if "seconds" in line]:  # type: ignore[arg-type]
            exact = sum(line.get("status") == "exact" for line in lines)
            print(
                f"{len(lines)} models, {exact} exact, seconds: median {np.median(seconds):.3f}, "
                f"most {max(seconds):.3f}\n"
            )
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for line in lines:
            print("| " + " | ".join(_cell(line.get(key, "")) for key in columns) + " |")


def _cell(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) and abs(value) < 1e-3 else str(value)


if __name__ == "__main__":
    main()
