"""Training the paper's network on a CPU: it learns, it resumes, its data are what they say."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from icgi.neural.paper import PaperConfig, PaperNetwork
from icgi.neural.weights import load_weights, save_weights, shipped
from icgi.train.config import (
    MESSAGES,
    PAPER,
    PAPER_RECURRENT,
    PAPER_SCHEDULE,
    PAPER_TINY,
    TrainConfig,
    from_json,
    to_json,
)
from icgi.train.graph_data import GraphExamples, SpinExamples, draw, start_drawing
from icgi.train.graph_run import MeasuredSet, compare, measure
from icgi.train.graph_task import GraphTask, graph_errors, temperature
from icgi.train.labels import label
from icgi.train.loop import run_task
from icgi.train.mixture import Range, draw_many
from icgi.train.parallel import Group

torch.set_num_threads(1)


def spins(config: TrainConfig = PAPER_TINY) -> SpinExamples:
    bucket = config.buckets[0]
    limits = Range(bucket.smallest, bucket.largest, bucket.most_beta)
    return SpinExamples(label(draw_many(0, config.mixture, limits, bucket.count), 0, (), 0))


def graphs(count: int = 12) -> GraphExamples:
    return start_drawing(3, Range(4, 8, 1.5), count, None).result()


def task(config: TrainConfig) -> GraphTask:
    data = spins(config)
    return GraphTask(config, [data], [data])


def test_the_tiny_preset_overfits_thirty_two_graphs(tmp_path: Path) -> None:
    work = task(PAPER_TINY)
    result = run_task(work, tmp_path)
    torch.manual_seed(PAPER_TINY.seed)
    before = work.validate(PaperNetwork(work.settings).eval())[0]
    after = work.validate(result.network)[0]
    assert after < 0.5 * before
    assert after < 0.1
    stored = load_weights(tmp_path / "weights.safetensors")
    assert work.validate(stored)[0] == pytest.approx(after, abs=2e-3)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [40, 80, 120]


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path) -> None:
    config = dataclasses.replace(
        PAPER_TINY,
        buckets=(PAPER_TINY.buckets[0], dataclasses.replace(PAPER_TINY.buckets[0], kind="any")),
        steps=6,
        validate_every=2,
        batch=4,
    )
    work = GraphTask(config, [spins(config), graphs()], [graphs()])
    whole = run_task(work, tmp_path / "whole")

    def interrupt(line: dict) -> None:
        if line["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(work, tmp_path / "parts", interrupt)
    resumed = run_task(work, tmp_path / "parts")
    assert resumed.steps == whole.steps == 6
    assert [h["mae"] for h in resumed.history] == [h["mae"] for h in whole.history]
    for a, b in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_learning_reaches_every_part_of_the_network(tmp_path: Path) -> None:
    config = dataclasses.replace(PAPER_TINY, steps=4, validate_every=4, batch=4)
    work = GraphTask(config, [graphs()], [graphs()])
    torch.manual_seed(config.seed)
    start = PaperNetwork(work.settings)
    result = run_task(work, tmp_path, start=start)
    still = [
        name
        for (name, a), b in zip(start.named_parameters(), result.network.parameters(), strict=True)
        if torch.equal(a, b)
    ]
    assert still == []


def test_the_controls_differ_from_the_papers_network_in_the_network_alone() -> None:
    applied = []
    for config in (PAPER, PAPER_RECURRENT, MESSAGES):
        assert dataclasses.replace(config, network=PAPER.network) == PAPER
        net = config.network
        assert isinstance(net, PaperConfig)
        rounds = net.rounds * (1 + net.distribute) if net.autoregressive else net.repeats
        applied.append(net.layers + rounds)
    assert applied == [applied[0]] * 3


@pytest.mark.parametrize("control", [PAPER_RECURRENT, MESSAGES])
def test_the_controls_learn(control: TrainConfig, tmp_path: Path) -> None:
    tiny = {k: getattr(PAPER_TINY.network, k) for k in ("features", "heads", "layers")}
    network = dataclasses.replace(control.network, **tiny, repeats=3)
    work = task(dataclasses.replace(PAPER_TINY, network=network, steps=60, deep_weight=0.5))
    torch.manual_seed(PAPER_TINY.seed)
    before = work.validate(PaperNetwork(work.settings).eval())[0]
    assert work.validate(run_task(work, tmp_path).network)[0] < 0.6 * before


def test_a_comparison_gives_every_network_the_same_steps(tmp_path: Path) -> None:
    small = dataclasses.replace(PAPER_TINY, batch=4, validate_every=5)
    other = dataclasses.replace(small.network, autoregressive=False, repeats=1, attention="none")
    runs = {"first": small, "second": dataclasses.replace(small, network=other)}
    data = spins(small)
    found = compare(runs, [data], [data], tmp_path, 2.0, lambda text: None)
    assert found["first"].steps == found["second"].steps > 0
    sets = [MeasuredSet("spins", data, 16), MeasuredSet("any", graphs(4), 2, 0.01)]
    best = min(line["mae"][0] for line in found["second"].history)
    table = measure(found["second"].network, sets, lambda text: None)
    assert table["spins"]["mae"] == pytest.approx(best, abs=1e-4)
    assert table["any"]["label_error"] == 0.01


def test_answers_after_earlier_layers_count_where_they_are_weighed() -> None:
    late = torch.zeros(())
    found = []
    for weight in (0.0, 0.5):
        work = task(dataclasses.replace(PAPER_TINY, deep_weight=weight, batch=4))
        torch.manual_seed(0)
        network = work.network()
        batch = work.batches(Group())[0]
        batch.draw(0, 0.0)
        found.append(float(work.loss(network, batch, late).detach()))
    # untrained, every answer is belief propagation's, a little earlier or later
    assert found[0] < found[1] < 3.0 * found[0]


def test_drawn_models_are_labelled_exactly_and_padded() -> None:
    data = graphs(10)
    batch = data[slice(0, 10)]
    states = batch.graphs.states
    assert_allclose((batch.reference * states).sum(-1), batch.graphs.real, atol=1e-5)
    assert (batch.reference[states == 0] == 0).all()
    again = start_drawing(3, Range(4, 8, 1.5), 10, None).result()
    assert torch.equal(again.reference, data.reference)


def test_the_families_have_several_states_large_factors_and_zeros() -> None:
    rng = np.random.default_rng(0)
    models = [draw(rng, Range(6, 12, 2.0)) for _ in range(60)]
    assert max(m.max_states for m in models) > 4
    assert any(len(s) == 3 for m in models for s in m.scopes)
    assert any(np.isneginf(t).any() for m in models for t in m.log_tables)


def test_spins_and_graphs_say_the_same_of_one_model() -> None:
    data = spins()
    torch.manual_seed(0)
    network = PaperNetwork(PAPER_TINY.network).eval()  # type: ignore[arg-type]
    assert graph_errors(network, data, 8).shape == (32,)
    assert_allclose(graph_errors(network, data, 8), graph_errors(network, data, 32), atol=1e-5)


def test_temperature_falls_to_its_last_value() -> None:
    assert temperature(PAPER, 0.0) == pytest.approx(1.0)
    assert temperature(PAPER, 0.25) == pytest.approx(10**-0.5)
    assert temperature(PAPER, 0.5) == temperature(PAPER, 1.0) == pytest.approx(0.1)


def test_configurations_survive_their_text() -> None:
    for config in (PAPER, PAPER_RECURRENT, MESSAGES, PAPER_SCHEDULE, PAPER_TINY):
        assert from_json(to_json(config)) == config
    assert (PAPER_SCHEDULE.rate, PAPER_SCHEDULE.batch, PAPER_SCHEDULE.warm_up) == (3e-4, 32, 2000)
    assert (PAPER_SCHEDULE.gamma, PAPER_SCHEDULE.effective) == (5.0, 1000.0)


def test_the_stored_configuration_is_that_of_the_shipped_weights() -> None:
    path = Path(__file__).parents[2] / "docs" / "models" / "paper" / "train.json"
    assert from_json(path.read_text()).network == shipped("icgi-paper").config


def test_weights_survive_the_disk(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = PaperNetwork(PAPER_TINY.network).eval()  # type: ignore[arg-type]
    save_weights(tmp_path / "w.safetensors", network)
    stored = load_weights(tmp_path / "w.safetensors")
    assert stored.config == network.config
    batch = graphs(4)[slice(0, 4)]
    assert_allclose(stored(batch.graphs).detach(), network(batch.graphs).detach(), rtol=0.05)
