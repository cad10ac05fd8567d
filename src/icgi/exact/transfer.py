"""Marginals of a ring of columns of spins, such as a torus, by its transfer operator.

Z = tr(T_L ⋯ T_1), where T_k couples a column of w spins, 2^w states, to the one before: a butterfly
for each coupling, and a diagonal, fields and couplings within the column. A junction tree would
need 2^2w entries; T_k acts on a vector of 2^w numbers, and of the eigenvalues of the product only
the first few differ from 0 as far as the trace can tell.

1. Powers of the product on a positive vector, from either side, give r_k and l_k of each column to
   full relative precision, because nothing is subtracted. In the gauge √(l_k / r_k) the operators
   are nearly normal: what matters is large in vectors from either side. Any gauge is allowed.
2. Orthogonal iteration from either side finds bases Q and U of the dominant invariant subspaces.
3. p(column k = x) ∝ Σ_ab F_k[x, a] C[a, b] B_k[x, b] with F_k = T_k ⋯ T_1 Q, C = (Uᵀ Q)⁻¹ and
   B_k = (T_L ⋯ T_{k+1})ᵀ U; log Z is that of the sum of the eigenvalues of C Uᵀ T_L ⋯ T_1 Q.

What is left out are eigenvalues below the smallest that were found, and the bases have met the
product twice only. The marginals of the last column can be had from either end, F_L and U or Q and
B_0; how far they are apart, and the smallest eigenvalue, are the error stated.
"""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from icgi import clock
from icgi.clock import Deadline
from icgi.errors import BudgetError
from icgi.exact.rings import Ring, ring_of
from icgi.inference import Budget, Marginals, Status
from icgi.kernels import kernel
from icgi.model.graph import FactorGraph, FloatArray, IntArray
from icgi.model.ising import IsingArrays

WIDEST = 22  # spins of a column: vectors of 4 million numbers
TINY = 1e-280  # of the largest entry: smaller ones of a positive vector tell nothing
FIRST_VECTORS, MOST_VECTORS = 4, 16
SMALL = 1e-4  # error that is small enough
UNUSABLE = 1e-3  # beyond which there is no answer
ROUNDING = 1e-9  # of the sum of the eigenvalues' absolute values
LEFT_OUT = 20.0  # errors stated, in units of what is known of them
GAUGE_SHARE = (
    0.3  # of the time: where it is not enough for the gauge, the rest would not fit either
)
OVERHEAD = 0.2  # seconds that are no measure of how fast the machine is
STEP, EACH = 7e-8, 2.5e-8  # seconds of a step for each state, and more for each vector


