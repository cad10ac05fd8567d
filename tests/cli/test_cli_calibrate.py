"""`icgi calibrate`, and what `icgi marginals` makes of it."""

import errno
import json
from pathlib import Path

import pytest
from some_models import make

import icgi
from icgi.calibration.sentences import unfamiliarity

TINY = ("--share", 0.06, "--iterations", 100)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from typer.testing import CliRunner

    from icgi.cli import app

    path = tmp_path_factory.mktemp("calibration") / "lbp.json"
    words = ["calibrate", "--engine", "lbp", *map(str, TINY), "-o", str(path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "median half-width" in result.stdout
    return path


def test_it_writes_a_file_and_goes_on_from_its_lines(run, file) -> None:
    before = file.read_text()
    again = run("calibrate", "--engine", "lbp", *TINY, "-o", file)
    assert file.read_text() == before
    assert "40 models of mixed, 40 measured before" in again.stderr
    assert "answered exactly" in again.stdout


def test_workers_make_the_same_file(run, file, tmp_path) -> None:
    other = tmp_path / "lbp.json"
    run("calibrate", "--engine", "lbp", *TINY, "--workers", 2, "-o", other)
    assert other.read_bytes() == file.read_bytes()


def test_lines_of_another_calibration_are_not_mixed_in(run, file) -> None:
    output = run("calibrate", "--engine", "mf", *TINY, "-o", file, code=1).stderr
    assert "lines of another calibration" in output
    assert "engine" in output


def test_a_full_disk_is_said_and_nothing_is_lost(run, monkeypatch) -> None:
    words = ["calibrate", "--engine", "lbp", *TINY, "-o", "out.json"]

    def full(self: Path, text: str) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert "out.json.lines: No space left" in run(*words, code=1).stderr
    run(*words)
    assert Path("out.json").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "lbp", "--set", "nowhere", "-o", "a.json"], "neither a built-in"),
        (["--engine", "magic", "-o", "a.json"], "unknown engine"),
        (["--engine", "lbp", "-o", "no/where.json"], "does not exist"),
        (["--engine", "jt", "--share", 0.02, "-o", "a.json"], "need no calibration"),
    ],
)
def test_wrong_questions_are_refused(run, words, message) -> None:
    assert message in run("calibrate", *words, code=1).stderr


def test_an_unknown_engine_is_refused_before_any_model_is_drawn(run, monkeypatch) -> None:
    monkeypatch.setattr("icgi.calibration.sets.cases", lambda *_: pytest.fail("models were drawn"))
    assert "unknown engine" in run("calibrate", "--engine", "magic", "-o", "a.json", code=1).stderr
    assert not list(Path().glob("a.json*"))


def test_a_model_that_takes_too_long_is_given_up(run) -> None:
    words = ("--engine", "pt", "--share", 0.02, "--iterations", 10**7, "--patience", 0.05)
    output = run("calibrate", *words, "-o", "pt.json", code=1).stderr
    assert "one refusal: given up after 0.05 s" in output


def test_times_are_drawn_above_the_shortest(run) -> None:
    words = ("--engine", "pt", "--seconds", 2, "--most-seconds", 1, "-o", "a.json")
    assert "above that of --seconds" in run("calibrate", *words, code=2).stderr


def test_marginals_show_set_band_and_what_is_promised(run, grid) -> None:
    output = run("marginals", "grid.uai", "--engine", "lbp", "--level", 0.8).stdout
    head = output.splitlines()[0]
    assert "80 % set" in head
    assert head.endswith("  80 % band")  # not the engine's own
    for part in ("Sets: ", "Bands: ", "Like these: ", "with probability 80 %", "unfamiliarity"):
        assert part in output


def test_wide_calibrated_bands_are_marked_whatever_the_engine_says_of_itself(run) -> None:
    make("er", "er.uai", n=22, p=0.25, beta=2.0)  # `lbp` has no error of its own
    lines = run("marginals", "er.uai", "--engine", "lbp", "--top", 0).stdout.splitlines()
    rows = [line for line in lines if " – " in line]
    wide = []
    for row in rows:
        low, high = (float(x) for x in row.removesuffix(" ?").split("}")[-1].split("–"))
        assert row.endswith(" ?") == ((high - low) / 2 > 1.645 * 0.05)
        wide += [row] * row.endswith(" ?")
    assert wide
    said = next(line for line in lines if line.startswith("?: "))
    assert said == f"?: {len(wide)} variables have a band wider than ±0.082; it says little"


