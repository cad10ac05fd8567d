"""The clock of budgets: it stands still while compiling, and a request to stop reaches it."""

import math
import os
import subprocess
import sys
import time

import numpy as np

from icgi import clock
from icgi.clock import Deadline
from icgi.inference import Budget
from icgi.kernels import kernel


def test_a_deadline_passes_on_the_wall_clock() -> None:
    deadline = Deadline.after(0.02)
    assert not deadline.passed
    time.sleep(0.03)
    assert deadline.passed
    assert deadline.left == 0.0


def test_by_processor_time_waiting_is_free_and_work_is_not() -> None:
    code = (
        "import time; from icgi.clock import Deadline; d = Deadline.after(0.3)\n"
        "time.sleep(0.5); assert not d.passed\n"
        "with d.flag() as stop:\n"
        "    while not stop[0]: pass\n"
        "assert d.passed and time.process_time() < 30"
    )
    made = {**os.environ, "ICGI_CLOCK": "processor"}
    subprocess.run([sys.executable, "-c", code], env=made, check=True, timeout=120)


def test_pauses_are_not_counted_however_nested() -> None:
    before = clock.now()
    clock.pause()
    clock.pause()
    time.sleep(0.05)
    clock.resume()
    assert clock.now() == before or clock.now() - before < 0.02
    clock.resume()
    assert clock.now() - before < 0.03


def test_a_request_to_stop_ends_every_deadline_until_the_run_is_over() -> None:
    with clock.stoppable():
        endless = Deadline.after(math.inf)
        with endless.flag() as stop:
            assert not endless.passed
            assert not stop[0]
            clock.request_stop()
            assert endless.passed
            assert endless.left == 0.0
            assert stop[0]
    assert not endless.passed


def test_a_part_of_the_work_can_be_stopped_alone() -> None:
    with clock.part() as outer:
        before = Deadline.after(math.inf)
        with clock.part() as inner, Deadline.after(math.inf).flag() as stop:
            within = Deadline.after(math.inf)
            inner.stop()
            assert within.passed
            assert within.share(0.5).passed
            assert stop[0]
        assert not before.passed
        with clock.part(of=outer):
            later = Deadline.after(math.inf)
        outer.stop()
        assert later.passed
        assert before.passed
    assert not Deadline.after(math.inf).passed


def test_the_earlier_deadline_counts() -> None:
    late = Deadline.after(100.0)
    assert late.within(1.0).left <= 1.0
    assert Deadline.after(1.0).within(100.0).left <= 1.0
    assert 45 < late.share(0.5).left <= 50
    assert math.isinf(Deadline().share(0.5).left)


@kernel
def _spin(stop, count):  # type: ignore[no-untyped-def]
    turns = 0
    for k in range(2**40):
        if stop[0]:
            break
        count[0] = k
        turns += 1
    return turns


def test_the_flag_stops_compiled_code() -> None:
    count = np.zeros(1, np.int64)
    _spin(np.ones(1, np.uint8), count)  # compile
    began = time.perf_counter()
    with Deadline.after(0.05).flag() as stop:
        assert _spin(stop, count) > 0
    assert time.perf_counter() - began < 5.0  # 2^40 turns take minutes


def test_flags_of_several_deadlines_are_raised_each_in_its_time() -> None:
    with Deadline.after(10.0).flag() as late, Deadline.after(0.02).flag() as soon:
        time.sleep(0.1)
        assert soon[0]
        assert not late[0]
    with Deadline.after(-1.0).flag() as past:
        assert past[0]


def test_seconds_alone_lift_the_usual_bound_on_iterations() -> None:
    assert Budget().sweeps() == 1000
    assert Budget().sweeps(usual=7) == 7
    assert Budget(seconds=1.0).sweeps() > 10**12
    assert Budget(iterations=3, seconds=1.0).sweeps() == 3


def test_a_budget_until_a_deadline_has_what_is_left() -> None:
    budget = Budget(iterations=5, seconds=9.0)
    left = budget.until(Deadline.after(1.0))
    assert 0 < left.seconds <= 1.0
    assert left.iterations == 5
