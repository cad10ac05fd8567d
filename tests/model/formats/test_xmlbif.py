"""XMLBIF: strict, in order, nothing from outside, and the same network as pyAgrum reads."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import icgi
from icgi.model.formats.bif import parse_bif
from icgi.model.formats.xmlbif import format_xmlbif, parse_xmlbif
from some_networks import SPRINKLER, network

GARDEN = """<?xml version="1.0"?>
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
  <!ELEMENT TABLE (#PCDATA)>
]>
<BIF VERSION="0.3"><NETWORK><NAME>garden</NAME>
<VARIABLE TYPE="nature"><NAME>Rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME>
  <PROPERTY>position = (1, 2)</PROPERTY></VARIABLE>
<VARIABLE TYPE="nature"><NAME>Wet &lt;grass&gt;</NAME>
  <OUTCOME>dry</OUTCOME><OUTCOME>damp</OUTCOME><OUTCOME>very wet</OUTCOME></VARIABLE>
<VARIABLE><NAME>Sprinkler</NAME><OUTCOME>on</OUTCOME><OUTCOME>off</OUTCOME></VARIABLE>
<DEFINITION><FOR>Rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>Sprinkler</FOR><GIVEN>Rain</GIVEN>
  <TABLE> 0.01 0.99 <!-- yes --> 0.4 0.6 <!-- no --> </TABLE></DEFINITION>
<DEFINITION><FOR>Wet &lt;grass&gt;</FOR><GIVEN>Sprinkler</GIVEN><GIVEN>Rain</GIVEN>
  <TABLE>0.01 0.09 0.9  0.1 0.5 0.4  0.1 0.3 0.6  0.98 0.01 0.01</TABLE></DEFINITION>
</NETWORK></BIF>
"""


def read(text: str) -> icgi.FactorGraph:
    return parse_xmlbif(text.encode(), "garden.xmlbif")


def test_is_the_network_of_the_bif_file() -> None:
    ours, other = read(GARDEN), parse_bif(SPRINKLER.encode(), "garden.bif")
    assert ours.names == ("Rain", "Wet <grass>", "Sprinkler")
    assert ours.states == other.states
    for a, b in zip(ours.log_tables, other.log_tables, strict=True):
        assert_allclose(np.exp(a), np.exp(b), rtol=1e-15)


def test_what_is_written_is_read_back() -> None:
    model = read(GARDEN)
    again = read("".join(format_xmlbif(model)))
    assert (again.names, again.states, again.scopes) == (model.names, model.states, model.scopes)
    for a, b in zip(model.log_tables, again.log_tables, strict=True):
        assert_allclose(np.exp(a), np.exp(b), rtol=1e-15)


@pytest.mark.filterwarnings("ignore")
def test_pyagrum_reads_what_we_write(tmp_path: Path) -> None:
    gum = pytest.importorskip("pyagrum")
    model, path = network(), tmp_path / "model.bifxml"
    icgi.save(model, path)
    theirs = icgi.from_pyagrum(gum.loadBN(str(path)))
    found, expected = icgi.marginals(theirs), icgi.marginals(model)
    for name in model.names:
        i, j = theirs.names.index(name), model.names.index(name)
        assert_allclose(found[i], expected[j], atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('TYPE="nature"', 'TYPE="decision"', 8, "only nature"),
        ("<TABLE>0.2 0.8<", "<TABLE>0.2 0.9<", 13, "sums to 1.1"),
        ("<TABLE>0.2 0.8<", "<TABLE>0.2<", 13, "1 numbers instead of 2"),
        ("<TABLE>0.2 0.8<", "<TABLE>0.2 x8<", 13, "no number"),
        ("<TABLE>0.2 0.8<", "<TABLE>-0.2 1.2<", 13, "negative"),
        ("<GIVEN>Rain<", "<GIVEN>Rein<", 15, "'Rein' has no <VARIABLE>"),
        ("<GIVEN>Sprinkler<", "<GIVEN>Rain<", 17, "a variable twice"),
        ("<NAME>Sprinkler<", "<NAME>Rain<", 12, "described twice"),
        ("<OUTCOME>damp<", "<OUTCOME>dry<", 11, "same name"),
        ("<GIVEN>Rain</GIVEN>", "<STATE>Rain</STATE>", 14, "has no place"),
        ("</NETWORK></BIF>", "", 19, "no well-formed XML"),
        ("<NAME>garden</NAME>", "stray<NAME>garden</NAME>", 7, "stray"),
        ("<!ELEMENT TABLE (#PCDATA)>", '<!ENTITY a "b">', 5, "entity"),
        ("<!ELEMENT TABLE (#PCDATA)>", '<!ENTITY a SYSTEM "/etc/passwd">', 5, "entity"),
    ],
)
def test_every_mistake_has_a_line(old: str, new: str, line: int, message: str) -> None:
    assert old in GARDEN
    with pytest.raises(icgi.ModelFormatError) as caught:
        read(GARDEN.replace(old, new, 1))
    assert message in str(caught.value)
    assert int(str(caught.value).split("line ")[1].split(":")[0]) == line


def test_entities_do_not_multiply() -> None:
    bomb = '<!DOCTYPE BIF [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + k)} "{f"&{chr(97 + k)};" * 10}">' for k in range(9)
    )
    with pytest.raises(icgi.ModelFormatError, match="entity"):
        read(f"{bomb}]><BIF><NETWORK><NAME>&j;</NAME></NETWORK></BIF>")


def test_a_document_type_elsewhere_is_not_fetched() -> None:
    start, end = GARDEN.index("<!DOCTYPE"), GARDEN.index("<BIF")
    outside = '<!DOCTYPE BIF SYSTEM "http://example.invalid/bif.dtd">'
    assert read(GARDEN[:start] + outside + GARDEN[end:]).n_variables == 3
    with pytest.raises(icgi.ModelFormatError, match="entity"):
        read(GARDEN[:start] + outside + GARDEN[end:].replace("very wet", "&wet;"))


def test_missing_definitions_are_named() -> None:
    text = GARDEN.replace("<DEFINITION><FOR>Rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>", "")
    with pytest.raises(icgi.ModelFormatError, match="'Rain' has 0 definitions"):
        read(text)
    with pytest.raises(icgi.ModelFormatError, match="no <VARIABLE>"):
        read("<BIF><NETWORK></NETWORK></BIF>")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutations_never_end_in_a_traceback(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GARDEN) - 1))
    length = data.draw(st.integers(0, 5))
    put = data.draw(st.text(max_size=4))
    with contextlib.suppress(icgi.ModelFormatError):  # anything else would be a traceback
        text = GARDEN[:at] + put + GARDEN[at + length :]
        assert parse_xmlbif(text.encode(errors="replace"), "m.xmlbif").n_variables > 0
