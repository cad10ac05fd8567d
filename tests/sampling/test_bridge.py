import mixed
import numpy as np
import pytest

from icgi.sampling.bridge import log_ratio, log_z

LADDER = np.array([0.0, 0.2, 0.5, 1.0])


def traces(rng: np.random.Generator, log_weight: np.ndarray, m: int, s: int) -> np.ndarray:
    """Independent log weights at every level, m s 1 t."""
    draws = [
        rng.choice(log_weight, (m, s, 1), p=mixed.gibbs(scale * log_weight)) for scale in LADDER
    ]
    return np.stack(draws, -1)


def test_ratio_is_exact_for_a_shift() -> None:
    found, influence = log_ratio(np.full((4, 10), 1.5), np.full((4, 10), 1.5))
    assert found == pytest.approx(1.5)
    assert np.abs(influence).max() < 1e-9


def test_log_z_within_its_error() -> None:
    rng = np.random.default_rng(0)
    z = []
    for _ in range(150):
        log_weight = rng.normal(0, 2.0, 200)
        found, error = log_z(traces(rng, log_weight, 4, 200), LADDER, None)
        exact = np.log(np.exp(log_weight).sum()) - np.log(200)
        z.append((found - exact) / error)
    mixed.assert_honest(z)


def test_log_z_with_a_last_level_of_true_zeros() -> None:
    rng = np.random.default_rng(1)
    log_weight = rng.normal(0, 1.5, 100)
    allowed = rng.random(100) < 0.6
    p = mixed.gibbs(log_weight)
    z = []
    for _ in range(60):
        soft = traces(rng, log_weight, 4, 150)
        sound = (rng.random((4, 150, 1)) < p[allowed].sum()).astype(float)
        last = rng.choice(log_weight[allowed], (4, 150, 1, 1), p=mixed.gibbs(log_weight[allowed]))
        found, error = log_z(np.concatenate([soft, last], -1), np.append(LADDER, 1.0), sound)
        exact = np.log(np.exp(log_weight[allowed]).sum()) - np.log(100)
        z.append((found - exact) / error)
    mixed.assert_honest(z)
    assert log_z(np.concatenate([soft, last], -1), np.append(LADDER, 1.0), 0 * sound) is None
