"""Loopy belief propagation: exact on trees, stationary elsewhere, and honest about it."""

import itertools
import math

import numpy as np
import pytest
import quimb.tensor as qtn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from quimb.tensor.belief_propagation import HV1BP
from quimb.tensor.belief_propagation.hv1bp import compute_all_index_marginals_from_messages

import zoo
from icgi.approx import messages
from icgi.approx.flat import compile_models, forecast_bytes, initial_state, packs
from icgi.approx.lbp import LoopyBP
from icgi.approx.messages import NUMBER
from icgi.clock import request_stop, stoppable
from icgi.data.collection import data_folder, instances
from icgi.errors import BudgetError, EvidenceError, IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget, Marginals, Status
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.ising import ising_model

SCHEDULES = list(NUMBER)
TIGHT = 1e-10

GO = np.zeros(1, np.uint8)  # a stop flag that nobody raises


def pairwise(seed: int, n: int, states: int, share: float, scale: float) -> FactorGraph:
    """Random pairwise model in which every variable has a field."""
    rng = np.random.default_rng(seed)
    edges = [e for e in itertools.combinations(range(n), 2) if rng.random() < share]
    scopes = [(i,) for i in range(n)] + edges
    return zoo.random_model(rng, [states] * n, scopes, scale=scale)


def lattice(size: int, couplings: FloatArray, fields: FloatArray) -> FactorGraph:
    """Ising model on a square."""
    scopes = zoo.grid_scopes(size, size)
    spins, pair = np.array([-1.0, 1.0]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    tables = [h * spins for h in fields] + [j * pair for j in couplings]
    return FactorGraph(np.full(size**2, 2), tuple(scopes), tuple(tables))


def frustrated(seed: int = 0) -> FactorGraph:
    """Spin glass in which messages never come to rest."""
    rng = np.random.default_rng(seed)
    return lattice(8, 2.0 * rng.normal(size=112), 0.05 * rng.normal(size=64))


class TestExactOnTrees:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("name", zoo.TREES)
    def test_zoo(self, name: str, schedule: str) -> None:
        found, exact = zoo.run(LoopyBP(schedule=schedule), name), zoo.exact(name)
        assert found.status is Status.EXACT
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)

    @pytest.mark.parametrize("scale", [1e-3, 1e3, 1e5])
    @pytest.mark.parametrize("zeros", [0.0, 0.5])
    def test_at_any_strength(self, scale: float, zeros: float) -> None:
        rng = np.random.default_rng(int(scale))
        scopes = [(0, 1, 2), (2, 3), (3,), (3, 4, 5, 6), (6, 7)]
        model = zoo.random_model(rng, [2, 3, 2, 3, 2, 2, 3, 2], scopes, scale=scale, zeros=zeros)
        found, exact = zoo.run(LoopyBP(), model), zoo.run(Enumerate(), model)
        assert_allclose(found.probs, exact.probs, atol=1e-9)
        assert found.log_z == pytest.approx(exact.log_z, rel=1e-12, abs=1e-9)


