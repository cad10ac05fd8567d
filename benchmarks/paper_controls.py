"""The paper's network against its two controls: the same data, as many steps, one table.

python benchmarks/paper_controls.py FOLDER --seconds 190 --total 400 --workers 14
"""

import argparse
import json
from pathlib import Path

import torch

from icgi.train.config import PRESETS
from icgi.train.graph_run import compare, measure, prepare, sets_to_measure
from icgi.train.workers import workers

RUNS = ("paper", "paper-recurrent", "messages")


def main() -> None:
    """Draw and label, train all three, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=190.0, help="schedule of the first")
    parser.add_argument("--total", type=float, default=400.0, help="most for all training")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tests", type=int, default=16, help="models per test set")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    runs = {name: PRESETS[name] for name in RUNS}

    def say(text: str) -> None:
        print(text, flush=True)

    with workers(given.workers) as pool:
        data, validation = prepare(runs["paper"], pool, device, say)
    found = compare(runs, data, validation, given.folder, given.seconds, say, given.total)
    sets = sets_to_measure(validation, given.tests, device)
    tables = {}
    for name, result in found.items():
        tables[name] = measure(result.network, sets, lambda text: None)
        (given.folder / name / "results.json").write_text(json.dumps(tables[name], indent=1))
    say("| models | " + " | ".join(f"{n}, {r.steps} steps" for n, r in found.items()) + " |")
    say("|---" * (1 + len(found)) + "|")
    for row in sets:
        cells = (f"{tables[name][row.name]['mae']:.4f}" for name in found)
        say(f"| {row.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
