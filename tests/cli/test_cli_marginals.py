import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from some_models import make

import icgi
from icgi import clock
from icgi.answer import model_digest
from icgi.cli import question
from icgi.cli.engines import describe
from icgi.cli.options import bytes_of
from icgi.clock import Deadline
from icgi.engines import ENGINES
from icgi.model.formats.uai import read_marginals
from icgi.model.ordering import search
from icgi.portfolio.auto import Auto

RAIN = """network unknown { }
variable RAIN { type discrete [ 2 ] { YES, NO }; }
probability ( RAIN ) { table 0.2, 0.8; }
"""


def files() -> set[str]:
    return {path.name for path in Path().iterdir()}


def test_prints_the_most_uncertain_first_and_writes_all(run, grid) -> None:
    result = run("marginals", "grid.uai", "--top", 5)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["variable", "entropy/bits", "likeliest", "probabilities"]
    answer = icgi.marginals(grid)
    shown = [line.split()[0] for line in lines[1:6]]
    assert shown == [name for name, _, _ in answer.top(5)]
    assert "11 more variables" in lines[6]
    assert "exact; log Z = " in lines[-1]
    assert_allclose(read_marginals("grid.uai.MAR"), answer.probs, atol=1e-12)
    assert "16 variables, 40 factors, 2 states, 0 observed" in result.stderr
    assert "takes jt" in result.stderr
    assert "written to grid.uai.MAR" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_top_zero_prints_every_variable(run, grid) -> None:
    lines = run("marginals", "grid.uai", "--top", 0).stdout.splitlines()
    assert len(lines) == 1 + 16 + 2
    assert all(line == line.rstrip() for line in lines)


def test_the_documented_command_line_works_as_written(run, grid, monkeypatch) -> None:
    if "lbp" not in ENGINES:
        monkeypatch.setitem(ENGINES, "lbp", "fake_engines:Unsure")
        engine = "lbp:std_error=0.5"
    else:
        engine = "lbp:damping=0.5"
    Path("grid.uai.evid").write_text("1 3 1\n")
    words = f"marginals grid.uai -e grid.uai.evid --engine {engine} -o out.MAR --seed 1"
    run(*words.split())
    assert_allclose(read_marginals("out.MAR")[3], [0, 1])
    assert "grid.uai.MAR" not in files()


def test_evidence_from_file_and_command_line(run, grid) -> None:
    Path("seen.evid").write_text("1 3 1\n")
    result = run("marginals", "grid.uai", "-e", "seen.evid", "--observe", "5=0", "--top", 0)
    expected = icgi.marginals(grid, {3: 1, 5: 0})
    assert_allclose(read_marginals("grid.uai.MAR"), expected.probs, atol=1e-12)
    assert "2 observed" in result.stderr
    assert result.stdout.count("(observed)") == 2


def test_evidence_next_to_the_model_is_mentioned_and_not_used(run, grid) -> None:
    Path("grid.uai.evid").write_text("1 3 1\n")
    result = run("marginals", "grid.uai")
    assert "grid.uai.evid, not used" in result.stderr
    assert_allclose(read_marginals("grid.uai.MAR"), icgi.marginals(grid).probs, atol=1e-12)


def test_an_evidence_file_that_observes_nothing_is_not_missed(run, grid) -> None:
    Path("grid.uai.evid").write_text("0\n")
    assert "not used" not in run("marginals", "grid.uai").stderr


def test_a_short_file_does_not_take_all_memory(run) -> None:
    Path("dense.uai").write_text(f"MARKOV\n16\n{'2 ' * 15}{2**24}\n0\n")
    output = run("marginals", "dense.uai", "--memory", "100M", code=4).stderr
    assert "4.29 GB" in output
    assert "100 MB" in output


def test_what_is_printed_is_what_is_refused(run) -> None:
    make("grid", "wide.uai", rows=14, columns=14)
    output = run("marginals", "wide.uai", "--engine", "exact", "--memory", "100k", code=4).stderr
    printed = re.search(r"tables ([\d.]+ \w+),", output)
    refused = re.search(r"exact inference needs ([\d.]+ \w+)", output)
    shown = run("info", "wide.uai", "--memory", "100k").stdout
    assert printed is not None
    assert refused is not None
    assert printed[1] == refused[1]
    assert printed[1] in shown


