import errno
import json
import os
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zoo
from icgi.data import lock, pending, store
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
    assert stored.verify() == ["answers-00000.parquet: differs from the hash in the manifest"]
    with pytest.raises(ModelFormatError, match="answers-00000"):
        stored.answers()


def rewritten(folder, **changes) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_doubled_labels_are_found(tmp_path) -> None:
    """What two writers at once used to leave behind: every row twice, in one file or in two."""
    folder = tmp_path / "set"
    stored = zoo_set(folder)
    for name in ("chain", "tree"):
        stored.append(name, some_label(name))
    stored.compact()
    answers, marginals = (
        stored.table(kind, stored.manifest[kind][0]["file"]).to_pylist()
        for kind in ("answers", "marginals")
    )
    shards = {
        "answers": [store._write_shard(folder, "answers", 0, answers + answers[:1])],
        "marginals": [store._write_shard(folder, "marginals", 0, marginals + marginals[:6])],
    }
    rewritten(folder, **shards)
    assert LabelledSet(folder).verify() == [
        "answers-00000.parquet: labels twice: chain",
        "marginals-00000.parquet: not one row of probabilities per variable: chain",
    ]
    with pytest.raises(ModelFormatError, match="not one per variable"):
        list(LabelledSet(folder))
    shards = {
        "answers": [store._write_shard(folder, "answers", k, answers) for k in range(2)],
        "marginals": [store._write_shard(folder, "marginals", k, marginals) for k in range(2)],
    }
    rewritten(folder, **shards)
    assert LabelledSet(folder).verify() == [
        "answers-00001.parquet: labels that an earlier file has: chain, tree"
    ]
    for wrong in (marginals[:-1], [{**row, "probs": [0.5, np.nan]} for row in marginals]):
        shards["marginals"][0] = store._write_shard(folder, "marginals", 0, wrong)
        rewritten(folder, **shards)
        assert "per variable: " in LabelledSet(folder).verify()[0]


