"""Every verb but `marginals`, and the command as a whole."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from some_models import make

import icgi
from icgi.cli import demo, uai
from icgi.cli.engines import describe
from icgi.data.families import FAMILIES
from icgi.engines import ENGINES, engine_class
from icgi.exact.forecast import along
from icgi.inference import Marginals, Status
from icgi.model.formats.uai import read_marginals, read_pr, write_marginals
from icgi.model.graph import FactorGraph
from icgi.model.ordering import Order
from icgi.portfolio.auto import Ladder

VERBS = {
    "marginals": (
        "--evidence --observe --engine --seconds --iterations --memory --output --top --level "
        "--calibration --report --strict --json --quiet --verbose --seed"
    ),
    "info": "--evidence --observe --memory --seconds --json --quiet --seed",
    "check": "--model --evidence --json",
    "calibrate": (
        "--engine --output --set --seconds --most-seconds --iterations --toward --share --seed "
        "--quiet"
    ),
    "engines": "--json",
    "generate": "--output --count --list --seed --json --quiet",
    "demo": "--folder",
    "uai": "--engine --seed INF_TIME INF_MEMORY",
    "warm": "--processes --quiet",
}


# --- the command as a whole


@pytest.mark.parametrize("verb", VERBS)
def test_help_mentions_every_option_and_the_exit_codes(run, verb) -> None:
    output = run(verb, "--help").stdout
    for word in [*VERBS[verb].split(), "Exit codes"]:
        assert word in output


def test_help_lists_every_verb(run) -> None:
    output = run("--help").stdout
    assert all(verb in output for verb in VERBS)
    assert "Exit codes" in output
    assert run("--version").stdout.strip() == f"icgi {icgi.__version__}"


def test_an_unknown_verb_is_wrong_usage(run) -> None:
    run("magic", code=2)


HEAVY = "{'torch', 'numba', 'scipy', 'networkx', 'pandas', 'numpy'}"


def test_importing_loads_nothing_heavy() -> None:
    program = f"import sys, icgi, icgi.cli; print(sorted({HEAVY} & sys.modules.keys()))"
    assert _python("-c", program) == "[]\n"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, atexit; from icgi.cli import main; "
        f"atexit.register(lambda: print(sorted({HEAVY} & sys.modules.keys()))); "
        "sys.argv = ['icgi', 'marginals', '--help']; main()"
    )
    output = _python("-c", program)
    assert "--engine" in output
    assert output.splitlines()[-1] == "[]"


def _python(*words: str) -> str:
    source = str(Path(icgi.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source},
    ).stdout


# --- info


def test_info_counts_and_says_what_auto_would_do(run, grid) -> None:
    output = run("info", "grid.uai").stdout
    assert "24 factors of 2 variables" in output
    assert "16 variables of 2 states" in output
    assert "Ising model" in output
    for order in ("min-fill", "min-degree", "weighted-min-fill", "search"):
        assert order in output
    assert "takes jt" in output


def test_info_as_json(run) -> None:
    text = "MARKOV\n4\n2 3 2 1\n3\n2 0 1\n2 1 2\n1 3\n6\n1 0 0 1 1 0\n6\n1 1 2 1 3 1\n1\n5\n"
    Path("zeros.uai").write_text(text)
    found = json.loads(run("info", "zeros.uai", "--observe", "0=0", "--json").stdout)
    assert found["variables"] == 4
    assert found["observed"] == 1
    assert found["states"] == {"1": 1, "2": 2, "3": 1}
    assert found["arity"] == {"1": 1, "2": 2}
    assert found["zero_entries"] == 3
    assert found["one_state_variables"] == 1
    assert found["states_removed_by_zeros"] == 2  # state 0 of variable 0 leaves one for variable 1
    assert found["free_variables"] == 1
    assert found["exact_fits"] is True
    assert [order["name"] for order in found["orders"]][-1] == "search"


def test_info_sees_symmetry_planarity_and_parts(run) -> None:
    make("ea2d", "flat.uai", L=4, field=0.0)
    assert "planar Ising model without field" in run("info", "flat.uai").stdout
    make("sk", "full.uai", n=8, h=0.0)
    output = run("info", "full.uai").stdout
    assert "½" in output
    assert "planar" not in output
    Path("two.uai").write_text("MARKOV\n4\n2 2 2 2\n2\n2 0 1\n2 2 3\n4\n1 2 3 4\n4\n1 2 3 4\n")
    assert "2 connected components" in run("info", "two.uai").stdout


def test_a_cost_beyond_any_number_is_infinite() -> None:
    order = Order(np.arange(2), 2000, 2001.0, 2002.0, math.inf, "given")
    ahead = along(FactorGraph(np.full(2, 2), (), ()), order)
    assert ahead.seconds == math.inf
    assert "GB" in str(ahead)


def test_info_of_a_missing_file(run) -> None:
    assert "no such file" in run("info", "missing.uai", code=1).stderr


# --- check


def test_a_file_checked_against_itself_is_perfect(run, grid) -> None:
    run("marginals", "grid.uai")
    found = json.loads(run("check", "grid.uai.MAR", "grid.uai.MAR", "--json").stdout)
    assert found.pop("worst") == []
    assert found.pop("not_summing_to_one") == {"answer": [], "reference": []}
    assert found == {
        "variables": 16, "observed": 0, "mae": 0, "max": 0, "kl": 0, "hellinger": 0,
        "uai_2022_score": 100,
    }  # fmt: skip
    output = run("check", "grid.uai.MAR", "grid.uai.MAR").stdout
    assert "100 of 100" in output
    assert "worst" not in output


def test_check_measures_and_names_the_worst(run) -> None:
    write_marginals(Path("a.MAR"), np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]), [2, 2, 2])
    write_marginals(Path("b.MAR"), np.array([[0.5, 0.5], [0.1, 0.9], [0.5, 0.5]]), [2, 2, 2])
    found = json.loads(run("check", "a.MAR", "b.MAR", "--json").stdout)
    assert found["mae"] == pytest.approx(1.2 / 3)
    assert found["max"] == pytest.approx(1.0)
    assert found["kl"] is None
    assert [row["variable"] for row in found["worst"]] == [2, 1]
    output = run("check", "a.MAR", "b.MAR").stdout
    assert "infinite: 1 variables" in output
    assert "worst variable" in output


def test_check_leaves_observed_variables_out(run, grid) -> None:
    Path("seen.evid").write_text("1 2 1\n")
    run("marginals", "grid.uai", "-e", "seen.evid", "-o", "a.MAR")
    run("marginals", "grid.uai", "-o", "b.MAR")
    words = ["check", "a.MAR", "b.MAR", "--model", "grid.uai", "-e", "seen.evid"]
    found = json.loads(run(*words, "--json").stdout)
    assert (found["variables"], found["observed"]) == (15, 1)
    assert math.isfinite(found["kl"])
    assert "1 observed left out" in run(*words).stdout


def test_check_refuses_files_that_do_not_belong_together(run, grid) -> None:
    run("marginals", "grid.uai")
    make("grid", "other.uai", rows=2, columns=2)
    run("marginals", "other.uai")
    assert "different models" in run("check", "grid.uai.MAR", "other.uai.MAR", code=1).stderr
    words = ["check", "grid.uai.MAR", "grid.uai.MAR"]
    assert "belong" in run(*words, "--model", "other.uai", code=1).stderr
    Path("far.evid").write_text("1 16 0\n")
    assert "belong" in run(*words, "-e", "far.evid", code=1).stderr
    assert "MAR" in run("check", "grid.uai", "grid.uai.MAR", code=1).stderr
    assert "no such file" in run("check", "missing.MAR", "grid.uai.MAR", code=1).stderr


def test_check_reports_rows_that_do_not_sum_to_one(run) -> None:
    Path("a.MAR").write_text("MAR\n2 2 0.5 0.5 2 0.3 0.708\n")
    Path("b.MAR").write_text("MAR\n2 2 0.5 0.5 2 0.3 0.7\n")
    output = run("check", "a.MAR", "b.MAR").stderr
    assert "a.MAR: the probabilities of 1 of 2 variables do not sum to one" in output
    assert "variable 1, to 1.008" in output
    assert "b.MAR" not in output
    found = json.loads(run("check", "b.MAR", "a.MAR", "--json").stdout)
    assert found["not_summing_to_one"] == {"answer": [], "reference": [1]}


# --- engines


def test_engines_lists_all_of_them(run) -> None:
    output = run("engines").stdout
    for name in ENGINES:
        assert name in output
    assert "Uniform marginals with any status" in output
    listed = json.loads(run("engines", "--json").stdout)
    assert [each["name"] for each in listed] == list(ENGINES)


@pytest.mark.parametrize("name", [*ENGINES, "unsure"])
def test_what_the_source_says_is_what_the_class_takes(name) -> None:
    fields = [f for f in dataclasses.fields(engine_class(name)) if f.name != "network"]  # type: ignore[arg-type]
    output = describe(name)
    assert output is not None
    assert output.summary
    assert [option.name for option in output.options] == [field.name for field in fields]
    for option, field in zip(output.options, fields, strict=True):
        if field.default is not dataclasses.MISSING:
            assert option.default == str(field.default)


def test_engines_explains_one(run) -> None:
    output = run("engines", "unsure").stdout
    assert "converged | at rest | budget spent | diverged" in output
    assert "sequential | flooding | residual" in run("engines", "lbp").stdout
    assert "of every probability" in output
    assert "More words about it." in output
    assert "no options" in run("engines", "greedy").stdout
    assert "unknown engine" in run("engines", "magic", code=1).stderr
    assert "did you mean 'unsure'" in run("engines", "unsur", code=1).stderr
    (found,) = json.loads(run("engines", "unsure", "--json").stdout)
    assert found["options"][1]["type"] == "float | None"


# --- generate


def test_generate_lists_families_with_their_parameters(run) -> None:
    output = run("generate", "--list").stdout
    for name, family in FAMILIES.items():
        assert name in output
        assert all(f"{key}=" in output for key in family.parameters)
    assert set(json.loads(run("generate", "--list", "--json").stdout)) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_makes_the_same_file(run, family) -> None:
    run("generate", family, "-o", "a.uai", "--seed", 5)
    run("generate", family, "--seed", 5)
    run("generate", family, "-o", "c.uai", "--seed", 6)
    again = Path(f"{family}-5.uai")
    assert Path("a.uai").read_text() == again.read_text()
    assert Path("a.uai").read_text() != Path("c.uai").read_text()
    assert icgi.load("a.uai").n_variables > 1


def test_generate_takes_parameters_and_counts(run) -> None:
    words = ["generate", "ea2d", "L=3", "beta=0.5", "disorder=bimodal", "periodic=true"]
    output = run(*words, "--count", 3, "-o", "set.uai").stdout
    assert output.splitlines()[2] == "set-2.uai: 9 variables, 27 factors, 2 states"
    assert run(*words, "--quiet").stdout == ""
    assert Path("ea2d-0.uai").read_text() == Path("set-0.uai").read_text()
    found = json.loads(run(*words, "--json").stdout)
    assert found["parameters"] == {
        "L": 3, "beta": 0.5, "disorder": "bimodal", "periodic": True
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "FAMILY"),
        (["magic"], 1, "unknown family"),
        (["gird"], 1, "did you mean 'grid'"),
        (["grid", "row=3"], 1, "did you mean 'rows'"),
        (["grid", "size=3"], 1, "rows=10"),
        (["grid", "rows"], 1, "rows=10"),
        (["grid", "rows=many"], 1, "a whole number"),
        (["grid", "beta=hot"], 1, "a number"),
        (["ea2d", "periodic=perhaps"], 1, "true or false"),
        (["grid", "disorder=none"], 1, "bimodal"),
        (["er", "p=2"], 1, "probability"),
        (["ba", "m=-1"], 1, "at least 1"),
        (["sk", "n=-5"], 1, "at least 1"),
        (["grid", "-o", "nowhere/x.uai"], 1, "does not exist"),
        (["grid", "--count", "0"], 2, "--count"),
    ],
)
def test_wrong_parameters_are_explained(run, words, code, message) -> None:
    assert message in run("generate", *words, code=code).stderr
    assert list(Path().iterdir()) == []


# --- uai


@pytest.fixture
def fresh(monkeypatch) -> None:
    """As if this process had just been started: its time counts."""
    monkeypatch.setattr(uai, "_since_start", lambda: 0.0)


@pytest.mark.usefixtures("fresh")
def test_competition_form_writes_into_the_current_folder(run) -> None:
    Path("models").mkdir()
    model = make("grid", "models/grid.uai", rows=3, columns=3)
    Path("grid.evid").write_text("1 0 1\n")
    env = {"INF_TIME": "20", "INF_MEMORY": "1"}
    words = ["uai", "models/grid.uai", "grid.evid", "none.query"]
    result = run(*words, "MAR", env=env)
    expected = icgi.marginals(model, {0: 1})
    assert_allclose(read_marginals("grid.uai.MAR"), expected.probs, atol=1e-12)
    assert result.stdout == ""
    run(*words, "PR", env=env)
    assert expected.log_z is not None
    assert read_pr("grid.uai.PR") == pytest.approx(expected.log_z / math.log(10))


@pytest.mark.usefixtures("fresh")
def test_competition_form_interrupted_writes_what_there_is_and_says_so(run, grid) -> None:
    Path("none.evid").write_text("0\n")
    run("uai", "grid.uai", "none.evid", "none.query", "MAR", "--engine", "patient", code=130)
    assert_allclose(read_marginals("grid.uai.MAR"), 0.5)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("env", [{}, {"INF_TIME": "4"}])
def test_competition_form_writes_the_most_probable_configuration(run, env) -> None:
    model = make("grid", "grid.uai", rows=4, columns=4)
    Path("grid.evid").write_text("1 0 1\n")
    run("uai", "grid.uai", "grid.evid", "none.query", "MPE", env=env)
    words = Path("grid.uai.MPE").read_text().split()
    assert words[:2] == ["MPE", "16"]
    assert list(map(int, words[2:])) == icgi.mpe(model, {0: 1}).states.tolist()


@pytest.mark.usefixtures("fresh")
def test_competition_form_has_the_best_configuration_found_where_none_is_proved(run) -> None:
    make("ea2d", "wide.uai", L=40)
    Path("none.evid").write_text("0\n")
    words = ["uai", "wide.uai", "none.evid", "none.query", "MPE"]
    note = run(*words, env={"INF_TIME": "3", "INF_MEMORY": "0.2"}).stderr
    assert "best found" in note
    assert len(Path("wide.uai.MPE").read_text().split()) == 1602


@pytest.mark.usefixtures("fresh")
def test_competition_form_keeps_within_memory_and_time(run) -> None:
    model = make("grid", "wide.uai", rows=14, columns=14)
    Path("none.evid").write_text("0\n")
    words = ["uai", "wide.uai", "none.evid", "none.query", "MAR"]
    assert "budget" in run(*words, env={"INF_MEMORY": "1e-6"}, code=4).stderr
    assert not Path("wide.uai.MAR").exists()
    output = run(*words, env={"INF_TIME": "1"}).stderr  # too little for anything but a first answer
    assert "wide.uai.MAR" in output
    assert_allclose([row.sum() for row in read_marginals("wide.uai.MAR")], 1.0)
    assert len(read_marginals("wide.uai.MAR")) == model.n_variables


@pytest.mark.usefixtures("fresh")
def test_competition_form_always_has_a_partition_function(run, grid, monkeypatch) -> None:
    """Where no route of `auto` has one in the time, a bound or Bethe's value stands in."""

    def clueless(ladder, model, budget, rng):
        yield Marginals(np.full((model.n_variables, 2), 0.5), Status.BUDGET_SPENT)

    monkeypatch.setattr(Ladder, "answers", clueless)
    Path("none.evid").write_text("0\n")
    result = run("uai", "grid.uai", "none.evid", "none.query", "PR", env={"INF_TIME": "20"})
    assert "rough" in result.stderr
    true = icgi.marginals(grid, engine="jt").log_z
    assert true is not None
    assert read_pr("grid.uai.PR") * math.log(10) == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize(
    ("task", "env", "message"),
    [
        ("MAP", {}, "'MAP' is not supported"),
        ("mar", {}, "not supported"),
        ("MAR", {"INF_TIME": "soon"}, "INF_TIME"),
        ("MAR", {"INF_MEMORY": "-1"}, "INF_MEMORY"),
    ],
)
def test_competition_form_explains_what_it_cannot_do(run, grid, task, env, message) -> None:
    Path("none.evid").write_text("0\n")
    words = ["uai", "grid.uai", "none.evid", "none.query", task]
    assert message in run(*words, env=env, code=1).stderr


