import numpy as np
import pytest
from numpy.testing import assert_allclose

from icgi.sampling import diagnostics as d


def autoregressive(rng: np.random.Generator, rho: float, m: int, s: int, k: int) -> np.ndarray:
    """Independent stationary AR(1) series of variance one, m s k."""
    out = np.empty((m, s, k))
    x = rng.normal(size=(m, k))
    for t in range(s):
        x = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(m, k))
        out[:, t] = x
    return out


def batched(series: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    m, s, k = series.shape
    cut = series.reshape(m, s // length, length, k)
    return cut.sum(2), (cut**2).sum(2)


def summary(series: np.ndarray, length: int, reach: float = 0.0) -> d.Summary:
    total, square = batched(series, length)
    m, _, k = series.shape
    return d.summarise(total, square, length, np.zeros((m, k)), 0, np.full(k, reach))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_standard_errors_match_the_spread_of_the_means(rho: float) -> None:
    rng = np.random.default_rng(1)
    series = autoregressive(rng, rho, 4, 1600, 400)
    found = summary(series, 64)
    z = found.mean / found.std_error
    assert 0.7 < z.std() < 1.02  # a little conservative by construction
    assert np.mean(np.abs(z) > 2.6) < 0.02
    expected = 4 * 1600 * (1 - rho) / (1 + rho)
    assert 0.45 * expected < np.median(found.ess) < 1.1 * expected


def test_what_was_never_seen_enters_the_error() -> None:
    quiet = np.full((4, 64, 1), 0.25)
    assert summary(quiet, 4).std_error[0] < 1e-12
    assert_allclose(summary(quiet, 4, reach=0.5).std_error, 0.5 / 256)


def test_unfinished_batches_count_in_the_mean() -> None:
    total = np.ones((2, 4, 1)) * 3.0
    found = d.summarise(total, total, 3, np.full((2, 1), 8.0), 4, np.zeros(1))
    assert_allclose(found.mean, (4 * 3 + 8) / 16)


def test_rhat_sees_a_shifted_chain_and_passes_good_ones() -> None:
    rng = np.random.default_rng(2)
    series = autoregressive(rng, 0.3, 4, 800, 50)
    total, square = batched(series, 25)
    assert (d.split_rhat(total, square, 25) < 1.02).all()
    series[2] += 1.0
    assert (d.split_rhat(*batched(series, 25), 25) > 1.05).all()


def test_rhat_sees_a_drift_within_chains() -> None:
    rng = np.random.default_rng(3)
    series = autoregressive(rng, 0.0, 4, 800, 20) + np.linspace(-1, 1, 800)[None, :, None]
    assert (d.split_rhat(*batched(series, 25), 25) > 1.05).all()


def test_rhat_of_constants_and_of_too_little() -> None:
    constant = np.full((4, 16, 3), 0.2)
    assert_allclose(d.split_rhat(*batched(constant, 1), 1), 1.0)
    constant[0] = 0.3
    assert (d.split_rhat(*batched(constant, 1), 1) > 100).all()
    assert np.isinf(d.split_rhat(constant[:, :3], constant[:, :3], 1)).all()


def test_against_arviz() -> None:
    stats = pytest.importorskip("arviz_stats.base").array_stats
    rng = np.random.default_rng(4)
    for rho, shift in ((0.0, 0.0), (0.6, 0.0), (0.8, 0.4)):
        series = autoregressive(rng, rho, 4, 3200, 1)
        series[1] += shift
        draws = series[:, :, 0]
        ours = d.split_rhat(*batched(series, 100), 100)[0]
        theirs = float(stats.rhat(draws, chain_axis=0, draw_axis=1, method="split"))
        assert ours == pytest.approx(theirs, abs=2e-3)
        assert d.series_rhat(draws) == pytest.approx(theirs, abs=2e-3)
        if shift == 0:
            ess = float(stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"))
            assert summary(series, 100).ess[0] == pytest.approx(ess, rel=0.45)


def test_groups_that_never_mix_are_seen() -> None:
    rng = np.random.default_rng(5)
    group = rng.integers(0, 6, 600)
    values = rng.normal(size=600)
    assert d.grouped_rhat(values, group) < 1.1
    assert d.grouped_rhat(values + 2.0 * (group % 2), group) > 1.2
    assert d.grouped_rhat(values, np.zeros(600, np.int64)) == np.inf


def test_series_error_takes_the_larger_view() -> None:
    rng = np.random.default_rng(6)
    series = rng.normal(size=(4, 640))
    assert d.series_error(series) == pytest.approx(1 / np.sqrt(4 * 640), rel=0.6)
    series += np.arange(4)[:, None]
    assert d.series_error(series) > 0.5
