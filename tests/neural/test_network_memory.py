"""Memory of the networks: what a run takes, in a process of its own, against its forecast."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from icgi.data.families import FAMILIES
from icgi.neural import general_engine, spin_engine
from icgi.neural.general_batch import pair_form

RESET = Path("/proc/self/clear_refs")  # sets the high-water mark of a process back
MEASURE = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from icgi.data.families import FAMILIES
from icgi.engines import parse_engine
from icgi.inference import Budget

def mark(word):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(word)).split()[1]) * 1024

engine, family, options, allowed = json.loads(sys.argv[1])
torch.set_num_threads(1)
rng = np.random.default_rng(0)
run = parse_engine(engine)
for small in ("ea2d", "potts"):  # code is loaded by the first run
    run(FAMILIES[small].sample(rng, L=3), Budget(), rng)
model = FAMILIES[family].sample(np.random.default_rng(0), **options)
Path("/proc/self/clear_refs").write_text("5")
before = mark("VmRSS")
found = run(model, Budget(table_bytes=allowed), rng)
print(json.dumps([mark("VmHWM") - before, found.stats]))
"""


def growth(engine: str, family: str, options: dict[str, int], allowed: int) -> tuple[int, dict]:
    given = json.dumps([engine, family, options, allowed])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, given], capture_output=True, text=True, check=True
    )
    peak, stats = json.loads(done.stdout)
    return peak, stats


def forecast(engine: str, family: str, options: dict[str, int]) -> int:
    model = FAMILIES[family].sample(np.random.default_rng(0), **options)
    if family == "ea2d":
        return spin_engine.bytes_needed(model.n_variables, 16)
    form = pair_form(model)
    return general_engine.bytes_needed(len(form.cards), int(form.cards.max()))


@pytest.mark.skipif(not RESET.exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("engine", "family", "options"),
    [
        ("icgi:orders=1,rest=sum", "ea2d", {"L": 10}),
        ("icgi:orders=1,rest=sum", "potts", {"L": 9}),
    ],
)
def test_a_run_takes_what_was_forecast(engine: str, family: str, options: dict[str, int]) -> None:
    need = forecast(engine, family, options)
    peak, stats = growth(engine, family, options, 2 * need)
    assert peak <= 1.3 * need + 30e6
    assert stats.get("patches", 1.0) == 1.0


@pytest.mark.skipif(not RESET.exists(), reason="needs /proc")
def test_a_small_budget_bounds_a_larger_model() -> None:
    peak, stats = growth("icgi:orders=1,core=8,rest=sum", "ea2d", {"L": 14}, 12_000_000)
    assert peak <= 1.3 * 12e6 + 30e6
    assert stats["patches"] > 1
