"""Statistics and cells against independent calculations."""

import itertools
import math

import numpy as np
import pytest

from icgi.bench import uncertainty
from icgi.bench.cells import best, entries, text
from icgi.bench.statistics import compare, exponent, spread
from icgi.bench.table import Column, Metric, Table, number

MAE = Metric("mae", "MAE", digits=4)
COLUMNS = (
    Column("LBP", ("lbp:damping=0", "lbp:damping=0.5"), claimed_as="LBP"),
    Column("pt", ("pt",)),
)
TABLE = Table("t", "T", "tab", (MAE, Metric("kl", "KL")), COLUMNS, {})


def line(case: str, engine: str, mae: float | None, column: str = "LBP", **more: object) -> dict:
    return {
        "case": case, "column": column, "engine": engine, "seed": 1, "mae": mae, "seconds": 1.0,
        "status": "at rest", "reference_error": 0.0, **more,
    }  # fmt: skip


def test_p_values_are_those_of_all_signs() -> None:
    gaps = np.array([0.3, -0.1, 0.5, 0.9, 0.2, 0.7, -0.05, 1.1])
    ranks = np.abs(gaps).argsort().argsort() + 1
    statistic = ranks[gaps > 0].sum()
    sums = [
        sum(r for r, up in zip(ranks, signs, strict=True) if up)
        for signs in itertools.product((False, True), repeat=len(gaps))
    ]
    middle = ranks.sum() / 2
    p = np.mean([abs(s - middle) >= abs(statistic - middle) for s in sums])
    test = compare(gaps + 1, np.ones(8), 1, 0.0)
    assert test.p == pytest.approx(p)
    assert compare(gaps + 1, np.ones(8), 3, 0.0).p == pytest.approx(3 * p)
    assert test.difference == pytest.approx(np.median(gaps))


def test_verdicts() -> None:
    low, high = np.linspace(0.1, 0.2, 12), np.linspace(0.3, 0.5, 12)
    assert compare(low, high, 1, 0.0).verdict == "better"
    assert compare(high, low, 1, 0.0).verdict == "worse"
    assert compare(low, high, 1, 0.2).verdict == "tie"
    assert compare(low, high, 10**6, 0.0).verdict == "not significant"
    assert compare(low, low, 1, 0.0).verdict == "tie"
    assert compare([0.1, math.nan], [math.inf, 0.2], 1, 0.0).graphs == 0


def test_exponents_of_powers() -> None:
    x = [10.0, 20.0, 50.0, 100.0]
    found = exponent(x, [3.0 * v**2.5 for v in x])
    assert found is not None
    assert found.value == pytest.approx(2.5)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    noisy = exponent(x, [1.1, 1.9, 5.2, 9.7])
    slope, covariance = np.polyfit(np.log(x), np.log([1.1, 1.9, 5.2, 9.7]), 1, cov="unscaled")
    rest = np.log([1.1, 1.9, 5.2, 9.7]) - np.polyval(slope, np.log(x))
    assert noisy is not None
    assert noisy.value == pytest.approx(slope[0])
    assert noisy.error == pytest.approx(np.sqrt((rest**2).sum() / 2 * covariance[0, 0]))
    assert exponent([5.0, 5.0], [1.0, 2.0]) is None


def test_medians_are_shown_where_the_mean_misleads() -> None:
    assert spread([1.0, 1.1, 0.9]).skewed is False
    assert spread([0.01, 0.01, 0.01, 1.0]).skewed
    assert spread([1.0, math.inf]).mean == math.inf
    assert math.isnan(spread([]).mean)


def test_the_best_damping_of_the_row_stands_for_the_column() -> None:
    lines = [line("a", "lbp:damping=0", 0.4), line("a", "lbp:damping=0.5", 0.1)]
    lines += [line("b", "lbp:damping=0", 0.2), line("b", "lbp:damping=0.5", 0.3)]
    found = entries(TABLE, lines)
    assert found[0].engine == "lbp:damping=0.5"
    assert text(0.07, found[0], MAE).startswith("[0.0700] 0.2000 ± ")
    assert found[1].reason == "not run"
    assert text(0.5, found[1], MAE) == "[0.5000] –"


