"""Throughput of the networks: instances per second and floating-point operations per instance.

    python benchmarks/neural.py [--device cuda] [--out FILE]      measure, append JSON lines
    python benchmarks/neural.py --render                          print the table of stored lines

Both passes count: what is timed starts from couplings and fields, and takes one order.
Operations are those of matrix products as torch counts them; the element-wise algebra of an
elimination step is not among them, so the figure is a lower bound.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from icgi.data.families import FAMILIES
from icgi.neural.fast import FastNetwork
from icgi.neural.spin_engine import concentrations, require_ising, spins_from
from icgi.neural.spins import Spins, make_spins
from icgi.neural.weights import shipped

RESULTS = Path(__file__).parent / "results" / "neural.jsonl"
SIZES = {32: (1, 64, 512), 64: (1, 64, 512), 100: (1, 64, 256)}
CORE = 12  # the largest core whose sum is not what takes the time
REPEATS = 3


def batch(n: int, count: int, device: str) -> Spins:
    rng = np.random.default_rng(n)
    models = [FAMILIES["er"].sample(rng, n=n, p=0.1, beta=1.0, field=0.3) for _ in range(count)]
    return spins_from([require_ising(m) for m in models], device)


def eager(network: FastNetwork, spins: Spins) -> Callable[[], torch.Tensor]:
    nothing = torch.zeros(0, *spins.fields.shape)
    return lambda: concentrations(network, again(spins), CORE, nothing)


def again(spins: Spins) -> Spins:
    return make_spins(spins.couplings, spins.fields, spins.real)


def captured(network: FastNetwork, spins: Spins) -> Callable[[], torch.Tensor]:
    """Replay of the forward pass as one CUDA graph: no kernel waits for Python."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        network.run(again(spins), CORE)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = network.run(again(spins), CORE)

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


def seconds(run: Callable[[], torch.Tensor], device: str) -> float:
    times = []
    for _ in range(REPEATS + 1):  # the first run warms up
        began = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))


@torch.no_grad()
def measure(device: str, out: Path) -> None:
    network = shipped("icgi-fast").to(device)
    modes = {"eager": eager, "graph": captured} if device == "cuda" else {"eager": eager}
    where = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    out.parent.mkdir(parents=True, exist_ok=True)
    for n, counts in SIZES.items():
        with FlopCounterMode(display=False) as counter:
            eager(network, batch(n, 1, device))()
        for count in counts if device == "cuda" else counts[:2]:
            spins = batch(n, count, device)
            for mode, make in modes.items():
                took = seconds(make(network, spins), device)
                line = {
                    "network": "fast", "n": n, "batch": count, "mode": mode, "device": device,
                    "hardware": where, "threads": torch.get_num_threads(),
                    "instances_per_second": count / took,
                    "gflop_per_instance": counter.get_total_flops() / 1e9,
                }  # fmt: skip
                print(json.dumps(line), flush=True)
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def render() -> str:
    rows = [
        "| network | N | batch | device | mode | instances/s | GFLOP each |",
        "|---|---|---|---|---|---|---|",
    ]
    for x in map(json.loads, RESULTS.read_text().splitlines()):
        rows.append(
            f"| {x['network']} | {x['n']} | {x['batch']} | {x['device']} | {x['mode']} | "
            f"{x['instances_per_second']:,.0f} | {x['gflop_per_instance']:.3f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    if given.render:
        print(render())
    else:
        measure(given.device, given.out)


if __name__ == "__main__":
    main()