def test_marginals_say_when_nothing_is_promised(run) -> None:
    make("grid", "cold.uai", rows=5, columns=5, beta=9.0)
    output = run("marginals", "cold.uai", "--engine", "lbp").stdout
    assert "No guarantee: this model is unlike the calibration set" in output
    assert "nearest group: spins on a lattice" in output
    assert "90 % set" not in output
    mf = run("marginals", "cold.uai", "--engine", "mf").stdout
    assert "there is no calibration for this engine" in mf
    assert "No bands: the engine has no estimate of its error." in mf


def test_exact_answers_show_sets_when_a_level_is_asked_for(run, grid) -> None:
    assert "set" not in run("marginals", "grid.uai").stdout.splitlines()[0]
    output = run("marginals", "grid.uai", "--level", 0.9).stdout
    assert "90 % set" in output.splitlines()[0]
    assert "Exact: " in output


def test_files_and_the_report_carry_sets_and_bands(run, grid) -> None:
    words = ("marginals", "grid.uai", "--engine", "lbp", "--level", 0.8)
    found = json.loads(run(*words, "--json").stdout)
    assert found["guarantee"]["kind"] == "groups"
    assert found["guarantee"]["level"] == 0.8
    first = found["marginals"][0]
    assert set(first["set"]) <= {"0", "1"}
    low, high = first["band"]["0"]
    assert low <= first["probabilities"]["0"] <= high
    run(*words, "-o", "a.csv", "--report", "a.html")
    head = Path("a.csv").read_text().splitlines()[0]
    assert head.endswith("probability,in_set,band_low,band_high")
    page = Path("a.html").read_text().partition("<script")[0]
    for part in ("80 % set", "Sets: ", "Reliability on the calibration models", "1: unlike them"):
        assert part in page
    assert "The bands are calibrated: with probability 80 %" in page
    assert "80 % calibrated band" in page
    assert "own estimate" not in page


def test_the_engines_own_bands_are_nowhere_called_calibrated(run) -> None:
    make("grid", "cold.uai", rows=5, columns=5, beta=9.0)
    words = ("marginals", "cold.uai", "--engine", "pt", "--iterations", 1000)
    output = run(*words, "--report", "a.html").stdout
    assert output.splitlines()[0].endswith("own 90 % band")
    page = Path("a.html").read_text().partition("<script")[0]
    for text in (output, page):
        assert "No guarantee: " in text
        assert "own estimate of its error" in text.replace("&#x27;", "'")
        assert "calibrated band" not in text
    assert "band by the engine's own estimate" in page


def test_a_familiar_model_that_is_refused_is_not_called_unfamiliar() -> None:
    assert unfamiliarity(0.5).endswith("beyond 1 nothing is promised")
    assert unfamiliarity(0.5, refused=True).endswith("which is not why nothing is promised")
    assert unfamiliarity(1.5, refused=True).endswith("beyond 1: nothing is promised")


def test_parquet_has_them_too(run, grid) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    run("marginals", "grid.uai", "--engine", "lbp", "-o", "a.parquet")
    table = pq.read_table("a.parquet")
    assert {"in_set", "band_low", "band_high"} <= set(table.column_names)
    promise = json.loads(table.schema.metadata[b"guarantee"])
    assert promise["level"] == 0.9
    assert promise["sentences"][0].startswith("Sets: ")


def test_a_calibration_of_another_engine_is_refused_before_anything_runs(run, grid, file) -> None:
    output = run("marginals", "grid.uai", "--calibration", file, code=1)
    assert "was made for the engine lbp" in output.stderr
    assert "variables" not in output.stderr
    Path("bad.json").write_text("{}")
    words = ("marginals", "grid.uai", "--engine", "lbp", "--calibration", "bad.json")
    assert "no calibration file" in run(*words, code=1).stderr
    own = run("marginals", "grid.uai", "--engine", "lbp", "--calibration", file).stdout
    assert "guarantee" in own or "Like these" in own


def test_python_holds_the_same(grid, file) -> None:
    answer = icgi.marginals(grid, engine="lbp")
    assert answer.sets(0.9).shape == answer.probs.shape
    low, high = answer.bands(0.9)
    assert ((low <= answer.probs) & (answer.probs <= high)).all()
    assert str(answer.guarantee).startswith("Sets: ")
    mine = icgi.calibrated(answer, file)
    assert str(mine.guarantee) != str(answer.guarantee)
    assert (mine.sets() is None) == str(mine.guarantee).startswith("No guarantee")
