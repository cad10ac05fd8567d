"""`--observe`, `--likely`, `--exclude` and evidence files, together."""

from pathlib import Path

import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import icgi
from icgi.cli import app
from icgi.cli.known import Given, combined
from some_networks import network

RUNNER = CliRunner()


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    icgi.save(network(), tmp_path / "net.json")
    return str(tmp_path / "net.json")


def test_the_command_line_asks_what_python_asks(model_file: str, tmp_path: Path) -> None:
    out = tmp_path / "answer.MAR"
    result = RUNNER.invoke(
        app,
        ["marginals", model_file, "--observe", "Mood=2", "--likely", "Wet=dry:0.2,damp:0.5,2:.3",
         "--exclude", "Rain=0", "-o", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "1 observed, 1 with likelihoods, 1 with exclusions" in result.stderr
    expected = icgi.marginals(
        network(), {"Mood": 2}, likelihood={"Wet": [0.2, 0.5, 0.3]}, exclude={"Rain": 0}
    )
    from icgi.model.formats.uai import read_marginals

    for row, other in zip(read_marginals(out), expected, strict=True):
        assert_allclose(row, other, atol=1e-14)
    assert RUNNER.invoke(app, ["info", model_file, "--exclude", "Wet=dry,damp"]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--likely", "Wet"], "write VARIABLE=STATE:WEIGHT"),
        (["--likely", "Wet=dry"], "no STATE:WEIGHT"),
        (["--likely", "Wet=dry:x,damp:1"], "no STATE:WEIGHT"),
        (["--likely", "Wet=dry:1,dry:1"], "comes twice"),
        (["--likely", "Wet=0:1,1:1,2:1", "--likely", "Wet=0:1,1:1,2:1"], "already"),
        (["--exclude", "Wet=wet"], "unknown state"),
        (["--observe", "Wet=dry", "--exclude", "Wet=dry"], "contradict"),
        (["--observe", "Wet=damp", "--observe", "Rain=1"], "without the observation"),
    ],
)
def test_mistakes_end_with_one(model_file: str, words: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["marginals", model_file, "--observe", "Sun=0", *words])
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


def test_names_may_hold_the_signs() -> None:
    model = icgi.from_factors(
        [(("a", "a=b"), [[1.0, 2.0], [3.0, 4.0]])], states={"a=b": ["x:y", "z"]}
    )
    found = combined(model, None, ["a=b=z"], [], [])
    assert found.observed == {1: 1}
    found = combined(model, None, [], ["a=b=x:y:0.25,z:1"], ["a=1"])
    assert found.likelihood[1].tolist() == [0.25, 1]
    assert found.excluded == {0: (1,)}


def test_the_words_repeat_the_question() -> None:
    given = Given(Path("e.json"), ["a=1"], ["b=0:1,1:2"], ["c=0"])
    assert given.words() == ["-e", "e.json", "--observe", "a=1", "--likely", "b=0:1,1:2",
                             "--exclude", "c=0"]  # fmt: skip
