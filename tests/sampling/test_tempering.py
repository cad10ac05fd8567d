import threading
import time
from dataclasses import replace

import mixed
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zoo
from icgi import clock
from icgi.data.families import FAMILIES
from icgi.engines import parse_engine
from icgi.errors import BudgetError, IcgiError, UnsupportedModelError
from icgi.exact.enumeration import joint
from icgi.exact.junction_tree import JunctionTree
from icgi.inference import UNKNOWN_ERROR, Budget, Marginals, Status
from icgi.model.graph import FactorGraph
from icgi.model.ising import ising_model, potts_model
from icgi.sampling.targets import guess
from icgi.sampling.tempering import ParallelTempering


def lattice(rows: int, coupling: float | np.ndarray, field: float | np.ndarray) -> FactorGraph:
    pairs = np.array([scope for scope in zoo.grid_scopes(rows, rows) if len(scope) == 2])
    return ising_model((pairs, coupling), np.broadcast_to(field, rows * rows))


FERROMAGNET = lattice(6, 0.8, 0.01)  # two modes, far apart


def run(engine: ParallelTempering, model: FactorGraph, sweeps: int, seed: int = 0) -> Marginals:
    return zoo.run(engine, model, seed=seed, budget=Budget(iterations=sweeps))


def calibrate(count: int, sweeps: int, seed: int) -> None:
    """z-scores of marginals and of log Z against enumeration."""
    rng = np.random.default_rng(seed)
    of_marginals, of_log_z, statuses = [], [], []
    for k, (model, exact) in enumerate(mixed.models(count, seed)):
        found = run(ParallelTempering(), model, sweeps, seed=k)
        statuses.append(found.status)
        impossible = exact.probs == 0
        assert (found.probs[impossible] == 0).all()
        z = mixed.z_score(found, exact, rng)
        if z is not None:
            of_marginals.append(z)
            of_log_z.append((found.log_z - exact.log_z) / found.stats["log_z_std_error"])
    assert len(of_marginals) > 0.95 * count
    mixed.assert_honest(of_marginals)
    mixed.assert_honest(of_log_z)
    assert np.mean([status is not Status.BUDGET_SPENT for status in statuses]) > 0.9


def test_errors_are_honest_on_200_random_models() -> None:
    calibrate(200, 400, seed=5)


@pytest.mark.slow
def test_errors_are_honest_on_1400_random_models() -> None:
    calibrate(1400, 1000, seed=6)


@pytest.mark.parametrize("clusters", ["swendsen-wang", "houdayer"])
def test_cluster_moves_agree_with_exact(clusters: str) -> None:
    rng = np.random.default_rng(2)
    model = lattice(4, rng.normal(0, 1.2, 24), rng.normal(0, 0.2, 16))
    exact = zoo.run(JunctionTree(), model)
    found = run(ParallelTempering(clusters=clusters), model, 1500)
    assert found.status is Status.CONVERGED
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error).all()
    assert abs(found.log_z - exact.log_z) < 4 * found.stats["log_z_std_error"]


def test_houdayer_takes_models_with_zeros_and_many_states() -> None:
    found = run(ParallelTempering(clusters="houdayer"), zoo.MODELS["zeros"], 1500)
    exact = zoo.exact("zeros")
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error + 1e-12).all()


def test_swendsen_wang_needs_an_ising_model() -> None:
    potts = potts_model(np.array([(0, 1)]), 1.0, n_states=3)
    with pytest.raises(UnsupportedModelError, match="houdayer"):
        run(ParallelTempering(clusters="swendsen-wang"), potts, 10)


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    for name in ("grid-3x3", "zeros", "ternary-factors"):
        one, three = (
            zoo.run(ParallelTempering(threads=threads), name, seed=4) for threads in (1, 3)
        )
        assert_array_equal(one.probs, three.probs)
        assert_array_equal(one.std_error, three.std_error)
        assert one.stats == three.stats
        assert one.log_z == three.log_z


def test_work_counts_sweeps_not_time() -> None:
    model = lattice(4, 0.4, 0.2)
    engine = ParallelTempering(replicas=6, threads=1)
    short, long = run(engine, model, 400), run(engine, model, 1200)
    assert long.stats["work"] / short.stats["work"] == pytest.approx(3.0)
    assert run(replace(engine, threads=2), model, 400).stats["work"] == short.stats["work"]


def test_two_modes_are_weighed_right() -> None:
    found = run(ParallelTempering(), FERROMAGNET, 3000)
    exact = zoo.run(JunctionTree(), FERROMAGNET)
    assert found.status is Status.CONVERGED
    assert found.stats["round_trips_min"] > 10
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error).all()
    assert found.stats["swap_rate_min"] > 0.3