def test_json_is_the_answer_and_writes_nothing(run, grid) -> None:
    result = run("marginals", "grid.uai", "--json")
    found = json.loads(result.stdout)
    assert found["status"] == "exact"
    assert len(found["marginals"]) == 16
    assert files() == {"grid.uai"}
    run("marginals", "grid.uai", "--json", "-o", "out.csv")
    assert files() == {"grid.uai", "out.csv"}


@pytest.mark.parametrize("ending", ["MAR", "json", "csv"])
def test_output_takes_its_form_from_the_ending(run, grid, ending) -> None:
    run("marginals", "grid.uai", "-o", f"out.{ending}")
    assert files() == {"grid.uai", f"out.{ending}"}
    assert Path(f"out.{ending}").stat().st_size > 100


def test_quiet_leaves_stderr_empty(run, grid) -> None:
    Path("grid.uai.evid").write_text("0\n")
    assert run("marginals", "grid.uai", "--quiet").stderr == ""


def test_a_packed_model_gets_its_answer_without_the_packing(run) -> None:
    make("tree", "tree.uai.gz", n=5)
    run("marginals", "tree.uai.gz")
    assert files() == {"tree.uai.gz", "tree.uai.MAR"}


def test_many_states_are_cut_to_the_likeliest(run) -> None:
    make("tree", "tree.uai", n=3, states=9)
    assert "… +5" in run("marginals", "tree.uai").stdout


def test_a_model_without_variables(run) -> None:
    Path("empty.uai").write_text("MARKOV\n0\n\n1\n0\n\n1\n2.0\n")
    assert "log Z = 0.69314" in run("marginals", "empty.uai").stdout


def test_a_file_that_has_the_default_name_is_kept(run, grid) -> None:
    Path("grid.uai.MAR").write_text("MAR\n1 2 0.5 0.5\n")
    result = run("marginals", "grid.uai")
    assert "kept as grid.uai.MAR.old" in result.stderr
    assert Path("grid.uai.MAR.old").read_text() == "MAR\n1 2 0.5 0.5\n"
    run("marginals", "grid.uai", "--observe", "0=1")
    assert Path("grid.uai.MAR.old").read_text() == "MAR\n1 2 0.5 0.5\n"
    assert_allclose(read_marginals("grid.uai.MAR")[0], [0, 1])


def test_running_twice_leaves_one_file(run, grid) -> None:
    run("marginals", "grid.uai")
    run("marginals", "grid.uai")
    assert files() == {"grid.uai", "grid.uai.MAR"}


