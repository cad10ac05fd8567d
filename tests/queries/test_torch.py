import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo

torch = pytest.importorskip("torch")
icgi_torch = pytest.importorskip("icgi.torch")


def parts(name: str, extra: tuple[int, ...] = (), seed: int = 0):
    model = zoo.MODELS[name]
    rng = np.random.default_rng(seed)
    tables = [
        torch.tensor(t + rng.normal(size=(*extra, *t.shape)), requires_grad=True)
        for t in model.log_tables
    ]
    return tables, model.scopes, model.cards.tolist()


@pytest.mark.parametrize("name", ["loop", "ternary-factors", "disconnected", "empty-scope"])
@pytest.mark.parametrize("engine", ["jt", "enumerate"])
def test_gradients_are_those_of_finite_differences(engine: str, name: str) -> None:
    tables, scopes, cards = parts(name)
    assert torch.autograd.gradcheck(
        lambda *t: icgi_torch.log_z(t, scopes, cards, engine), tuple(tables)
    )


@pytest.mark.parametrize(
    "engine",
    [
        "lbp:tolerance=1e-13,restarts=0",
        "trbp:tolerance=1e-12",
        "gbp:regions=factors,tolerance=1e-12",
    ],
)
def test_gradients_at_rest_are_those_of_the_engines_own_log_z(engine: str) -> None:
    tables, scopes, cards = parts("loop")
    log_z = lambda *t: icgi_torch.log_z(t, scopes, cards, engine)  # noqa: E731
    assert torch.autograd.gradcheck(log_z, tuple(tables))
    exact = icgi_torch.log_z(tables, scopes, cards).detach()
    assert float(log_z(*tables).detach()) != pytest.approx(float(exact))


def test_a_batch_is_its_models_one_by_one() -> None:
    tables, scopes, cards = parts("ternary-factors", (2, 3))
    tables[1] = tables[1][0, 0].detach().requires_grad_()  # one table for the whole batch
    weight = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    found = icgi_torch.log_z(tables, scopes, cards)
    assert found.shape == (2, 3)
    (found * weight).sum().backward()
    shared = torch.zeros_like(tables[1])
    for at in np.ndindex(2, 3):
        one = [
            (t if k == 1 else t[at]).detach().clone().requires_grad_() for k, t in enumerate(tables)
        ]
        value = icgi_torch.log_z(one, scopes, cards, "enumerate")
        value.backward()
        assert float(found[at].detach()) == pytest.approx(float(value.detach()))
        for k, (t, o) in enumerate(zip(tables, one, strict=True)):
            if k == 1:
                shared += weight[at] * o.grad
            else:
                assert_allclose(t.grad[at], weight[at] * o.grad, atol=1e-10)
    assert_allclose(tables[1].grad, shared, atol=1e-10)


def test_impossible_entries_have_no_gradient() -> None:
    model = zoo.MODELS["zeros"]
    tables = [torch.tensor(np.array(t), requires_grad=True) for t in model.log_tables]
    icgi_torch.log_z(tables, model.scopes, model.cards.tolist()).backward()
    for table, given in zip(tables, model.log_tables, strict=True):
        assert torch.isfinite(table.grad).all()
        assert (table.grad[torch.tensor(np.isneginf(given))] == 0).all()
        assert float(table.grad.sum()) == pytest.approx(1.0)


def test_single_precision_stays_single() -> None:
    tables, scopes, cards = parts("loop")
    single = [t.detach().float().requires_grad_() for t in tables]
    value = icgi_torch.log_z(single, scopes, cards)
    value.backward()
    assert value.dtype == torch.float32
    assert single[0].grad.dtype == torch.float32


def test_what_cannot_be_is_refused() -> None:
    tables, scopes, cards = parts("loop")
    with pytest.raises(icgi.ModelFormatError, match="needs"):
        icgi_torch.log_z([tables[0][0], *tables[1:]], scopes, cards)
    with pytest.raises(icgi.ModelFormatError, match="one per scope"):
        icgi_torch.log_z(tables[1:], scopes, cards)
    with pytest.raises(icgi.UnsupportedModelError, match="gradients are not available"):
        icgi_torch.log_z(tables, scopes, cards, "mf")
    for odd in (np.zeros((2, 2)), torch.zeros((2, 2), dtype=torch.int64)):
        with pytest.raises(icgi.ModelFormatError, match="floating-point"):
            icgi_torch.log_z([odd], [(0, 1)], [2, 2])


def test_importing_icgi_leaves_torch_alone() -> None:
    names = "icgi.mpe, icgi.scan, icgi.sample, icgi.explain"
    code = f"import icgi, sys; {names}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
