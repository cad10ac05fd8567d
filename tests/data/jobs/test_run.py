import itertools
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import works

import zoo
from icgi.data.jobs.grouping import Grouping
from icgi.data.jobs.job import Bundle, Job, Memory, Question, Result, perform
from icgi.data.jobs.manifest import whole
from icgi.data.jobs.processes import Processes
from icgi.data.jobs.run import Serial, run_jobs
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph, assembled


def test_a_key_depends_on_everything_a_result_depends_on() -> None:
    first, second = works.question(1), works.question(2)
    base = Job("works:count", first.digest, {"a": 1}, "group")
    others = [
        Job("works:slow", first.digest, {"a": 1}, "group"),
        Job("works:count", second.digest, {"a": 1}, "group"),
        Job("works:count", first.digest, {"a": 2}, "group"),
        Job("works:count", first.digest, {"a": 1}, "group", version="0"),
    ]
    assert len({job.key for job in [base, *others]}) == 5
    assert Job("works:count", first.digest, {"a": 1}, "other group").key == base.key
    observed = works.Question("q1", first.model, {0: 1})
    assert observed.digest != first.digest
    assert works.Question("another name", first.model).digest == first.digest


@pytest.mark.parametrize("name", zoo.MODELS)
def test_a_question_travels_unchanged(name: str) -> None:
    model = zoo.MODELS[name]
    reference = np.full((model.n_variables, model.max_states), 0.25)
    sent = Question(name, model, {0: 0}, reference, 0.5)
    got = pickle.loads(pickle.dumps(sent))
    assert got.digest == sent.digest
    assert Question("fresh", got.model, got.evidence).digest == sent.digest
    assert (got.name, got.evidence, got.reference_error) == (name, {0: 0}, 0.5)
    assert got.model.scopes == model.scopes
    assert not any(table.flags.writeable for table in got.model.log_tables)
    np.testing.assert_array_equal(got.reference, reference)


@pytest.mark.parametrize("executor", [Serial(), Processes(2)], ids=["serial", "processes"])
def test_every_job_is_done_once_and_never_again(manifest, executor, tmp_path) -> None:
    jobs = works.jobs(40, folder=str(tmp_path))
    assert run_jobs(jobs[:15], manifest, executor) == 15
    seen: list[dict] = []
    assert run_jobs([*jobs, *jobs], manifest, executor, seen.append) == 25
    assert run_jobs(jobs, manifest, executor) == 0
    assert {line["name"] for line in seen} == {f"q{k}" for k in range(15, 40)}
    assert Counter(line["key"] for line in manifest.lines()) == {j.key: 1 for j, _, _ in jobs}
    assert all((tmp_path / f"q{k}").read_text() == "x" for k in range(40))


@pytest.mark.parametrize("executor", [Serial(), Processes(1)], ids=["serial", "processes"])
def test_failures_are_results_with_their_message(manifest, executor) -> None:
    jobs = [*works.jobs(1, "refusing"), *works.jobs(1, "broken"), *works.jobs(1, "count")]
    assert run_jobs(jobs, manifest, executor) == 3
    lines = list(manifest.finished().values())
    assert [(x["status"], x.get("message")) for x in lines] == [
        ("refused", "wants more"), ("failed", "ZeroDivisionError: by zero"), ("done", None),
    ]  # fmt: skip
    assert run_jobs(jobs, manifest, executor) == 0
    assert run_jobs(jobs, manifest, executor, again=True) == 1  # a refusal stays one


def test_a_killed_worker_costs_at_most_its_own_job(manifest, tmp_path) -> None:
    jobs = works.jobs(30, "suicidal", victim="q7", folder=str(tmp_path))
    assert run_jobs(jobs, manifest, Processes(2)) == 30
    lines = {line["name"]: line for line in manifest.lines()}
    failed = lines.pop("q7")
    assert failed["status"] == "failed"
    assert "signal 9" in failed["message"]
    assert {line["status"] for line in lines.values()} == {"done"}
    assert all((tmp_path / name).read_text() == "x" for name in lines)  # nothing was done twice


def test_a_job_whose_worker_was_killed_is_tried_again(manifest, tmp_path) -> None:
    jobs = works.jobs(5, "suicidal", victim="q2", once=str(tmp_path / "died"))
    run_jobs(jobs, manifest, Processes(1))
    assert {line["status"] for line in manifest.lines()} == {"done"}
    assert (tmp_path / "died").exists()


def test_interrupting_keeps_what_is_done_and_leaves_no_process(manifest) -> None:
    import psutil

    before = set(psutil.Process().children(recursive=True))

    seen = []

    def stop(line: dict) -> None:
        seen.append(line["name"])
        if line["name"] == "q5":
            raise KeyboardInterrupt

    jobs = [*works.jobs(6), *works.jobs(4, "slow", seconds=60.0)]
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, manifest, Processes(2), stop)
    assert time.monotonic() - began < 30
    assert "q5" in seen
    assert set(seen) <= {line["name"] for line in manifest.lines()}
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [child for child in left if "spawn_main" in " ".join(child.cmdline())]


def test_workers_use_one_thread_for_linear_algebra(manifest) -> None:
    run_jobs(works.jobs(1, "environment"), manifest, Processes(1))
    assert manifest.lines()[0]["threads"] == "1"


