"""`icgi info`: what a model is like and what exact inference on it would cost."""

import json as json_format
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from icgi.cli import options, output, question

if TYPE_CHECKING:
    from icgi.cli.structure import Sizes
    from icgi.exact.forecast import Forecast
    from icgi.inference import Budget


def run(
    model: options.Model,
    evidence: options.EvidenceFile = None,
    observe: options.Observe = None,
    likely: options.Likely = None,
    exclude: options.Exclude = None,
    memory: options.Memory = "4G",
    seconds: options.Seconds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = 0,
) -> None:
    """What a model is like, what exact inference would cost, and what `auto` would do."""
    from icgi.inference import Budget

    budget = Budget(seconds=options.positive_seconds(seconds), table_bytes=options.bytes_of(memory))
    with output.working(quiet) as say:
        text = output.interruptible(
            lambda: _look(
                question.load(model, evidence, observe, budget, likely, exclude), budget, seed, say
            )
        )
    counted, kind, ahead, choice = text
    beside = question.unused_evidence(model, evidence)
    if beside is not None:
        output.note(f"there is {beside.name}, not used; give -e {beside} to enter it", quiet)
    if json:
        typer.echo(json_format.dumps(_plain(counted, kind, ahead, budget, choice), indent=1))
        return
    output.title(str(model))
    reduced = counted.free_variables < counted.variables
    output.facts([*_size_facts(counted), ("kind", f"once reduced: {kind}" if reduced else kind)])
    typer.echo()
    _show_orders(ahead)
    typer.echo()
    found = ahead[-1].structure
    output.facts([*([("structure", found)] if found else []), ("auto", choice)])


Look = tuple["Sizes", str, "list[Forecast]", str]


def _look(asked: question.Question, budget: "Budget", seed: int, say: output.Say) -> Look:
    from icgi.cli import structure

    say("counting")
    counted = structure.sizes(asked)
    say("looking for symmetry")
    kind = structure.kind(asked.conditioned.model)
    say("searching elimination orders, and structure in the factors")
    best = structure.best(asked, budget, seed)
    return counted, kind, [*structure.greedy(asked, best, budget), best], _choice(best, budget)


def _choice(searched: "Forecast", budget: "Budget") -> str:
    from icgi.portfolio.auto import Auto

    return f"{question.reason(Auto(), searched, budget)} ({_limits(budget)})"


def _limits(budget: "Budget") -> str:
    from icgi.units import readable_bytes

    time = "" if math.isinf(budget.seconds) else f", --seconds {budget.seconds:g}"
    return f"--memory {readable_bytes(budget.table_bytes)}{time}"


def _size_facts(counted: "Sizes") -> list[tuple[str, str]]:
    zeros = counted.zero_entries / max(counted.table_entries, 1)
    return [
        ("variables", f"{counted.variables:,}, {counted.observed:,} observed"),
        ("states", _histogram(counted.states, "variables of {} states", "variables of 1 state")),
        ("factors", f"{counted.factors:,}, the largest with {counted.largest_table:,} entries"),
        ("scopes", _histogram(counted.arity, "factors of {} variables", "factors of 1 variable")),
        ("zeros", f"{counted.zero_entries:,} of {counted.table_entries:,} entries ({zeros:.1%})"),
        (
            "reduced",
            f"{counted.states_removed_by_zeros:,} states removed by zeros, "
            f"{counted.one_state_variables:,} variables with one state in the file, "
            f"{counted.free_variables:,} variables left",
        ),
        (
            "parts",
            question.count(counted.components, "connected component")
            + (f", the largest of {counted.largest_component:,}" if counted.components > 1 else ""),
        ),
    ]


def _histogram(counts: Mapping[int, int], many: str, one: str) -> str:
    shown = sorted(counts.items(), key=lambda pair: -pair[1])[:6]

    def called(size: int, count: int) -> str:
        words = one if size == 1 else many.format(size)
        return words.replace("s of ", " of ", 1) if count == 1 else words

    text = ", ".join(f"{count:,} {called(size, count)}" for size, count in sorted(shown))
    rest = len(counts) - len(shown)
    return f"{text}, … {rest} more sizes up to {max(counts)}" if rest else text or "none"


def _show_orders(ahead: "list[Forecast]") -> None:
    from icgi.units import readable_bytes, readable_seconds

    columns = [
        output.Column("elimination order", style="bold"),
        output.Column("width", right=True),
        output.Column("largest table", right=True),
        output.Column("memory of exact", right=True),
        output.Column("time of exact", right=True),
    ]
    rows = [
        [
            name,
            "–" if each.forms else str(each.order.width),
            f"2^{each.log2_table:.1f}",
            readable_bytes(each.table_bytes),
            readable_seconds(each.seconds),
        ]
        for name, each in zip(_names(ahead), ahead, strict=True)
    ]
    output.table(columns, rows)


def _names(ahead: "list[Forecast]") -> list[str]:
    last = "with structure" if ahead[-1].forms else "search"
    return [*(each.order.heuristic for each in ahead[:-1]), last]


def _plain(
    counted: "Sizes", kind: str, ahead: "list[Forecast]", budget: "Budget", choice: str
) -> dict[str, object]:
    return {
        **asdict(counted),
        "kind": kind,
        "orders": [
            {
                "name": name,
                "width": each.order.width,
                "log2_largest_table": each.log2_table,
                "bytes": _finite(each.table_bytes),
                "seconds": _finite(each.seconds),
            }
            for name, each in zip(_names(ahead), ahead, strict=True)
        ],
        "structure": ahead[-1].structure or None,
        "exact_fits": ahead[-1].fits(budget),
        "auto": choice,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
