"""`icgi warm`: compile what the engines need, so that no later answer waits for it."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options
from icgi.cli.progress import Progress
from icgi.errors import IcgiError
from icgi.units import readable_seconds
from icgi.wording import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from icgi.model.graph import FactorGraph

# The longest first, so that no process is left alone with one of them, but those that need the same
# functions not at the same time: each process would compile them.
TASKS: dict[str, str] = {
    "exact": "reading, evidence, orders, junction trees",
    "pt": "parallel tempering",
    "gbp": "generalised propagation",
    "structure": "sums of few products, copies, symmetry, decisions",
    "ttve": "tensor trains",
    "lbp": "propagation, plain, reweighted and by residuals",
    "mf": "mean field, TAP",
    "pa": "population annealing",
    "queries": "joints, explanations, draws",
    "batch": "many models at once",
}


def run(
    only: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help=f"Only these of: {', '.join(TASKS)}."),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Side by side.", show_default="processors")
    ] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    quiet: options.Quiet = False,
) -> None:
    """Compile all engines once, after an installation, instead of when each is first asked for."""
    for name in only or ():
        if name not in TASKS:
            near = did_you_mean(name, TASKS)
            raise IcgiError(f"unknown part {name!r}{near}; there are: {', '.join(TASKS)}")
    from multiprocessing import get_context

    from icgi.kernels import cache_folder

    began = time.perf_counter()
    chosen = [name for name in TASKS if not only or name in only]
    failed: dict[str, str] = {}
    with (
        ProcessPoolExecutor(min(processes, len(chosen)), get_context("spawn")) as pool,
        Progress(len(chosen), "compiling", quiet) as progress,
    ):
        waiting: dict[Future[float], str] = {pool.submit(prepare, name): name for name in chosen}
        for done in as_completed(waiting):
            name = waiting[done]
            try:
                done.result()
            except Exception as error:  # what is left is compiled when it is asked for
                failed[name] = f"{type(error).__name__}: {error}"
            progress.done()
    seconds = readable_seconds(time.perf_counter() - began)
    if not quiet:
        typer.echo(f"{len(chosen) - len(failed)} parts compiled in {seconds}, in {cache_folder()}")
    if failed:
        raise IcgiError(
            "; ".join(f"{name} was not compiled ({why})" for name, why in failed.items())
        )


def prepare(name: str) -> float:
    """Answer small models, so that everything one part needs lies compiled on the disk; seconds."""
    from icgi.kernels import never_interpret

    began = time.perf_counter()
    never_interpret()
    gc.disable()  # a tenth of the time would go into looking for garbage that is not there
    try:
        for work in _work(name):
            with suppress(IcgiError):  # an engine that does not do this kind of model
                work()
    finally:
        gc.enable()
        gc.collect()
    return time.perf_counter() - began


def _work(name: str) -> Iterator[Callable[[], object]]:
    """What to run for one part."""
    import numpy as np

    from icgi.engines import parse_engine
    from icgi.inference import Budget

    rng = np.random.default_rng(0)
    budget = Budget(iterations=4, seconds=5.0)
    spins, mixed = _spins(rng, 4, 4), _mixed(rng)
    if name == "exact":
        yield lambda: _from_files(rng)
        for text in ("jt", "jt:arithmetic=log", "auto"):
            for model in (mixed, _spins(rng, 17, 14), _wide(rng)):
                yield partial(_marginals, model, text)
        yield lambda: _torus(rng)
    elif name == "structure":
        yield lambda: _structure(rng)
    elif name == "queries":
        yield lambda: _queries(mixed)
    elif name == "batch":
        yield lambda: _batch(rng)
    else:
        texts = {
            "lbp": ("lbp", "lbp:schedule=residual", "lbp:damping=0.5,restarts=0", "trbp"),
            "mf": ("mf", "tap"),
            "gbp": ("gbp", "gbp:regions=join-graph"),
            "ttve": ("ttve:exact_entries=16", "ttve:exact_entries=16,rank=4"),
        }.get(name, (name,))
        for text in texts:
            for model in (spins, mixed, _spins(rng, 9, 9) if name == "ttve" else spins):
                yield partial(parse_engine(text), model, budget, rng)


def _marginals(model: "FactorGraph", engine: str) -> None:
    from icgi.api import marginals
    from icgi.inference import Budget

    marginals(model, {0: 1}, engine, Budget(seconds=5.0))


def _torus(rng: "np.random.Generator") -> None:
    from icgi.data.families import FAMILIES
    from icgi.exact.transfer import by_transfer
    from icgi.inference import Budget
    from icgi.model.ising import as_ising

    torus = FAMILIES["ea2d"].sample(rng, L=5, periodic=True)
    by_transfer(torus, as_ising(torus), Budget(seconds=5.0), rng)


def _spins(rng: "np.random.Generator", rows: int, columns: int) -> "FactorGraph":
    """Random spin glass on a grid."""
    import numpy as np

    from icgi.model.ising import ising_model

    number = np.arange(rows * columns).reshape(rows, columns)
    edges = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], 1),
            np.stack([number[:-1].ravel(), number[1:].ravel()], 1),
        ]
    )
    fields = rng.normal(size=rows * columns)
    return ising_model((edges, rng.normal(size=len(edges))), fields)


def _mixed(rng: "np.random.Generator") -> "FactorGraph":
    """Variables of two to four states, factors of one to three of them, and a zero."""
    import numpy as np

    from icgi.api import from_factors

    cards = [2, 3, 4, 2, 3, 2, 4, 3]
    scopes = [(i,) for i in range(8)] + [(i, i + 1) for i in range(7)] + [(0, 2, 5), (1, 4, 7)]
    tables = [rng.random([cards[i] for i in scope]) + 0.1 for scope in scopes]
    tables[8] = np.where(np.eye(2, 3) > 0, 0.0, tables[8])
    return from_factors(zip(scopes, tables, strict=True))


def _wide(rng: "np.random.Generator") -> "FactorGraph":
    """Cliques that are swept in blocks: each of fifteen variables is joined with all others."""
    from icgi.api import from_factors

    pairs = [(i, j) for i in range(15) for j in range(i)]
    return from_factors([(pair, rng.random((2, 2)) + 0.1) for pair in pairs])


def _from_files(rng: "np.random.Generator") -> None:
    """Files are read and written, and an answer is asked for at the command line."""
    import tempfile
    from pathlib import Path

    from icgi.api import load, load_evidence, save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.uai"
        save(_mixed(rng), path)
        Path(folder, "model.uai.evid").write_text("1 0 1\n")
        _marginals(load(path), "exact")
        load_evidence(Path(folder, "model.uai.evid"))


def _structure(rng: "np.random.Generator") -> None:
    """A noisy-or network too wide for its tables, and one of interchangeable variables."""
    import numpy as np

    from icgi.api import from_factors

    causes, findings, parents = 24, 22, 8
    factors: list[tuple[tuple[int, ...], np.ndarray]] = []
    factors += [((i,), np.array([0.8, 0.2])) for i in range(causes)]
    for f in range(findings):
        chosen = rng.choice(causes, parents, replace=False)
        off = np.ones((2,) * parents) * 0.9
        for axis in range(parents):
            shape = [1] * parents
            shape[axis] = 2
            off = off * np.array([1.0, rng.uniform(0.2, 0.8)]).reshape(shape)
        scope = (*map(int, chosen), causes + f)
        factors.append((scope, np.stack([off, 1.0 - off], -1)))
    model = from_factors(factors)
    _marginals(model, "exact")
    pairs = [((i, j), np.array([[1.0, 0.5], [0.5, 1.0]])) for i in range(40) for j in range(i)]
    _marginals(from_factors(pairs), "exact")
    from icgi.clock import Deadline
    from icgi.exact.decisions import decide
    from icgi.model.ordering import find_order

    small = _mixed(rng)
    made = decide(small, find_order(small, rng), Deadline(), 2.0**30)
    if made is not None:
        made.marginals()


def _queries(model: "FactorGraph") -> None:
    import icgi

    icgi.mpe(model)
    icgi.sample(model, 4)
    icgi.marginals(model, engine="jt").joint(0, 3)


def _batch(rng: "np.random.Generator") -> None:
    from icgi.api import marginals_batch

    models = [_spins(rng, 3, 3) for _ in range(4)]
    for engine in ("jt", "lbp", "mf"):
        marginals_batch(models, engine=engine)
    marginals_batch(models[0], [{0: 0}, {1: 0}], engine="jt")
