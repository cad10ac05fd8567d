"""Labelled models as a network is trained on them, drawn from mixtures or read from a set.

What was drawn and labelled once is kept in the cache folder under a hash of how it was made, so
that the seeds of a network, and all networks on equal terms, share it.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icgi.data.families import FAMILIES
from icgi.errors import EvidenceError, IcgiError
from icgi.model.graph import FactorGraph, FloatArray
from icgi.neural.batch import Batch, Factors, Prepared, collate, joined, prepared
from icgi.neural.possible import possible_states
from icgi.train.kinds import Limits
from icgi.train.labels import Known, label, label_spins
from icgi.train.mixture import draw

CHUNK = 128  # models that one worker draws from one stream
FORMAT = 1  # of the stored files; a new one forgets what was stored


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a set of models is made; equal recipes make equal sets."""

    mixture: str
    limits: Limits
    count: int
    seed: int
    sweeps: int = 3000  # of tempering on a device, where models are too large to be summed

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal characters that identify the set."""
        text = f"{FORMAT} {sorted(asdict(self).items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Models with reference marginals."""

    batch: Batch
    reference: Tensor  # b n k    over possible states; one at state 0 for padding
    spread: Tensor  # b n    ŝ
    asked: Tensor  # b n    1 for variables that count: the models' own

    def __len__(self) -> int:
        return len(self.reference)

    def __getitem__(self, index: Tensor | slice) -> "Examples":
        return Examples(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, device: torch.device | str) -> "Examples":
        """Same models elsewhere."""
        return Examples(*(getattr(self, f.name).to(device) for f in fields(self)))


@contextmanager
def workers(count: int) -> Iterator[Executor | None]:
    """Pool of so many processes; none for one, and the caller does the work itself."""
    if count <= 1:
        yield None
        return
    # spawned, not forked: the parent may hold a CUDA context already
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        yield pool


