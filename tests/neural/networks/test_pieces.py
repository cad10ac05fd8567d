"""Outside training, large batches are worked through in pieces, which changes no answer."""

import numpy as np
import pytest
from laws import answers, built, trained, varied
from numpy.testing import assert_allclose

from icgi.neural.networks import direct_gnn, gnn_bp


@pytest.mark.parametrize(
    ("name", "module", "size"), [("direct-gnn", direct_gnn, 600), ("gnn-bp", gnn_bp, 7)]
)
def test_pieces_change_nothing(
    name: str, module: object, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = trained(built(name))
    models = [varied(np.random.default_rng(seed)) for seed in (1, 2)]
    whole = answers(net, models)
    monkeypatch.setattr(module, "AT_ONCE", size)
    for piecewise, at_once in zip(answers(net, models), whole, strict=True):
        assert_allclose(piecewise, at_once, atol=1e-12)
