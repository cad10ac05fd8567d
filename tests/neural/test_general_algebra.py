"""The algebra for q states: its identities hold for any beliefs, its sums are the sums."""

import numpy as np
import torch
from numpy.testing import assert_allclose

from icgi.neural import general_algebra as algebra

torch.set_num_threads(1)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(0.0, 1.5, shape))


def everything(tables: torch.Tensor, unary: torch.Tensor) -> torch.Tensor:
    """Joint probabilities (k k k) of one model of three variables."""
    k = unary.shape[1]
    joint = unary[0][:, None, None] + unary[1][None, :, None] + unary[2][None, None]
    joint = joint + tables[0, :, 1][:, :, None] + tables[0, :, 2][:, None] + tables[1, :, 2]
    return torch.softmax(joint.flatten(), 0).view(k, k, k)


def triangle(seed: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    tables = draw(seed, 1, 3, k, 3, k)
    tables = tables + tables.permute(0, 3, 4, 1, 2)
    for i in range(3):
        tables[:, i, :, i] = 0.0
    return tables, draw(seed + 1, 1, 3, k)


def test_eliminating_with_two_neighbours_is_exact_for_any_beliefs() -> None:
    row, unary = draw(0, 1, 2, 4, 3), draw(1, 1, 4)  # v of four states, neighbours of three
    direct = torch.logsumexp(
        unary[0][:, None, None] + row[0, 0][:, :, None] + row[0, 1][:, None], 0
    )  # 3 3
    for seed in (2, 3):
        beliefs = torch.softmax(draw(seed, 1, 2, 3), -1)
        found = algebra.star(row, unary, beliefs)
        table = algebra.new_tables(found)[0, 0, :, 1]
        ours = table + found.gain[0, 0][:, None] + found.gain[0, 1]
        assert_allclose(ours - ours[0, 0], direct - direct[0, 0], atol=1e-10)
        gate = algebra.screening(found, torch.full((1,), 4.0), torch.ones(1, 2))
        assert_allclose(gate[0, 0, 1], 1.0)


def test_full_tables_need_no_compensation() -> None:
    row, unary = draw(4, 1, 2, 4, 3), draw(5, 1, 4)
    beliefs = torch.softmax(draw(6, 1, 2, 3), -1)
    found = algebra.star(row, unary, beliefs)
    table = algebra.new_tables(found)
    for i in range(2):
        table[:, i, :, i] = 0.0
    assert_allclose(algebra.compensation(table, found.gain, beliefs), 0.0, atol=1e-10)


def test_the_core_sums_all_states() -> None:
    tables, unary = triangle(7, 3)
    p, covariance = algebra.enumerate_core(tables, unary)
    joint = everything(tables[0], unary[0])
    assert_allclose(p[0, 1], joint.sum((0, 2)), atol=1e-12)
    pair = joint.sum(2)
    assert_allclose(covariance[0, 0, :, 1], pair - pair.sum(1)[:, None] * pair.sum(0), atol=1e-12)


def test_putting_back_with_two_neighbours_is_exact() -> None:
    tables, unary = triangle(8, 3)
    p, covariance = algebra.enumerate_core(tables, unary)
    row, own = draw(9, 1, 3, 4, 3), draw(10, 1, 4)
    row = torch.cat([row[:, :2], torch.zeros_like(row[:, :1])], 1)
    # the model is that of the others with v put in: their joint already holds its message
    joint = everything(tables[0], unary[0])
    given = torch.softmax(own[0][:, None, None] + row[0, 0][:, :, None] + row[0, 1][:, None], 0)
    expected = torch.einsum("vab,abc->vabc", given, joint)
    found, cross = algebra.restore(
        row, own, p, covariance, torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    )
    assert_allclose(found[0], expected.sum((1, 2, 3)), atol=1e-9)
    pair = expected.sum((2, 3))
    assert_allclose(cross[0, :, 0], pair - pair.sum(1)[:, None] * pair.sum(0), atol=1e-9)
