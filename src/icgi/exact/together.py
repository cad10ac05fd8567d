"""Junction trees of many models of one graph: one order and one layout, then compiled code only."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from icgi.arrays import ManyMarginals, PairwiseBatch
from icgi.errors import BudgetError
from icgi.exact import passes
from icgi.exact.forecast import Forecast
from icgi.exact.junction_tree import run
from icgi.exact.tree import LARGE, Plan, load_tables, plan
from icgi.inference import Budget, Status
from icgi.kernels import kernel
from icgi.model.graph import BoolArray, FloatArray
from icgi.units import readable_seconds

CHUNK = 256  # models between two looks at the clock


def together(
    batch: PairwiseBatch, ahead: Forecast, budget: Budget, threads: int | None = None
) -> ManyMarginals:
    """Exact answers along the order of a forecast of one of the models.

    Models whose numbers leave the range of linear arithmetic, and all of them where a table is too
    large to be formed at once, are answered one by one, along the same order.
    """
    seconds = ahead.seconds * len(batch)
    replace(ahead, seconds=seconds).refuse_beyond(budget)
    made = ahead.plan or plan(batch.model(0), ahead.order.variables)
    count, n, k = len(batch), batch.n_variables, batch.n_states
    mass, log_z = np.zeros((count, n, k)), np.empty(count)
    done = np.zeros(count, np.bool_)
    deadline = budget.deadline()
    if made.largest_clique <= LARGE:
        with deadline.flag() as stop, ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            cuts = range(0, count, CHUNK)
            for _ in pool.map(
                lambda a: _chunk(batch, made, a, min(a + CHUNK, count), mass, log_z, done, stop),
                cuts,
            ):
                pass
    probs = np.empty_like(mass)
    probs[:, ahead.order.variables] = mass
    for m in np.flatnonzero(~done).tolist():
        if deadline.passed:
            raise BudgetError(
                f"{count} models were not done within {readable_seconds(budget.seconds)}; give "
                "more seconds, or use lbp"
            )
        alone = run(batch.model(m), replace(ahead, plan=made), budget.until(deadline))
        probs[m], log_z[m] = alone.probs, math.nan if alone.log_z is None else alone.log_z
    stats = {"width": np.full(count, float(ahead.order.width))}
    return ManyMarginals(probs, log_z, (Status.EXACT,) * count, stats)


def _chunk(
    batch: PairwiseBatch,
    made: Plan,
    first: int,
    last: int,
    mass: FloatArray,
    log_z: FloatArray,
    done: BoolArray,
    stop: np.ndarray,
) -> None:
    w = batch.wiring()
    _solve(
        made.tree, made.time, made.factor_data, w.cards, w.scope_start, w.scope, w.table_start,
        batch.values[first:last], made.store_entries, made.scratch_entries,
        mass[first:last], log_z[first:last], done[first:last], stop,
    )  # fmt: skip


@kernel
def _solve(  # type: ignore[no-untyped-def]
    tree, time, factor_data, cards, scope_start, scope, table_start, values,
    store_entries, scratch_entries, mass, log_z, done, stop,
):  # fmt: skip
    """Both passes for every model; models whose digits may be lost are left undone."""
    store = np.empty(store_entries)
    for m in range(len(values)):
        shift = load_tables(
            cards, time, scope_start, scope, table_start, values[m], factor_data, store, False
        )
        found = passes.solve(tree, store, scratch_entries, mass[m], stop)
        if np.isnan(found):
            continue
        for i in range(mass.shape[1]):
            mass[m, i] /= mass[m, i].sum()
        log_z[m] = shift + found
        done[m] = True