def made(
    recipe: Recipe,
    pairwise: bool = False,
    pool: Executor | None = None,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Examples:
    """Draw and label a set, or read it where it was made before; the same for any pool.

    Parameters
    ----------
    pairwise
        Whether larger factors become variables, as networks that eliminate need it.
    device
        Where labels are made and the set will be.
    cache
        Folder to keep sets in; none are kept if absent.
    """
    pairwise = pairwise and recipe.mixture == "any"  # spins are pairs as they are
    how = "pairs" if pairwise else "factors"
    path = None if cache is None else cache / f"{recipe.digest}-{how}.npz"
    if path is not None and path.exists():
        return _read(path).to(device)
    streams = np.random.SeedSequence(recipe.seed).spawn(-(-recipe.count // CHUNK))
    counts = [min(CHUNK, recipe.count - CHUNK * c) for c in range(len(streams))]
    spins = str(device).startswith("cuda") and recipe.mixture != "any"
    work = partial(_chunk, recipe, pairwise, not spins)
    found = _together(list((map if pool is None else pool.map)(work, streams, counts)))
    found = found.to(device)
    if spins:
        reference, spread = label_spins(found.batch, recipe.sweeps, recipe.seed)
        found = replace(found, reference=reference, spread=spread)
    if path is not None:
        _write(path, found.to("cpu"))
    return found


def _chunk(
    recipe: Recipe, pairwise: bool, labelled: bool, stream: np.random.SeedSequence, count: int
) -> Examples:
    rng = np.random.default_rng(stream)
    limits = recipe.limits
    models: list[Prepared] = []
    known: list[Known] = []
    while len(models) < count:
        model = draw(rng, recipe.mixture, limits)
        try:
            part = prepared(model, possible_states(model), pairwise)
        except EvidenceError:
            continue  # constraints that nothing satisfies
        if len(part.unary) > limits.padded or max(part.cards) > limits.states:
            continue
        known.append(label(model, rng) if labelled else _unknown(model))
        models.append(part)
    return assembled(models, known, limits.padded, limits.states)


def _unknown(model: FactorGraph) -> Known:
    return Known(np.zeros((model.n_variables, model.max_states)), np.zeros(model.n_variables))


def assembled(
    models: Sequence[Prepared], known: Sequence[Known], variables: int, states: int
) -> Examples:
    """Examples of models and what is known of them."""
    batch = collate(models, variables, states)
    reference = np.zeros(batch.sizes, np.float32)
    reference[:, :, 0] = 1.0
    spread = np.zeros(batch.sizes[:2], np.float32)
    for b, (model, found) in enumerate(zip(models, known, strict=True)):
        for i, alive in enumerate(model.alive):
            reference[b, i] = 0.0
            reference[b, i, : alive.sum()] = found.probs[i, alive]
        spread[b, : len(found.spread)] = found.spread
    return Examples(batch, torch.from_numpy(reference), torch.from_numpy(spread), batch.own)


def of_models(
    models: Sequence[FactorGraph], references: Sequence[FloatArray], pairwise: bool
) -> Examples:
    """Examples of given models whose marginals are known."""
    parts = [prepared(m, possible_states(m), pairwise) for m in models]
    known = [Known(p, np.zeros(len(p))) for p in references]
    n = max(3, *(len(p.unary) for p in parts))
    return assembled(parts, known, n, max(2, *(max(p.cards) for p in parts)))


def of_sources(
    sources: Sequence[str], count: int, seed: int, pairwise: bool, say: Callable[[str], None]
) -> Examples:
    """Examples from a user's own sources: labelled sets (folders), or families with parameters.

    A family is written as for the command line, `ba:n=40,m=2`; so many models are drawn of each.
    """
    rng = np.random.default_rng(seed)
    models: list[FactorGraph] = []
    probs: list[FloatArray] = []
    for source in sources:
        if Path(source).is_dir():
            from icgi.data.store import LabelledSet

            stored = LabelledSet(source)
            pairs = [(each.model, each.label.probs) for each in stored.stream() if each.label]
        else:
            sample = _family(source)
            drawn = [sample(rng) for _ in range(count)]
            pairs = [(model, label(model, rng).probs) for model in drawn]
        say(f"{source}: {len(pairs)} labelled models")
        models += [model for model, _ in pairs]
        probs += [p for _, p in pairs]
    if not models:
        raise IcgiError("the given sources hold no labelled model; label the set first: icgi label")
    return of_models(models, probs, pairwise)


def _family(text: str) -> Callable[[np.random.Generator], FactorGraph]:
    name, _, rest = text.partition(":")
    if name not in FAMILIES:
        raise IcgiError(
            f"{text} is neither a folder with a labelled set nor a family; families are: "
            f"{', '.join(FAMILIES)}"
        )
    family = FAMILIES[name]
    values: dict[str, int | float | str | bool] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in family.parameters:
            raise IcgiError(
                f"family {name} has no parameter {key!r}; it has: {', '.join(family.parameters)}"
            )
        values[key] = type(family.parameters[key])(value)
    return partial(family.sample, **values)


def _together(parts: Sequence[Examples]) -> Examples:
    rest = (torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Examples)[1:])
    return Examples(joined([p.batch for p in parts]), *rest)


def _write(path: Path, found: Examples) -> None:
    """Store a set; half-written files never get its name."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in ("states", "unary", "real", "own"):
        arrays[name] = getattr(found.batch, name).numpy()
    for group in found.batch.factors:
        for name in ("log_tables", "scopes", "start"):
            arrays[f"{name}-{group.arity}"] = getattr(group, name).numpy()
    for name in ("reference", "spread", "asked"):
        arrays[name] = getattr(found, name).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    part.replace(path)


def _read(path: Path) -> Examples:
    with np.load(path) as stored:
        x = {name: torch.from_numpy(stored[name]) for name in stored.files}
    arities = sorted(int(name.partition("-")[2]) for name in x if name.startswith("start-"))
    factors = tuple(
        Factors(x[f"log_tables-{a}"], x[f"scopes-{a}"], x[f"start-{a}"]) for a in arities
    )
    batch = Batch(x["states"], x["unary"], x["real"], x["own"], factors)
    return Examples(batch, x["reference"], x["spread"], x["asked"])