@kernel
def butterflies(v: FloatArray, weak: FloatArray, low: int, high: int) -> None:
    """Apply [[1, w], [w, 1]] on bits low … high − 1 of the first axis, in place.

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
class Columns:
    """T_k of every column, without their constants, in a gauge."""

    weak: FloatArray  # k i     e^{-2|J|} of the coupling between (k − 1, i) and (k, i)
    flipped: tuple[int, ...]  # k    bits whose coupling to the column before is negative
    diagonal: FloatArray  # k x  log weight of a column by itself, less its largest
    gauge: FloatArray  # k x
    constant: float  # log of what was left out of all T_k

    def step(self, v: FloatArray, k: int) -> FloatArray:
        """T_k v; v is overwritten."""
        v *= np.exp(-self.gauge[k - 1])[:, None]
        v = self._couple(v, k)[self._mirror(k)]
        v *= np.exp(self.diagonal[k] + self.gauge[k])[:, None]
        return v

    def back(self, v: FloatArray, k: int) -> FloatArray:
        """T_kᵀ v; v is overwritten."""
        v *= np.exp(self.diagonal[k] + self.gauge[k])[:, None]
        v = self._couple(v[self._mirror(k)], k)
        v *= np.exp(-self.gauge[k - 1])[:, None]
        return v

    def _couple(self, v: FloatArray, k: int) -> FloatArray:
        width = self.weak.shape[1]
        half = width // 2
        for low, high in ((0, half), (half, width)):
            if high > low:
                butterflies(v, self.weak[k], low, high)
        return v

    def _mirror(self, k: int) -> IntArray:
        """A negative coupling is a positive one to the spin turned over."""
        return np.arange(self.diagonal.shape[1]) ^ self.flipped[k]


@dataclass(frozen=True, eq=False)
class Found:
    """What a number of vectors say."""

    up: FloatArray  # k i  P(spin = +1)
    values: NDArray[Any]  # r  eigenvalues of the product of all T_k in units of their sum, falling
    apart: float  # largest difference between marginals of the last column from either end
    log_z: float

    @property
    def error(self) -> float:
        """What is stated of every marginal."""
        rounding = ROUNDING * float(np.abs(self.values).sum())  # they may cancel each other
        return max(LEFT_OUT * self.apart, LEFT_OUT * float(abs(self.values[-1])), rounding)


def by_transfer(
    model: FactorGraph, spins: IsingArrays | None, budget: Budget, rng: Generator
) -> Marginals | None:
    """Marginals of a ring of columns, `converged` with a stated error; None for all other models.

    None, too, where memory or time are not enough. More vectors are taken until the smallest
    eigenvalue is negligible. `spins` are the model as such, where it is one of spins.
    """
    ring = None if spins is None else ring_of(spins)
    if spins is None or ring is None or ring.spins.shape[1] > WIDEST:
        return None
    deadline = budget.deadline()
    if not fits(ring, FIRST_VECTORS, budget, deadline, gauge=True):
        return None
    best = _best(ring, budget, deadline, rng)
    if best is None or not (error := best.error) <= UNUSABLE:
        return None
    up = np.empty(model.n_variables)
    up[ring.spins] = best.up
    probs = np.stack([1.0 - up, up], 1)
    return Marginals(
        probs,
        Status.CONVERGED,
        best.log_z + spins.constant,
        std_error=np.full_like(probs, error),
        stats={"expected_error": error, "vectors": float(len(best.values))},
        note="transfer operator of a ring of columns",
    )


def _best(ring: Ring, budget: Budget, deadline: Deadline, rng: Generator) -> Found | None:
    """What as many vectors as there is time for say; the gauge shows how fast the machine is."""
    began, vectors = clock.now(), FIRST_VECTORS
    best: Found | None = None
    try:
        columns = gauged(ring, deadline.share(GAUGE_SHARE))
        slow = max((clock.now() - began) / gauge_seconds(ring), 1.0)
        while vectors <= MOST_VECTORS and fits(ring, vectors, budget, deadline, slow):
            best = solved(columns, vectors, deadline, rng)
            if best.error <= SMALL:
                break
            vectors *= 2
    except BudgetError:  # the forecast was too low
        pass
    return best


def fits(
    ring: Ring,
    vectors: int,
    budget: Budget,
    deadline: Deadline,
    slow: float = 1.0,
    gauge: bool = False,
) -> bool:
    """Whether memory and time are forecast to be enough for so many vectors.

    Parameters
    ----------
    slow
        How many times longer than forecast things take.
    gauge
        Whether the gauge is still to be found.
    """
    columns, width = ring.spins.shape
    states = float(2**width)
    # from either side twice, the last time one after the other
    passes = 3 if cores() > 1 else 4
    seconds = columns * states * passes * (STEP + EACH * vectors)
    seconds = slow * (seconds + (gauge_seconds(ring) if gauge else 0.0))
    needed = 8 * columns * states * (4 + vectors) + 6 * 8 * states * vectors
    return seconds <= deadline.left and bool(needed <= budget.table_bytes)


def gauge_seconds(ring: Ring) -> float:
    """Forecast of the gauge: from either side once around and a quarter."""
    columns, width = ring.spins.shape
    sides = 1 if cores() > 1 else 2
    return float(columns * 2**width * sides * 1.25 * (STEP + EACH)) + OVERHEAD


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def columns_of(ring: Ring) -> Columns:
    """T_k of the columns; bit i of a state says whether spin i is up."""
    columns, width = ring.spins.shape
    states = np.arange(1 << width)
    spin = [(2.0 * ((states >> i) & 1) - 1.0) for i in range(width)]
    diagonal = np.zeros((columns, len(states)))
    for k in range(columns):
        for i in range(width):
            diagonal[k] += ring.fields[k, i] * spin[i]
        for i, j, coupling in ring.inner[k]:
            diagonal[k] += coupling * spin[i] * spin[j]
    top = diagonal.max(1)
    diagonal -= top[:, None]
    flipped = ((ring.gaps < 0) << np.arange(width)).sum(1)
    constant = float(top.sum() + np.abs(ring.gaps).sum())
    weak = np.exp(-2 * np.abs(ring.gaps))
    return Columns(weak, tuple(flipped.tolist()), diagonal, np.zeros_like(diagonal), constant)


def gauged(ring: Ring, deadline: Deadline) -> Columns:
    """The columns in the gauge of their positive vectors from either side."""
    plain = columns_of(ring)
    columns, size = plain.diagonal.shape
    right, left = np.empty((2, columns, size))
    warm = columns // 4  # by then little is left of the vector that one began with

    def forward() -> None:
        v = np.ones((size, 1))
        for k in range(-warm, columns):
            v = _in_time(plain.step(v, k % columns), deadline)
            right[k % columns] = v[:, 0]

    def backward() -> None:
        v = np.ones((size, 1))
        for k in reversed(range(columns + warm)):
            left[k % columns] = v[:, 0]
            v = _in_time(plain.back(v, k % columns), deadline)

    _both(forward, backward)
    np.log(np.maximum(left, TINY, out=left), out=left)
    np.log(np.maximum(right, TINY, out=right), out=right)
    gauge = (left - right) / 2
    gauge -= gauge.mean(1, keepdims=True)
    return Columns(plain.weak, plain.flipped, plain.diagonal, gauge, plain.constant)


def solved(columns: Columns, vectors: int, deadline: Deadline, rng: Generator) -> Found:
    """Marginals from so many vectors on either side."""
    count, size = columns.diagonal.shape
    vectors = min(vectors, size)
    q, u = rng.standard_normal((2, size, vectors))
    after = np.empty((count, size, vectors))
    ends: dict[str, FloatArray] = {}
    scale = [columns.constant]

    def forward() -> None:
        basis = np.linalg.qr(_last(_forward(columns, q, deadline)))[0]
        ends["q"] = basis
        v = basis.copy()
        for k in range(count):
            v = columns.step(v, k)
            top = float(np.abs(v).max())
            v /= top
            scale[0] += math.log(top)
            after[k] = _in_time(v, deadline, scaled=True)
        ends["f"] = v

    def backward() -> None:
        ends["u"] = np.linalg.qr(_last(_backward(columns, u, deadline)))[0]

    _both(forward, backward)
    inverse = np.linalg.inv(ends["u"].T @ ends["q"])
    values = np.linalg.eigvals(inverse @ (ends["u"].T @ ends["f"]))
    up = np.empty((count, columns.weak.shape[1]))
    for v, k in zip(
        _backward(columns, ends["u"], deadline), reversed(range(-1, count)), strict=True
    ):
        weight = np.einsum("xa,xa->x", (after[k] if k >= 0 else ends["q"]) @ inverse, v)
        here = np.array([weight.reshape(-1, 2, 1 << i)[:, 1].sum() for i in range(up.shape[1])])
        if k < 0:  # the last column once more
            apart = float(np.abs(here / weight.sum() - up[-1]).max())
        else:
            up[k] = here / weight.sum()
    trace = float(np.real(values.sum()))
    order = np.argsort(-np.abs(values))
    if not trace > 0 or not np.isfinite(up).all():  # the vectors met no common state
        return Found(np.full_like(up, 0.5), np.ones(vectors), 1.0, math.nan)
    return Found(np.clip(up, 0.0, 1.0), values[order] / trace, apart, math.log(trace) + scale[0])


def _forward(columns: Columns, v: FloatArray, deadline: Deadline) -> Iterator[FloatArray]:
    for k in range(len(columns.weak)):
        v = _in_time(columns.step(v, k), deadline)
        yield v


def _backward(columns: Columns, v: FloatArray, deadline: Deadline) -> Iterator[FloatArray]:
    """B_k for k from the last column to the one before the first, v first."""
    for k in reversed(range(len(columns.weak))):
        yield v
        v = _in_time(columns.back(v.copy(), k), deadline)
    yield v


def _last(steps: Iterator[FloatArray]) -> FloatArray:
    for v in steps:
        found = v
    return found


def _in_time(v: FloatArray, deadline: Deadline, scaled: bool = False) -> FloatArray:
    """The vectors, largest entry 1, unless the deadline has passed."""
    if deadline.passed:
        raise BudgetError("no time is left for the columns of this ring")
    if not scaled:
        v /= np.abs(v).max()
    return v


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(first), pool.submit(second)]:
            job.result()
