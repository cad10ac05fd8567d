"""Training models: the same on any worker and from the cache, with the labels of enumeration."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import zoo
from icgi.data.families import FAMILIES
from icgi.data.jobs.job import Bundle, Question, Result
from icgi.data.jobs.processes import Processes
from icgi.data.jobs.run import Serial
from icgi.data.labels import Labelling, label_set
from icgi.data.records import Identity
from icgi.data.store import LabelledSet
from icgi.errors import IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.model.graph import FactorGraph
from icgi.neural.batch import spins_of
from icgi.neural.closed_form import enumerate_core
from icgi.train import examples, labels, mixture
from icgi.train.config import tiny
from icgi.train.examples import Examples, Recipe, made, of_sources
from icgi.train.kinds import Limits
from icgi.train.mixture import MIXTURES, TRAINING_BETA, draw
from icgi.train.task import Task

SMALL = Limits(6, 8)
FEW = Limits(5, 6, fewest=2, most=3, ternary=2, variables=12, states=4)


def same(a: Examples, b: Examples) -> bool:
    pairs = [(getattr(a, n), getattr(b, n)) for n in ("reference", "spread", "asked")]
    pairs += [(getattr(a.batch, f.name), getattr(b.batch, f.name)) for f in fields(a.batch)[:4]]
    for x, y in zip(a.batch.factors, b.batch.factors, strict=True):
        pairs += [(getattr(x, f.name), getattr(y, f.name)) for f in fields(x)]
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("name", ["training", "any"])
def test_a_recipe_makes_the_same_on_any_worker_and_from_the_cache(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "CHUNK", 4)
    recipe = Recipe(name, FEW if name == "any" else SMALL, 10, 7)
    first = made(recipe)
    assert same(made(recipe, executor=Processes(2), cache=tmp_path), first)
    monkeypatch.setattr(examples, "draw", None)  # nothing is drawn a second time
    assert same(made(recipe, cache=tmp_path), first)
    assert len(list(tmp_path.iterdir())) == 1  # parts are gone
    monkeypatch.undo()
    assert not same(made(replace(recipe, seed=8)), first)


class Stopped:
    """Executor that is interrupted after so many results."""

    def __init__(self, after: int) -> None:
        self.left = after

    def results(self, bundles: Iterator[Bundle]) -> Iterator[list[Result]]:
        for results in Serial().results(bundles):
            yield results[: self.left]
            self.left -= len(results)
            if self.left <= 0:
                raise KeyboardInterrupt


def test_an_interrupted_set_goes_on_with_the_chunks_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "CHUNK", 4)
    recipe = Recipe("training", SMALL, 10, 7)
    with pytest.raises(KeyboardInterrupt):
        made(recipe, executor=Stopped(2), cache=tmp_path)
    asked: list[int] = []
    work = examples.chunk

    def counted(question: Question, **settings: Any) -> bytes:
        asked.append(settings["number"])
        return work(question, **settings)

    monkeypatch.setattr(examples, "chunk", counted)
    found = made(recipe, cache=tmp_path)
    assert asked == [2]
    assert same(found, made(recipe))


def test_labels_of_a_family_are_kept_as_they_come(tmp_path: Path) -> None:
    class Everything:
        pairwise = False

        def refuse(self, *sizes: int) -> str:
            return ""

    sources, ask = ["er:n=8,p=0.3"], (6, 3, Everything(), lambda text: None)
    first = of_sources(sources, *ask)
    with pytest.raises(KeyboardInterrupt):
        of_sources(sources, *ask, executor=Stopped(2), cache=tmp_path)
    (file,) = tmp_path.glob("labels-*.jsonl")
    before = file.read_text().splitlines()
    assert 0 < len(before) < 6
    assert same(of_sources(sources, *ask, executor=Processes(1), cache=tmp_path), first)
    after = file.read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 6


def test_models_do_not_depend_on_who_labels_them(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("wide", SMALL, 12, 3)
    first = made(recipe)

    def greedy(model: FactorGraph, rng: np.random.Generator) -> labels.Known:
        rng.random(100)
        return labels.Known(np.full((model.n_variables, 2), 0.5), np.zeros(model.n_variables))

    monkeypatch.setattr(examples, "label", greedy)
    other = made(recipe)
    assert torch.equal(first.batch.unary, other.batch.unary)
    assert torch.equal(first.batch.factors[0].log_tables, other.batch.factors[0].log_tables)


def test_dense_spins_are_summed_where_a_junction_tree_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    model = FAMILIES["sk"].sample(rng, n=9, beta=1.5, h=0.5)
    monkeypatch.setattr(labels, "LARGEST_TABLE", 3.0)
    found = labels.label(model, rng)
    assert_allclose(found.probs, zoo.run(Enumerate(), model).probs, atol=1e-6)
    assert not found.spread.any()


def test_labels_are_those_of_enumeration() -> None:
    found = made(Recipe("wide", SMALL, 12, 3))
    spins = spins_of(found.batch)
    mean, *_ = enumerate_core(spins.couplings.double(), spins.fields.double())
    asked = found.asked > 0
    assert_allclose(found.reference[..., 0][asked], 0.5 * (1 + mean)[asked], atol=1e-5)
    assert (found.spread == 0).all()
    assert (found.reference[~asked] == torch.tensor([1.0, 0.0])).all()


@pytest.mark.parametrize("name", MIXTURES)
def test_test_families_are_in_no_mixture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        pytest.fail("a family of the test sets was drawn")

    known = dict(mixture.FAMILIES)
    monkeypatch.setattr(
        mixture,
        "FAMILIES",
        {k: replace(v, sample=forbidden) if k in ("ba", "ws") else v for k, v in known.items()},
    )
    rng = np.random.default_rng(0)
    limits = FEW if name == "any" else SMALL
    assert all(draw(rng, name, limits).n_variables for _ in range(60))


def test_spin_glasses_of_the_training_mixture_are_no_colder_than_the_papers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    betas: dict[str, list[float]] = {"_sk": [], "_cube": [], "_er": []}

    def noted(name: str) -> mixture.Draw:
        def make(rng, limits, beta, field):  # type: ignore[no-untyped-def]
            betas[name].append(beta)
            return zoo.MODELS["loop"]

        return make

    for name in betas:
        replaced, make = getattr(mixture, name), noted(name)
        monkeypatch.setattr(mixture, name, make)
        kept = tuple(make if f is replaced else f for f in mixture._TRAINING)
        monkeypatch.setattr(mixture, "_TRAINING", kept)
    rng = np.random.default_rng(0)
    for _ in range(300):
        mixture._spins(mixture._TRAINING, rng, Limits(8, 10, 2.5))
    assert all(betas.values())
    assert max(betas["_sk"] + betas["_cube"]) <= TRAINING_BETA < max(betas["_er"])


def network(name: str = "bpnn"):  # type: ignore[no-untyped-def]
    return Task(tiny(name), [made(Recipe("wide", SMALL, 1, 0))], []).network()


def test_families_and_labelled_sets_are_sources(tmp_path: Path) -> None:
    names = ["loop", "mixed-cards", "zeros"]
    instances = [
        (Identity("loop", "zoo", evidence={0: 1}), zoo.MODELS["loop"]),
        (Identity("mixed-cards", "zoo", evidence={1: 3}), zoo.MODELS["mixed-cards"]),
        (Identity("zeros", "zoo"), zoo.MODELS["zeros"]),
        (Identity("hidden", "zoo", split="test"), zoo.MODELS["grid-3x3"]),
    ]
    stored = LabelledSet.create(tmp_path / "set", instances, "evidence")
    label_set(stored, Labelling())
    lines: list[str] = []
    found = of_sources([str(tmp_path / "set"), "er:n=6,p=0.4"], 2, 0, network(), lines.append)
    assert len(found) == 5
    assert "3 labelled models" in lines[0]
    for b, name in enumerate(names):  # in the order of the set
        model, evidence = zoo.MODELS[name], instances[b][0].evidence
        exact = zoo.run(Enumerate(), model, evidence=evidence).probs
        for i in range(model.n_variables):
            p = exact[i][exact[i] > 0]
            assert_allclose(found.reference[b, i, : len(p)], p, atol=1e-5)
            assert found.batch.states[b, i].sum() == len(p)


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        ("nothing", "bpnn", "neither a folder with a labelled set nor a family"),
        ("er:n=x", "bpnn", "should be a whole number"),
        ("er:m=2", "bpnn", "does not understand 'm=2'"),
        ("ba:n=3,m=9", "bpnn", "m is at least 1"),
        ("potts:L=3", "fast", "the network takes two states"),
    ],
)
def test_bad_sources_are_explained(source: str, name: str, words: str) -> None:
    with pytest.raises(IcgiError, match=words):
        of_sources([source], 2, 0, network(name), print)
