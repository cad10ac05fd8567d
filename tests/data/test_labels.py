from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi.data.families import FAMILIES
from icgi.data.jobs.processes import Processes
from icgi.data.jobs.ray import Ray
from icgi.data.labels import Labelling, label, label_set
from icgi.data.sources import source
from icgi.data.store import Identity, LabelledSet
from icgi.errors import IcgiError
from icgi.exact.junction_tree import JunctionTree

# the standard error ends these, not the seconds, so that a busy machine changes nothing
QUICK = Labelling(seconds=600.0, std_error=0.02)
FORCED = Labelling(log2_table=2.0, seconds=600.0, std_error=0.02)  # nothing fits: sampling

ROUGH = Labelling(seconds=600.0, std_error=0.3)  # the first run is always enough
DYING = """
import os, signal
from icgi.data.labels import labelled as work

def labelled(question, **settings):
    if question.name == "g3":
        os.kill(os.getpid(), signal.SIGKILL)
    return work(question, **settings)
"""


def test_exact_where_the_tables_fit() -> None:
    for name in ("grid-3x3", "zeros", "mixed-cards", "one-state-variable"):
        found = label(zoo.MODELS[name], QUICK, np.random.default_rng(0))
        assert found.method == "jt"
        assert found.std_error is None
        assert_allclose(found.probs, zoo.exact(name).probs, atol=1e-10)


def test_sampling_elsewhere_states_its_error() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(1), n=12, beta=1.0, h=0.3)
    found = label(model, FORCED, np.random.default_rng(0))
    exact = zoo.run(JunctionTree(), model)
    assert found.method == "pt"
    assert found.std_error is not None
    assert found.s_hat is not None
    assert found.s_hat.shape == (12,)
    assert found.std_error.max() <= 0.02
    assert (np.abs(found.probs - exact.probs) < 5 * found.std_error + 0.005).all()
    assert "tap_converged" in found.checks, "SK is cross-checked with TAP"


def test_a_number_of_sweeps_decides_alone_whatever_time_there_is() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(1), n=12, beta=1.0, h=0.3)
    settings = Labelling(log2_table=2.0, seconds=1e-3, std_error=1e-9, sweeps=400)
    found = label(model, settings, np.random.default_rng(0))
    patient = label(model, replace(settings, seconds=600.0), np.random.default_rng(0))
    assert_array_equal(found.probs, patient.probs)
    exact = zoo.run(JunctionTree(), model)
    assert found.std_error is not None
    assert (np.abs(found.probs - exact.probs) < 5 * found.std_error + 0.005).all()


def test_planar_models_without_field_get_their_log_z() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(2), L=5, field=0.0)
    found = label(model, FORCED, np.random.default_rng(0))
    assert found.method == "pfaffian"
    assert found.log_z == pytest.approx(zoo.run(JunctionTree(), model).log_z, abs=1e-9)
    assert_array_equal(found.probs, np.full((25, 2), 0.5))


def test_evidence_is_entered() -> None:
    found = label(zoo.MODELS["loop"], QUICK, np.random.default_rng(0), {1: 0})
    assert_allclose(found.probs, zoo.run(JunctionTree(), "loop", {1: 0}).probs, atol=1e-12)


def small_set(folder) -> LabelledSet:
    rng = np.random.default_rng(3)
    rows = [(Identity(f"g{k}", "grid"), FAMILIES["ea2d"].sample(rng, L=4)) for k in range(6)]
    return LabelledSet.create(folder, rows, "small")


def test_a_run_resumes_where_it_was_stopped(tmp_path) -> None:
    class Stop(Exception):
        pass

    def stop(identity, found) -> None:
        raise Stop

    stored = small_set(tmp_path / "a")
    with pytest.raises(Stop):
        label_set(stored, QUICK, done=stop)
    assert len(LabelledSet(tmp_path / "a").labelled()) == 1
    resumed = LabelledSet(tmp_path / "a")
    assert label_set(resumed, QUICK) == 5
    assert label_set(resumed, QUICK) == 0
    whole = small_set(tmp_path / "b")
    label_set(whole, QUICK)
    for x, y in zip(resumed, whole, strict=True):
        assert_array_equal(x.label.probs, y.label.probs)


def glasses(folder) -> LabelledSet:
    """Two glasses of each configuration of the paper's SK set at smoke scale."""
    rows = list(islice(source("sk-paper", "smoke"), 6))
    return LabelledSet.create(folder, rows, "glasses", {"source": "sk-paper"})


def same_files(one: LabelledSet, two: LabelledSet) -> None:
    """Every byte of models and marginals; answers but for the seconds that they took."""
    names = [shard["file"] for kind in ("models", "marginals") for shard in one.manifest[kind]]
    assert len(names) >= 2
    for name in names:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    for a, b in zip(one.manifest["answers"], two.manifest["answers"], strict=True):
        first, second = one.table("answers", a["file"]), two.table("answers", b["file"])
        assert first.drop_columns("seconds").equals(second.drop_columns("seconds"))


def test_processes_write_the_same_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("icgi.data.labels.SHARD", 2)  # several shards, whatever comes first
    one, two = glasses(tmp_path / "a"), glasses(tmp_path / "b")
    assert label_set(one, ROUGH) == 6
    assert label_set(two, ROUGH, executor=Processes(2)) == 6
    assert len(one.manifest["answers"]) == 3
    same_files(one, two)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_writes_the_same_files(tmp_path) -> None:
    pytest.importorskip("ray")
    one, two = glasses(tmp_path / "a"), glasses(tmp_path / "b")
    label_set(one, ROUGH, executor=Processes(2))
    label_set(two, ROUGH, executor=Ray())
    same_files(one, two)


def test_a_worker_that_dies_costs_its_instance_and_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("icgi.data.labels.WORK", "dying:labelled")
    monkeypatch.syspath_prepend(tmp_path)  # workers inherit it
    (tmp_path / "dying.py").write_text(DYING)
    stored, reasons = small_set(tmp_path / "a"), {}
    count = label_set(stored, QUICK, executor=Processes(2),
                      done=lambda who, found: reasons.update({who.name: found}))  # fmt: skip
    assert count == 5
    assert "ended by itself" in reasons["g3"]
    assert stored.labelled() == {f"g{k}" for k in range(6)} - {"g3"}
    assert stored.verify() == []


def test_presets_at_smoke_scale_keep_their_roles() -> None:
    rows = list(source("sk-paper", "smoke"))
    assert {identity.family for identity, _ in rows} == {"sk"}
    assert max(model.n_variables for _, model in rows) <= 100
    for name in ("n", "beta", "h"):
        assert len({identity.parameters[name] for identity, _ in rows}) > 1
    roles = {identity.split for identity, _ in source("sk-paper", "small")}
    assert {"train", "validation", "in-distribution test", "out-of-distribution test"} <= roles


def test_a_folder_of_models_is_a_source(tmp_path) -> None:
    from icgi.model.formats.uai import write_model

    write_model(zoo.MODELS["loop"], tmp_path / "loop.uai")
    (tmp_path / "loop.uai.evid").write_text("1 0 1\n")
    write_model(zoo.MODELS["tree"], tmp_path / "tree.uai.gz")
    rows = {identity.name: identity.evidence for identity, _ in source(str(tmp_path))}
    assert rows == {"loop.uai": {0: 1}, "tree.uai.gz": {}}
    with pytest.raises(IcgiError, match="neither a set, nor a preset"):
        source(str(tmp_path / "nothing"))
