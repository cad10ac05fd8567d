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
from icgi.data.collection import data_folder
from icgi.model.formats.bif import format_bif, parse_bif

SPRINKLER = """
network "a garden" { property author = somebody; }
// comments of both kinds
variable Rain { type discrete [ 2 ] { yes, no }; property position = (1, 2); }
variable "Wet grass" { type discrete [ 3 ] { dry, damp, "very wet" }; }
variable Sprinkler { type discrete[2]{on,off}; }
/* tables in both forms */
probability ( Rain ) { table 0.2, 0.8; }
probability ( Sprinkler | Rain ) { table 0.01, 0.4, 0.99, 0.6; }
probability ( "Wet grass" | Sprinkler, Rain ) {
  (on, yes) 0.01, 0.09, 0.9;
  (off, yes) 0.1, 0.3, 0.6;
  (on, no) 0.1, 0.5, 0.4;
  default 0.98, 0.01, 0.01;
}
"""


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
    with pytest.raises(icgi.ModelFormatError, match="sum to one"):
        list(format_bif(rows))


def _overwrite(network, model: icgi.FactorGraph, scope: tuple[int, ...], table) -> None:
    """Give pyAgrum the digits of the file: its reader keeps single precision only."""
    head, *parents = scope
    cpt = network.cpt(model.names[head])
    assert set(cpt.names) == {model.names[i] for i in scope}
    for where in np.ndindex(table.shape[1:]):
        row = {model.names[i]: model.states[i][x] for i, x in zip(parents, where, strict=True)}
        assert_allclose(cpt[row], table[(slice(None), *where)], atol=1e-6)  # read independently
        cpt[row] = table[(slice(None), *where)].tolist()


def posteriors(path: Path, model: icgi.FactorGraph, evidence: dict[int, int]) -> None:
    gum = pytest.importorskip("pyagrum")
    network = gum.loadBN(str(path))
    for scope, log_table in zip(model.scopes, model.log_tables, strict=True):
        _overwrite(network, model, scope, np.exp(log_table))
    engine = gum.LazyPropagation(network)
    engine.setEvidence({model.names[i]: model.states[i][x] for i, x in evidence.items()})
    engine.makeInference()
    found = icgi.marginals(model, evidence, "jt")
    for i, name in enumerate(model.names):
        theirs = engine.posterior(name)
        labels = network.variable(name).labels()
        for x, state in enumerate(model.states[i]):
            assert abs(found.probs[i, x] - theirs[labels.index(state)]) < 1e-9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "sachs", "survey", "alarm",
                                  "insurance", "water", "hailfinder"])  # fmt: skip
def test_posteriors_agree_with_pyagrum(name: str, tmp_path: Path) -> None:
    folder = data_folder()
    if folder is None:
        pytest.skip("ICGI_DATA is not set")
    data = gzip.decompress((folder / "bn" / f"{name}.bif.gz").read_bytes())
    path = tmp_path / f"{name}.bif"
    path.write_bytes(data)
    model = parse_bif(data, path.name)
    rng = np.random.default_rng(0)
    draw = icgi.marginals(model, {}, "jt").probs
    chosen = rng.choice(model.n_variables, min(3, model.n_variables), replace=False)
    posteriors(path, model, {})
    evidence = {int(chosen[0]): int(draw[chosen[0]].argmax())}
    posteriors(path, model, evidence)


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