def test_competition_form_needs_log_z_for_pr(run, grid) -> None:
    Path("none.evid").write_text("0\n")
    words = ["uai", "grid.uai", "none.evid", "none.query", "PR", "--engine", "unsure"]
    assert "no estimate" in run(*words, code=1).stderr
    assert not Path("grid.uai.PR").exists()


# --- demo


def test_the_tour_runs_and_keeps_its_files_on_request(run) -> None:
    result = run("demo", "--folder", "tour")
    for command in ("generate", "info", "marginals", "check"):
        assert f"$ icgi {command}" in result.stdout
    assert "missed (observed)" in result.stdout
    assert "refused" in result.stderr
    assert {"grid.uai", "grid.uai.MAR", "corners.MAR", "wide.uai"} <= {
        path.name for path in Path("tour").iterdir()
    }
    assert re.search("auto: (exact|converged|budget spent); ", result.stdout.rpartition("8. ")[2])


def test_what_the_tour_shows_in_python_can_be_typed() -> None:
    exec(demo.NETWORK, {})
    seen = icgi.marginals(demo.travel(), {"connection": "missed", "storm": "no"})
    assert seen["works"][1] > icgi.marginals(demo.travel())["works"][1]
    assert icgi.marginals(demo.travel()).log_z == pytest.approx(0.0, abs=1e-12)