@pytest.mark.skipif(sys.platform != "linux", reason="the peak cannot be reset elsewhere")
def test_memory_is_that_of_the_job(manifest) -> None:
    jobs = [
        (Job("works:greedy", q.digest, {"megabytes": size}), q, {})
        for size in (2, 64, 2)
        for q in [works.question(size)]
    ]
    run_jobs(jobs, manifest, Serial())
    used = [perform(job, question).record["memory"] / 2**20 for job, question, _ in jobs]
    assert 60 < used[1] < 80
    assert used[0] < 20
    assert used[2] < 20


def test_two_writers_are_one_and_a_refusal(manifest) -> None:
    with manifest.writing(), pytest.raises(IcgiError, match="being written by process"):
        run_jobs(works.jobs(1), manifest, Serial())


@pytest.mark.parametrize("torn", [b'{"key": "ab', b"\x00\xff\n", b"[1, 2]\n"])
def test_torn_lines_are_passed_over_and_swallow_nothing(manifest, torn: bytes) -> None:
    jobs = works.jobs(6)
    run_jobs(jobs[:3], manifest, Serial())
    with manifest.path.open("ab") as file:
        file.write(torn)
    assert run_jobs(jobs, manifest, Serial()) == 3
    assert len(manifest.finished()) == 6


def test_a_full_disk_leaves_the_manifest_as_it_was(manifest, monkeypatch) -> None:
    run_jobs(works.jobs(2), manifest, Serial())
    before = manifest.path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(IcgiError, match="make room"):
        run_jobs(works.jobs(3), manifest, Serial())
    assert manifest.path.read_bytes() == before


def test_a_file_gets_its_name_only_when_it_is_whole(tmp_path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def stop_halfway() -> None:
        with whole(target) as draft:
            draft.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stop_halfway()
    assert target.read_text() == "old"
    with whole(target) as draft:
        draft.write_text("new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def bundles_of(seconds: float, count: int = 400) -> list[Bundle]:
    """Bundles that a worker is given whose jobs all take so long."""
    grouping = Grouping((job, question) for job, question, _ in works.jobs(count))
    given = []
    for bundle in grouping:
        given.append(bundle)
        for job in bundle.jobs:
            grouping.learn(Result(job, {"seconds": seconds}))
    return given


def test_small_jobs_are_grouped_until_a_task_lasts_a_second() -> None:
    sizes = [len(bundle.jobs) for bundle in bundles_of(0.02)]
    assert sizes[0] == 1  # nothing is known yet
    assert all(0.9 <= 0.02 * size <= 1.1 for size in sizes[1:-1])
    assert [len(bundle.jobs) for bundle in bundles_of(5.0, 4)] == [1, 1, 1, 1]


def test_bundles_keep_the_order_and_hold_each_question_once() -> None:
    order = [job.key for bundle in bundles_of(0.02) for job in bundle.jobs]
    assert order == [job.key for job, _, _ in works.jobs(400)]
    question = works.question(3)
    many = [(Job("works:count", question.digest, {"seed": k}, "g"), question) for k in range(50)]
    grouping = Grouping(many)
    first = next(grouping)
    grouping.learn(Result(first.jobs[0], {"seconds": 1e-4}))
    rest = list(grouping)
    assert sum(len(bundle.jobs) for bundle in [first, *rest]) == 50
    assert all(len(bundle.questions) == 1 for bundle in rest)


def test_lines_are_json(manifest) -> None:
    run_jobs(works.jobs(3), manifest, Serial())
    texts = manifest.path.read_text().splitlines()
    assert all(isinstance(json.loads(text), dict) for text in itertools.chain(texts))


def test_workers_are_kept_for_the_next_jobs(manifest) -> None:
    executor = Processes(1)
    run_jobs(works.jobs(1), manifest, executor)
    (kept,) = executor.spare
    run_jobs(works.jobs(3), manifest, executor)
    (again,) = executor.spare
    assert again.process.pid == kept.process.pid
    assert len(manifest.lines()) == 3


def test_a_script_without_a_guard_is_told_so(tmp_path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(works.__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "import works\n"
        "from icgi.data.jobs.manifest import Manifest\n"
        "from icgi.data.jobs.processes import Processes\n"
        "from icgi.data.jobs.run import run_jobs\n"
        f"run_jobs(works.jobs(3), Manifest(Path({str(tmp_path / 'm.jsonl')!r})), Processes(2))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert "under `if __name__ == '__main__':`" in ended.stderr


def test_short_jobs_share_a_reading_of_memory(manifest) -> None:
    run_jobs(works.jobs(50), manifest, Serial())
    assert all(line["memory"] >= 0 for line in manifest.lines())
    jobs = [
        (Job("works:greedy", q.digest, {"megabytes": size}), q, {})
        for size in (64, 96)
        for q in [works.question(size)]
    ]
    memory = Memory()
    used = [perform(job, question, memory).record["memory"] / 2**20 for job, question, _ in jobs]
    assert used[0] > 60


def test_tables_of_any_layout_have_one_digest() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((2, 3))
    plain = FactorGraph([2, 3], [(0, 1), (0,)], [table, table[:, 0]])
    turned = assembled(plain.cards, plain.scopes, (np.asfortranarray(table), table[:, 0]))
    assert Question("a", plain).digest == Question("b", turned).digest
    sent = pickle.loads(pickle.dumps(Question("b", turned)))
    np.testing.assert_array_equal(sent.model.log_tables[0], table)
