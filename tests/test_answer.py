"""Answers as values: read-only, and harmless wherever they are shown."""

import csv
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icgi
import zoo
from icgi.answer import model_digest
from icgi.report.html import page


def made(**known) -> icgi.Answer:
    probs = np.array([[0.25, 0.75], [0.5, 0.5]])
    model = icgi.from_factors([(["a"], [1.0, 3.0]), (["b"], [1.0, 1.0])])
    found = icgi.Marginals(probs, icgi.Status.CONVERGED, **known)
    return icgi.Answer(model, {}, found, "made up", 0.0)


def renamed(answer: icgi.Answer, *names: str) -> icgi.Answer:
    """Answer to a model with names that its constructor may well refuse."""
    object.__setattr__(answer.model, "names", names)
    return answer


@pytest.mark.parametrize("name", zoo.MODELS)
def test_arrays_are_read_only(name: str) -> None:
    for engine in ("auto", "pt"):
        answer = icgi.marginals(zoo.MODELS[name], engine=engine, budget=icgi.Budget(iterations=20))
        for array in (answer.probs, answer.std_error, answer.marginals.ess, answer[0]):
            assert array is None or not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        answer[0][0] = 1.0


def test_the_arrays_of_whoever_made_the_answer_stay_theirs() -> None:
    error, table = np.full((2, 2), 0.1), np.full((2, 2), 0.25)
    answer = made(std_error=error, pairs={(0, 1): table})
    assert error.flags.writeable
    assert table.flags.writeable
    assert not answer.std_error.flags.writeable
    assert not answer.marginals.pairs[0, 1].flags.writeable
    again = pickle.loads(pickle.dumps(answer))
    assert_array_equal(again.std_error, answer.std_error)
    assert not replace(again, seed=3).std_error.flags.writeable


def test_a_dirichlet_has_a_standard_error() -> None:
    """Of Beta(1, 3) the variance is 3 / (16 · 5), of Beta(1, 1) it is 1/12."""
    answer = made(concentration=np.array([[1.0, 3.0], [1.0, 1.0]]))
    assert_allclose(answer.std_error, [[(3 / 80) ** 0.5] * 2, [12**-0.5] * 2])
    assert made().std_error is None


def test_json_holds_what_is_needed_to_repeat_it() -> None:
    model = zoo.MODELS["loop"]
    budget = icgi.Budget(iterations=30, seconds=5.0)
    found = json.loads(icgi.marginals(model, engine="pt", budget=budget, seed=7).to_json())
    assert found["seed"] == 7
    assert found["version"] == icgi.__version__
    assert found["budget"] == {"iterations": 30, "seconds": 5.0, "table_bytes": 2**32}
    assert found["model"]["sha256"] == model_digest(model)
    assert set(found["marginals"][0]["std_errors"]) == {"0", "1"}
    assert json.loads(icgi.marginals(model).to_json())["budget"]["seconds"] is None


def test_the_digest_is_of_the_numbers() -> None:
    digests = {model_digest(model) for model in zoo.MODELS.values()}
    assert len(digests) == len(zoo.MODELS)
    pair = [icgi.from_factors([((a, b), [[1.0, 2.0], [3.0, 4.0]])]) for a, b in ("xy", (0, 1))]
    assert model_digest(pair[0]) == model_digest(pair[1])


def test_cells_that_look_like_formulas_are_text(tmp_path) -> None:
    names = ("=1+1", "-1"), ("@a", "+x")
    answer = made()
    object.__setattr__(answer.model, "states", names)
    renamed(answer, "=cmd()", "plain").save(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["'=cmd()"] * 2 + ["plain"] * 2
    assert [row["state_name"] for row in rows] == ["'=1+1", "-1", "'@a", "'+x"]
    assert_allclose([float(row["probability"]) for row in rows], [0.25, 0.75, 0.5, 0.5])


def test_pages_show_control_characters_instead_of_sending_them() -> None:
    answer = renamed(made(), "a\x1b[2J<b>", "\u202eb")
    for page_text in (answer._repr_html_(), page(answer, "model\x07")):
        assert not any(ch in page_text for ch in "\x1b\u202e\x07")
        assert "a\\x1b[2J&lt;b&gt;" in page_text


def test_a_folder_is_not_a_file(tmp_path) -> None:
    with pytest.raises(icgi.IcgiError, match="it is a folder"):
        made().save(tmp_path)
