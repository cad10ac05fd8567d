import csv
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.exact.enumeration import joint
from icgi.model.ising import ising_model
from icgi.queries.scan import with_error

BETAS = [0.3, 0.8, 1.5]


def spin_glass(n: int, seed: int = 0, field: float = 0.3):
    rng = np.random.default_rng(seed)
    J = np.triu(rng.normal(size=(n, n)), 1) / np.sqrt(n)
    return icgi.from_ising(J, field * rng.normal(size=n) if field else None)


def lattice(size: int, seed: int = 0):
    """±J on a square lattice with free ends."""
    rng = np.random.default_rng(seed)
    edges = np.array([s for s in zoo.grid_scopes(size, size) if len(s) == 2])
    return ising_model((edges, rng.choice([-1.0, 1.0], len(edges))))


def by_enumeration(model, beta: float, pair=(0, 1)) -> dict[str, float]:
    log = joint(model)
    p = np.exp(beta * log - (beta * log).max())
    p /= p.sum()
    log_z = float(np.logaddexp.reduce(beta * log))
    states = np.stack(np.unravel_index(np.arange(len(p)), model.cards.tolist()), 1)
    energy = float(-(p @ log))
    found = {
        "log_z": log_z,
        "energy": energy,
        "specific_heat": beta**2 * float(p @ (log + energy) ** 2),
        "entropy": float(-(p[p > 0] @ np.log(p[p > 0]))),
        "correlation 0,1": float(p @ np.where(states[:, pair[0]] == states[:, pair[1]], 1, -1)),
    }
    spins = 2.0 * states - 1.0
    m, q = spins.mean(1), spins @ spins.T / spins.shape[1]
    return found | {
        "magnetisation": float(p @ m),
        "abs_magnetisation": float(p @ np.abs(m)),
        "abs_overlap": float(p @ np.abs(q) @ p),
        "overlap2": float(p @ q**2 @ p),
    }


def test_exact_scans_equal_enumeration() -> None:
    model = spin_glass(9)
    found = icgi.scan(model, BETAS, pairs=[(0, 1)], engine="exact")
    assert found.how == "jt"
    for b, beta in enumerate(BETAS):
        for name, value in by_enumeration(model, beta).items():
            assert found[name][b] == pytest.approx(value, abs=1e-9), name
            assert found.errors[name][b] == 0


def test_tempering_agrees_with_enumeration_within_its_errors() -> None:
    model = spin_glass(9)
    budget = icgi.Budget(iterations=20_000)
    found = icgi.scan(model, BETAS, pairs=[(0, 1)], engine="pt", budget=budget)
    assert found.status is icgi.Status.CONVERGED
    off = []
    for b, beta in enumerate(BETAS):
        for name, value in by_enumeration(model, beta).items():
            error = found.errors[name][b]
            assert 0 < error < 0.05
            off.append(abs(found[name][b] - value) / error)
    assert max(off) < 5
    assert np.mean(np.square(off)) < 3


def test_energy_and_specific_heat_are_derivatives_of_exact_log_z() -> None:
    model = zoo.MODELS["ternary-factors"]
    h = 1e-4
    beta = 0.7
    log_z = [icgi.scan(model, b, engine="exact")["log_z"][0] for b in (beta - h, beta, beta + h)]
    found = icgi.scan(model, beta, engine="exact")
    assert found["energy"][0] == pytest.approx(-(log_z[2] - log_z[0]) / (2 * h), rel=1e-6)
    second = (log_z[2] - 2 * log_z[1] + log_z[0]) / h**2
    assert found["specific_heat"][0] == pytest.approx(beta**2 * second, rel=1e-4)
    assert found["log_z"][0] == pytest.approx(icgi.scan(model, [0.7])["log_z"][0])


def test_evidence_and_zeros() -> None:
    model = zoo.MODELS["zeros"]
    found = icgi.scan(model, [1.0], {0: 0})
    exact = icgi.marginals(model, {0: 0}, "enumerate")
    assert found["log_z"][0] == pytest.approx(exact.log_z)


@pytest.mark.parametrize("kind", ["hard-core gas", "colouring"])
def test_ladders_of_models_with_zeros_agree_with_exact_scans(kind: str) -> None:
    rng = np.random.default_rng(2)
    edges = [scope for scope in zoo.grid_scopes(3, 4) if len(scope) == 2]
    if kind == "colouring":
        table, fields = 1.0 - np.eye(3), np.exp(rng.normal(size=(12, 3)))
    else:
        table = np.array([[1.0, 1.0], [1.0, 0.0]])
        fields = np.exp(rng.normal(size=(12, 2)))
    model = icgi.from_factors(
        [*((e, table) for e in edges), *(((i,), f) for i, f in enumerate(fields))]
    )
    betas, pairs, budget = [0.0, 0.5, 1.5], [(0, 5)], icgi.Budget(iterations=2000)
    found = icgi.scan(model, betas, pairs=pairs, engine="pt", budget=budget)
    exact = icgi.scan(model, betas, pairs=pairs, engine="exact")
    # independent sets and colourings by three colours of a 3 × 4 grid, counted elsewhere
    count = {"hard-core gas": 227, "colouring": 1122}[kind]
    assert exact["log_z"][0] == pytest.approx(np.log(count))
    assert found["specific_heat"][0] == 0
    assert set(found.values) == set(exact.values)
    for name, row in exact.values.items():
        assert (abs(found[name] - row) <= 4.5 * found.errors[name] + 1e-9).all(), name
        assert (found.errors[name][1:] > 0).all()
    assert (found.errors["log_z"] < 0.1).all()


