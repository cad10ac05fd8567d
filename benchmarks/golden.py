"""Compare `jt` with every trustworthy published answer that exact inference can reach.

    ICGI_DATA=… python benchmarks/golden.py [--family NAME] [--memory GiB]

One line per instance: largest difference of a marginal from the reference (printed with six
decimals: at most 1e-6), and of log10 Z (printed with six digits: at most half of the last one).
Exits with 1 if one differs. The list of the last full run is in benchmarks/results/golden.txt.
"""

import argparse
import math
import sys
import time

import numpy as np

import icgi
from icgi.data.collection import Instance, data_folder, instances
from icgi.units import readable_bytes

TOLERANCE = 1e-6


def compare(instance: Instance, budget: icgi.Budget) -> tuple[str, bool]:
    """(line to print, whether the instance agrees)."""
    began = time.perf_counter()
    try:
        answer = icgi.marginals(instance.model(), instance.evidence(), "jt", budget)
    except icgi.BudgetError as refusal:
        return f"{instance.name:<22} refused: {refusal}", False
    seconds = time.perf_counter() - began
    reference = instance.reference()
    assert reference is not None
    worst = max(
        float(np.abs(found - given).max()) for found, given in zip(answer, reference, strict=True)
    )
    published = instance.log10_z()
    text, good = "–", True
    if published is not None:
        gap = abs(answer.log_z / math.log(10) - published)
        good = gap <= 0.5 * last_digit(published) + TOLERANCE
        text = f"{gap:.1e}"
    return (
        f"{instance.name:<22}{worst:>10.1e}{text:>12}{seconds:>9.2f} s "
        f"{readable_bytes(answer.stats['bytes']):>9}",
        good and worst <= TOLERANCE,
    )


def last_digit(published: float) -> float:
    """Worth of the sixth significant digit: 606.279 → 0.001."""
    return 10.0 ** (math.floor(math.log10(abs(published))) - 5) if published else TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB")
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder that holds manifest.csv")
    budget = icgi.Budget(table_bytes=int(options.memory * 2**30))
    print(f"{'instance':<22}{'marginals':>10}{'log10 Z':>12}{'time':>11} {'tables':>9}")
    wrong = total = 0
    for instance in instances(folder):
        if instance.has_reference and instance.tractable and options.family in instance.family:
            line, good = compare(instance, budget)
            total, wrong = total + 1, wrong + (not good)
            print(line + ("" if good else "   DIFFERS"), flush=True)
    print(f"{total - wrong} of {total} agree to the printed digits")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
