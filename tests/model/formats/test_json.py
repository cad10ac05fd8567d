"""The JSON form: everything is kept, every mistake is named."""

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import icgi
from icgi.model.formats.json import format_json, parse_json

GARDEN: dict[str, Any] = {
    "icgi": 1,
    "about": "a garden",
    "variables": [{"name": "Rain", "states": ["yes", "no"]}, {"name": "Mood", "states": 3}],
    "factors": [
        {"scope": ["Rain"], "values": [0.2, 0.8]},
        {"scope": ["Mood", "Rain"], "values": [1, 2, 0, 3.5, 1e-300, 0]},
        {"scope": [], "log_values": [-4.5]},
        {"scope": [1], "log_values": [None, 0, 800]},
    ],
}
TEXT = json.dumps(GARDEN, indent=1)


def read(text: str) -> icgi.FactorGraph:
    return parse_json(text.encode(), "garden.json")


def test_says_what_is_written() -> None:
    model = read(TEXT)
    assert model.names == ("Rain", "Mood")
    assert model.states == (("yes", "no"), ("0", "1", "2"))
    assert model.scopes == ((0,), (1, 0), (), (1,))
    assert_allclose(np.exp(model.log_tables[1]), [[1, 2], [0, 3.5], [1e-300, 0]])
    assert float(model.log_tables[2]) == -4.5
    assert model.log_tables[3].tolist() == [-np.inf, 0, 800]
    assert read("".join(format_json(model))).log_tables[3].tolist() == [-np.inf, 0, 800]


def test_variables_need_no_names() -> None:
    model = read('{"icgi": 1, "variables": [{"states": 2}], "factors": []}')
    assert (model.names, model.states, model.cards.tolist()) == (None, None, [2])
    assert read("".join(format_json(model))).names is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.floats(-1e290, 1e290), st.just(-np.inf)), min_size=4, max_size=4))
def test_every_logarithm_comes_back(theta: list[float]) -> None:
    model = icgi.FactorGraph(np.array([2, 2]), ((0, 1),), (np.reshape(theta, (2, 2)),))
    again = read("".join(format_json(model)))
    assert (again.log_tables[0] == model.log_tables[0]).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"icgi": 1', '"icgi": 2', "version 2"),
        ('"icgi": 1,', "", "no 'icgi'"),
        ('"factors"', '"factor"', "no 'factors'"),
        ('"about"', '"factor"', "did you mean 'factors'"),
        ('"Rain",\n   "states"', '"Rain",\n   "state"', "no 'states'"),
        ('"states": 3', '"states": 0', "'states' of variable 1"),
        ('"states": 3', '"states": 1e400', "'states' of variable 1"),
        ('"name": "Mood"', '"name": "Rain"', "two variables are called 'Rain'"),
        ('"name": "Mood",', "", "name all or none"),
        ('"Mood",\n    "Rain"', '"Mood",\n    "Rein"', "did you mean 'Rain'"),
        ('"Mood",\n    "Rain"', '"Mood",\n    7', "unknown variable 7"),
        ('"Mood",\n    "Rain"', '"Rain"', "needs 2"),
        ("0.8", "-0.8", "negative"),
        ("0.8", '"x"', "no number"),
        ("0.8", "NaN", "no number of JSON"),
        ("0.8", "true", "no number"),
        ("0.8", "null", "no number"),
        ("800", "1e999", "±1e+300"),
        ('"about": "a garden"', '"icgi": 1', "twice"),
        ("[\n    0.2,", "[\n    0.2", "line 24: no JSON"),
    ],
)
def test_every_mistake_is_named(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(icgi.ModelFormatError) as caught:
        read(TEXT.replace(old, new, 1))
    assert "garden.json" in str(caught.value)
    assert message in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutations_never_end_in_a_traceback(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TEXT) - 1))
    length = data.draw(st.integers(0, 5))
    put = data.draw(st.text(max_size=4))
    with contextlib.suppress(icgi.ModelFormatError):
        mutated = TEXT[:at] + put + TEXT[at + length :]
        assert parse_json(mutated.encode(errors="replace"), "m.json").n_variables >= 0
