"""Growth of a fresh process: at most 1.3 times the budget plus 30 MB."""

import subprocess
import sys

import pytest

RUN = """
import ctypes, sys
import numpy as np
from icgi.data.families import FAMILIES
from icgi.engines import parse_engine
from icgi.inference import Budget, infer

def status(name):
    with open("/proc/self/status") as file:
        return 1024 * int(dict(x.split(":", 1) for x in file)[name].split()[0])

def run(family, parameters, spec, budget):
    model = FAMILIES[family].sample(np.random.default_rng(1), **parameters)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    infer(model, {}, parse_engine(spec), budget, np.random.default_rng(0))
    return status("VmHWM") - before

for size in ("sk", {"n": 24}), ("ea2d", {"L": 20}):  # loads the compiled code
    run(*size, "ttve:exact_entries=0", Budget(seconds=2))
print(run(sys.argv[1], eval(sys.argv[2]), "ttve", Budget(seconds=6, table_bytes=50 * 10**6)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("family", "size"), [("sk", {"n": 200}), ("ea2d", {"L": 100})])
def test_growth_stays_near_the_memory_budget(family: str, size: dict[str, int]) -> None:
    words = [sys.executable, "-c", RUN, family, repr(size)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 1.3 * 50e6 + 30e6