def test_a_hot_end_that_is_too_cold_is_detected() -> None:
    for seed in range(3):
        found = run(ParallelTempering(hottest=0.9, replicas=6), FERROMAGNET, 3000, seed)
        assert found.status is Status.BUDGET_SPENT
        assert found.stats["rhat_hot_end"] > 1.2
        assert found.stats["swap_rate_min"] > 0.3  # swaps alone look fine
        assert found.log_z is None


def test_a_hot_end_that_mixes_by_itself_is_accepted() -> None:
    found = run(ParallelTempering(hottest=0.3, replicas=8), FERROMAGNET, 3000)
    exact = zoo.run(JunctionTree(), FERROMAGNET)
    assert found.status is Status.CONVERGED
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error).all()


def test_a_ladder_with_a_gap_is_detected() -> None:
    rng = np.random.default_rng(3)
    glass = lattice(12, rng.normal(0, 3.0, 264), rng.normal(0, 0.3, 144))
    found = run(ParallelTempering(replicas=2), glass, 1000)
    assert found.status is Status.BUDGET_SPENT
    assert found.stats["round_trips"] == 0
    assert found.stats["swap_rate_min"] < 0.01
    assert found.log_z is None
    assert found.stats["std_error"] > 0.05


def test_symmetric_spins_get_exactly_one_half() -> None:
    pairs = np.array([(0, 1), (1, 2), (0, 2), (3, 4)])
    model = ising_model((pairs, [1.0, -2.0, 0.5, 3.0]), [0, 0, 0, 0.1, 0])
    found, exact = run(ParallelTempering(), model, 1000), zoo.run(JunctionTree(), model)
    assert_array_equal(found.probs[:3], 0.5)
    assert_array_equal(found.std_error[:3], 0.0)
    assert (found.std_error[3:] > 0).all()
    assert_allclose(found.probs, exact.probs, atol=0.1)
    assert abs(found.log_z - exact.log_z) < 4 * found.stats["log_z_std_error"]


def parity(n: int, rng: np.random.Generator) -> FactorGraph:
    """Even parity on overlapping triples: no single change leads from one solution to another."""
    table = np.where(np.indices((2, 2, 2)).sum(0) % 2 == 0, 0.0, -np.inf)
    scopes = [(i, (i + 1) % n, (i + 3) % n) for i in range(n - 2)]
    fields = [np.array([0.0, h]) for h in rng.normal(0, 0.7, n)]
    tables = (*[table.copy() for _ in scopes], *fields)
    return FactorGraph(np.full(n, 2), (*scopes, *((i,) for i in range(n))), tables)


def test_solutions_that_no_single_change_connects() -> None:
    model = parity(9, np.random.default_rng(0))
    found, exact = run(ParallelTempering(), model, 4000), zoo.run(JunctionTree(), model)
    assert found.status is Status.CONVERGED
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error).all()
    assert abs(found.log_z - exact.log_z) < 4 * found.stats["log_z_std_error"]


def colouring(n: int, colours: int) -> FactorGraph:
    differ = np.where(np.eye(colours, dtype=bool), -np.inf, 0.0)
    scopes = tuple((i, j) for j in range(n) for i in range(j))
    return FactorGraph(np.full(n, colours), scopes, tuple(differ.copy() for _ in scopes))


def test_permutations_are_sampled() -> None:
    """The colourings of K4 by 4 colours: single changes are all forbidden."""
    model = colouring(4, 4)
    found = run(ParallelTempering(), model, 4000)
    assert_allclose(found.probs, 0.25, atol=4.5 * found.stats["std_error"])
    assert found.log_z == pytest.approx(np.log(24), abs=4 * found.stats["log_z_std_error"])


def test_no_solution_is_explained() -> None:
    with pytest.raises(UnsupportedModelError, match="violates 1 of 6 factors"):
        run(ParallelTempering(), colouring(4, 3), 200)


@pytest.mark.parametrize("sweeps", [1, 2, 5, 40, 333])
def test_sweeps_are_kept_to(sweeps: int) -> None:
    for name in ("grid-3x3", "zeros"):
        found = run(ParallelTempering(), zoo.MODELS[name], sweeps)
        assert found.stats["sweeps"] == sweeps
        assert np.isfinite(found.probs).all()
        assert (found.std_error >= 0).all()
        if sweeps < 8:
            assert found.status is Status.BUDGET_SPENT


def test_seconds_are_kept_to() -> None:
    run(ParallelTempering(), FERROMAGNET, 10)  # compile first
    began = time.perf_counter()
    budget = Budget(iterations=10**9, seconds=0.4)
    found = zoo.run(ParallelTempering(), FERROMAGNET, budget=budget)
    assert time.perf_counter() - began < 2.0
    assert found.stats["sweeps"] > 20


