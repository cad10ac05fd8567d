"""Marginals of a grid with wrap-around in both directions, by its transfer operator: a reference.

    ICGI_DATA=… python benchmarks/torus.py [--vectors 32] [--periods 3] [--model grid20x20.f5.wrap]
    python benchmarks/torus.py --check

A torus of L × L spins is a ring of L columns with 2^L states each, and Z = tr(T_L ⋯ T_1), where
T_k is a product of L butterflies (couplings to the column before) and a diagonal (fields, couplings
within the column). For L = 20 no junction tree fits, 2^40 entries, but T_k acts on a vector of 2^20
numbers in milliseconds, and of all the eigenvalues of the product only the first few dozens differ
from 0 as far as the trace can tell. So:

1. Powers of the product on one positive vector, from either side, give r_k and l_k of each column,
   to full relative precision because nothing is subtracted. In the gauge √(l_k / r_k) the operators
   are nearly normal: what matters is large in vectors from either side. Any gauge is allowed.
2. Orthogonal iteration from either side finds bases Q and U of the dominant invariant subspaces.
3. p(column k = x) ∝ Σ_ab F_k[x, a] C[a, b] B_k[x, b] with F_k = T_k ⋯ T_1 Q, C = (Uᵀ Q)⁻¹ and
   B_k = (T_L ⋯ T_{k+1})ᵀ U.

What is left out is the sum of the eigenvalues that were not found; the smallest ones found, in
units of the trace, say how much that may be. No sampling, no messages: independent of all engines.
One JSON line goes to benchmarks/results/torus.jsonl, marginals to the folder in ICGI_STUDY; `apart`
says how far they are from those of the run before, in L1. `--check` compares tori of 6 × 6 spins
with exact inference.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import icgi
from icgi.data.collection import data_folder, instances
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray

LINES = Path(__file__).parent / "results" / "torus.jsonl"
TINY = 1e-280  # of the largest entry: smaller ones of a positive vector tell nothing


@kernel
def butterflies(v: FloatArray, weak: FloatArray, low: int, high: int) -> None:
    """Apply [[1, w], [w, 1]] on bits low … high of the first axis, in place.

    `weak` holds w per bit. Rows of one group differ in these bits only and stay in the cache.
    """
    size, r = v.shape
    span = 1 << low
    for group in range(size >> (high - low)):
        start = (group // span) * (span << (high - low)) + group % span
        for bit in range(low, high):
            w, step = weak[bit], 1 << (bit - low)
            for block in range(1 << (high - low - 1)):
                pair = (block // step) * 2 * step + block % step
                i = start + pair * span
                j = i + step * span
                for a in range(r):
                    first, second = v[i, a], v[j, a]
                    v[i, a] = first + w * second
                    v[j, a] = w * first + second


@dataclass(frozen=True, eq=False)
class Ring:
    """Columns of an L × L torus of spins."""

    weak: FloatArray  # k i     e^{-2|J|} of the coupling between (k - 1, i) and (k, i)
    flipped: FloatArray  # k    bits whose coupling to the column before is negative, as a mask
    diagonal: FloatArray  # k x  log weight of a column by itself
    gauge: FloatArray  # k x

    def step(self, v: FloatArray, k: int) -> FloatArray:
        """T_k v in this gauge, scaled by a constant (in place)."""
        v *= np.exp(-self.gauge[k - 1])[:, None]
        v = self._couple(v, k)
        v *= np.exp(self.diagonal[k] + self.gauge[k])[:, None]
        return v

    def back(self, v: FloatArray, k: int) -> FloatArray:
        """T_kᵀ v, with the same constant."""
        v *= np.exp(self.diagonal[k] + self.gauge[k])[:, None]
        v = self._couple(v[self._mirror(k)], k, mirrored=True)
        v *= np.exp(-self.gauge[k - 1])[:, None]
        return v

    def _couple(self, v: FloatArray, k: int, mirrored: bool = False) -> FloatArray:
        half = self.weak.shape[1] // 2
        butterflies(v, self.weak[k], 0, half)
        butterflies(v, self.weak[k], half, self.weak.shape[1])
        return v if mirrored else v[self._mirror(k)]

    def _mirror(self, k: int) -> FloatArray:
        """A negative coupling is a positive one to the spin turned over."""
        return np.arange(self.diagonal.shape[1]) ^ int(self.flipped[k])


def ring(model: FactorGraph, side: int) -> Ring:
    """Columns of a torus whose variable (k, i) has the number k · side + i."""
    states = np.arange(1 << side)
    spin = [1 - 2 * ((states >> i) & 1) for i in range(side)]
    weak, flipped = np.ones((side, side)), np.zeros(side, dtype=int)
    diagonal = np.zeros((side, 1 << side))
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        k, i = divmod(scope[0], side)
        if len(scope) == 1:
            diagonal[k] += spin[i] * (table[0] - table[1]) / 2
            continue
        m, j = divmod(scope[1], side)
        coupling = (table[0, 0] + table[1, 1] - table[0, 1] - table[1, 0]) / 4
        left = (table[0, 0] + table[0, 1] - table[1, 0] - table[1, 1]) / 4
        right = (table[0, 0] + table[1, 0] - table[0, 1] - table[1, 1]) / 4
        diagonal[k] += left * spin[i]
        diagonal[m] += right * spin[j]
        if k == m:
            diagonal[k] += coupling * spin[i] * spin[j]
            continue
        if i != j or (m - k) % side not in (1, side - 1):
            raise SystemExit("not a torus whose columns are numbered one after the other")
        later = m if (m - k) % side == 1 else k
        weak[later, i] = np.exp(-2 * abs(coupling))
        flipped[later] |= (coupling < 0) << i
    diagonal -= diagonal.max(1, keepdims=True)
    return Ring(weak, flipped, diagonal, np.zeros_like(diagonal))


def gauged(plain: Ring, periods: int) -> Ring:
    """The ring in the gauge of its positive vectors from either side."""
    side, size = plain.diagonal.shape
    right, left = np.empty((side, size)), np.empty((side, size))
    after, before = np.ones((size, 1)), np.ones((size, 1))
    for _ in range(periods):
        for k in range(side):
            after = plain.step(after, k)
            after /= after.max()
            right[k] = after[:, 0]
        for k in reversed(range(side)):
            left[k] = before[:, 0]
            before = plain.back(before, k)
            before /= before.max()
    gauge = (np.log(np.maximum(left, TINY)) - np.log(np.maximum(right, TINY))) / 2
    return Ring(plain.weak, plain.flipped, plain.diagonal, gauge - gauge.mean(1, keepdims=True))


def forward(columns: Ring, v: FloatArray) -> Iterator[FloatArray]:
    for k in range(len(columns.weak)):
        v = columns.step(v, k)
        yield v


def backward(columns: Ring, v: FloatArray) -> Iterator[FloatArray]:
    """B_k for k from the last column to the one before the first, v first."""
    for k in reversed(range(len(columns.weak))):
        yield v
        v = columns.back(v.copy(), k)
    yield v


def marginals(
    model: FactorGraph, side: int, vectors: int, periods: int, folder: Path
) -> tuple[FloatArray, FloatArray]:
    """P(spin = 0), and eigenvalues of the product of all columns in units of their sum."""
    columns = gauged(ring(model, side), periods)
    size = 1 << side
    rng = np.random.default_rng(1)
    q, u = rng.standard_normal((2, size, vectors))
    for _ in range(periods):
        q = np.linalg.qr(_last(forward(columns, q)))[0]
        u = np.linalg.qr(_last(backward(columns, u)))[0]
    after = np.memmap(folder / "torus.tmp", np.float32, "w+", shape=(side, size, vectors))
    for k, f in enumerate(forward(columns, q.copy())):
        f /= np.abs(f).max()
        after[k] = f
    inverse = np.linalg.inv(u.T @ q)
    values = np.linalg.eigvals(inverse @ (u.T @ f))
    probs = np.empty((side, side))
    for back, k in zip(backward(columns, u), reversed(range(side)), strict=False):
        back /= np.abs(back).max()
        weight = np.einsum("xa,xa->x", after[k] @ inverse, back)
        for i in range(side):
            zero = weight.reshape(-1, 2, 1 << i)[:, 0].sum()
            probs[k, i] = zero / weight.sum()
    (folder / "torus.tmp").unlink()
    order = np.argsort(-np.abs(values))
    return probs.ravel(), values[order] / values.sum()


def _last(steps: Iterator[FloatArray]) -> FloatArray:
    for v in steps:
        v /= np.abs(v).max()
    return v


def check() -> None:
    """Tori that exact inference answers, from weak to strong couplings."""
    side, rng = 6, np.random.default_rng(0)
    for strength in (0.3, 1.0, 5.0):
        fields = {i: rng.uniform(-1, 1) for i in range(side**2)}
        bonds = [
            (side * k + i, side * m + j)
            for k in range(side)
            for i in range(side)
            for m, j in ((k, (i + 1) % side), ((k + 1) % side, i))
        ]
        tables = [((i,), np.exp([h, -h])) for i, h in fields.items()]
        for pair in bonds:
            coupling = rng.uniform(-strength, strength)
            tables.append((pair, np.exp([[coupling, -coupling], [-coupling, coupling]])))
        model = icgi.from_factors(tables)
        exact = icgi.marginals(model, engine="exact").probs[:, 0]
        with tempfile.TemporaryDirectory() as folder:
            p, values = marginals(model, side, 32, 3, Path(folder))
        print(f"couplings up to {strength:g}: largest difference {np.abs(p - exact).max():.1e}, "
              f"smallest eigenvalue {np.abs(values[-1]):.1e} of the trace")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="grid20x20.f5.wrap")
    parser.add_argument("--side", type=int, default=20)
    parser.add_argument("--vectors", type=int, default=32)
    parser.add_argument("--periods", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="small ones against exact inference")
    options = parser.parse_args()
    if options.check:
        check()
        return
    folder = data_folder()
    if folder is None or "ICGI_STUDY" not in os.environ:
        raise SystemExit("set ICGI_DATA to the collection and ICGI_STUDY to a folder for results")
    study = Path(os.environ["ICGI_STUDY"])
    study.mkdir(parents=True, exist_ok=True)
    model = next(each for each in instances(folder) if each.name == options.model).model()
    line: dict = {"name": options.model, "vectors": options.vectors, "periods": options.periods}
    cpu = time.process_time()
    p, values = marginals(model, options.side, options.vectors, options.periods, study)
    target = study / f"{options.model}-torus.npy"
    found = np.column_stack([p, 1 - p])
    if target.is_file():  # of a run with other numbers of vectors or periods
        before = np.load(target)
        line["apart"] = float(np.abs(found - before).sum(1).mean())
    np.save(target, found)
    line |= {"cpu": round(time.process_time() - cpu, 1), "version": icgi.__version__}
    line["values"] = [float(np.real(x)) for x in values]
    with LINES.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