def test_a_folder_without_permission_is_said(run, grid, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    result = run("marginals", "grid.uai")
    assert "not written: no permission" in result.stderr
    assert "exact; log Z" in result.stdout
    assert files() == {"grid.uai"}
    assert "no permission" in run("marginals", "grid.uai", "-o", "out.MAR", code=1).stderr


def test_the_table_is_shown_even_if_the_disk_is_full(run, grid, monkeypatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = run("marginals", "grid.uai", code=1)
    assert "exact; log Z" in result.stdout
    assert "cannot write grid.uai.MAR: No space left" in result.stderr
    assert files() == {"grid.uai"}


@pytest.mark.parametrize("status", ["at rest", "budget spent", "diverged"])
def test_strict_ends_with_3_and_writes_nothing(run, grid, status) -> None:
    words = ["marginals", "grid.uai", "--engine", f"unsure:status={status}"]
    assert f"unsure:status={status}: {status}; " in run(*words).stdout
    Path("grid.uai.MAR").unlink()
    result = run(*words, "--strict", code=3)
    assert status in result.stdout
    assert "sweeps 7; residual 0.25" in result.stdout
    assert "--strict" in result.stderr
    assert files() == {"grid.uai"}


def test_strict_accepts_what_is_exact_or_converged(run, grid) -> None:
    run("marginals", "grid.uai", "--strict")
    run("marginals", "grid.uai", "--strict", "--engine", "unsure:status=converged")


def test_level_prints_bands_where_there_is_uncertainty(run, grid) -> None:
    words = ["marginals", "grid.uai", "--top", 1, "--level", 0.95, "--engine"]
    by_error = run(*words, "unsure:std_error=0.1").stdout
    assert "own 95 % band" in by_error
    assert "0.3040 – 0.6960" in by_error  # ½ ± 1.96 · 0.1
    by_counts = run(*words, "unsure:pseudo_counts=2").stdout
    assert "0.0250 – 0.9750" in by_counts  # Beta(1, 1) is uniform
    exact = run(*words, "jt").stdout.splitlines()[1]
    low, _, high = exact.split()[-3:]
    assert low == high  # asked for a level, an exact answer has bands without width
    unknown = run(*words, "unsure").stdout
    assert unknown.splitlines()[0].endswith("  95 % band")
    assert unknown.splitlines()[1].endswith("–")
    assert "estimated error: none" in unknown


def test_the_table_has_the_error_and_four_facts_and_verbose_has_all(run, grid) -> None:
    words = ["marginals", "grid.uai", "--engine", "pt", "--iterations", "50", "--top", 1]
    answer = icgi.marginals(grid, engine="pt", budget=icgi.Budget(iterations=50))
    (facts,) = [line for line in run(*words).stdout.splitlines() if line.startswith("estimated")]
    error, *output, more = facts.split("; ")
    assert f"largest {answer.std_error.max():.2g}" in error
    assert len(output) == 4
    assert more == f"{len(answer.stats) - 4} more with --verbose"
    every = run(*words, "-v").stdout
    assert all(key.replace("_", " ") in every for key in answer.stats)
    assert "--verbose" not in every


def test_verbose_shows_the_statistics_of_exact_answers_too(run, grid) -> None:
    assert "width" not in run("marginals", "grid.uai").stdout
    assert "width 4; " in run("marginals", "grid.uai", "--verbose").stdout


def test_json_says_where_the_answer_comes_from(run, grid, monkeypatch) -> None:
    typed = ["marginals", "grid.uai", "--json", "--seed", "4", "--seconds", "9"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/icgi", *typed])
    found = json.loads(run(*typed, "--engine", "unsure:std_error=0.1").stdout)
    assert found["command"] == shlex.join(["icgi", *typed])
    assert found["seed"] == 4
    assert found["version"] == icgi.__version__
    assert found["budget"] == {"seconds": 9.0, "iterations": None, "table_bytes": 4 * 10**9}
    assert found["model"]["sha256"] == model_digest(icgi.load("grid.uai"))
    assert found["marginals"][3]["std_errors"] == {"0": 0.1, "1": 0.1}


def test_parquet_without_pyarrow_is_refused_before_anything_is_computed(
    run, grid, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = run("marginals", "grid.uai", "-o", "out.parquet", "--engine", "interrupted", code=1)
    assert "writing .parquet needs pyarrow" in result.stderr
    assert "pip install" in result.stderr
    assert "[data]'" in result.stderr
    assert files() == {"grid.uai"}


def test_compiling_is_said_once_and_not_counted(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "compiling")
    assert result.stderr.splitlines().count("compiling, once") == 1
    assert run("marginals", "grid.uai", "--engine", "compiling", "-q").stderr == ""
    assert icgi.marginals(grid, engine="compiling").seconds < 0.3
    batch = icgi.marginals_batch(grid, [None], engine="compiling")
    assert batch[0].seconds < 0.3


def test_report_is_one_page_that_names_everything(run, grid) -> None:
    words = ["marginals", "grid.uai", "--observe", "2=1", "--report"]
    result = run(*words, "look.html")
    assert "report written to look.html" in result.stderr
    output = Path("look.html").read_text()
    assert output.count("<article ") == 16
    assert output.count("observed</span></header>") == 1
    assert "exact up to rounding." in output
    assert "src=" not in output
    assert "http://" not in output.replace("http://www.w3.org/2000/svg", "")
    assert "class=band" not in output
    for phrase in (
        "<dd>2 = 1</dd>",
        "<dt>command</dt>",
        "<dt>seed</dt>",
        icgi.__version__,
        "width=device",
    ):
        assert phrase in output
    run(*words, "look.html", "--engine", "unsure:std_error=0.1")
    assert "90 % band" in Path("look.html").read_text()
    assert "class=band" in Path("look.html").read_text()
    assert "should be .html" in run(*words, "look.txt", code=1).stderr


def test_report_is_not_written_where_strict_fails(run, grid) -> None:
    run("marginals", "grid.uai", "--engine", "unsure", "--strict", "--report", "a.html", code=3)
    assert files() == {"grid.uai"}


def test_a_refusal_names_reason_and_commands(run, grid) -> None:
    words = ["marginals", "grid.uai", "--observe", "2=1", "--memory", "1000", "--engine", "exact"]
    result = run(*words, code=4)
    assert result.stdout == ""
    assert "the budget is 1 kB" in result.stderr
    assert "joins" in result.stderr
    commands = suggested(result.stderr)
    assert 2 <= len(commands) <= 5
    found = run(*commands[0], "--json")  # more memory comes first
    assert json.loads(found.stdout)["status"] == "exact"
    assert commands[1] == ["marginals", "grid.uai", "--observe", "2=1"]  # auto approximates
    for command in commands[2:]:
        assert command[:5] == ["marginals", "grid.uai", "--observe", "2=1", "--engine"]
        assert not describe(command[5]).exact
        run(*command, "--memory", "1G")


def suggested(output: str) -> list[list[str]]:
    """Words after `icgi` of every command that a refusal suggests."""
    return [shlex.split(line)[1:] for line in output.splitlines() if line.startswith("  icgi ")]


def engines_of(output: str) -> list[str]:
    return [
        words[words.index("--engine") + 1] for words in suggested(output) if "--engine" in words
    ]


def test_a_refusal_suggests_general_engines_before_special_ones(run, grid, monkeypatch) -> None:
    words = ["marginals", "grid.uai", "--memory", "1000", "--engine", "jt"]
    for name in set(ENGINES) - {"auto", "jt", "tap", "unsure"}:
        monkeypatch.delitem(ENGINES, name)
    assert engines_of(run(*words, code=4).stderr) == ["jt", "tap", "unsure"]  # jt: more memory
    monkeypatch.setitem(ENGINES, "lbp", "icgi.approx.lbp:LoopyBP")
    assert engines_of(run(*words, code=4).stderr) == ["jt", "lbp", "tap", "unsure"]
    monkeypatch.delitem(ENGINES, "lbp")
    monkeypatch.delitem(ENGINES, "tap")
    monkeypatch.delitem(ENGINES, "unsure")
    output = run(*words, code=4).stderr
    assert engines_of(output) == ["jt"]
    assert "--memory" in shlex.join(suggested(output)[0])


def test_an_impossible_model_is_refused_before_anything_is_allocated(run, monkeypatch) -> None:
    make("ea2d", "wide.uai", L=60)
    monkeypatch.delattr(search, "_random_search")  # seconds of search would be for nothing
    result = run("marginals", "wide.uai", "-o", "out.MAR", "--engine", "exact", code=4)
    assert "GB" in result.stderr
    assert "pt" in engines_of(result.stderr)
    assert "--memory" not in result.stderr.partition("What to do")[2], "no machine has that much"
    assert all(words[2:4] == ["-o", "out.MAR"] for words in suggested(result.stderr))
    assert files() == {"wide.uai"}


def test_a_symmetric_planar_model_is_sent_to_the_pfaffian(run) -> None:
    make("ea2d", "planar.uai", L=40, field=0.0)
    result = run("marginals", "planar.uai", "--engine", "jt", code=4)
    assert "exactly ½ by symmetry" in result.stderr
    assert "icgi marginals planar.uai --engine pfaffian" in result.stderr
    assert json.loads(run("marginals", "planar.uai", "--json").stdout)["status"] == "exact"


def test_auto_answers_what_exact_refuses_and_says_how_well(run) -> None:
    make("sk", "glass.uai", n=50)
    result = run("marginals", "glass.uai", "--seconds", "2", "-o", "out.MAR")
    assert "lbp first, then ttve and pt side by side for 2" in result.stderr
    assert "estimated error" in result.stdout
    assert "at 90 % on average; answered by " in result.stdout
    if "auto: budget spent" in result.stdout:
        assert "--seconds 8 " in result.stdout
    assert_allclose([row.sum() for row in read_marginals("out.MAR")], 1.0)
    run("marginals", "glass.uai", "--engine", "exact", "--memory", "1M", code=4)


def test_the_end_that_auto_sets_itself_is_counted_down() -> None:
    """Without seconds 20 of approximation; none where exact fits or where seconds are given."""
    wide, easy = (make("sk", f"{n}.uai", n=n) for n in (60, 6))
    forever, soon = Deadline.after(math.inf), Deadline.after(3.0)
    for model, deadline, least, most in (
        (wide, forever, 19.0, 20.0), (wide, soon, 2.0, 3.0), (easy, forever, math.inf, math.inf),
    ):  # fmt: skip
        budget = icgi.Budget(seconds=deadline.left)
        brief = icgi.Budget(seconds=0.2)
        ahead = Auto().forecast(model, brief, np.random.default_rng(0))
        assert least <= question.end_of(Auto(), ahead, budget, deadline).left <= most


@pytest.mark.parametrize("memory", ["500", "1M"])
def test_exact_answers_or_refuses_as_it_does_in_python(run, grid, memory) -> None:
    """`cli.question` runs `exact` along the order of the cost line."""
    budget = icgi.Budget(table_bytes=bytes_of(memory))
    try:
        icgi.marginals(grid, engine="exact", budget=budget)
        expected = 0
    except icgi.BudgetError:
        expected = 4
    run("marginals", "grid.uai", "--engine", "exact", "--memory", memory, code=expected)


def test_too_little_time_is_refused_too(run) -> None:
    make("grid", "wide.uai", rows=12, columns=12)
    output = run("marginals", "wide.uai", "--engine", "jt", "--seconds", "1e-9", code=4).stderr
    assert "icgi marginals wide.uai --engine jt --seconds 1\n" in output
    assert "--memory" not in output.partition("What to do")[2]


def test_another_engine_refuses_with_its_own_words(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "greedy", code=4)
    assert "greedy needs everything" in result.stderr
    assert "Why" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.uai"], "no such file"),
        (["broken.uai"], "line 2"),
        (["binary.uai"], "MARKOV"),
        (["."], "folder"),
        (["grid.uai", "-e", "."], "folder"),
        (["grid.uai", "-o", "."], "it is a folder"),
        (["grid.uai", "-e", "missing.evid"], "no such file"),
        (["grid.uai", "-e", "outside.evid"], "variable 99"),
        (["grid.uai", "--observe", "3"], "VARIABLE=STATE"),
        (["grid.uai", "--observe", "=1"], "VARIABLE=STATE"),
        (["grid.uai", "--observe", "rain=1"], "unknown variable"),
        (["grid.uai", "--observe", "3=wet"], "unknown state"),
        (["grid.uai", "--observe", "3=7"], "states 0 to 1"),
        (["grid.uai", "--observe", "3=0", "--observe", "3=1"], "keep one"),
        (
            ["rain.bif", "--observe", "RAIN=YES", "--observe", "RAIN=NO"],
            "RAIN is observed in state",
        ),
        (["grid.uai", "--show", "0,99"], "no variable 99: the model has 16, counted from 0"),
        (["zeros.uai", "--observe", "0=1", "--observe", "1=0"], "probability"),
        (["grid.uai", "--engine", "magic"], "unknown engine"),
        (["grid.uai", "--engine", "lpb"], "did you mean 'lbp'"),
        (["grid.uai", "--engine", "jt:magic=1"], "no option"),
        (["grid.uai", "--engine", "jt:search_share=much"], "should be a number"),
        (["grid.uai", "-o", "out.txt"], "ending"),
        (["grid.uai", "-o", "nowhere/out.MAR"], "does not exist"),
    ],
)
def test_a_wrong_question_ends_with_1_and_one_message(run, grid, words, message) -> None:
    Path("broken.uai").write_text("MARKOV\n2\n2\n")
    Path("binary.uai").write_bytes(bytes(range(256)))
    Path("outside.evid").write_text("1 99 0\n")
    Path("rain.bif").write_text(RAIN)
    Path("zeros.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 0 0 1\n")
    before = files()
    result = run("marginals", *words, code=1)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("icgi: ")
    assert result.stdout == ""
    assert files() == before


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["grid.uai", "--memory", "lots"],
        ["grid.uai", "--memory", "-4G"],
        ["grid.uai", "--memory", "0"],
        ["grid.uai", "--seconds", "0"],
        ["grid.uai", "--seconds", "nan"],
        ["grid.uai", "--iterations", "0"],
        ["grid.uai", "--top", "-1"],
        ["grid.uai", "--level", "1"],
        ["grid.uai", "--seed", "-1"],
        ["grid.uai", "--magic"],
        ["grid.uai", "another.uai"],
    ],
)
def test_wrong_usage_ends_with_2(run, grid, words) -> None:
    assert run("marginals", *words, code=2).stderr
    assert files() == {"grid.uai"}


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 * 10**9), ("500 MB", 5 * 10**8), ("1.5k", 1500), ("2GiB", 2**31), ("77", 77)],
)
def test_sizes_as_people_write_them(text, size) -> None:
    assert bytes_of(text) == size