def test_missing_files_and_wrong_counts_are_found(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    stored.compact()
    rewritten(tmp_path / "set", instances=1)
    assert "manifest.json: 1 instances announced" in LabelledSet(tmp_path / "set").verify()[0]
    shard = {**stored.manifest["answers"][0], "rows": 7}
    rewritten(tmp_path / "set", instances=len(zoo.MODELS), answers=[shard])
    expected = ["answers-00000.parquet: 1 rows, the manifest says 7"]
    assert LabelledSet(tmp_path / "set").verify() == expected
    for file in ("answers-00000.parquet", "models-00000.parquet"):
        (tmp_path / "set" / file).unlink()
        assert f"{file}: missing" in stored.verify()
        with pytest.raises(ModelFormatError, match="cannot be read"):
            list(stored)


def test_columns_are_checked(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = zoo_set(tmp_path / "set")
    path = tmp_path / "set" / "models-00000.parquet"
    table = pq.read_table(path)
    spoilt = {
        "evidence": table.set_column(4, "evidence", pa.array(["{"] * len(table))),
        "sound column 'cards'": table.drop_columns(["cards"]),
        "sound column 'variables'": table.set_column(5, "variables", pa.array(["2"] * len(table))),
        "sound column 'family'": table.set_column(
            1, "family", pa.array([None] * len(table), pa.string())
        ),
    }
    for column in ("cards", "scope", "scope_start", "table_start"):
        rows = [[value + 1 for value in row] for row in table[column].to_pylist()]
        spoilt[f"is damaged.*{'' * len(column)}"] = table.set_column(
            table.column_names.index(column), column, pa.array(rows, pa.list_(pa.int64()))
        )
    for words, wrong in spoilt.items():
        pq.write_table(wrong, path)
        with pytest.raises(ModelFormatError, match=words):
            list(stored.models())


def test_what_is_not_a_set_is_explained(tmp_path) -> None:
    with pytest.raises(ModelFormatError, match=r"no manifest\.json"):
        LabelledSet(tmp_path)
    path = tmp_path / "manifest.json"
    path.touch()
    with pytest.raises(ModelFormatError, match="is a file"):
        LabelledSet(path)
    for text, words in {
        "{": "not JSON",
        "[" * 100_000: "not JSON",
        "\x80": "not JSON",
        "[]": "no manifest",
        '{"format": 99}': "format 99",
        '{"format": 1}': "'description' is missing",
    }.items():
        path.write_text(text, encoding="latin-1")
        with pytest.raises(ModelFormatError, match=words):
            LabelledSet(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instances": "many"}, "'instances'"),
        ({"instances": -1}, "negative"),
        ({"description": 5}, "'description'"),
        ({"models": {}}, "'models'"),
        ({"models": [1]}, "an entry for a file"),
        ({"answers": [{"file": "x", "rows": 1}]}, "an entry for a file"),
        ({"answers": [{"file": "x", "rows": 1, "sha256": ""}]}, "as many files"),
        ({"models": [{"file": "/etc/passwd", "rows": 1, "sha256": ""}]}, "not in its folder"),
        ({"models": [{"file": "../x", "rows": 1, "sha256": ""}]}, "not in its folder"),
        ({"labelling": 3}, "'labelling'"),
    ],
)
def test_broken_manifests_are_explained(tmp_path, changes, words: str) -> None:
    zoo_set(tmp_path / "set")
    rewritten(tmp_path / "set", **changes)
    with pytest.raises(ModelFormatError, match=words):
        LabelledSet(tmp_path / "set")


def test_a_set_has_one_writer_and_many_readers(tmp_path) -> None:
    one = zoo_set(tmp_path / "set")
    two = LabelledSet(tmp_path / "set")
    with one.writing():
        one.append("chain", some_label("chain"))
        assert two.labelled() == {"chain"}
        for write in (
            lambda: two.append("tree", some_label("tree")),
            lambda: two.compact(),
            lambda: two.note_labelling({"seed": 1}),
            lambda: zoo_set(tmp_path / "set"),
        ):
            with pytest.raises(IcgiError, match=f"written by process {os.getpid()}"):
                write()
        one.compact()
    two.append("tree", some_label("tree"))  # with the manifest as it is now
    two.compact()
    assert two.verify() == []
    assert len(LabelledSet(tmp_path / "set").answers()) == 2
    assert not (tmp_path / "set" / lock.NAME).exists()


def torn_set(folder) -> LabelledSet:
    stored = zoo_set(folder)
    for name in ("chain", "tree"):
        stored.append(name, some_label(name))
    path = folder / pending.NAME
    os.truncate(path, path.stat().st_size - 100)
    return LabelledSet(folder)


def test_a_torn_line_does_not_swallow_the_next(tmp_path) -> None:
    stored = torn_set(tmp_path / "set")
    assert stored.verify() == ["pending.jsonl: 1 torn or unsuitable lines"]
    stored.append("loop", some_label("loop"))
    assert "1 torn or unsuitable lines; they are in pending.torn" in stored.notes[0]
    assert stored.labelled() == {"chain", "loop"}
    assert stored.verify() == []
    assert (tmp_path / "set" / pending.TORN).read_bytes().startswith(b'[{"instance": "tree"')
    stored.append("tree", some_label("tree"))
    stored.compact()
    assert len(stored.notes) == 1
    assert len(list(LabelledSet(tmp_path / "set"))) == 3


def test_a_swallowed_label_is_found_again(tmp_path) -> None:
    """A file that an earlier version wrote to behind a torn line."""
    stored = torn_set(tmp_path / "set")
    pending.append(tmp_path / "set", {"loop": some_label("loop")})
    assert stored.verify() == ["pending.jsonl: 1 torn or unsuitable lines"]
    assert stored.labelled() == {"chain", "loop"}
    stored.compact()
    assert stored.verify() == []
    assert [item.identity.name for item in stored] == ["chain", "loop"]


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    path = tmp_path / "set" / pending.NAME
    os.truncate(path, path.stat().st_size - 1)
    stored.append("tree", some_label("tree"))
    assert stored.labelled() == {"chain", "tree"}
    assert not (tmp_path / "set" / pending.TORN).exists()


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{}", "1", "null", '"text"', "[1, 2]", "[{}, []]", "\0\0", "\x80",
        "[" * 5000,
        '[{"instance": "chain"}, []]',
    ],
)  # fmt: skip
def test_pending_lines_of_any_shape_are_set_aside(tmp_path, line: str) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("tree", some_label("tree"))
    path = tmp_path / "set" / pending.NAME
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n")
    stored = LabelledSet(tmp_path / "set")
    assert stored.labelled() == {"tree"}
    assert stored.verify() == ["pending.jsonl: 1 torn or unsuitable lines"]
    stored.compact()
    assert [item.identity.name for item in stored] == ["tree"]
    aside = (tmp_path / "set" / pending.TORN).read_bytes()
    assert aside == line.encode("latin-1") + b"\n"


