"""Labelled models as a network is trained on them, drawn from mixtures or read from a set.

What was drawn and labelled once is kept in the cache folder under a hash of how it was made, so
that the seeds of a network, and all networks on equal terms, share it. Drawing and labelling are
jobs of the map (`data/jobs`); an interrupted run goes on with what it had finished.
"""

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icgi.data.families import FAMILIES, read_parameters
from icgi.data.jobs.job import NOTHING, Job, Question
from icgi.data.jobs.manifest import Manifest, whole
from icgi.data.jobs.run import Executor, Serial, arriving, run_jobs
from icgi.errors import EvidenceError, IcgiError, UnsupportedModelError
from icgi.model.condition import condition
from icgi.model.graph import FactorGraph
from icgi.neural.batch import Batch, Factors, Prepared, collate, joined, prepared
from icgi.neural.possible import possible_states
from icgi.train.kinds import Limits
from icgi.train.labels import SWEEPS, WORK, Known, label, label_spins
from icgi.train.mixture import ON_CPU, draw
from icgi.wording import did_you_mean

CHUNK = 128  # models that one worker draws from one stream
FORMAT = 3  # of the stored files; a new one forgets what was stored


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a set of models is made; equal recipes make equal sets."""

    mixture: str
    limits: Limits
    count: int
    seed: int
    sweeps: int = SWEEPS  # of tempering on a device, where models are too large to be summed

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


def made(
    recipe: Recipe,
    pairwise: bool = False,
    executor: Executor | None = None,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Examples:
    """Draw and label a set, or read it where it was made before; the same for any executor.

    Parameters
    ----------
    pairwise
        Whether larger factors become variables, as networks that eliminate need it.
    device
        Where labels are made and the set will be.
    cache
        Folder to keep sets in, and parts of an unfinished one; none are kept if absent.
    """
    pairwise = pairwise and recipe.mixture == "any"  # spins are pairs as they are
    how = "pairs" if pairwise else "factors"
    path = None if cache is None else cache / f"{recipe.digest}-{how}.npz"
    if path is not None and path.exists():
        return read(path).to(device)
    count = -(-recipe.count // CHUNK)
    kept = [] if path is None else [path.with_suffix(f".{c}.part") for c in range(count)]
    spins = str(device).startswith("cuda") and recipe.mixture not in ON_CPU
    settings = {"recipe": recipe, "pairwise": pairwise, "labelled": not spins}
    found = _together(_chunks(settings, count, executor or Serial(), kept))
    found = found.to(device)
    if spins:
        reference, spread = label_spins(found.batch, recipe.sweeps, recipe.seed)
        found = replace(found, reference=reference, spread=spread)
    if path is not None:
        write(path, found.to("cpu"))
        for part in kept:
            part.unlink(missing_ok=True)
    return found


def _chunks(
    settings: dict[str, Any], count: int, executor: Executor, kept: Sequence[Path]
) -> list[Examples]:
    """Chunks 0, 1, … of a set; those in the files are read, the others made and written there."""
    recipe: Recipe = settings["recipe"]
    found: dict[int, Examples] = {}
    for c, path in enumerate(kept):
        with suppress(OSError, ValueError, zipfile.BadZipFile):  # another run may have removed it
            found[c] = read(path)
    todo = []
    for c in range(count):
        if c not in found:
            own = {"number": c, "count": min(CHUNK, recipe.count - CHUNK * c)}
            job = Job(CHUNK_WORK, NOTHING.digest, {**settings, **own}, recipe.digest)
            todo.append((job, NOTHING))
    with closing(arriving(todo, executor)) as incoming:
        for result in chain.from_iterable(incoming):
            if not isinstance(result.value, bytes):
                raise IcgiError(f"models could not be made: {result.record['message']}")
            c = result.job.settings["number"]
            if kept:
                kept[c].parent.mkdir(parents=True, exist_ok=True)
                with whole(kept[c]) as draft:
                    draft.write_bytes(result.value)
            found[c] = read(io.BytesIO(result.value))
    return [found[c] for c in range(count)]


CHUNK_WORK = "icgi.train.examples:chunk"


def chunk(
    question: Question, recipe: Recipe, pairwise: bool, labelled: bool, number: int, count: int
) -> bytes:
    """Work of a job: models that one stream draws, in the form of a file."""
    stream = np.random.SeedSequence(recipe.seed, spawn_key=(number,))
    rng = np.random.default_rng(stream)
    chance = np.random.default_rng(stream.spawn(1)[0])  # of labels alone
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
        known.append(label(model, chance) if labelled else _unknown(model))
        models.append(part)
    file = io.BytesIO()
    _save(file, assembled(models, known, limits.padded, limits.states))
    return file.getvalue()


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


def of_models(models: Sequence[FactorGraph], known: Sequence[Known], pairwise: bool) -> Examples:
    """Examples of given models whose marginals are known."""
    parts = [prepared(m, possible_states(m), pairwise) for m in models]
    n = max(3, *(len(p.unary) for p in parts))
    return assembled(parts, known, n, max(2, *(max(p.cards, default=1) for p in parts)))


def of_sources(
    sources: Sequence[str],
    count: int,
    seed: int,
    network: Any,
    say: Callable[[str], None],
    executor: Executor | None = None,
    cache: Path | None = None,
) -> Examples:
    """Examples from a user's own sources: labelled sets (folders), or families with parameters.

    A family is written as for the command line, `ba:n=40,m=2`; so many models are drawn of each.
    Instances of a set that are there for testing, and models that the network cannot take, are
    left out. Evidence of an instance is entered, as it was for its label.
    """
    rng = np.random.default_rng(seed)
    models: list[FactorGraph] = []
    known: list[Known] = []
    for source in sources:
        if Path(source).is_dir():
            given = _stored(source)
        else:
            given = _drawn(source, count, rng, executor or Serial(), cache)
        taken, why = [], ""
        for model, found in given:
            refusal = refused(network, model)
            why = why or refusal
            if not refusal:
                taken.append((model, found))
        left = f", {len(given) - len(taken)} left out: the network takes {why}" if why else ""
        say(f"{source}: {len(taken)} labelled models{left}")
        if not taken:
            raise IcgiError(
                f"{source}: the network takes {why}, no model of it is such; choose other models "
                "or another network"
                if why
                else f"{source} holds no labelled model to train on; label the set first: icgi "
                "label (instances of the split test are never used)"
            )
        models += [model for model, _ in taken]
        known += [label_ for _, label_ in taken]
    every = of_models(models, known, network.pairwise)
    _, n, k = every.batch.sizes
    arity = max((group.arity for group in every.batch.factors), default=1)
    if why := network.refuse(k**arity, k, n, arity):
        raise IcgiError(
            f"together, padded to {n} variables of {k} states, these models are too large: the "
            f"network takes {why}; train on models of similar size"
        )
    return every


def refused(network: Any, model: FactorGraph) -> str:
    """Why a network cannot be trained on a model, or nothing."""
    try:
        part = prepared(model, possible_states(model), network.pairwise)
    except UnsupportedModelError as error:
        return str(error)
    states, n = max(part.cards, default=1), len(part.unary)
    arity = max((len(scope) for scope, _ in part.factors), default=1)
    found: str = network.refuse(states**arity, states, n, arity)
    return found


def _stored(folder: str) -> list[tuple[FactorGraph, Known]]:
    """Conditioned models of a labelled set and their labels, but for those of the split test."""
    from icgi.data.store import LabelledSet

    found = []
    for each in LabelledSet(folder).stream():
        if each.identity.split == "test":
            continue
        question = condition(each.model, each.identity.evidence)
        model, probs = question.model, each.label.probs
        left = np.arange(model.max_states) < model.cards[:, None]  # n k
        reduced = np.zeros(left.shape)
        reduced[left] = probs[question.alive]  # both masks list states in the same order
        spread = each.label.s_hat
        found.append((model, Known(reduced, np.zeros(len(probs)) if spread is None else spread)))
    return found


def _drawn(
    text: str, count: int, rng: np.random.Generator, executor: Executor, cache: Path | None
) -> list[tuple[FactorGraph, Known]]:
    """Models of a family and their labels, which are kept in the cache as they come."""
    name, _, rest = text.partition(":")
    if name not in FAMILIES:
        near = did_you_mean(name, FAMILIES)
        raise IcgiError(
            f"{text} is neither a folder with a labelled set nor a family{near}; families are: "
            f"{', '.join(FAMILIES)}"
        )
    settings = read_parameters(name, filter(None, rest.split(",")))
    try:
        models = [FAMILIES[name].sample(rng, **settings) for _ in range(count)]
    except (ValueError, OverflowError) as error:
        raise IcgiError(f"{text}: no such model: {error}; choose other parameters") from error
    todo = []
    for k, model in enumerate(models):
        question = Question(f"{text} {k}", model)
        own = {"seed": int(rng.integers(2**62))}
        todo.append((Job(WORK, question.digest, own, text), question, {"name": question.name}))
    with ExitStack() as stack:
        folder = cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        manifest = Manifest(folder / f"labels-{digest}.jsonl")
        run_jobs(todo, manifest, executor, again=True)
        lines = manifest.finished()
    found = [lines[job.key] for job, _, _ in todo]
    for line in found:
        if "probs" not in line:
            raise IcgiError(f"{line['name']} has no label: {line['message']}")
    known = [Known(np.array(line["probs"]), np.array(line["spread"])) for line in found]
    return list(zip(models, known, strict=True))


def _together(parts: Sequence[Examples]) -> Examples:
    rest = (torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Examples)[1:])
    return Examples(joined([p.batch for p in parts]), *rest)


def write(path: Path, found: Examples) -> None:
    """Store a set; half-written files never get its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as draft, draft.open("wb") as file:
        _save(file, found)


def _save(file: BinaryIO, found: Examples) -> None:
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in ("states", "unary", "real", "own"):
        arrays[name] = getattr(found.batch, name).numpy()
    for group in found.batch.factors:
        for name in ("log_tables", "scopes", "start"):
            arrays[f"{name}-{group.arity}"] = getattr(group, name).numpy()
    for name in ("reference", "spread", "asked"):
        arrays[name] = getattr(found, name).numpy()
    np.savez(file, **arrays)  # type: ignore[arg-type]


def read(path: Path | BinaryIO) -> Examples:
    """Read a set that `write` stored."""
    with np.load(path) as stored:
        x = {name: torch.from_numpy(stored[name]) for name in stored.files}
    arities = sorted(int(name.partition("-")[2]) for name in x if name.startswith("start-"))
    factors = tuple(
        Factors(x[f"log_tables-{a}"], x[f"scopes-{a}"], x[f"start-{a}"]) for a in arities
    )
    batch = Batch(x["states"], x["unary"], x["real"], x["own"], factors)
    return Examples(batch, x["reference"], x["spread"], x["asked"])
