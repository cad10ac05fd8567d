"""Sums of few products are found in tables of every kind, and only where they are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import structured
from icgi.model.graph import FactorGraph
from icgi.model.structure.sums import find_sums
from icgi.model.wiring import wiring


def decompose(table: np.ndarray):
    with np.errstate(divide="ignore"):
        model = FactorGraph(np.array(table.shape), (tuple(range(table.ndim)),), (np.log(table),))
    found = find_sums(wiring(model))
    matrices, at = [], 0
    for card in table.shape if found.terms[0] else ():
        size = found.terms[0] * card
        matrices.append(found.high[at : at + size].reshape(-1, card))
        at += size
    return found, matrices


def rebuilt(found, matrices) -> np.ndarray:
    letters = "abcdefghijklmnopqrstuvw"[: len(matrices)]
    product = ",".join("z" + c for c in letters) + "->" + letters
    return np.exp(found.log_scale[0]) * np.einsum(product, *matrices)


def shuffled(rng, table: np.ndarray) -> np.ndarray:
    for axis, card in enumerate(table.shape):
        table = np.take(table, rng.permutation(card), axis)
    return np.transpose(table, rng.permutation(table.ndim)) * np.exp(rng.normal())


GATES = {
    "or": lambda rng: structured.max_gate(rng, 2, [2, 2], leak=False, clean=2),
    "noisy or with leak": lambda rng: structured.max_gate(rng, 2, [2] * 6, leak=True),
    "link of a chain": lambda rng: structured.max_gate(rng, 2, [2, 2], leak=True, clean=1),
    "noisy max": lambda rng: structured.max_gate(rng, 4, [2, 3, 3], leak=True),
    "link of a max chain": lambda rng: structured.max_gate(rng, 4, [4, 3], leak=False, clean=1),
    "parity": lambda rng: structured.parity_gate(rng, 4, noise=False),
    "noisy parity": lambda rng: structured.parity_gate(rng, 3, noise=True),
    "parity, observed": lambda rng: structured.parity_gate(rng, 4, noise=True)[0],
    "noisy or, observed": lambda rng: structured.max_gate(rng, 2, [2] * 5, leak=True)[1],
    "noisy max, observed": lambda rng: structured.max_gate(rng, 3, [3, 2, 3], leak=True)[1],
    "tiny leak": lambda rng: np.stack(
        [q := (1 - 1e-9) * structured.max_gate(rng, 2, [2] * 5, leak=False)[0], 1 - q]
    ),
    "equal": lambda rng: np.eye(3)[:, :, None] * np.eye(3)[None],
}


def test_sums_of_more_terms_than_there_is_room_for_are_left_alone() -> None:
    """A noisy max of a hundred states is one of a hundred terms."""
    table = structured.max_gate(np.random.default_rng(0), 100, [2, 2, 2], leak=True)
    assert decompose(table)[0].terms[0] == 0


def test_entries_of_any_range_are_looked_at() -> None:
    """Products of tiny numbers are zero, and nothing may be divided by them."""
    rng = np.random.default_rng(0)
    for size in (20.0, 100.0, 300.0, 700.0):
        table = np.exp(-size * rng.random((3, 2, 4, 2)))
        table[rng.random(table.shape) < 0.3] = 0.0
        table[-1, -1, -1, -1] = 1.0
        assert decompose(table)[0].terms[0] == 0


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("seed", range(3))
def test_gates_are_sums_of_few_products(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    table = shuffled(rng, GATES[kind](rng))
    found, matrices = decompose(table)
    assert 2 <= found.terms[0] <= 4
    assert found.error[0] < 1e-11
    assert_allclose(rebuilt(found, matrices), table, rtol=1e-9, atol=1e-14)  # doubles cancel here


def test_twenty_written_out_causes_are_two_products() -> None:
    table = structured.max_gate(np.random.default_rng(0), 2, [2] * 20, leak=True)
    found, matrices = decompose(table)
    assert found.terms[0] == 2
    assert len(matrices) == 21


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 2, 2, 2), (3, 3, 3), (2, 3, 4), (4, 4, 4)])
def test_random_tables_are_left_alone(shape) -> None:
    for seed in range(20):
        assert decompose(np.random.default_rng(seed).uniform(0.1, 1.0, shape))[0].terms[0] == 0


def test_nearly_a_sum_is_none() -> None:
    rng = np.random.default_rng(4)
    table = structured.max_gate(rng, 2, [2] * 4, leak=True)
    table[0, 0, 1, 0, 1] *= 1 + 1e-9
    assert decompose(table)[0].terms[0] == 0