def test_the_first_control_c_gives_the_best_answer_so_far(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "patient", code=130)
    assert "stopping: the best answer so far; Ctrl-C again to abort" in result.stderr
    assert "patient: budget spent; " in result.stdout
    assert_allclose(read_marginals("grid.uai.MAR"), 0.5)
    assert not clock.stop_requested()
    words = ["marginals", "grid.uai", "--engine", "patient", "--json", "-o", "out.csv"]
    assert json.loads(run(*words, code=130).stdout)["status"] == "budget spent"
    assert "out.csv" in files()


def test_the_second_control_c_aborts(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "patient:signals=2", code=130)
    assert "stopping" in result.stderr
    assert "interrupted" in result.stderr
    assert result.stdout == ""
    assert files() == {"grid.uai"}


def test_an_engine_without_an_answer_so_far_is_just_interrupted(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "unanswered", code=130)
    assert "interrupted before there was an answer" in result.stderr
    assert result.stdout == ""
    assert files() == {"grid.uai"}


@pytest.mark.parametrize("engine", ["pt", "lbp:tolerance=0"])
def test_control_c_in_a_terminal_ends_a_real_engine(engine) -> None:
    make("grid", "wide.uai", rows=40, columns=40)
    process = _icgi("marginals", "wide.uai", "--engine", engine, "--seconds", "40", "--top", "1")
    assert process.stderr is not None
    assert "as asked" in process.stderr.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    output, remarks = process.communicate(timeout=100)
    assert time.monotonic() - began < 20
    assert process.returncode == 130, remarks
    assert "stopping: the best answer so far" in remarks
    assert f"{engine}: budget spent; " in output
    assert_allclose([row.sum() for row in read_marginals("wide.uai.MAR")], 1.0)


