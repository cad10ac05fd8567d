"""The set that comes with the package: whole, small, right, and made as its manifest says."""

import json
import zlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi.data.labels import Labelling, label
from icgi.data.sources import RECIPE, recipe
from icgi.data.splits import Role
from icgi.data.store import SHIPPED, LabelledSet
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import Budget
from icgi.sampling.annealing import PopulationAnnealing


@pytest.fixture(scope="module")
def stored() -> LabelledSet:
    return LabelledSet(SHIPPED)


def test_it_is_whole_and_small(stored: LabelledSet) -> None:
    assert stored.verify() == []
    assert len(stored) == len(stored.labelled()) == 10 * len(RECIPE)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2e6
    assert {path.name for path in SHIPPED.iterdir()} == {
        "manifest.json", "models-00000.parquet", "answers-00000.parquet", "marginals-00000.parquet",
    }  # fmt: skip


def test_it_holds_the_models_of_its_recipe(stored: LabelledSet) -> None:
    assert stored.manifest["source"]["source"] == "shipped"
    for (identity, model), (made, drawn) in zip(stored.models(), recipe(), strict=True):
        assert identity == made
        assert model.scopes == drawn.scopes
        for a, b in zip(model.log_tables, drawn.log_tables, strict=True):
            assert_array_equal(a, b)


def test_exact_labels_are_exact(stored: LabelledSet) -> None:
    exact = [item for item in stored if item.label.method == "jt"]
    assert {item.identity.family for item in exact} == {family for family, _ in RECIPE}
    for item in exact[::7]:
        found = zoo.run(JunctionTree(), item.model)
        assert_allclose(item.label.probs, found.probs, atol=1e-10)
        assert item.label.log_z == pytest.approx(found.log_z, abs=1e-9)
        assert item.label.std_error is None


def test_sampled_labels_agree_with_an_independent_sampler(stored: LabelledSet) -> None:
    sampled = [item for item in stored if item.label.method == "pt"]
    assert len(sampled) == 10
    for item in sampled[:2]:
        assert item.label.r_hat < 1.05
        assert item.label.std_error.max() <= 0.005
        assert (item.label.ess > 100).all()
        other = zoo.run(PopulationAnnealing(population=256), item.model, budget=Budget(400))
        error = np.hypot(item.label.std_error, other.std_error)
        assert (np.abs(item.label.probs - other.probs) < 4.5 * error).all()


def test_sampled_labels_can_be_made_again(stored: LabelledSet) -> None:
    how = stored.manifest["labelling"][0]
    item = next(item for item in stored if item.label.method == "pt")
    stream = np.random.default_rng([how["seed"], zlib.crc32(item.identity.name.encode())])
    settings = Labelling(std_error=how["std_error"], seconds=600.0)
    again = label(item.model, settings, stream)
    # to the last bit on one kind of processor; vectors of another length round differently
    error = np.hypot(again.std_error, item.label.std_error)
    assert (np.abs(again.probs - item.label.probs) < 4.5 * error).all()


def test_topologies_of_the_test_are_not_for_training(stored: LabelledSet) -> None:
    kept = {Role.OOD.value}
    for identity in stored.identities():
        assert (identity.split in kept) == (identity.family in ("ba", "ws"))


def test_streams_by_split(stored: LabelledSet) -> None:
    counts = {role.value: sum(1 for _ in stored.stream(role.value)) for role in Role}
    assert counts["train"] == 70
    assert sum(counts.values()) == 120


def test_data_info_knows_it(stored: LabelledSet, tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from icgi.cli import app

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["data", "info", "shipped", "--json"])
    assert sum(group["labelled"] for group in json.loads(result.stdout)["groups"]) == 120
