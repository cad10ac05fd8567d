"""Every table runs at smoke scale, resumes, and shows claims beside measurements."""

import csv
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import icgi
from icgi.bench import cases, references
from icgi.bench.ablation import measured
from icgi.bench.available import trouble
from icgi.bench.render import grids_of, markdown, spreadsheet
from icgi.bench.runner import Run, run_table
from icgi.bench.table import SCALES, SEEDS, Case, Device, References
from icgi.bench.tables import TABLES
from icgi.bench.tables.regimes import REGIMES
from icgi.bench.tables.sizes import GROWING
from icgi.bench.uncertainty import measured as measured_sets
from icgi.cli import app
from icgi.data.families import FAMILIES
from icgi.data.jobs.job import Question, perform
from icgi.data.jobs.manifest import Manifest
from icgi.data.jobs.run import Serial
from icgi.data.splits import Draw, Role, stratified
from icgi.errors import IcgiError
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget


@pytest.fixture(autouse=True)
def without_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ICGI_DATA", raising=False)


@pytest.fixture(scope="module", params=TABLES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A table that has been run at smoke scale."""
    run = Run(TABLES[request.param], "smoke", tmp_path_factory.mktemp(request.param))
    run_table(run, Serial())
    return run


def test_one_line_for_each_model_engine_seed_and_time(ran: Run) -> None:
    answers = [line for line in ran.manifest.lines() if "case" in line]
    assert len(answers) == ran.expected(len(ran.scale.cases()))
    names = ("digest", "column", "engine", "seed", "asked", "group", "case")
    assert set(Counter(tuple(x[k] for k in names) for x in answers).values()) == {1}
    for line in answers:
        assert line["version"]
        assert line["hardware"]
        assert line["seconds"] >= 0
        assert line["status"] != "failed", line["message"]


def test_a_second_run_adds_nothing(ran: Run) -> None:
    before = ran.manifest.path.read_bytes()
    assert run_table(ran, Serial()) == 0
    assert ran.manifest.path.read_bytes() == before


def test_engines_that_cannot_be_asked_are_rows_with_the_reason(ran: Run) -> None:
    text = markdown(ran)
    for column in ran.table.columns:
        reasons = [trouble(engine) for engine in column.engines]
        if all(reasons):
            assert any(line.startswith(f"| {column.title}") for line in text.splitlines())
            assert str(reasons[0])[:60] in text


def test_every_claim_of_a_row_stands_in_its_cell_and_is_not_merged(ran: Run) -> None:
    grids = {grid.title: grid for grid in grids_of(ran)}
    for row in ran.scale.rows:
        if row.group not in grids or not row.claimed_as:
            continue
        shown = "\n".join("|".join(cells) for cells in grids[row.group].rows)
        claims = {k: v for k, v in ran.table.claims.items() if k[0] == row.claimed_as}
        assert claims
        assert shown.count("[") == len(claims)


def test_errors_are_those_of_the_metrics(ran: Run) -> None:
    exact = [x for x in ran.manifest.lines() if x.get("engine") == "exact" and "mae" in x]
    for line in exact:
        assert line["mae"] <= 3 * line["reference_error"] + 1e-6


def test_the_page_needs_nothing_else(ran: Run, tmp_path: Path) -> None:
    words = ["bench", ran.table.name, "--show", "--folder", str(ran.folder), "-q", "-o"]
    target = tmp_path / "page.html"
    assert CliRunner().invoke(app, [*words, str(target)]).exit_code == 0
    page = target.read_text()
    assert not re.search(r"<script|<link|src=|url\(|https?://", page)
    assert page.count("<table>") == len(grids_of(ran))
    if ran.table.name != "table4":
        assert "<svg" in page
    rows = list(csv.DictReader(spreadsheet(ran).splitlines()))
    assert {row["table"] for row in rows} == {ran.table.name}


def test_what_is_shown_comes_from_the_lines_alone(ran: Run) -> None:
    words = ["bench", ran.table.name, "--show", "--folder", str(ran.folder)]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert ran.table.title in result.stdout
    assert all(column.title in result.stdout for column in ran.table.columns)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    run = Run(TABLES["speed"], "smoke", tmp_path)
    seen: list[dict] = []

    def stop(line: dict) -> None:
        seen.append(line)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_table(run, Serial(), stop, only=("jt", "lbp"))
    assert run_table(run, Serial(), only=("jt", "lbp")) == 2 * len(run.scale.cases()) - 3


def test_rows_can_be_chosen(tmp_path: Path) -> None:
    run = Run(TABLES["speed"], "smoke", tmp_path)
    assert run_table(run, Serial(), only=("jt",), rows=("trees", "Potts")) == 4
    with pytest.raises(IcgiError, match="no row has 'moon'"):
        run.cases(("moon",))


def test_sampled_references_are_as_good_as_they_say_and_the_same_again() -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(3), n=12, beta=1.0, h=0.5)
    question = Question("sk", model)
    settings = References(sweeps=2000, seconds=60.0, others=(), log2_table=1.0)
    truth = icgi.marginals(model, engine="enumerate").probs
    line = made(question, settings)
    assert line["method"] == "pt"
    assert np.abs(np.array(line["probs"]) - truth).sum(1).mean() < 5 * line["error"]
    beside = made(question, replace(settings, others=("ttve",)))  # which is exact here
    assert (beside["method"], beside["error"]) == ("ttve", 0.0)
    assert np.abs(np.array(beside["probs"]) - truth).max() < 1e-7
    assert line["apart"] > 0
    assert made(question, settings)["probs"] == line["probs"]
    exact = made(question, replace(settings, log2_table=20.0))
    assert (exact["method"], exact["error"]) == ("exact", 0.0)
    assert np.abs(np.array(exact["probs"]) - truth).max() < 1e-7


def test_a_method_that_vouches_for_less_error_is_the_reference_where_the_runs_agree() -> None:
    def line(p: float, status: str, stated: float) -> dict:
        return {"status": status, "seconds": 1.0, "stated": stated, "probs": [[p, 1 - p]]}

    runs = {"pt 20261": line(0.50, "converged", 0.01), "pt 20262": line(0.52, "converged", 0.01)}

    def method(**others: dict) -> tuple[str, float]:
        found = references.combined(runs | others)
        assert found is not None
        assert found["probs"] == (
            others["ttve"]["probs"] if found["method"] == "ttve" else [[0.51, 0.49]]
        )
        return found["method"], found["error"]

    assert method() == ("pt", pytest.approx(0.02))
    assert method(ttve=line(0.53, "converged", 1e-6)) == ("ttve", 1e-6)
    assert method(ttve=line(0.60, "converged", 1e-6))[0] == "pt"  # they do not agree
    assert method(ttve=line(0.53, "budget spent", 1e-6))[0] == "pt"
    assert method(ttve=line(0.53, "converged", 0.01))[0] == "pt"


def made(question: Question, settings: References) -> dict:
    jobs = references.jobs(question, "row", settings)
    lines = {part: perform(job, question).record for part, job in jobs.items()}
    assert all(line["status"] != "failed" for line in lines.values())
    found = references.combined(lines)
    assert found is not None
    return found


def test_an_interrupted_reference_goes_on(tmp_path: Path) -> None:
    model = FAMILIES["sk"].sample(np.random.default_rng(3), n=12, beta=1.0, h=0.5)
    case = Case("sk", "row", lambda: Question("sk", model))
    settings = References(sweeps=200, others=(), log2_table=1.0)
    manifest = Manifest(tmp_path / "references.jsonl")
    seen: list[dict] = []

    def stop(line: dict) -> None:
        seen.append(line)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        references.make_references([case], settings, manifest, Serial(), stop)
    assert not references.of_cases(manifest, settings)
    references.make_references([case], settings, manifest, Serial(), seen.append)
    assert [line["part"] for line in seen] == ["exact", "pt 20261", "pt 20262"]
    assert set(references.of_cases(manifest, settings)) == {"sk"}
    assert not references.of_cases(manifest, replace(settings, sweeps=300))
    ((_, question, _),) = references.with_references([case], settings, manifest)
    assert question.reference is not None


def test_references_come_from_the_device_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler of the device is stood in for by exact answers with an offset."""
    models = [FAMILIES["sk"].sample(np.random.default_rng(k), n=8, h=0.5) for k in range(2)]
    rows = [Case(f"sk {k}", "row", lambda m=m: Question("sk", m)) for k, m in enumerate(models)]
    batches: list[int] = []

    def run(sampler: object, asked: list, budget: Budget, rng: np.random.Generator) -> list:
        batches.append(len(asked))
        shift = 0.01 * len(batches)
        found = [icgi.infer(m, {}, Enumerate(), Budget(), rng) for m in asked]
        return [replace(f, probs=f.probs + np.array([shift, -shift])) for f in found]

    monkeypatch.setattr(references, "available", lambda: True)
    monkeypatch.setattr(references.GpuTempering, "run", run)
    settings = References(200, others=("lbp",), log2_table=1.0, device=Device(100, 1.0))
    manifest = Manifest(tmp_path / "references.jsonl")
    seen: list[dict] = []
    for _ in range(2):  # the second time nothing is left to do
        references.make_references(rows, settings, manifest, Serial(), seen.append)
    assert batches == [2, 2]
    sampled = 2 * ["pt-gpu 20261"] + 2 * ["pt-gpu 20262"]
    assert [x["part"] for x in seen] == 2 * ["exact"] + sampled + 2 * ["lbp"]
    found = references.of_cases(manifest, settings)
    assert {line["method"] for line in found.values()} == {"pt-gpu"}
    assert all(line["apart"] == pytest.approx(0.02) for line in found.values())
    assert all(set(line["others"]) == {"lbp"} for line in found.values())
    monkeypatch.setattr(references, "available", lambda: False)
    references.make_references(rows, settings, manifest, Serial(), seen.append)
    assert len(seen) == 8  # nor does a machine without a device do any of it again

    asked = list(references.with_references(rows, settings, manifest))
    longer = {line["key"]: line | {"swept": 10**6} for line in seen if "pt-gpu" in line["part"]}
    manifest.append(longer.values())  # made elsewhere, in place of the shorter ones
    anew = list(references.with_references(rows, settings, manifest))
    assert all(old[2] != new[2] for old, new in zip(asked, anew, strict=True))


def test_costs_of_a_network_are_those_of_its_first_seed() -> None:
    question = Question("sk", FAMILIES["sk"].sample(np.random.default_rng(0), n=6))
    lines = [measured(question, "lbp", seed, 1.0, 2**30) for seed in SEEDS[:2]]
    assert ["throughput" in line for line in lines] == [True, False]


def test_table_4_calibrates_each_seed_by_its_own_answers(tmp_path: Path) -> None:
    run = Run(TABLES["table4"], "smoke", tmp_path)
    row, column = run.scale.rows[0], next(c for c in run.table.columns if c.trained)
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([3, 1], size=(2, 6, 5))  # two parts of six graphs of five spins

    def line(part: int, graph: int, seed: int) -> dict:
        own = truth[part, graph] if seed == 42 else np.full((5, 2), 0.5)
        return {
            "key": f"{part} {graph} {seed}", "column": column.title, "engine": "x", "seed": seed,
            "case": f"{part} {graph}", "group": REGIMES[row.group].data, "asked": 1.0,
            "part": ("calibration", "test")[part], "ours": own.tolist(), "status": "estimated",
            "truth": truth[part, graph].tolist(), "features": [float(graph)], "seconds": 1.0,
        }  # fmt: skip

    lines = [line(p, g, s) for p in range(2) for g in range(6) for s in (42, 123)]
    alone = [measured_sets([x for x in lines if x["seed"] == s], row, column, False)
             for s in (42, 123)]  # fmt: skip
    both = measured_sets(lines, row, column, False)
    assert (both.graphs, both.seeds, both.answers) == (6, 2, 12)
    assert both.ece == pytest.approx((alone[0].ece + alone[1].ece) / 2)
    assert alone[0].ece < 0.1 < alone[1].ece
    half = [*lines, line(0, 0, 456), line(1, 0, 456)]  # a seed that has only begun
    assert measured_sets(half, row, column, False) == both


def test_a_few_cases_are_from_every_family_and_size_and_do_not_depend_on_their_order() -> None:
    def case(name: str, family: str, size: str) -> Case:
        return Case(name, "row", lambda: None, {"family": family, "size": size})

    many = [case(f"{f}{s}{k}", f, s) for f in "ab" for s in ("small", "large") for k in range(9)]
    found = cases.few([*many, case("c", "c", "small")], 7)
    assert Counter((c.about["family"], c.about["size"]) for c in found) == {
        ("a", "small"): 2, ("a", "large"): 2, ("b", "small"): 1, ("b", "large"): 1,
        ("c", "small"): 1,
    }  # fmt: skip
    again = cases.few([case("c", "c", "small"), *many[::-1]], 7)
    assert [c.name for c in again] == [c.name for c in found]
    assert len(cases.few(many, 100)) == len(many)


def test_render_writes_a_page_of_every_run(tmp_path: Path) -> None:
    run = Run(TABLES["speed"], "smoke", tmp_path / "lines")
    run_table(run, Serial(), only=("jt",))
    words = ["bench", "render", "--folder", str(tmp_path / "lines"), "-o", str(tmp_path / "docs")]
    assert CliRunner().invoke(app, words).exit_code == 0
    written = {p.name for p in (tmp_path / "docs").iterdir()}
    assert {"index.md", "speed-smoke.md"} <= written
    assert "(speed-smoke.md)" in (tmp_path / "docs" / "index.md").read_text()
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (tmp_path / "docs" / "speed-smoke.md").read_text())
    assert shown
    assert written == {"index.md", "speed-smoke.md", *shown}
    for name in shown:
        assert ElementTree.parse(tmp_path / "docs" / name).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table9"], "did you mean"),
        (["table1", "--scale", "huge"], "smoke, small, paper"),
        (["table2", "--method", "lpb"], "there are: LBP"),
        (["table2", "-o", "t.xls"], ".html"),
        (["table1", "--scale", "small"], "ICGI_DATA"),
        (["render"], "holds no lines"),
    ],
)
def test_wrong_questions_say_what_is_possible(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench", *words], env={"COLUMNS": "300"})
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_every_table_has_every_scale_and_only_known_columns() -> None:
    for table in TABLES.values():
        assert set(table.scales) == set(SCALES)
        titles = [column.title for column in table.columns]
        assert len(set(titles)) == len(titles)
        assert set(table.compared) <= set(titles)
        columns = {c.claimed_as for c in table.columns} | {
            f"{c.claimed_as} weighted" for c in table.columns
        }
        assert {name for _, _, name in table.claims} <= columns
    assert {row.group for row in TABLES["table4"].scales["small"].rows} == set(REGIMES)
    assert {row.group for row in TABLES["speed"].scales["small"].rows} == set(GROWING)


def test_cases_are_never_draws_that_something_trains_on() -> None:
    for name in ("table2", "table3", "speed"):
        for scale in SCALES:
            for case in TABLES[name].scales[scale].cases():
                made = getattr(case.load, "args", ())
                drawn = [each for each in made if isinstance(each, Draw)]
                assert all(each.role not in (Role.TRAIN, Role.VALIDATION) for each in drawn)
    with pytest.raises(Exception, match="train draws"):
        cases.drawn("x", "sk-paper", 1, Role.TRAIN, n=10)


def test_draws_of_a_table_are_other_models_than_those_of_other_roles() -> None:
    parameters = {"n": 8, "beta": 1.0, "h": 0.1}
    one = cases.drawn("x", "sk-paper", 2, Role.IN_DISTRIBUTION, **parameters)
    other = cases.drawn("x", "sk-paper", 2, Role.OOD, **parameters)
    digests = {case.load().digest for case in [*one, *other]}
    assert len(digests) == 4
    assert one[0].load().digest == one[0].load().digest


def test_every_table_is_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
    assert all(f"| `{name}` |" in text for name in TABLES)
    families = set(cases.FAMILIES_OF_THE_PAPER.values())
    assert all(f"| {family} |" in text for family in families)


def test_sizes_are_the_papers() -> None:
    assert [cases.size_of(n) for n in (1, 100, 101, 1000, 1001)] == [
        "small", "small", "medium", "medium", "large",
    ]  # fmt: skip


def test_the_split_of_instances_is_stratified() -> None:
    names = {f"{family}{k}": family for family in "ab" for k in range(10)}
    roles = stratified(names)
    for family in "ab":
        count = Counter(role for name, role in roles.items() if name.startswith(family))
        assert count == {Role.TRAIN: 7, Role.VALIDATION: 1, Role.IN_DISTRIBUTION: 2}