def test_reliability_is_told_for_every_variable_and_state() -> None:
    found = run(ParallelTempering(), zoo.MODELS["zeros"], 1500)
    possible = (found.probs > 0) & (found.probs < 1)
    for values in (found.ess, found.rhat):
        assert values.shape == found.probs.shape
        assert (values[possible] > 0).all()
    assert found.rhat.max() == found.stats["rhat"]
    assert found.ess[possible].min() == found.stats["ess"]
    assert found.deviation.shape == (len(found.probs),)
    assert found.deviation.max() == found.stats["deviation_max"] > 0


@pytest.mark.parametrize("as_potts", [False, True])
def test_almost_certain_variables_keep_their_variance(as_potts: bool) -> None:
    """p is 1 − 10⁻⁹ with fluctuations far below the rounding of p²; other states are in reach."""
    pairs, couplings = np.array([(0, 1), (1, 2)]), np.array([5.0, 0.5])
    model = ising_model((pairs, couplings), [5.0, 5.0, 0.0])
    if as_potts:
        spin = np.outer([-1.0, 1.0], [-1.0, 1.0])
        fields = np.array([[-5.0, 5.0, -9.0], [-5.0, 5.0, -9.0], [0.0, 0.0, -9.0]])
        tables = np.pad(couplings[:, None, None] * spin, ((0, 0), (0, 1), (0, 1)))
        model = potts_model(pairs, tables, fields)
    found = run(ParallelTempering(), model, 1000)
    assert found.status is Status.CONVERGED
    assert found.stats["ess"] > 100
    assert found.stats["std_error"] < 0.02


def test_memory_is_predicted() -> None:
    with pytest.raises(BudgetError, match="fewer replicas"):
        zoo.run(ParallelTempering(), FERROMAGNET, budget=Budget(table_bytes=5000))


def test_levels_follow_the_difficulty() -> None:
    easy = run(ParallelTempering(), zoo.MODELS["chain"], 500).stats
    hard = run(ParallelTempering(), FERROMAGNET, 500).stats
    assert easy["replicas"] < hard["replicas"] <= 64
    assert run(ParallelTempering(replicas=5), FERROMAGNET, 100).stats["replicas"] == 5


def test_evidence_and_fixed_variables() -> None:
    found = zoo.run(ParallelTempering(), "tree", {0: 1, 4: 2})
    exact = zoo.run(JunctionTree(), "tree", {0: 1, 4: 2})
    assert (np.abs(found.probs - exact.probs) < 4.5 * found.std_error + 1e-12).all()
    everything = dict.fromkeys(range(6), 0)
    assert zoo.run(ParallelTempering(), "chain", everything).status is Status.EXACT


@pytest.mark.parametrize(
    "settings", [{"replicas": 1}, {"ensembles": 1}, {"hottest": 1.0}, {"hottest": -0.1}]
)
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(IcgiError, match="pt:"):
        ParallelTempering(**settings)


@pytest.mark.parametrize("decades", [100, 300])
def test_zeros_with_wide_ranges(decades: int) -> None:
    """Zeros next to entries of 10^±300: no crash, impossible states stay so."""
    solved = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scopes, logs = [], []
        for _ in range(6):
            scopes.append(tuple(rng.choice(5, 3, replace=False).tolist()))
            if rng.random() < 0.5:
                logs.append(np.where(rng.random((2, 2, 2)) < 0.6, 0.0, -np.inf))
            else:
                logs.append(np.log(10.0) * rng.uniform(-decades, decades, (2, 2, 2)))
        model = FactorGraph(np.full(5, 2), tuple(scopes), tuple(logs))
        try:
            exact = zoo.run(JunctionTree(), model)
        except IcgiError:
            continue
        found = run(ParallelTempering(threads=1), model, 200, seed)
        assert_allclose(found.probs.sum(1), 1.0)
        possible = np.isfinite(joint(model)).reshape((2,) * 5)
        for i in range(5):
            others = tuple(j for j in range(5) if j != i)
            assert (found.probs[i][~possible.any(others)] == 0).all()
        if found.status is Status.CONVERGED:
            assert np.abs(found.probs - exact.probs).max() < 0.25
            solved += 1
    assert solved > 0