def test_an_engine_that_answers_less_is_not_the_best_for_it() -> None:
    lines = [line("a", "lbp:damping=0", 0.1), line("b", "lbp:damping=0", None)]
    lines += [line("a", "lbp:damping=0.5", 0.2), line("b", "lbp:damping=0.5", 0.2)]
    assert entries(TABLE, lines)[0].engine == "lbp:damping=0.5"


def test_an_excluded_state_makes_kl_infinite_and_says_so() -> None:
    lines = [line("a", "pt", 0.1, "pt", kl=None, excluded=1), line("b", "pt", 0.1, "pt", kl=0.5)]
    shown = text(None, entries(TABLE, lines)[1], TABLE.metrics[1])
    assert shown.startswith("∞ (1 of 2")


def test_what_no_reference_can_tell_from_the_best_is_marked_too() -> None:
    def of(error: float) -> set[str]:
        lines = [line("a", "pt", 0.010, "pt", reference_error=error)]
        lines += [line("a", "lbp:damping=0", 0.012, reference_error=error)]
        return best(entries(TABLE, lines), MAE)

    assert of(0.0) == {"pt"}
    assert of(0.001) == {"pt", "LBP"}


def test_seeds_are_averaged_before_graphs() -> None:
    lines = [line("a", "pt", v, "pt", seed=k) for k, v in enumerate((0.1, 0.3))]
    entry = entries(TABLE, [*lines, line("b", "pt", 0.4, "pt")])[1]
    assert entry.values("mae") == pytest.approx({"a": 0.2, "b": 0.4})
    assert entry.spread("mae").mean == pytest.approx(0.3)


def test_numbers_keep_the_digits_that_matter() -> None:
    assert [number(v, 3) for v in (0.0, 0.1234, 1e-5, 123.456, math.inf, math.nan)] == [
        "0.000", "0.123", "1.0e-05", "123.5", "∞", "–",
    ]  # fmt: skip
    assert number(None) == "–"


def graphs(rng: np.random.Generator, count: int, noise: float, shift: float = 0.0) -> list:
    made = []
    for _ in range(count):
        logit = rng.normal(0, 2, 12)
        seen = logit + rng.normal(0, noise, 12)
        ours, truth = (1 / (1 + np.exp(-np.stack([x, -x], 1))) for x in (seen, logit))
        features = np.array([rng.normal(shift), noise])
        made.append(uncertainty._Graph(ours, truth, features, 1.0, True))
    return made


def test_a_calibrated_answer_has_no_calibration_error() -> None:
    rng = np.random.default_rng(0)
    exact = graphs(rng, 5, 0.0)
    assert uncertainty.calibration_error(exact) == pytest.approx(0.0, abs=1e-12)
    sure = [
        uncertainty._Graph(np.eye(2)[g.truth.argmax(1)], g.truth, g.features, 1.0, True)
        for g in exact
    ]
    gap = np.mean([1 - g.truth.max(1) for g in exact])
    assert uncertainty.calibration_error(sure) == pytest.approx(gap)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_sets_cover_what_they_promise_among_equals(noise: float, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    found = uncertainty.measure(graphs(rng, 60, noise), graphs(rng, 60, noise), 0.1, weighted)
    assert found.coverage > 0.88
    assert 1.0 <= found.set_size <= 2.0
    assert found.everything == 0


def test_few_calibration_graphs_cannot_promise_much() -> None:
    rng = np.random.default_rng(2)
    found = uncertainty.measure(graphs(rng, 4, 0.5), graphs(rng, 3, 0.5), 0.05, False)
    assert found.everything == 3
    assert found.coverage == pytest.approx(1.0)
    assert found.set_size == 2.0


def test_weights_follow_a_shift_and_n_eff_says_what_is_left() -> None:
    rng = np.random.default_rng(3)
    home, away = graphs(rng, 50, 0.5), graphs(rng, 50, 0.5, shift=2.0)
    same = graphs(rng, 50, 0.5)
    near = uncertainty.measure(home, same, 0.1, True)
    far = uncertainty.measure(home, away, 0.1, True)
    assert far.n_eff < 0.6 * near.n_eff
    assert near.n_eff <= 50
    seen = np.stack([g.features for g in home]), np.stack([g.features for g in away])
    probability = uncertainty.classifier(*seen)
    assert probability[:50].mean() < 0.3 < 0.7 < probability[50:].mean()
