import numpy as np
import pytest

import icgi
import zoo
from icgi import clock
from icgi.data.collection import Instance, data_folder, instances
from icgi.data.families import FAMILIES
from icgi.elimination.sampling import log_potential
from icgi.exact.enumeration import joint
from icgi.model.condition import condition
from icgi.model.ising import ising_model


def largest(model, evidence=None):
    axes = model.cards.tolist()
    log = joint(model).reshape(axes)
    for i, x in (evidence or {}).items():
        keep = np.full(axes[i], -np.inf)
        keep[x] = 0.0
        log = log + keep.reshape([-1 if a == i else 1 for a in range(len(axes))])
    return log


@pytest.mark.parametrize("name", zoo.MODELS)
@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_the_likeliest_configuration_is_that_of_enumeration(engine: str, name: str) -> None:
    model = zoo.MODELS[name]
    found = icgi.mpe(model, engine=engine)
    log = largest(model)
    assert found.exact
    assert found.label == "exact"
    assert log[tuple(found.states)] == pytest.approx(log.max(), abs=1e-9, rel=1e-12)
    assert found.log_weight == pytest.approx(log.max(), abs=1e-9, rel=1e-12)
    expected = log.max() - zoo.exact(name).log_z
    assert found.log_probability == pytest.approx(expected, abs=1e-8)


def test_evidence_is_kept() -> None:
    model = zoo.MODELS["mixed-cards"]
    for state in range(5):
        found = icgi.mpe(model, {1: state})
        assert found.states[1] == state
        assert found.log_weight == pytest.approx(largest(model, {1: state}).max(), abs=1e-10)


def test_zeros_and_evidence_keep_the_numbers_of_states() -> None:
    never = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    model = icgi.from_factors([((0, 1), never), ((1,), [5.0, 1.0, 1.0])])
    assert icgi.mpe(model, {0: 0}).states.tolist() == [0, 2]


def test_of_equal_configurations_always_the_same() -> None:
    model = icgi.from_factors([(("a", "b"), np.ones((3, 3))), (("b", "c"), np.ones((3, 2)))])
    first = icgi.mpe(model, seed=0)
    assert all((icgi.mpe(model, seed=s).states == first.states).all() for s in range(5))
    assert first["a"] == "0"


@pytest.mark.parametrize("name", ["grid-3x3", "zeros", "mixed-cards", "ternary-factors"])
def test_the_search_finds_it_on_small_models_and_says_best_found(name: str) -> None:
    model = zoo.MODELS[name]
    found = icgi.mpe(model, engine="pt", budget=icgi.Budget(iterations=400))
    assert not found.exact
    assert found.label == "best found"
    assert found.log_weight == pytest.approx(largest(model).max(), abs=1e-10)


def test_the_search_reaches_the_ground_state_of_a_frustrated_lattice() -> None:
    rng = np.random.default_rng(2)
    edges = [s for s in zoo.grid_scopes(8, 8) if len(s) == 2]
    model = ising_model((np.array(edges), rng.choice([-1.0, 1.0], len(edges))))
    exact = icgi.mpe(model, engine="exact")
    found = icgi.mpe(model, engine="pt", budget=icgi.Budget(iterations=300))
    assert found.log_weight == pytest.approx(exact.log_weight)


def test_beyond_exact_the_search_answers_and_exact_refuses() -> None:
    rng = np.random.default_rng(0)
    J = np.triu(rng.normal(size=(60, 60)), 1)
    model = icgi.from_ising(J)
    budget = icgi.Budget(iterations=100)
    assert icgi.mpe(model, budget=budget).label == "best found"
    with pytest.raises(icgi.BudgetError, match="exact inference needs"):
        icgi.mpe(model, engine="exact")


def test_the_file_has_the_form_of_the_competitions(tmp_path) -> None:
    model = zoo.MODELS["mixed-cards"]
    found = icgi.mpe(model)
    found.save(tmp_path / "a.MPE")
    head, row = (tmp_path / "a.MPE").read_text().splitlines()
    assert head == "MPE"
    assert list(map(int, row.split())) == [4, *found.states]


QUICK = ("Grids_11", "Promedus_13", "Pedigree_12", "Segmentation_11", "Alchemy_11", "pdb1rh4")


@pytest.fixture(scope="module")
def collection() -> dict[str, Instance]:
    folder = data_folder()
    if folder is None:
        pytest.skip("set ICGI_DATA to the folder of manifest.csv to compare with toulbar2")
    return {instance.name: instance for instance in instances(folder)}


def by_toulbar2(model, seconds: int) -> float | None:
    """Largest log weight where toulbar2 proves it, to six digits after the point."""
    problem = pytest.importorskip("pytoulbar2").CFN(1e9, 6)
    names = [f"x{i}" for i in range(model.n_variables)]
    for name, card in zip(names, model.cards.tolist(), strict=True):
        problem.AddVariable(name, range(card))
    constant = 0.0
    for scope, table in zip(model.scopes, model.log_tables, strict=True):
        top = float(table.max())
        constant += top
        if scope:
            costs = np.minimum(top - table, 1e8).ravel().tolist()
            problem.AddFunction([names[i] for i in scope], costs)
    answer = problem.Solve(timeLimit=seconds)
    if answer is None:
        return None
    states = np.array(answer[0], np.int64)[None]
    return float(log_potential(model, states)[0])


@pytest.mark.parametrize("name", QUICK)
def test_collections_agree_with_toulbar2(name: str, collection) -> None:
    instance = collection[name]
    model, evidence = instance.model(), instance.evidence()
    found = icgi.mpe(model, evidence, engine="exact")
    theirs = by_toulbar2(condition(model, evidence).model, seconds=20)
    assert theirs is not None
    assert found.log_weight == pytest.approx(theirs, rel=1e-6, abs=1e-3)


def test_the_search_that_is_stopped_early_has_what_it_came_across(monkeypatch) -> None:
    model = FAMILIES["grid"].sample(np.random.default_rng(0), rows=8, columns=8)
    monkeypatch.setattr("icgi.sampling.tempering.burn_in", lambda *given: clock.request_stop())
    with clock.stoppable():
        found = icgi.mpe(model, engine="pt", budget=icgi.Budget(seconds=60))
    assert not found.exact
    assert len(found.states) == 64