def test_pending_labels_of_the_wrong_shape_are_set_aside(tmp_path) -> None:
    stored = zoo_set(tmp_path / "set")
    pending.append(tmp_path / "set", {"tree": some_label("chain")})
    pending.append(tmp_path / "set", {"nobody": some_label("chain")})
    pending.append(tmp_path / "set", {"chain": some_label("chain")})
    pending.append(tmp_path / "set", {"chain": some_label("chain")})
    path = tmp_path / "set" / pending.NAME
    good = path.read_text().splitlines()[-1]
    spoilt = [good.replace("0.1", '"0.1"'), good.replace('"variable": 3', '"variable": 2')]
    spoilt += [good.replace('"probs": [', '"probs": ["x", ', 1)]
    path.write_text(path.read_text() + "\n".join(spoilt) + "\n")
    assert stored.verify() == [
        "pending.jsonl: 5 torn or unsuitable lines", "pending.jsonl: 1 labels twice"
    ]  # fmt: skip
    stored.compact()
    assert len(stored.notes) == 2
    assert stored.verify() == []
    assert [item.identity.name for item in stored] == ["chain"]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch) -> None:
    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    before = (tmp_path / "set" / pending.NAME).read_bytes()

    def full(file) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for write in (
        lambda: stored.append("tree", some_label("tree")),
        stored.compact,
        lambda: stored.note_labelling({"seed": 1}),
        lambda: zoo_set(tmp_path / "other"),
    ):
        with pytest.raises(IcgiError, match="No space left"):
            write()
        assert (tmp_path / "set" / pending.NAME).read_bytes() == before
        assert stored.verify() == []
    assert not (tmp_path / "other").exists()
    monkeypatch.undo()
    names = {path.name for path in (tmp_path / "set").iterdir()}
    assert names == {"manifest.json", "models-00000.parquet", pending.NAME}
    stored.append("tree", some_label("tree"))
    stored.compact()
    assert len(list(LabelledSet(tmp_path / "set"))) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_half_a_line_is_taken_back(tmp_path) -> None:
    import resource

    stored = zoo_set(tmp_path / "set")
    stored.append("chain", some_label("chain"))
    path = tmp_path / "set" / pending.NAME
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
        with pytest.raises(IcgiError, match="the label of tree could not be written"):
            stored.append("tree", some_label("tree"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def test_nothing_is_left_of_a_set_that_could_not_be_made(tmp_path) -> None:
    def some():
        yield Identity("a", "f"), zoo.MODELS["chain"]
        raise ModelFormatError("the second is broken")

    with pytest.raises(ModelFormatError, match="the second"):
        LabelledSet.create(tmp_path / "set", some(), "")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(IcgiError, match="cannot be made"):
        LabelledSet.create(tmp_path / "file", some(), "")


def test_without_pyarrow_nothing_is_begun(tmp_path, monkeypatch) -> None:
    def never():
        pytest.fail("a model was drawn")
        yield

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(IcgiError, match=r"needs pyarrow.*pip install .*\[data\]"):
        LabelledSet.create(tmp_path / "set", never(), "")
    with pytest.raises(IcgiError, match="needs pyarrow"):
        LabelledSet(store.SHIPPED)
    assert not (tmp_path / "set").exists()


def test_names_with_control_characters_are_refused(tmp_path) -> None:
    with pytest.raises(ModelFormatError, match="control characters"):
        Identity("a\x1b[2J", "f")


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
