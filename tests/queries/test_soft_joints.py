"""Joints, explanations and samples of questions with likelihoods and excluded states."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_queries_elsewhere import network
from typer.testing import CliRunner

import icgi
import zoo
from icgi.cli import app
from icgi.exact.enumeration import joint as log_joint

LIKELIHOOD = {0: [0.3, 1.5], 3: {"0": 0.1, "1": 2.0, "2": 0.0}}
EXCLUDED = {1: [0, 2]}


def weighted() -> tuple[icgi.FactorGraph, np.ndarray]:
    """Model of mixed cards, and its joint distribution with the findings entered by hand."""
    rng = np.random.default_rng(4)
    cards = [2, 4, 2, 3]
    model = zoo.random_model(rng, cards, [(0, 1), (1, 2), (2, 3), (3, 0), (2,)])
    p = np.exp(log_joint(model).reshape(cards))
    p *= np.array([0.3, 1.5])[:, None, None, None] * np.array([0.1, 2.0, 0.0])
    p[:, [0, 2]] = 0.0
    return model, p / p.sum()


@pytest.mark.parametrize("engine", ["jt", "exact", "auto", "enumerate"])
def test_equal_enumeration(engine: str) -> None:
    model, p = weighted()
    answer = icgi.marginals(model, engine=engine, likelihood=LIKELIHOOD, exclude=EXCLUDED)
    for scope in [(0, 1), (3, 1), (2, 0, 3), (1,), (1, 3, 0, 2)]:
        gone = tuple(a for a in range(4) if a not in scope)
        expected = np.transpose(p.sum(gone), np.argsort(np.argsort(scope)))
        assert_allclose(answer.joint(*scope).probs, expected, atol=1e-12)
    for f, scope in enumerate(model.scopes):
        gone = tuple(a for a in range(4) if a not in scope)
        expected = np.transpose(p.sum(gone), np.argsort(np.argsort(scope)))
        assert_allclose(answer.factor(f).probs, expected, atol=1e-12)


@pytest.mark.parametrize("engine", ["pt", "ttve"])
def test_sampled_ones_are_within_their_errors(engine: str) -> None:
    model, p = weighted()
    answer = icgi.marginals(
        model, {2: 1}, engine, icgi.Budget(iterations=4000), likelihood=LIKELIHOOD, exclude=EXCLUDED
    )
    found = answer.joint(0, 3)
    expected = p[:, :, 1].sum(1) / p[:, :, 1].sum()
    assert (abs(found.probs - expected) <= 4.5 * found.std_error + 1e-12).all()
    assert (found.probs[:, 2] == 0).all()


@pytest.mark.parametrize("name", ["alarm", "insurance"])
def test_equal_pyagrum(name: str, tmp_path) -> None:
    gum = pytest.importorskip("pyagrum")
    model, net = network(gum, name, tmp_path)
    rng = np.random.default_rng(11)
    order = rng.permutation(model.n_variables).tolist()
    likelihood = {model.names[i]: rng.uniform(0.1, 1, int(model.cards[i])) for i in order[:4]}
    exclude = {model.names[order[4]]: [0]}
    answer = icgi.marginals(model, likelihood=likelihood, exclude=exclude)
    inference = gum.LazyPropagation(net)
    for variable, weights in likelihood.items():
        inference.addEvidence(variable, weights.tolist())
    out = np.ones(int(model.cards[order[4]]))
    out[0] = 0.0
    inference.addEvidence(model.names[order[4]], out.tolist())
    for a, b in [(order[0], order[9]), (order[8], order[4]), (order[7], order[12])]:
        pair = (model.names[a], model.names[b])
        inference.addJointTarget(set(pair))
        inference.makeInference()
        theirs = inference.jointPosterior(set(pair))
        ours = answer.joint(*pair).probs
        for x, y in np.ndindex(*ours.shape):
            states = {pair[0]: model.states[a][x], pair[1]: model.states[b][y]}
            assert theirs[states] == pytest.approx(ours[x, y], abs=1e-9)


def test_on_the_command_line(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, p = weighted()
    icgi.save(model, "model.json")
    words = "--joint 0,3 --likely 0=0:0.3,1:1.5 --likely 3=0:0.1,1:2,2:0 --exclude 1=0,2 --json"
    said = CliRunner().invoke(app, ["marginals", "model.json", *words.split()])
    assert said.exit_code == 0, said.stderr
    table = json.loads(said.stdout)["joints"][0]["probabilities"]
    assert_allclose(table, p.sum((1, 2)), atol=1e-12)


def test_the_most_probable_explanation_takes_them_into_account() -> None:
    model, p = weighted()
    found = icgi.mpe(model, likelihood=LIKELIHOOD, exclude=EXCLUDED)
    assert tuple(found.states) == np.unravel_index(p.argmax(), p.shape)
    assert found.log_probability == pytest.approx(np.log(p.max()))


def test_samples_take_them_into_account() -> None:
    model, p = weighted()
    drawn = icgi.sample(model, 20_000, likelihood=LIKELIHOOD, exclude=EXCLUDED)
    seen = np.zeros(p.shape)
    np.add.at(seen, tuple(drawn.states.T), 1 / 20_000)
    assert abs(seen - p).max() < 0.02
    assert (seen[p == 0] == 0).all()


def test_explanations_and_samples_on_the_command_line(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, p = weighted()
    icgi.save(model, "model.json")
    soft = ["--likely", "0=0:0.3,1:1.5", "--likely", "3=0:0.1,1:2,2:0", "--exclude", "1=0,2"]
    said = CliRunner().invoke(app, ["mpe", "model.json", *soft, "--json"])
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["states"] == list(np.unravel_index(p.argmax(), p.shape))
    said = CliRunner().invoke(app, ["sample", "model.json", "-n", "200", *soft])
    assert said.exit_code == 0, said.stderr
    rows = [line.split(",") for line in said.stdout.splitlines()[1:]]
    assert {row[1] for row in rows} <= {"1", "3"}
    assert {row[3] for row in rows} <= {"0", "1"}
    said = CliRunner().invoke(app, ["explain", "model.json", "--target", "2", *soft, "--json"])
    assert said.exit_code == 0, said.stderr
    found = json.loads(said.stdout)
    assert_allclose(list(found["with_evidence"].values()), p.sum((0, 1, 3)), atol=1e-12)
    assert [row["kind"] for row in found["removed"]].count("likely") == 2


def test_a_scan_does_not_drop_soft_evidence_in_silence(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    icgi.save(weighted()[0], "model.json")
    (tmp_path / "seen.json").write_text('{"observe": {"0": 1}, "likely": {"2": {"0": 1, "1": 3}}}')
    words = ["scan", "model.json", "--beta", "1", "-e", "seen.json"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 1
    assert "a scan takes observations only" in said.stderr


def weighted_chain() -> tuple[icgi.FactorGraph, dict[int, list[float]], np.ndarray]:
    """Chain, likelihoods, and the joint distribution with these entered by hand."""
    rng = np.random.default_rng(6)
    model = zoo.random_model(rng, [2, 3, 2], [(0, 1), (1, 2), (2,)])
    p = np.exp(log_joint(model).reshape(2, 3, 2))
    p = p * np.array([0.2, 1.5])[:, None, None] * np.array([1.0, 0.5, 0.0])[:, None]
    return model, {0: [0.2, 1.5], 1: [1, 0.5, 0]}, p / p.sum()


@pytest.mark.parametrize("engine", ["lbp", "trbp", "gbp"])
def test_message_passing_is_exact_on_a_chain_with_likelihoods(engine: str) -> None:
    model, likelihood, p = weighted_chain()
    answer = icgi.marginals(model, engine=engine, likelihood=likelihood)
    for scope in [(0, 1), (2, 1), (0, 2)]:
        gone = tuple(a for a in range(3) if a not in scope)
        expected = np.transpose(p.sum(gone), np.argsort(np.argsort(scope)))
        assert_allclose(answer.joint(*scope).probs, expected, atol=1e-6)


def test_joints_of_networks_leave_impossible_states_out() -> None:
    pytest.importorskip("torch")
    model, likelihood, _ = weighted_chain()
    found = icgi.marginals(model, engine="gnn-bp", likelihood=likelihood).joint(0, 1)
    assert found.probs.sum() == pytest.approx(1.0)
    assert (found.probs[:, :2] > 0).all()
    assert (found.probs[:, 2] == 0).all()
