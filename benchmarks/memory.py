"""Memory and time of exact inference: what the forecast says, and what was then measured.

    ICGI_DATA=… python benchmarks/memory.py [--family NAME] [--memory GB] [--longest S] [--count N]

One line per instance that fits: bytes forecast, growth of the process while `jt` ran (the
high-water mark of its resident memory, reset before), their ratio; seconds forecast and used (the
search of the order not counted), their ratio. Linux only. The table of docs/memory.md is made by
this.
"""

import argparse
import ctypes
import time
from dataclasses import dataclass

import numpy as np

from icgi.clock import now
from icgi.data.collection import Instance, data_folder, instances
from icgi.errors import BudgetError
from icgi.exact.forecast import Forecast, forecast
from icgi.exact.junction_tree import AlongForecast
from icgi.inference import Budget, ask
from icgi.model.condition import condition
from icgi.units import readable_bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of `jt`."""

    ahead: Forecast
    grown: int
    seconds: float
    cpu: float


def measure(instance: Instance, budget: Budget) -> Measured:
    """Forecast, then run, with the high-water mark reset in between."""
    rng = np.random.default_rng(0)
    left = condition(instance.model(), instance.evidence())
    ahead = forecast(left.model, budget, rng)
    ahead.refuse_beyond(budget)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, began, cpu = _status("VmRSS"), now(), time.process_time()
    ask(left, AlongForecast(ahead), Budget(table_bytes=budget.table_bytes), rng)
    return Measured(ahead, _status("VmHWM") - before, now() - began, time.process_time() - cpu)


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return 1024 * int(lines[name].split()[0])


def main() -> None:
    """Print one line per instance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="")
    parser.add_argument("--memory", type=float, default=2.0, help="GB")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds forecast")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    budget = Budget(seconds=options.longest, table_bytes=int(1e9 * options.memory))
    print(
        "| instance | forecast | measured | (measured − 30 MB) / forecast | forecast s | used s | "
        "CPU s | used / forecast |\n|---|---|---|---|---|---|---|---|"
    )
    done = 0
    folder = data_folder()
    if folder is None:
        raise SystemExit("set ICGI_DATA to the folder of manifest.csv")
    for instance in instances(folder):
        if not instance.name.startswith(options.family) or done >= options.count:
            continue
        try:
            found = measure(instance, budget)
        except BudgetError:
            continue
        done += 1
        ahead = found.ahead
        print(
            f"| {instance.name} | {readable_bytes(ahead.table_bytes)} | "
            f"{readable_bytes(found.grown)} | "
            f"{max(found.grown - 30e6, 0) / ahead.table_bytes:.2f} | {ahead.seconds:.3f} | "
            f"{found.seconds:.3f} | {found.cpu:.3f} | {found.seconds / ahead.seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