@pytest.mark.parametrize("engine", ["exact", "pt"])
def test_observed_spins_count_with_their_sign(engine: str) -> None:
    model = spin_glass(6, seed=3)
    evidence = {0: 1, 3: 0}
    budget = icgi.Budget(iterations=4000)
    found = icgi.scan(model, [1.0], evidence, [(0, 3), (0, 1)], engine, budget)
    exact = icgi.marginals(model, evidence, "enumerate")
    m = float((2 * exact.probs[:, 1] - 1).mean())
    assert found["magnetisation"][0] == pytest.approx(
        m, abs=5 * found.errors["magnetisation"][0] + 1e-9
    )
    assert found["correlation 0,3"][0] == -1.0
    error = found.errors["correlation 0,1"][0]
    assert found["correlation 0,1"][0] == pytest.approx(2 * exact[1][1] - 1, abs=5 * error + 1e-9)


def test_planar_models_without_field_by_pfaffians() -> None:
    model = lattice(3)
    found = icgi.scan(model, BETAS, pairs=[(0, 1), (0, 2)], engine="pfaffian")
    assert found.how == "pfaffian"
    for b, beta in enumerate(BETAS):
        exact = by_enumeration(model, beta)
        for name in ("log_z", "energy", "entropy", "correlation 0,1"):
            assert found[name][b] == pytest.approx(exact[name], abs=1e-8)
        assert found["specific_heat"][b] == pytest.approx(exact["specific_heat"], rel=1e-5)
    assert np.isnan(found["abs_overlap"]).all()
    assert np.isnan(found["correlation 0,2"]).all()


@pytest.mark.parametrize("size", [10, pytest.param(32, marks=pytest.mark.slow)])
def test_a_lattice_by_tempering_agrees_with_pfaffians(size: int) -> None:
    """±J: energies and log Z of one ladder against the exact ones."""
    model = lattice(size)
    betas = [0.2, 0.5, 0.8]
    exact = icgi.scan(model, betas, engine="pfaffian")
    found = icgi.scan(model, betas, engine="pt", budget=icgi.Budget(iterations=1500))
    for name in ("log_z", "energy", "entropy"):
        off = (found[name] - exact[name]) / found.errors[name]
        assert np.abs(off).max() < 5, name
        assert (found.errors[name] < 0.005 * size**2).all()
    assert found["magnetisation"].tolist() == [0, 0, 0]


def test_draws_stand_in_for_what_has_no_exact_pass() -> None:
    model = icgi.from_ising(np.diag(np.full(19, 0.7), 1))
    found = icgi.scan(model, [1.0], engine="exact")
    # a chain: ⟨s_i s_j⟩ = tanh(J)^|i−j|, so ⟨q²⟩ is the mean of its square
    apart = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    expected = float((np.tanh(0.7) ** (2 * apart)).mean())
    error = found.errors["overlap2"][0]
    assert 0 < error < 0.01
    assert found["overlap2"][0] == pytest.approx(expected, abs=4.5 * error)


def test_models_of_more_states_have_no_spins_but_correlations() -> None:
    model = zoo.MODELS["mixed-cards"]
    exact = icgi.scan(model, [0.5, 1.0], pairs=[(0, 2)])
    assert "magnetisation" not in exact.values
    table = icgi.marginals(model, engine="enumerate").joint(0, 2).probs
    assert exact["correlation 0,2"][1] == pytest.approx(np.trace(table))
    budget = icgi.Budget(iterations=6000)
    found = icgi.scan(model, [0.5, 1.0], pairs=[(0, 2)], engine="pt", budget=budget)
    for name in exact.values:
        assert (np.abs(found[name] - exact[name]) <= 5 * found.errors[name]).all(), name


def test_the_table_as_a_file_and_as_a_picture(tmp_path) -> None:
    found = icgi.scan(spin_glass(6), BETAS)
    found.save(tmp_path / "scan.csv")
    with (tmp_path / "scan.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["beta"]) for row in rows] == BETAS
    assert_allclose([float(row["energy"]) for row in rows], found["energy"])
    assert_allclose([float(row["energy_error"]) for row in rows], 0.0)
    found.plot(tmp_path / "scan.png")
    assert (tmp_path / "scan.png").read_bytes().startswith(b"\x89PNG")


def test_the_seed_decides_and_mistakes_are_named() -> None:
    model = spin_glass(8)
    budget = icgi.Budget(iterations=300)
    first, again = (icgi.scan(model, BETAS, engine="pt", budget=budget) for _ in range(2))
    assert first.to_dict()["values"] == again.to_dict()["values"]
    with pytest.raises(icgi.IcgiError, match="finite numbers"):
        icgi.scan(model, [-1.0])
    with pytest.raises(icgi.IcgiError, match="not by 'lbp'"):
        icgi.scan(model, [1.0], engine="lbp")
    with pytest.raises(KeyError, match="specific_heat"):
        first["heat"]


def test_a_scan_prints_as_its_table_and_draws_itself() -> None:
    model = zoo.MODELS["grid-3x3"]
    lines = repr(icgi.scan(model, [0.5, 1])).splitlines()
    assert lines[0].split()[:3] == ["beta", "log", "z"]
    assert [line.split()[0] for line in lines[1:]] == ["0.5", "1", "jt:"]
    figure = icgi.scan(model, [0.5, 1]).plot()
    assert "energy per variable" in [axis.get_title() for axis in figure.axes]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(1.23456, 0.0, "1.23456"), (1.23456, 0.0123, "1.235(12)"), (math.nan, 0.1, "–")],
)
def test_errors_are_those_of_the_last_digits(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text