class TestAgainstQuimb:
    @pytest.mark.parametrize(
        ("states", "share", "scale"), [(2, 1.0, 0.5), (2, 0.4, 1.0), (3, 0.5, 0.7)]
    )
    @pytest.mark.parametrize("seed", range(4))
    def test_fixed_points_agree(self, seed: int, states: int, share: float, scale: float) -> None:
        model = pairwise(seed, 8, states, share, scale)
        theirs = quimb_marginals(model)
        for schedule in SCHEDULES:
            ours = zoo.run(LoopyBP(schedule=schedule, tolerance=TIGHT), model)
            assert ours.status is Status.AT_REST
            assert_allclose(ours.probs, theirs, atol=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_with_factors_of_three_and_four_variables(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        scopes = [(i,) for i in range(7)]
        scopes += [(0, 1, 2), (2, 3, 4), (4, 5, 0), (1, 3), (2, 4, 5, 6), (6, 0)]
        model = zoo.random_model(rng, [2] * 7, scopes, scale=0.6)
        ours = zoo.run(LoopyBP(tolerance=TIGHT), model)
        assert ours.status is Status.AT_REST
        assert_allclose(ours.probs, quimb_marginals(model), atol=1e-6)


def quimb_marginals(model: FactorGraph) -> FloatArray:
    tensors = [
        qtn.Tensor(np.exp(table), [f"x{i}" for i in scope])
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
    ]
    bp = HV1BP(qtn.TensorNetwork(tensors), smudge_factor=0.0)
    # its default takes stagnation for convergence
    bp.run(tol=1e-11, tol_rolling_diff=0.0, max_iterations=3000)
    assert bp.converged
    found = compute_all_index_marginals_from_messages(bp.tn, bp.get_messages_dense())
    return np.stack([found[f"x{i}"] for i in range(model.n_variables)])


class TestFixedPoint:
    @pytest.mark.parametrize("seed", range(6))
    def test_bethe_free_energy_is_stationary(self, seed: int) -> None:
        """Its derivative vanishes along every direction that keeps marginals consistent."""
        rng = np.random.default_rng(seed)
        scopes = [(0, 1), (1, 2), (2, 0), (2, 3, 4), (0, 4), (3,), (1, 4)]
        model = zoo.random_model(rng, [2, 3, 2, 3, 2], scopes)
        singles, joints = beliefs(model)
        for _ in range(10):
            shifts = [centred(rng.normal(size=len(b))) for b in singles]
            twists = [direction(rng, model.scopes[f], shifts, b) for f, b in joints.items()]

            def energy(t: float) -> float:
                moved = [b + t * d for b, d in zip(singles, shifts, strict=True)]  # noqa: B023
                tables = {f: b + t * d for (f, b), d in zip(joints.items(), twists, strict=True)}  # noqa: B023
                return bethe(model, moved, tables)

            step = 1e-4
            slope = (energy(step) - energy(-step)) / (2 * step)
            curvature = abs(energy(step) + energy(-step) - 2 * energy(0)) / step**2
            assert abs(slope) < 1e-5 * max(curvature, 1.0)
        found = zoo.run(LoopyBP(tolerance=TIGHT), model)
        assert found.log_z == pytest.approx(bethe(model, singles, joints), abs=1e-8)

    @pytest.mark.parametrize("seed", range(5))
    def test_schedules_and_damping_agree(self, seed: int) -> None:
        model = pairwise(seed, 10, 3, 0.4, 0.6)
        answers = [
            zoo.run(LoopyBP(schedule=schedule, damping=damping, tolerance=TIGHT), model)
            for schedule in SCHEDULES
            for damping in (0.0, 0.3, 0.5)
        ]
        for found in answers:
            assert found.status is Status.AT_REST
            assert_allclose(found.probs, answers[0].probs, atol=1e-7)
            assert found.log_z == pytest.approx(answers[0].log_z, abs=1e-7)

    def test_converged_means_messages_at_rest(self) -> None:
        """Damping slows messages down, but cannot make them look converged."""
        found = zoo.run(LoopyBP(damping=0.999), "grid-3x3")
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["residual"] > 1e-2
        assert found.log_z is None


def beliefs(model: FactorGraph) -> tuple[list[FloatArray], dict[int, FloatArray]]:
    """Beliefs of the variables and of the factors of two and more variables at a fixed point."""
    from test_messages import log_joint

    flat = compile_models([model])
    state = initial_state(flat)
    messages.advance(flat, state, messages.SEQUENTIAL, 0.0, 1e-13, np.array([5000]), 5000, 0, 1, GO)
    singles = []
    for a, b in zip(flat.ratio_start[:-1], flat.ratio_start[1:], strict=True):
        weights = np.exp(np.concatenate([[0.0], state.belief[a:b]]))
        singles.append(weights / weights.sum())
    joints = {}
    for number in range(len(flat.rho)):
        scope = flat.variable[flat.edge_start[number] : flat.edge_start[number + 1]]
        weights = np.exp(log_joint(flat, state, number))
        joints[model.scopes.index(tuple(scope.tolist()))] = weights / weights.sum()
    return singles, joints


def bethe(model: FactorGraph, singles: list[FloatArray], joints: dict[int, FloatArray]) -> float:
    """Bethe's −F = Σ_f ⟨θ_f⟩ + H(b_f), and (1 − degree) H(b_i) for every variable."""

    def entropy(b: FloatArray) -> float:
        return -float((b * np.log(b)).sum())

    total = 0.0
    degree = np.zeros(model.n_variables)
    for f, (scope, table) in enumerate(zip(model.scopes, model.log_tables, strict=True)):
        b = joints[f] if f in joints else singles[scope[0]]
        total += float((b * table).sum()) + entropy(b)
        degree[list(scope)] += 1
    return total + sum((1 - degree[i]) * entropy(b) for i, b in enumerate(singles))


def centred(v: FloatArray) -> FloatArray:
    return np.asarray((v - v.mean()) * 0.05)


def direction(
    rng: np.random.Generator, scope: tuple[int, ...], shifts: list[FloatArray], b: FloatArray
) -> FloatArray:
    """Random change of a factor's belief with the given changes of its marginals."""
    total = np.zeros(b.shape)
    spread = 0.05 * rng.normal(size=b.shape)
    for axis, i in enumerate(scope):
        share = b.sum(axis, keepdims=True)  # a distribution of the other variables
        total += shifts[i].reshape([-1 if a == axis else 1 for a in range(b.ndim)]) * share
        # what the last line gave to other axes sums to zero along each of them
        spread = spread - spread.mean(axis, keepdims=True)
    return total + spread


class TestRestarts:
    def test_best_bethe_log_z_of_the_fixed_points_is_kept(self) -> None:
        """A magnet in a weak field may point along it or against it."""
        model = lattice(4, np.full(24, 0.8), np.full(16, 0.02))
        once = zoo.run(LoopyBP(), model)
        budget = Budget(iterations=10_000)
        runs = [zoo.run(LoopyBP(restarts=8), model, seed=s, budget=budget) for s in range(3)]
        for found in runs:
            assert found.stats["restarts"] == 8
            assert found.stats["converged_runs"] == 9
            assert_allclose(found.probs, once.probs, atol=1e-4)
            assert found.log_z == pytest.approx(once.log_z, abs=1e-6)
        assert max(found.stats["log_z_spread"] for found in runs) > 0.1

    @pytest.mark.skipif(data_folder() is None, reason="ICGI_DATA is not set")
    @pytest.mark.parametrize("name", ["DBN_11", "Segmentation_11"])
    def test_published_instances_whose_schedules_disagree(self, name: str) -> None:
        """Flooding ends at the wrong one of several fixed points, and restarts find that out."""
        instance = next(i for i in instances(data_folder()) if i.name == name)
        model, evidence = instance.model(), instance.evidence()
        exact = np.stack([row for row in instance.reference() if len(row) == model.max_states])
        errors = []
        for restarts in (0, 3):
            engine = LoopyBP(schedule="flooding", restarts=restarts)
            found = zoo.run(engine, model, evidence, budget=Budget(4000))
            assert found.status is Status.AT_REST
            errors.append(np.abs(found.probs - exact).sum(1).mean())
        assert found.stats["log_z_spread"] > 1
        assert errors[0] > 0.5 > 0.25 > errors[1]

    def test_budget_is_shared(self) -> None:
        budget = Budget(iterations=100)
        found = zoo.run(LoopyBP(restarts=4), frustrated(), budget=budget)
        assert found.stats["sweeps"] == 100

    def test_same_seed_same_answer(self) -> None:
        first, second = (zoo.run(LoopyBP(restarts=5), frustrated(), seed=3) for _ in range(2))
        assert_array_equal(first.probs, second.probs)
        assert first.stats == second.stats


class TestBudget:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("sweeps", [0, 1, 7])
    def test_sweeps(self, schedule: str, sweeps: int) -> None:
        budget = Budget(iterations=sweeps)
        found = zoo.run(LoopyBP(schedule=schedule), frustrated(), budget=budget)
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["sweeps"] == sweeps
        assert_allclose(found.probs.sum(1), 1.0)

    def test_seconds(self) -> None:
        zoo.run(LoopyBP(), frustrated(), budget=Budget(1))  # compiling is not what is timed
        found = zoo.run(LoopyBP(), frustrated(), budget=Budget(10**9, seconds=0.05))
        assert found.status is Status.BUDGET_SPENT
        assert 0 < found.stats["sweeps"] < 10**8

    def test_memory(self) -> None:
        with pytest.raises(BudgetError):
            zoo.run(LoopyBP(), "grid-3x3", budget=Budget(table_bytes=64))

    @pytest.mark.parametrize("kwargs", [{"damping": 1.0}, {"restarts": -1}, {"schedule": "no"}])
    def test_settings(self, kwargs: dict) -> None:
        with pytest.raises(IcgiError):
            LoopyBP(**kwargs)


class TestBatch:
    def models(self) -> list[FactorGraph]:
        return [
            *zoo.MODELS.values(),
            frustrated(),
            *(pairwise(s, 9, 3, 0.5, 1.0) for s in range(9)),
        ]

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize(
        "kwargs",
        [{}, {"schedule": "residual", "damping": 0.3}, {"schedule": "flooding"}, {"restarts": 6}],
    )
    def test_equals_one_by_one(self, kwargs: dict, threads: int) -> None:
        models = self.models()
        first, second = (np.random.default_rng(5).spawn(len(models)) for _ in range(2))
        batch = LoopyBP(**kwargs).batch(models, zoo.BUDGET, first, threads)
        for model, found, rng in zip(models, batch, second, strict=True):
            alone = LoopyBP(**kwargs)(model, zoo.BUDGET, rng)
            assert_array_equal(found.probs, alone.probs)
            assert found.status is alone.status
            assert dict(found.stats) == pytest.approx(dict(alone.stats), rel=1e-12, abs=1e-12)

    def test_is_cut_where_memory_ends(self) -> None:
        models, rng = self.models(), np.random.default_rng(0)
        most = max(forecast_bytes(model, 2) for model in models)
        tight = Budget(table_bytes=most)
        assert len(packs(models, tight, "lbp", 2)) > 2
        cut, whole = (LoopyBP().batch(models, b, [rng] * len(models)) for b in (tight, zoo.BUDGET))
        for a, b in zip(cut, whole, strict=True):
            assert_array_equal(a.probs, b.probs)
        with pytest.raises(BudgetError):
            LoopyBP().batch(models, Budget(table_bytes=most - 1), [rng] * len(models))

    def test_seconds_are_shared_out(self) -> None:
        """No model waits for the first ones to use up the time of all."""
        models = [frustrated(seed) for seed in range(10)]
        rngs = np.random.default_rng(0).spawn(10)
        LoopyBP().batch(models, Budget(1), rngs)  # compiling is not what is timed
        found = LoopyBP().batch(models, Budget(10**9, seconds=0.05), rngs)
        assert all(0 < answer.stats["sweeps"] < 10**8 for answer in found)

    def test_of_nothing_is_nothing(self) -> None:
        assert LoopyBP().batch([], zoo.BUDGET, []) == []


class TestAutomaticRestarts:
    @pytest.mark.parametrize("seed", range(12))
    def test_never_lower_the_bethe_log_z(self, seed: int) -> None:
        model = pairwise(seed, 9, 2, 0.6, 2.0)
        once, more = (zoo.run(LoopyBP(restarts=r), model) for r in (0, None))
        if once.status is Status.AT_REST:
            assert more.log_z >= once.log_z - 1e-9
            assert more.stats["sweeps"] <= once.stats["sweeps"] + max(3 * once.stats["sweeps"], 60)
        else:
            assert more.stats["restarts"] == 0
            assert_array_equal(more.probs, once.probs)

    @pytest.mark.parametrize("seed", [10, 11, 16, 20])
    def test_leave_a_fixed_point_that_is_not_the_best(self, seed: int) -> None:
        """A ferromagnet in random fields, where the first sweep decides for the wrong side."""
        fields = 0.5 * np.random.default_rng(seed).normal(size=10)
        model = ising_model(np.triu(np.full((10, 10), 0.25), 1), fields)
        once, more = (zoo.run(LoopyBP(restarts=r), model) for r in (0, None))
        assert once.status is more.status is Status.AT_REST
        assert more.log_z > once.log_z + 0.1
        exact = zoo.run(Enumerate(), model).probs
        assert np.abs(more.probs - exact).max() < np.abs(once.probs - exact).max()

    def test_are_none_on_forests(self) -> None:
        assert zoo.run(LoopyBP(), "tree").stats["restarts"] == 0

    def test_share_the_time_when_asked_for(self) -> None:
        """The first run of a model that never rests takes half of the time, not all of it."""
        engine = LoopyBP(restarts=3)
        zoo.run(engine, frustrated(), budget=Budget(20))
        found = zoo.run(engine, frustrated(), budget=Budget(seconds=0.4))
        assert found.stats["restarts"] == 3


class TestInterrupted:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_beliefs_fit_the_messages(self, schedule: str) -> None:
        """A raised flag at any moment: sums of messages are the beliefs."""
        flat = compile_models([frustrated()])
        state, stop = initial_state(flat), np.ones(1, np.uint8)
        limit = np.array([100])
        number = messages.NUMBER[schedule]
        messages.advance(flat, state, number, 0.0, 1e-6, limit, 3, 0, 1, GO)
        messages.advance(flat, state, number, 0.0, 1e-6, limit, 3, 0, 1, stop)
        assert state.sweeps[0] == 3
        again = initial_state(flat, state.messages.copy())
        assert_allclose(state.belief, again.belief, atol=1e-9)

    @pytest.mark.parametrize("name", zoo.MODELS)
    def test_no_time_still_gives_possible_distributions(self, name: str) -> None:
        found, exact = zoo.run(LoopyBP(), name, budget=Budget(seconds=0.0)), zoo.exact(name)
        assert_allclose(found.probs.sum(1), 1.0)
        assert (found.probs[exact.probs == 0] == 0).all()

    def test_a_large_model_without_time_is_answered_from_its_unary_factors(self) -> None:
        n = 2**16 + 1
        tables = (np.array([0.0, math.log(3.0)]), *([np.zeros(2)] * n))
        model = FactorGraph(np.full(n, 2), ((0,), *((i,) for i in range(n))), tables)
        found = zoo.run(LoopyBP(), model, budget=Budget(seconds=0.0))
        assert found.status is Status.BUDGET_SPENT
        assert_allclose(found.probs[:2], [[0.25, 0.75], [0.5, 0.5]])

    def test_a_stop_leaves_the_best_answer_so_far(self) -> None:
        with stoppable():
            request_stop()
            found = zoo.run(LoopyBP(), frustrated())
        assert found.status is Status.BUDGET_SPENT
        assert_allclose(found.probs.sum(1), 1.0)


class TestZeros:
    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_impossible_states_get_no_probability(self, schedule: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        scopes = [(0, 1), (1, 2), (2, 0), (2, 3, 4), (4, 0), (1, 3)]
        model = zoo.random_model(rng, [3, 2, 3, 2, 4], scopes, zeros=0.5)
        found = LoopyBP(schedule=schedule)(model, zoo.BUDGET, rng)
        exact = Enumerate()(model, zoo.BUDGET, rng)
        assert (found.probs[exact.probs == 0] == 0).all()
        check(model, found)

    def test_contradiction_is_an_error(self) -> None:
        """Three variables, all different, of two states: only probing finds that out."""
        different = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
        model = FactorGraph(np.full(3, 2), ((0, 1), (1, 2), (2, 0)), (different,) * 3)
        with pytest.raises(EvidenceError):
            zoo.run(LoopyBP(), model)

    def test_loops_of_equalities_stay_finite(self) -> None:
        """Messages around a loop of equalities grow without end; probabilities do not care."""
        equal = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
        field = np.array([0.0, 5.0])
        scopes = ((0, 1), (1, 2), (2, 0), (0,))
        model = FactorGraph(np.full(3, 2), scopes, (equal, equal, equal, field))
        for schedule in SCHEDULES:
            found = zoo.run(LoopyBP(schedule=schedule), model, budget=Budget(100_000))
            check(model, found)
            assert (found.probs[:, 1] > 0.99).all()


def check(model: FactorGraph, found: Marginals) -> None:
    """Finite, normalised, and with a status that agrees with the residual."""
    assert found.probs.shape == (model.n_variables, model.max_states)
    assert np.isfinite(found.probs).all()
    assert (found.probs >= 0).all()
    assert_allclose(found.probs.sum(1), 1.0, atol=1e-9)
    assert found.log_z is None or math.isfinite(found.log_z)
    assert all(not math.isnan(value) for value in found.stats.values())
    assert (found.status is not Status.BUDGET_SPENT) == (found.stats["residual"] <= 1e-6)


@st.composite
def nasty_models(draw: st.DrawFn) -> FactorGraph:
    """Zeros, one-state variables, huge and tiny potentials, repeated and nested scopes."""
    cards = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    numbers = st.permutations(range(len(cards)))
    scopes = [
        tuple(draw(numbers)[: draw(st.integers(0, min(4, len(cards))))])
        for _ in range(draw(st.integers(0, 7)))
    ]
    value = st.one_of(
        st.just(-math.inf),
        st.sampled_from([0.0, 1e-300, -1e-300, 1e3, -1e3, 1e5, -1e5, 1e300, -1e300]),
        st.floats(-5, 5),
    )
    tables = []
    for scope in scopes:
        shape = [cards[i] for i in scope]
        table = np.array(
            draw(st.lists(value, min_size=math.prod(shape), max_size=math.prod(shape)))
        )
        table = table.reshape(shape)
        if scope and not np.isfinite(table[(0,) * len(scope)]):
            table[(0,) * len(scope)] = 0.0  # one configuration stays possible
        tables.append(np.where(table == -np.inf, 0.0, table) if not scope else table)
    return FactorGraph(np.array(cards), tuple(scopes), tuple(np.asarray(t) for t in tables))


@given(nasty_models(), st.sampled_from(SCHEDULES), st.sampled_from([0.0, 0.5]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_sound_whatever_the_model(
    model: FactorGraph, schedule: str, damping: float
) -> None:
    engine = LoopyBP(schedule=schedule, damping=damping, restarts=1)
    found = engine(model, Budget(iterations=60), np.random.default_rng(0))
    check(model, found)
