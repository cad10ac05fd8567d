import numpy as np
import pytest

from icgi.errors import ModelFormatError
from icgi.model.graph import FactorGraph, log_of, state_names, variable_name


def test_arrays_are_read_only_afterwards() -> None:
    model = FactorGraph(np.array([2, 3]), ((0, 1),), (np.zeros((2, 3)),))
    with pytest.raises(ValueError, match="read-only"):
        model.log_tables[0][0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        model.cards[0] = 5


@pytest.mark.parametrize(
    ("cards", "scopes", "tables", "words"),
    [
        ([2, 0], (), (), "at least one state"),
        ([2], ((0,),), (), "1 scopes but 0 tables"),
        ([2], ((1,),), (np.zeros(2),), "names variable 1"),
        ([2], ((-1,),), (np.zeros(2),), "names variable -1"),
        ([2, 2], ((0, 0),), (np.zeros((2, 2)),), "twice"),
        ([2, 3], ((1, 0),), (np.zeros((2, 3)),), "needs (3, 2)"),
    ],
)
def test_wrong_models_are_named(cards, scopes, tables, words: str) -> None:
    with pytest.raises(ModelFormatError) as error:
        FactorGraph(np.array(cards), scopes, tables)
    assert words in str(error.value)


def test_names_must_fit() -> None:
    with pytest.raises(ModelFormatError, match="1 names for 2 variables"):
        FactorGraph(np.array([2, 2]), (), (), names=("a",))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_potentials_are_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(ModelFormatError, match="factor 7"):
        log_of([1.0, bad], "factor 7")


def test_zero_potentials_are_true_minus_infinity() -> None:
    assert log_of([0.0, 1.0], "here").tolist() == [-np.inf, 0.0]


def test_names_fall_back_to_numbers() -> None:
    plain = FactorGraph(np.array([2]), (), ())
    named = FactorGraph(np.array([2]), (), (), names=("rain",), states=(("no", "yes"),))
    assert (variable_name(plain, 0), list(state_names(plain, 0))) == ("0", ["0", "1"])
    assert (variable_name(named, 0), list(state_names(named, 0))) == ("rain", ["no", "yes"])
