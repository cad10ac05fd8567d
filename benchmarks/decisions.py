"""Networks of rules, too wide for tables: how far a search over decisions gets.

    ICGI_CLOCK=processor PYTHONPATH=src python benchmarks/decisions.py [--seconds 5] [NAME …]

Prints one row for each network and seed (`tests/deterministic.py`): its size, the largest table of
the order that was found, `exact` and `auto` in that time, and, where the answer is known, the mean
L1 error of `auto` without exact methods and what it expected. Kernels are loaded before the clock
runs.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import deterministic
from icgi import clock
from icgi.engines import parse_engine
from icgi.errors import BudgetError
from icgi.inference import Budget, Marginals, Status, infer
from icgi.model.condition import condition
from icgi.model.ordering import find_order

Draw = Callable[[np.random.Generator], deterministic.Question]


def game(*sizes: int) -> Draw:
    return lambda rng: deterministic.guessing_game(rng, *sizes)


def walk(*sizes: int) -> Draw:
    return lambda rng: deterministic.walk(rng, *sizes)


def clauses(*sizes: int) -> Draw:
    return lambda rng: deterministic.clauses(rng, *sizes)


NETWORKS: dict[str, Draw] = {
    "game, 3 colours, 4 guesses, 4 pegs": game(3, 4, 4),
    "game, 4 colours, 4 guesses, 4 pegs": game(4, 4, 4),
    "game, 4 colours, 8 guesses, 3 pegs": game(4, 8, 3),
    "game, 5 colours, 5 guesses, 4 pegs": game(5, 5, 4),
    "game, 5 colours, 5 guesses, 5 pegs": game(5, 5, 5),
    "walk, 4 × 4, 8 steps": walk(4, 8),
    "walk, 6 × 6, 10 steps": walk(6, 10),
    "walk, 8 × 8, 9 steps": walk(8, 9),
    "walk, 8 × 8, 12 steps": walk(8, 12),
    "80 coins, 300 clauses": clauses(80, 300),
    "100 coins, 420 clauses": clauses(100, 420),
    "150 coins, 600 clauses": clauses(150, 600),
    "150 coins, 300 clauses": clauses(150, 300),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    budget = Budget(seconds=options.seconds)
    row(deterministic.clauses(np.random.default_rng(0), 60, 250), budget)  # kernels are loaded
    print("| network | variables | left | table, bits | `exact` | `auto` | without exact methods |")
    print("|---|---|---|---|---|---|---|")
    for name, draw in NETWORKS.items():
        if options.names and not any(name.startswith(each) for each in options.names):
            continue
        for seed in range(options.seeds):
            cells = row(draw(np.random.default_rng(seed)), budget)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def row(question: deterministic.Question, budget: Budget) -> list[str]:
    model, seen = question
    left = condition(model, seen).model
    order = find_order(left, np.random.default_rng(0), work=0.5)
    cells = [str(model.n_variables), str((left.cards > 1).sum()), f"{order.log2_table:.0f}"]
    truth = None
    for engine in ("exact", "auto"):
        text, answer = asked(question, engine, budget)
        cells.append(text)
        truth = truth or (answer if answer and answer.status is Status.EXACT else None)
    text, answer = asked(question, "auto:exact=no", budget)
    if truth is not None and answer is not None:
        off = float(np.abs(answer.probs - truth.probs).sum(1)[left.cards > 1].mean())
        stated = answer.stats.get("expected_error", 0.0)
        text += f", off by {off:.2g} ({stated:.2g} expected)"
    return [*cells, text]


def asked(
    question: deterministic.Question, engine: str, budget: Budget
) -> tuple[str, Marginals | None]:
    """Seconds and status of an answer, and the answer; None for a refusal."""
    began = clock.now()
    try:
        answer = infer(*question, parse_engine(engine), budget, np.random.default_rng(0))
    except BudgetError:
        return f"{clock.now() - began:.2f} s refused", None
    text = f"{clock.now() - began:.2f} s {answer.status.value}"
    if "decisions" in answer.stats:
        text += f", {answer.stats['decisions']:,.0f} decisions"
    return text, answer


if __name__ == "__main__":
    main()
