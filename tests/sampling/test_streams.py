import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from icgi.sampling.streams import below, fill_logits, fill_words, stream, uniform


def test_same_seed_same_stream_and_children_differ() -> None:
    first, again = (stream(np.random.default_rng(7)) for _ in range(2))
    assert_array_equal(first.one, again.one)
    assert_array_equal(first.counter, again.counter)
    children = [stream(child) for child in np.random.default_rng(7).spawn(3)]
    assert len({int(child.counter[0]) for child in children}) == 3


def test_uniform_numbers_are_uniform() -> None:
    source = stream(np.random.default_rng(1)).one
    draws = np.array([uniform(source) for _ in range(20_000)])
    assert ((draws > 0) & (draws < 1)).all()
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    lag = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(lag) < 4 / np.sqrt(len(draws))


def test_whole_numbers_are_uniform() -> None:
    source = stream(np.random.default_rng(2)).one
    counts = np.bincount([below(source, 7) for _ in range(7_000)], minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_logits_are_logistic_to_the_last_digits() -> None:
    words = np.empty(50_000, np.uint64)
    fill_words(stream(np.random.default_rng(3)).counter, words)
    bits = words.view(np.uint32)
    logits = np.empty(len(bits), np.float32)
    fill_logits(bits, logits)
    u = (bits.astype(np.float64) + 0.5) / 2**32
    assert_allclose(logits, np.log(u / (1 - u)), atol=1e-6, rtol=1e-6)
    assert stats.kstest(logits, "logistic").pvalue > 1e-3


def test_logits_of_the_extreme_bits() -> None:
    bits = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    logits = np.empty(6, np.float32)
    fill_logits(bits, logits)
    assert_allclose(logits, -logits[::-1], rtol=1e-6, atol=1e-9)
    assert 22 < logits[-1] < 24


def test_counters_do_not_repeat() -> None:
    counter = stream(np.random.default_rng(4)).counter
    first, second = np.empty(1000, np.uint64), np.empty(1000, np.uint64)
    fill_words(counter, first)
    fill_words(counter, second)
    assert len(np.unique(np.concatenate([first, second]))) == 2000
