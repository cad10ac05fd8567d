"""BIF files: names and order kept, posteriors as those of pyAgrum, mistakes with their lines."""

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import icgi
from icgi.model.formats.bif import format_bif, parse_bif
from some_networks import SPRINKLER


def read(text: str) -> icgi.FactorGraph:
    return parse_bif(text.encode(), "garden.bif")


def test_names_states_and_tables_are_kept_in_order() -> None:
    model = read(SPRINKLER)
    assert model.names == ("Rain", "Wet grass", "Sprinkler")
    assert model.states[1] == ("dry", "damp", "very wet")
    assert model.scopes == ((0,), (2, 0), (1, 2, 0))
    assert_allclose(np.exp(model.log_tables[1]), [[0.01, 0.4], [0.99, 0.6]])
    assert_allclose(np.exp(model.log_tables[2])[:, 0, 1], [0.1, 0.5, 0.4])
    assert_allclose(np.exp(model.log_tables[2])[:, 1, 1], [0.98, 0.01, 0.01])


def test_what_is_written_is_read_back() -> None:
    model = read(SPRINKLER)
    again = parse_bif("".join(format_bif(model, "a garden")).encode(), "again.bif")
    assert again.names == model.names
    assert again.states == model.states
    for a, b in zip(model.log_tables, again.log_tables, strict=True):
        assert_allclose(np.exp(a), np.exp(b), rtol=1e-15)


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    for name, data in (
        ("a.bif", SPRINKLER.encode()),
        ("b.BIF.gz", gzip.compress(SPRINKLER.encode())),
    ):
        (tmp_path / name).write_bytes(data)
        model = icgi.load(tmp_path / name)
        assert model.names == ("Rain", "Wet grass", "Sprinkler")
    found = icgi.marginals(model, {"Wet grass": "very wet"})
    assert found["Rain"][0] > icgi.marginals(model)["Rain"][0]


def test_only_bayesian_networks_are_written() -> None:
    spins = icgi.from_factors([((0, 1), [[1.0, 2.0], [3.0, 4.0]])])
    with pytest.raises(icgi.ModelFormatError, match="Bayesian networks only"):
        list(format_bif(spins))
    rows = icgi.from_factors([((0,), [1.0, 3.0])])
    with pytest.raises(icgi.ModelFormatError, match="no conditional table"):
        list(format_bif(rows))


def test_names_with_marks_of_comments_survive() -> None:
    odd = icgi.from_factors(
        [(("a//b",), [0.25, 0.75]), (("x", "a//b"), [[0.5, 1.0], [0.5, 0.0]])],
        states={"x": ["/* on", "of, f*/"]},
    )
    again = parse_bif("".join(format_bif(odd)).encode(), "odd.bif")
    assert again.names == odd.names
    assert again.states == odd.states


def test_even_and_uneven_rows_give_the_same_table() -> None:
    body = "(yes) 0.1, 0.9; (no) 0.3, 0.7;"
    text = (
        "variable A { type discrete [2] { yes, no }; } variable B { type discrete [2] { x, y }; } "
    )
    text += "probability ( A ) { table 0.5, 0.5; } probability ( B | A ) { BODY }"
    even = read(text.replace("BODY", body))
    uneven = read(text.replace("BODY", body + ' property "not even";'))
    assert (even.log_tables[1] == uneven.log_tables[1]).all()
    assert_allclose(np.exp(even.log_tables[1]), [[0.1, 0.3], [0.9, 0.7]])


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("[ 3 ]", "[ 2 ]", 5, "has 3 states, but announces 2"),
        ("{ table 0.2, 0.8; }", "{ table 0.2, 0.9; }", 8, "sums to 1.1"),
        ("{ table 0.2, 0.8; }", "{ table 0.2; }", 8, "1 numbers instead of 2"),
        ("{ table 0.2, 0.8; }", "{ table 0.2, x8; }", 8, "'x8', which is no number"),
        ("{ table 0.2, 0.8; }", "{ table -0.2, 1.2; }", 8, "negative"),
        ("| Rain )", "| Rein )", 9, "'Rein' has no variable block"),
        ("(on, yes)", "(on, maybe)", 11, "no state 'maybe'"),
        ("(on, yes)", "(on)", 11, "names 1 of 2 parents"),
        ("  default 0.98, 0.01, 0.01;\n", "", 14, "no row for (off, no)"),
        ("variable Sprinkler", "variable Rain", 7, "described twice"),
        ("probability ( Rain )", "probability ( Rain, Rain )", 8, "a variable twice"),
    ],
)
def test_every_mistake_has_a_line(old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(icgi.ModelFormatError) as caught:
        read(SPRINKLER.replace(old, new, 1))
    assert message in str(caught.value)
    assert abs(int(str(caught.value).split("line ")[1].split(":")[0]) - line) <= 1


def test_incomplete_networks_are_refused() -> None:
    with pytest.raises(icgi.ModelFormatError, match="no variable block"):
        read("network x { }")
    with pytest.raises(icgi.ModelFormatError, match="no probability block"):
        read("variable A { type discrete [2] { x, y }; }")
    with pytest.raises(icgi.ModelFormatError, match="is it complete"):
        read(SPRINKLER[: SPRINKLER.index("default")])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutations_never_end_in_a_traceback(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SPRINKLER) - 1))
    length = data.draw(st.integers(0, 5))
    put = data.draw(st.text(max_size=4))
    with contextlib.suppress(icgi.ModelFormatError):  # anything else would be a traceback
        assert read(SPRINKLER[:at] + put + SPRINKLER[at + length :]).n_variables > 0
