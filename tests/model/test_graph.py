import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zoo
from icgi.errors import ModelFormatError
from icgi.model.graph import (
    FactorGraph,
    assembled,
    factor_of,
    log_of,
    state_names,
    variable_name,
)
from icgi.model.wiring import unwire, wiring


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
        ([-1], (), (), "at least one state"),
        ([1.5], (), (), "at least one state"),
        ([[2]], (), (), "at least one state"),
        (["two"], (), (), "at least one state"),
        ([2**29], (), (), "dense array"),
        ([], ((0,),), (np.zeros(2),), "has no variables"),
        ([2], (("a",),), (np.zeros(2),), "factor 0 has the scope"),
        ([2], (0,), (np.zeros(2),), "factor 0 has the scope"),
        ([2], ((0.0,),), (np.zeros(2),), "factor 0 has the scope"),
        ([2], ((0,), (0,)), (np.zeros(2), ["a", "b"]), "table of factor 1"),
        ([2], ((0,), (0,)), (np.zeros(2), [1j, 0]), "table of factor 1"),
        ([2], ((0,), (0,)), (np.zeros(2), [0, np.nan]), "factor 1 has the log potential nan"),
        ([2], ((0,), (0,)), (np.zeros(2), [0, np.inf]), "factor 1 has the log potential inf"),
        ([2], ((0,), (0,)), (np.zeros(2), [-1e301, -np.inf]), "log potential -1e+301"),
        ([5000], ((), (0,)), (np.array(0.0), np.full(5000, np.nan)), "factor 1 has"),
        ([2], ((),), (np.array(np.nan),), "factor 0 has"),
    ],
)
def test_wrong_models_are_named(cards, scopes, tables, words: str) -> None:
    with pytest.raises(ModelFormatError) as error:
        FactorGraph(cards, scopes, tables)
    assert words in str(error.value)


def test_what_is_given_is_converted() -> None:
    model = FactorGraph([2, 3.0], [np.array([0, 1]), [1]], [[[0, 1, 2], [3, 4, 5]], [0, 0, 0]])  # type: ignore[arg-type]
    assert model.cards.dtype == np.int64
    assert model.scopes == ((0, 1), (1,))
    assert all(type(i) is int for scope in model.scopes for i in scope)
    assert [table.dtype for table in model.log_tables] == [np.float64] * 2


def test_the_callers_arrays_stay_writeable_and_apart() -> None:
    cards, table = np.array([2, 2]), np.zeros((2, 2))
    view = table[:]
    view.flags.writeable = False  # read-only, but not for whoever holds `table`
    model = FactorGraph(cards, ((0, 1), (0, 1), (1, 0)), (table, view, table))
    cards[0], table[0, 0] = 7, 1.0
    assert model.cards.tolist() == [2, 2]
    assert all((own == 0).all() for own in model.log_tables)
    assert model.log_tables[0] is model.log_tables[2]
    assert not any(own.flags.writeable for own in model.log_tables)


def test_read_only_tables_are_not_copied() -> None:
    model = FactorGraph(np.array([2]), ((0,),), (np.zeros(2),))
    for again in (
        FactorGraph(model.cards, model.scopes, model.log_tables),
        assembled(model.cards, model.scopes, model.log_tables),
    ):
        assert again.log_tables[0] is model.log_tables[0]
        assert not again.cards.flags.writeable


@pytest.mark.parametrize(
    ("names", "states", "words"),
    [
        (("a", "a"), None, "two variables are called 'a'"),
        (("a", "b\n"), None, "control characters"),
        (("a", "\x1b[2J"), None, "control characters"),
        (("a", "\u202egnp"), None, "control characters"),
        (None, (("x", "x"), ("x", "y")), "two states of variable 0 are called 'x'"),
        (None, (("x",), ("x", "y")), "1 names for the 2 states of variable 0"),
        (None, (("x", "y"), ("x", "\0")), "control characters"),
    ],
)
def test_names_that_cannot_be_used_are_refused(names, states, words: str) -> None:
    with pytest.raises(ModelFormatError, match=words):
        FactorGraph(np.array([2, 2]), (), (), names, states)


def test_names_may_be_in_any_language() -> None:
    names = ("Größe", "温度", "نیم‌فاصله", "a b\u00a0c")
    assert FactorGraph(np.full(4, 2), (), (), names).names == names


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


def test_scopes_and_tables_of_flat_arrays_come_when_asked_for() -> None:
    model = zoo.MODELS["mixed-cards"]
    w = wiring(model)
    made = unwire(w, model)
    assert "scopes" not in vars(made)
    assert made.n_factors == model.n_factors
    again = pickle.loads(pickle.dumps(made))
    for each in (made, again, copy.copy(made)):
        assert each.scopes == model.scopes
        for table, other in zip(each.log_tables, model.log_tables, strict=True):
            assert_array_equal(table, other)
    assert not made.log_tables[0].flags.writeable
    with pytest.raises(AttributeError, match="no attribute 'tables'"):
        _ = made.tables  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", zoo.MODELS)
def test_flat_arrays_tell_of_factors_what_the_factors_do(name: str) -> None:
    model = zoo.MODELS[name]
    flat = unwire(wiring(model))
    for each in (model, flat):
        assert each.arity.tolist() == [len(scope) for scope in model.scopes]
        assert each.touched.tolist() == [i for scope in model.scopes for i in scope]
    flat = unwire(wiring(model))
    for f, (scope, table) in enumerate(zip(model.scopes, model.log_tables, strict=True)):
        assert factor_of(flat, f)[0] == scope
        assert_array_equal(factor_of(flat, f)[1], table)
    assert "scopes" not in flat.__dict__  # nothing was made for all of them