def stuck() -> FactorGraph:
    """Zeros and log weights of some hundreds: random starts fall into the wrong state, and stay."""
    no = -np.inf
    return FactorGraph(
        np.array([2, 4, 4]),
        ((0, 2), (1, 2), (0,), (1,)),
        (
            np.array([[no, no, -11.6, no], [0.4, no, no, 7.3]]),
            np.array(
                [
                    [-520.2, 3.9, 334.4, 499.0],
                    [233.3, 429.7, 501.5, -236.0],
                    [202.5, 159.2, -274.7, 548.5],
                    [-183.0, 595.1, 435.5, 85.3],
                ]
            ),
            np.array([328.5, 430.0]),
            np.array([-305.2, -332.7, -13.2, 322.3]),
        ),
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_never_moved_is_not_known(seed: int) -> None:
    """All ensembles agree, and are wrong; nothing ever came down the ladder."""
    exact = zoo.run(JunctionTree(), stuck())
    found = run(ParallelTempering(), stuck(), 300, seed)
    wrong = np.abs(found.probs - exact.probs) > 0.3
    assert found.status is Status.BUDGET_SPENT
    assert found.log_z is None
    assert wrong.any()
    assert (1.645 * found.std_error[wrong] > 0.99).all()  # bands that hold any truth


@pytest.mark.parametrize("engine", ["pt", "pa"])
def test_many_large_factors_with_wide_ranges(engine: str) -> None:
    """Factors of up to twelve spins, entries of 10^±300, zeros: an answer, or a reason."""
    rng = np.random.default_rng(3)
    sizes = [12, 11, 10, 8, 6, 5, 4, 3]
    scopes = tuple(tuple(rng.choice(12, k, replace=False).tolist()) for k in sizes)
    tables = [np.log(10.0) * rng.uniform(-300, 300, (2,) * k) for k in sizes]
    tables = [np.where(rng.random(t.shape) < 0.1, -np.inf, t) for t in tables]
    model = FactorGraph(np.full(12, 2), scopes, tuple(tables))
    try:
        found = zoo.run(parse_engine(engine), model, budget=Budget(iterations=100))
    except UnsupportedModelError:  # no configuration without violations was found
        return
    assert_allclose(found.probs.sum(1), 1.0)
    exact = zoo.run(JunctionTree(), model)
    wrong = np.abs(found.probs - exact.probs) > 0.3
    assert (found.std_error[wrong] > 0.15).all()


@pytest.mark.parametrize("name", ["grid-3x3", "zeros", "ternary-factors", "one-state-variable"])
def test_no_time_is_an_answer_too(name: str) -> None:
    found = zoo.run(ParallelTempering(), name, budget=Budget(seconds=0.0))
    assert found.status is Status.BUDGET_SPENT
    assert_allclose(found.probs.sum(1), 1.0)
    assert found.std_error.max() == UNKNOWN_ERROR
    assert found.log_z is None


@pytest.mark.parametrize("engine", ["pt", "pa:sweeps=1000000"])
def test_a_request_to_stop_is_heard_in_the_middle(engine: str) -> None:
    """As on Ctrl-C, in a run that would take hours."""
    chosen = parse_engine(engine)
    zoo.run(chosen, FERROMAGNET, budget=Budget(iterations=20))  # compile first
    with clock.stoppable():
        timer = threading.Timer(0.5, clock.request_stop)
        timer.start()
        began = time.perf_counter()
        found = zoo.run(chosen, FERROMAGNET, budget=Budget(iterations=10**9))
        timer.join()
    assert 0.4 < time.perf_counter() - began < 3.0
    assert_allclose(found.probs.sum(1), 1.0)


def test_who_stops_the_burn_in_gets_what_it_found_without_a_claim() -> None:
    model = FAMILIES["ea2d"].sample(np.random.default_rng(3), L=8, beta=0.7)
    chosen = ParallelTempering()
    zoo.run(chosen, model, budget=Budget(iterations=20))  # compile first
    with clock.stoppable():
        timer = threading.Timer(0.5, clock.request_stop)
        timer.start()
        found = zoo.run(chosen, model, budget=Budget(iterations=10**9))
        timer.join()
    exact = zoo.run(JunctionTree(), model).probs
    unary = guess(model).probs
    assert np.abs(found.probs - exact).mean() < 0.5 * np.abs(unary - exact).mean()
    assert found.status is Status.BUDGET_SPENT
    assert (found.std_error == UNKNOWN_ERROR).all()


def test_seconds_alone_lift_the_bound_on_sweeps() -> None:
    run(ParallelTempering(), FERROMAGNET, 10)  # compile first
    began = time.perf_counter()
    found = zoo.run(ParallelTempering(), FERROMAGNET, budget=Budget(seconds=0.8))
    assert 0.6 < time.perf_counter() - began < 1.8
    assert found.stats["sweeps"] > 1000


def test_less_memory_means_fewer_levels_before_it_means_no() -> None:
    few = zoo.run(ParallelTempering(), FERROMAGNET, budget=Budget(300, table_bytes=2_000_000))
    many = zoo.run(ParallelTempering(), FERROMAGNET, budget=Budget(300))
    assert few.stats["replicas"] <= many.stats["replicas"]
    with pytest.raises(BudgetError, match="larger memory budget"):
        zoo.run(ParallelTempering(), FERROMAGNET, budget=Budget(table_bytes=100_000))
