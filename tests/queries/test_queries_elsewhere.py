"""Joint distributions of Bayesian networks, against pyAgrum."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi


def networks() -> Path:
    folder = Path(os.environ.get("ICGI_DATA", ""), "bn")
    if not os.environ.get("ICGI_DATA") or not folder.is_dir():
        pytest.skip("set ICGI_DATA to the folder that holds bn/*.bif.gz")
    return folder


def network(gum, name: str, tmp_path: Path):
    """Model, and pyAgrum's of the same tables: its own reader rounds them to single precision.

    Rows are made to sum to one, as pyAgrum takes for granted when it leaves barren variables out.
    """
    path = tmp_path / f"{name}.bif"
    path.write_bytes(gzip.decompress((networks() / f"{name}.bif.gz").read_bytes()))
    read = icgi.load(path)
    tables = [t - np.logaddexp.reduce(t, axis=0) for t in read.log_tables]
    model = icgi.FactorGraph(read.cards, read.scopes, tuple(tables), read.names, read.states)
    net = gum.loadBN(str(path))
    for scope, table in zip(model.scopes, tables, strict=True):
        cpt = net.cpt(model.names[scope[0]])
        assert set(cpt.names) == {model.names[i] for i in scope}
        for at in np.ndindex(*table.shape):
            states = {model.names[i]: model.states[i][x] for i, x in zip(scope, at, strict=True)}
            cpt[states] = float(np.exp(table[at]))
    return model, net


@pytest.mark.parametrize("engine", ["jt", "exact", "auto"])
@pytest.mark.parametrize("name", ["alarm", "insurance", "hailfinder"])
def test_joints_with_evidence_equal_those_of_pyagrum(name: str, engine: str, tmp_path) -> None:
    """Evidence on a few variables leaves most others barren."""
    gum = pytest.importorskip("pyagrum")
    model, net = network(gum, name, tmp_path)
    rng = np.random.default_rng(7)
    names = model.names
    drawn = icgi.sample(model, 1, seed=3).states[0]
    observed = rng.permutation(len(names))[:4].tolist()
    evidence = {names[i]: model.states[i][drawn[i]] for i in observed}
    free = [i for i in range(len(names)) if i not in observed]
    scopes = [tuple(names[i] for i in rng.permutation(free)[:2]) for _ in range(5)]
    scopes += [tuple(names[i] for i in rng.permutation(free)[:3])]
    answer = icgi.marginals(model, evidence, engine)
    inference = gum.LazyPropagation(net)
    inference.setEvidence(evidence)
    for scope in scopes:
        inference.addJointTarget(set(scope))
    inference.makeInference()
    for scope, joint in zip(scopes, answer.joints(scopes), strict=True):
        theirs = inference.jointPosterior(set(scope))
        for at in np.ndindex(*joint.probs.shape):
            states = {v: model.states[names.index(v)][x] for v, x in zip(scope, at, strict=True)}
            assert joint.probs[at] == pytest.approx(theirs[states], abs=1e-9)


def test_factors_of_a_network_are_those_of_pyagrum(tmp_path) -> None:
    gum = pytest.importorskip("pyagrum")
    model, net = network(gum, "alarm", tmp_path)
    evidence = {"HR": "HIGH"}
    answer = icgi.marginals(model, evidence)
    inference = gum.LazyPropagation(net)
    inference.setEvidence(evidence)
    inference.makeInference()
    for f, scope in enumerate(model.scopes[:12]):
        first = model.names[scope[0]]
        row = answer.factor(f).marginal(scope[0]).probs
        assert_allclose(row, answer[first], atol=1e-10)
        assert row == pytest.approx(inference.posterior(first).toarray(), abs=1e-9)
    assert answer["HR"]["HIGH"] == 1.0
