"""Every format behind the one dictionary: round trips, what is lost, what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icgi
import zoo
from icgi.data.sources import source
from icgi.model.formats import FORMATS, is_model, read, write
from icgi.model.formats.network import conditionals
from some_networks import network

pytestmark = pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")
NETWORKS = [ending for ending, each in FORMATS.items() if each.write and ending != ".mtx"]
DOCS = Path(__file__).parents[3] / "docs"


def by_name(model: icgi.FactorGraph) -> dict[str, np.ndarray]:
    answer = icgi.marginals(model, engine="jt")
    names = model.names or map(str, range(model.n_variables))
    return {name: answer[i] for i, name in enumerate(names)}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("ending", NETWORKS)
def test_networks_survive_every_format(ending: str, packed: str, tmp_path: Path) -> None:
    if FORMATS[ending].single:
        pytest.importorskip("pyagrum")
    model, path = network(), tmp_path / f"model{ending}{packed}"
    remarks = icgi.save(model, path)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(packed)
    again = icgi.load(path)
    tolerance = 1e-5 if FORMATS[ending].single else 1e-14
    for expected, found in zip(by_name(model).values(), icgi.marginals(again), strict=False):
        assert len(expected) >= 2
        assert len(found) >= 2
    if FORMATS[ending].names:
        assert set(again.names) == set(model.names)
        for name, row in by_name(again).items():
            assert_allclose(row, by_name(model)[name], atol=tolerance)
            i, j = again.names.index(name), model.names.index(name)
            ours = model.states[j]
            assert tuple(again.states[i]) == ours
        assert bool(remarks) == FORMATS[ending].single
    else:
        assert any("names of variables" in remark for remark in remarks)
        assert any("names of states" in remark for remark in remarks)
        for a, b in zip(again.log_tables, model.log_tables, strict=True):
            assert_allclose(np.exp(a), np.exp(b), rtol=1e-14)
    if not FORMATS[ending].single and FORMATS[ending].names:
        assert again.names == model.names


@pytest.mark.parametrize("name", zoo.MODELS)
def test_json_gives_every_model_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    model = zoo.MODELS[name]
    assert write(model, tmp_path / "model.json") == []
    again = read(tmp_path / "model.json")
    assert again.scopes == model.scopes
    assert (again.names, again.states) == (model.names, model.states)
    for a, b in zip(again.log_tables, model.log_tables, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("ending", [e for e in NETWORKS if e not in (".uai", ".json")])
@pytest.mark.parametrize("name", ["grid-3x3", "loop"])
def test_other_models_are_refused_by_formats_of_networks(
    ending: str, name: str, tmp_path: Path
) -> None:
    if FORMATS[ending].single:
        pytest.importorskip("pyagrum")
    with pytest.raises(icgi.ModelFormatError, match="Bayesian networks only"):
        write(zoo.MODELS[name], tmp_path / f"model{ending}")
    assert not list(tmp_path.iterdir())


def test_the_child_of_a_factor_is_found_wherever_it_stands() -> None:
    model = network()
    found = {model.names[each.child]: each for each in conditionals(model, "BIF")}
    assert set(found) == set(model.names)
    assert [model.names[i] for i in found["Wet"].parents] == ["Rain"]
    for each in found.values():
        assert_allclose(each.table.sum(-1), 1)


def test_a_circle_of_conditional_tables_is_no_network() -> None:
    table = np.full((2, 2), 0.5)
    circle = icgi.from_factors([(("a", "b"), table), (("b", "c"), table), (("c", "a"), table)])
    with pytest.raises(icgi.ModelFormatError, match="no conditional table"):
        conditionals(circle, "BIF")


def test_unknown_endings_are_named(tmp_path: Path) -> None:
    with pytest.raises(icgi.ModelFormatError, match=r"did you mean '\.xdsl'"):
        icgi.save(network(), tmp_path / "model.xdls")
    with pytest.raises(icgi.ModelFormatError, match="only read"):
        icgi.save(network(), tmp_path / "model.gset")


def test_folders_of_models_hold_any_format(tmp_path: Path) -> None:
    for name in ("a.bif", "b.xmlbif.gz", "c.icgi.json", "d.uai"):
        icgi.save(network(), tmp_path / name)
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "a.bif.evid").write_text("1 0 1")
    found = {identity.name: identity for identity, _ in source(str(tmp_path))}
    assert list(found) == ["a.bif", "b.xmlbif.gz", "c.icgi.json", "d.uai"]
    assert dict(found["a.bif"].evidence) == {0: 1}
    assert not is_model("notes.json")


def test_every_format_is_documented() -> None:
    page = (DOCS / "formats.md").read_text()
    for ending in FORMATS:
        assert f"`{ending}`" in page


@pytest.mark.parametrize("ending", [".net", ".xdsl", ".dsl", ".o3prm"])
def test_damaged_files_of_pyagrum_are_refused(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("pyagrum")
    icgi.save(network(), tmp_path / f"whole{ending}")
    text = (tmp_path / f"whole{ending}").read_text()
    broken = tmp_path / f"broken{ending}.gz"
    broken.write_bytes(gzip.compress(text[: len(text) // 2].encode()))
    with pytest.raises(icgi.ModelFormatError, match="pyAgrum could not read it"):
        icgi.load(broken)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyagrum", None)
    path = tmp_path / "model.net"
    path.write_text("net {}")
    with pytest.raises(icgi.IcgiError, match=r"\[bn\]"):
        icgi.load(path)