def test_control_c_while_the_command_loads_says_so_in_a_line() -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'icgi.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from icgi.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "icgi: interrupted before there was an answer\n"


def test_an_interrupted_run_leaves_nothing(run, grid) -> None:
    result = run("marginals", "grid.uai", "--engine", "interrupted", code=130)
    assert "interrupted" in result.stderr
    assert files() == {"grid.uai"}


def test_control_c_is_heard_at_once_while_an_engine_works(grid) -> None:
    process = _icgi("marginals", "grid.uai", "--engine", "sleeper")
    assert process.stderr is not None
    assert "sleeper: as asked" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=200)  # asleep for ten minutes
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert files() == {"grid.uai"}


def _icgi(*words: str) -> "subprocess.Popen[str]":
    program = (
        "from icgi.engines import ENGINES; from icgi.cli import main; "
        "ENGINES['sleeper'] = 'fake_engines:Sleeper'; main()"
    )
    paths = [str(Path(icgi.__file__).parents[1]), str(Path(__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        text=True,
    )


def test_the_seed_is_the_one_of_the_python_interface(run, grid) -> None:
    for engine in {"auto", "jt", "enumerate", "unsure", "lbp", "mf"} & ENGINES.keys():
        run("marginals", "grid.uai", "--engine", engine, "--seed", 3, "-o", "out.MAR")
        expected = icgi.marginals(grid, engine=engine, seed=3)
        assert_allclose(read_marginals("out.MAR"), expected.probs, rtol=0, atol=1e-12)


def test_rows_of_the_answer_are_distributions(run, grid) -> None:
    run("marginals", "grid.uai")
    assert_allclose([np.sum(row) for row in read_marginals("grid.uai.MAR")], 1.0)


def test_the_work_on_one_model_is_divided(run, grid) -> None:
    words = "marginals grid.uai --engine jt --cluster serial --pieces 4 -o divided.MAR"
    result = run(*words.split())
    assert "4 branches by conditioning on 2 variables; log Z = " in result.stdout
    assert_allclose(read_marginals("divided.MAR"), icgi.marginals(grid).probs, atol=1e-12)
    refused = run("marginals", "grid.uai", "--engine", "lbp", "--pieces", 2, code=1)
    assert "independent runs" in refused.stderr
