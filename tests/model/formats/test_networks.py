"""The networks of the bnlearn repository, and a small one that is always there, against pyAgrum."""

import gzip
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
from icgi.data.collection import data_folder
from icgi.model.formats.bif import parse_bif
from icgi.model.formats.network import conditionals
from some_networks import SPRINKLER

pytestmark = pytest.mark.filterwarnings("ignore")  # of pyAgrum's compiled types
QUICK = ["asia", "cancer", "earthquake", "sachs", "survey", "alarm", "insurance", "water",
         "hailfinder", "munin1", "pathfinder"]  # fmt: skip
SLOW = ["diabetes", "link", "mildew", "munin", "munin2", "munin4", "pigs"]
BEYOND_PYAGRUM = {"link", "munin1"}  # 142 s and 61 s there, without evidence


def library() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pyagrum")


def theirs(gum: Any, path: Path, model: icgi.FactorGraph) -> Any:
    """pyAgrum's own reading, then with all digits of the file: it keeps single precision only."""
    network = gum.loadBN(str(path))
    for each in conditionals(model, "BIF"):
        cpt = network.cpt(model.names[each.child])
        labels = [network.variable(name).labels() for name in cpt.names[::-1]]
        scope = [*each.parents, each.child]
        axes = [scope.index(model.names.index(name)) for name in cpt.names[::-1]]
        table = each.table.transpose(axes)
        order = [
            [model.states[scope[a]].index(label) for label in found]
            for a, found in zip(axes, labels, strict=True)
        ]
        table = np.ascontiguousarray(table[np.ix_(*order)])
        assert_allclose(cpt.toarray(), table, atol=1e-6)
        cpt[:] = table
    return network


def agree(gum: Any, network: Any, model: icgi.FactorGraph, evidence: dict[int, int]) -> None:
    engine = gum.LazyPropagation(network)
    engine.setEvidence({model.names[i]: model.states[i][x] for i, x in evidence.items()})
    engine.makeInference()
    found = icgi.marginals(model, evidence, "exact")
    for i, name in enumerate(model.names):
        labels = network.variable(name).labels()
        order = [labels.index(state) for state in model.states[i]]
        assert np.abs(found[i] - engine.posterior(name).toarray()[order]).max() < 1e-9


def random_evidence(model: icgi.FactorGraph, share: float, seed: int) -> dict[int, int]:
    """A configuration drawn from the network itself, of which a share is observed."""
    rng = np.random.default_rng(seed)
    state: dict[int, int] = {}
    waiting = conditionals(model, "BIF")
    while waiting:
        ready = [each for each in waiting if all(i in state for i in each.parents)]
        waiting = [each for each in waiting if any(i not in state for i in each.parents)]
        for each in ready:
            row = each.table[tuple(state[i] for i in each.parents)]
            state[each.child] = int(rng.choice(len(row), p=row / row.sum()))
    chosen = rng.random(model.n_variables) < share
    return {i: state[i] for i in range(model.n_variables) if chosen[i]}


def test_a_small_network_agrees_with_pyagrum(tmp_path: Path) -> None:
    gum = library()
    text = SPRINKLER.replace('"Wet grass"', "Wet").replace('"very wet"', "soaked")
    text = text.replace("default 0.98, 0.01, 0.01;", "(off, no) 0.98, 0.01, 0.01;")
    path = tmp_path / "small.bif"
    path.write_text(text.replace('"a garden"', "garden"))
    model = icgi.load(path)
    network = theirs(gum, path, model)
    for evidence in ({}, {1: 2}, {1: 0, 2: 1}):
        agree(gum, network, model, evidence)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_networks_of_the_repository_agree_with_pyagrum(name: str, tmp_path: Path) -> None:
    folder = data_folder()
    if folder is None:
        pytest.skip("ICGI_DATA is not set")
    gum = library()
    data = gzip.decompress((folder / "bn" / f"{name}.bif.gz").read_bytes())
    path = tmp_path / f"{name}.bif"
    path.write_bytes(data)
    model = parse_bif(data, path.name)
    network = theirs(gum, path, model)  # tables agree with pyAgrum's reading in any case
    if name not in BEYOND_PYAGRUM:
        agree(gum, network, model, {})
    for seed, share in enumerate((0.1, 0.5)):
        evidence = random_evidence(model, share, seed)
        if name in BEYOND_PYAGRUM and share < 0.5:
            assert icgi.marginals(model, evidence, "exact").status is icgi.Status.EXACT
        else:
            agree(gum, network, model, evidence)
