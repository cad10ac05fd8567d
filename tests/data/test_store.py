import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zoo
from icgi.data import store
from icgi.data.store import Identity, Label, LabelledSet
from icgi.errors import IcgiError, ModelFormatError


def zoo_set(folder) -> LabelledSet:
    rows = (
        (Identity(name, "zoo", "train" if k % 2 else "test", {"k": k}, {0: 0}), model)
        for k, (name, model) in enumerate(zoo.MODELS.items())
    )
    return LabelledSet.create(folder, rows, "the zoo", {"seed": 1})


def some_label(name: str, sampled: bool = False) -> Label:
    probs = zoo.exact(name).probs
    if not sampled:
        return Label(probs, "jt", 1.5, seconds=0.1)
    error = np.full(probs.shape, 0.01)
    return Label(probs, "pt", None, error, error[:, 0], 0.2, 1.01, 2.0, {"tap": 0.3})


def test_models_come_back_as_they_were(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    assert len(stored) == len(zoo.MODELS)
    for (identity, model), (name, given) in zip(stored.models(), zoo.MODELS.items(), strict=True):
        assert identity.name == name
        assert identity.evidence == {0: 0}
        assert model.scopes == given.scopes
        assert_array_equal(model.cards, given.cards)
        for a, b in zip(model.log_tables, given.log_tables, strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("compacted", [True, False])
def test_labels_come_back_as_they_were(tmp_path, compacted: bool) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    stored.append("zeros", some_label("zeros", sampled=True))
    if compacted:
        stored.compact()
        assert not (tmp_path / "set" / "pending.jsonl").exists()
    back = {item.identity.name: item.label for item in LabelledSet(tmp_path / "set")}
    assert list(back) == ["chain", "zeros"]
    assert_array_equal(back["chain"].probs, zoo.exact("chain").probs)
    assert back["chain"].std_error is None
    assert back["zeros"].log_z is None
    assert back["zeros"].checks == {"tap": 0.3}
    assert back["zeros"].std_error is not None
    assert back["zeros"].std_error.max() == 0.01
    assert [i.identity.name for i in LabelledSet(tmp_path / "set").stream("test")] == ["chain"] * (
        list(zoo.MODELS).index("chain") % 2 == 0
    ) + ["zeros"] * (list(zoo.MODELS).index("zeros") % 2 == 0)


def test_an_interrupted_line_is_lost_and_nothing_else(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    stored.append("tree", some_label("tree"))
    pending = tmp_path / "set" / "pending.jsonl"
    pending.write_text(pending.read_text()[:-40])
    assert LabelledSet(tmp_path / "set").labelled() == {"chain"}


def test_shards_already_written_are_not_doubled(tmp_path) -> None:
    """Killed between writing the manifest and removing the pending file: no answer twice."""
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    text = (tmp_path / "set" / "pending.jsonl").read_text()
    stored.compact()
    (tmp_path / "set" / "pending.jsonl").write_text(text)
    again = LabelledSet(tmp_path / "set")
    assert len(again.answers()) == 1
    again.compact()
    assert len(LabelledSet(tmp_path / "set").answers()) == 1


def test_damage_is_found(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    stored.compact()
    assert stored.verify() == []
    shard = tmp_path / "set" / "answers-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-8])
    assert stored.verify() == ["answers-00000.parquet"]
    with pytest.raises(ModelFormatError, match="answers-00000"):
        stored.answers()


def test_what_is_not_a_set_is_explained(tmp_path) -> None:
    with pytest.raises(ModelFormatError, match=r"no manifest\.json"):
        LabelledSet(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ModelFormatError, match="not JSON"):
        LabelledSet(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ModelFormatError, match="format 99"):
        LabelledSet(tmp_path)


def test_names_identify_and_sets_are_not_overwritten(tmp_path) -> None:
    twice = [(Identity("a", "f"), zoo.MODELS["chain"])] * 2
    with pytest.raises(IcgiError, match="two instances"):
        LabelledSet.create(tmp_path / "x", twice, "")
    zoo_set(tmp_path / "set")
    with pytest.raises(IcgiError, match="already"):
        zoo_set(tmp_path / "set")


def test_pandas_reads_the_shards(tmp_path) -> None:
    import pandas as pd

    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    stored.compact()
    frame = pd.read_parquet(tmp_path / "set" / "marginals-00000.parquet")
    assert list(frame["variable"]) == list(range(6))
    assert frame["probs"][0].sum() == pytest.approx(1.0)


def test_shards_are_streamed_in_the_order_of_the_models(tmp_path, monkeypatch) -> None:
    """Labels come in any order, over many shards, and are kept for a few shards at a time."""
    monkeypatch.setattr(store, "SHARD", 3)
    monkeypatch.setattr(store, "KEPT", 1)
    stored = zoo_set(tmp_path / "set")
    assert len(stored.manifest["models"]) == -(-len(zoo.MODELS) // 3)
    names = list(zoo.MODELS)
    for k, name in enumerate(reversed(names[1:])):
        stored.append(name, some_label(name, sampled=k % 2 == 0))
        if k % 4 == 3:
            stored.compact()
    assert len(stored.manifest["answers"]) >= 3
    back = list(LabelledSet(tmp_path / "set"))
    assert [item.identity.name for item in back] == names[1:]
    for item in back:
        assert_array_equal(item.label.probs, zoo.exact(item.identity.name).probs)
        assert (item.label.std_error is None) == (item.label.method == "jt")
    assert [identity.name for identity in stored.identities()] == names


def test_large_models_get_shards_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store, "NUMBERS", 1)
    stored = zoo_set(tmp_path / "set")
    with_tables = [model for model in zoo.MODELS.values() if model.n_factors]
    assert len(stored.manifest["models"]) >= len(with_tables)
    assert [identity.name for identity, _ in stored.models()] == list(zoo.MODELS)


def test_how_labels_are_made_is_noted_once(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    for seed in (1, 1, 2):
        stored.note_labelling({"seed": seed})
    assert [e["seed"] for e in LabelledSet(tmp_path / "set").manifest["labelling"]] == [1, 2]
