"""Several training runs side by side in one process, each with a stream of its own on a device.

A training step is thousands of small kernels, each of which leaves most of a GPU idle; those of
other runs fill it. Every run sees the same models, draws and rates as it would alone.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from icgi.train.loop import Report, Run
from icgi.train.parallel import Group
from icgi.train.task import Task


@dataclass(slots=True, eq=False)
class Lane:
    """A run and its stream; none on a CPU."""

    run: Run
    stream: Any

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let what is launched inside go to this run's stream."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            yield


def lanes(tasks: Sequence[Task], report: Report = lambda line: None) -> list[Lane]:
    """Runs that are ready for their first step, recorded where the device allows it."""
    found = []
    for task in tasks:
        stream = None
        if task.device.type == "cuda":
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        lane = Lane(Run(task, Group(), None), stream)
        with lane.open():
            lane.run.prepare(report)
        found.append(lane)
        if stream is not None:
            torch.cuda.synchronize()
    return found


def seconds_per_round(found: Sequence[Lane], least: float) -> float:
    """Time that one step of every run takes; at rate zero, and forgotten afterwards."""
    before = [_copied(lane) for lane in found]
    rounds, began = 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - began < least:
        for lane in found:
            with lane.open():
                lane.run.at_rate_zero(rounds)
        rounds += 1
    if found and found[0].stream is not None:
        torch.cuda.synchronize()
    spent = time.perf_counter() - began
    for lane, state in zip(found, before, strict=True):
        _reset(lane, state)
    return spent / rounds


def train(
    found: Sequence[Lane],
    steps: int,
    checks: int = 5,
    going: Callable[[], bool] = lambda: True,
    report: Callable[[int, dict[str, Any]], None] = lambda k, line: None,
) -> None:
    """Train all runs for so many steps, in turns; fewer, the same for all, once not `going`."""
    for lane in found:
        lane.run.config = replace(lane.run.config, steps=steps)
    every = max(steps // checks, 1)
    for step in range(1, steps + 1):
        if not going():
            break
        for lane in found:
            with lane.open():
                lane.run.advance((step - 1) / steps)
        if (step % every == 0 and steps - step >= every) or step == steps:
            _check(found, report)
    done = [lane.run.history[-1]["step"] if lane.run.history else 0 for lane in found]
    if any(lane.run.step > step for lane, step in zip(found, done, strict=True)):
        _check(found, report)


def _check(found: Sequence[Lane], report: Callable[[int, dict[str, Any]], None]) -> None:
    for k, lane in enumerate(found):
        with lane.open():
            lane.run.check(math.nan, 0.0)
        report(k, lane.run.history[-1])


def _copied(lane: Lane) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in lane.run.network.state_dict().items()}


def _reset(lane: Lane, weights: dict[str, torch.Tensor]) -> None:
    """Start again with these weights, without momenta."""
    run = lane.run
    run.network.load_state_dict(weights)
    run.average.load_state_dict(weights)
    run.skipped.zero_()
    for state in run.optimizer.state.values():
        for value in state.values():
            value.zero_()
    if lane.stream is not None:
        torch.cuda.synchronize()
