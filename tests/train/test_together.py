"""Runs side by side are the runs that each would have been alone."""

from pathlib import Path

import torch
from test_loop import few, tiny_data, train

from icgi.train import together
from icgi.train.config import TrainConfig
from icgi.train.task import Task


def lanes_of(configs: list[TrainConfig]) -> list[together.Lane]:
    data = tiny_data()
    first = Task(configs[0], [data], [data])
    made = together.lanes([first])
    rest = [Task(config, [data], [data], first.forms) for config in configs[1:]]
    return made + together.lanes(rest)


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_runs_side_by_side_end_as_they_would_alone(tmp_path: Path) -> None:
    configs = [few(seed=1), few(seed=2)]
    both = lanes_of(configs)
    assert together.seconds_per_round(both, 0.0) > 0  # forgotten
    together.train(both, configs[0].steps, checks=3)
    for k, config in enumerate(configs):
        alone = train(config, tiny_data(), tmp_path / str(k))
        assert same_weights(both[k].run.best, alone.network)
        steps = [line["step"] for line in both[k].run.history]
        assert steps == [line["step"] for line in alone.history] == [2, 4, 6]


def test_all_runs_stop_at_the_same_step() -> None:
    left = iter([True, True, True, False])
    both = lanes_of([few(seed=1), few(seed=2)])
    together.train(both, 6, checks=1, going=lambda: next(left))
    assert [lane.run.step for lane in both] == [3, 3]
    assert [lane.run.history[-1]["step"] for lane in both] == [3, 3]
