"""Training the network for any model on a CPU: exact labels, it learns, it resumes."""

import dataclasses
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget
from icgi.neural.general import GeneralNetwork
from icgi.train.general_mixture import KINDS, SHARES, Sizes, draw_many, labelled
from icgi.train.general_run import measure
from icgi.train.general_run import test_sets as make_tests
from icgi.train.general_task import (
    TINY,
    GeneralRun,
    GeneralTask,
    Labels,
    graph_errors,
    objective,
    on_device,
    with_context,
)
from icgi.train.loop import Task, run_task
from icgi.train.workers import workers

torch.set_num_threads(1)
SMALL = Sizes(variables=16, states=4, smallest=6, largest=8, fewest=2, most=3, ternary=2)


def tiny_data(config: GeneralRun = TINY) -> Labels:
    bucket = config.buckets[0]
    return on_device(draw_many(0, bucket.sizes, bucket.count), "cpu")


def run(config: GeneralRun, data: Labels, folder: Path, report=lambda line: None):  # type: ignore[no-untyped-def]
    return run_task(cast(Task, GeneralTask(config, [data], [data])), folder, report)


@pytest.mark.parametrize("kind", list(KINDS))
def test_labels_are_exact_marginals_of_possible_states(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        model = KINDS[kind](rng, SMALL)
        found = labelled(rng, model, SMALL)
        if found is None:
            continue
        form, probs = found
        assert_allclose(probs, Enumerate()(model, Budget(), rng).probs, atol=1e-10)
        assert probs[~form.alive].sum() == 0
        return
    pytest.fail("three models in a row were too large")


def test_the_mixture_holds_every_kind_and_is_the_same_for_any_workers() -> None:
    first = draw_many(3, SMALL, 96, lbp=True)
    assert set(first.kind.tolist()) == set(range(len(KINDS)))
    assert SHARES.sum() == pytest.approx(1.0)
    assert_allclose(first.reference.sum((1, 2)), first.edges.own.sum(1), rtol=1e-5)
    trees = first.kind == list(KINDS).index("factor trees")
    assert first.lbp[trees].max() < 1e-4
    assert first.lbp[~trees].mean() > 0.01
    with workers(2) as pool:
        again = draw_many(3, SMALL, 96, pool)
    assert np.array_equal(first.reference, again.reference)
    assert np.array_equal(first.edges.tables, again.edges.tables)


def test_context_is_told_with_an_honest_reliability() -> None:
    data = on_device(draw_many(4, SMALL, 16), "cpu")
    noise = torch.randn_like(data.reference)
    many = torch.full((16, 1), 1e6)
    told = with_context(data, noise, many, torch.ones(16, 1))
    p = torch.softmax(torch.where(told.exists > 0, told.estimate, -1e4), -1)
    own = data.batch.own > 0
    assert_allclose(p[own], data.reference[own], atol=0.02)
    few = with_context(data, noise, torch.full((16, 1), 10.0), torch.ones(16, 1))
    free = own & (data.reference.amax(-1) < 0.9)
    assert (few.reliability[free] < told.reliability[free]).all()
    silent = with_context(data, noise, many, torch.zeros(16, 1))
    assert not silent.estimate.any()
    assert not silent.reliability.any()


def test_the_loss_is_finite_with_absent_states_and_least_at_the_truth() -> None:
    data = on_device(draw_many(5, SMALL, 8), "cpu")
    late = torch.ones(())
    right = (1e3 * data.reference).requires_grad_()
    wrong = 1e3 * torch.softmax(torch.where(data.batch.exists > 0, 0.0, -1e4), -1)
    good, bad = objective(TINY, right + 1e-4, data, late), objective(TINY, wrong, data, late)
    assert good < 0.1 * bad
    good.backward()
    assert torch.isfinite(right.grad).all()


def test_the_tiny_preset_overfits(tmp_path: Path) -> None:
    data = tiny_data()
    before = float(graph_errors(GeneralNetwork(TINY.network), data, 3).mean())
    result = run(TINY, data, tmp_path)
    after = float(graph_errors(result.network, data, 3).mean())
    assert after < 0.8 * before


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path) -> None:
    data = tiny_data()
    bucket = dataclasses.replace(TINY.buckets[0], batch=8)
    config = dataclasses.replace(
        TINY, buckets=(bucket,), steps=4, validate_every=2, context_share=0.5
    )
    whole = run(config, data, tmp_path / "whole")

    def interrupt(line: dict) -> None:  # type: ignore[type-arg]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, data, tmp_path / "parts", interrupt)
    resumed = run(config, data, tmp_path / "parts")
    assert resumed.steps == whole.steps == 4
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_table_of_errors_compares_with_loopy_bp() -> None:
    network = GeneralNetwork(TINY.network)
    table = measure(network, make_tests({"small": (SMALL, 3)}, 24, None), "cpu")
    row = table["small: all"]
    assert row["network"] == pytest.approx(row["untrained"])
    assert row["untrained"] < 0.5 * row["lbp"]
