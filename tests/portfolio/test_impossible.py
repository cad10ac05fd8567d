"""Contradictions that zeros of single factors do not show are named whatever engine was asked."""

import numpy as np
import pytest
from typer.testing import CliRunner

import icgi
from icgi.cli import app
from icgi.errors import EvidenceError
from icgi.model.findings import Findings
from icgi.portfolio import impossible


def gated_ring() -> icgi.FactorGraph:
    """Three spins in a ring; each observed gate makes two of them differ: three cannot be."""
    gate = np.ones((2, 2, 2))
    gate[1] = 1 - np.eye(2)
    ring = [("x", "y"), ("y", "z"), ("z", "x")]
    factors = [((f"gate{k}", *pair), gate) for k, pair in enumerate(ring)]
    return icgi.from_factors([*factors, (("gate0", "other"), [[0.3, 0.7], [0.6, 0.4]])])


IMPOSSIBLE = {"gate0": 1, "gate1": 1, "gate2": 1, "other": 0}


@pytest.mark.parametrize("engine", ["lbp", "mf", "jt", "auto", "trbp"])
def test_all_that_contradict_are_named_and_no_others(engine: str) -> None:
    with pytest.raises(icgi.EvidenceError, match=r"gate0=1.*gate1=1.*gate2=1 contradict") as caught:
        icgi.marginals(gated_ring(), IMPOSSIBLE, engine)
    assert "other=" not in str(caught.value)
    for gone in ("gate0", "gate1", "gate2"):
        rest = {name: x for name, x in IMPOSSIBLE.items() if name != gone}
        assert icgi.marginals(gated_ring(), rest, engine).probs.any()


@pytest.mark.parametrize("engine", ["lbp", "auto", "jt"])
def test_the_command_line_says_the_same(engine: str, tmp_path) -> None:
    path = tmp_path / "ring.json"
    icgi.save(gated_ring(), path)
    words = [word for name, x in IMPOSSIBLE.items() for word in ("--observe", f"{name}={x}")]
    said = CliRunner().invoke(app, ["marginals", str(path), *words, "--engine", engine])
    assert said.exit_code == 1
    with pytest.raises(icgi.EvidenceError) as caught:
        icgi.marginals(gated_ring(), IMPOSSIBLE, engine)
    assert str(caught.value) in " ".join(said.stderr.split())


def test_the_given_error_stays_where_exact_is_not_cheap(monkeypatch) -> None:
    model = gated_ring()
    given = EvidenceError("impossible")
    monkeypatch.setattr(impossible, "CHEAP", 0.0)
    assert impossible.explained(model, Findings({0: 1, 3: 1, 4: 1}), given) is given
