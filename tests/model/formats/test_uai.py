"""UAI files: the numbers arrive unchanged, and whatever is broken is named and costs nothing."""

import contextlib
import gzip
import math
import os
import random
import struct
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from icgi.errors import EvidenceError, ModelFormatError
from icgi.model import text as scanner
from icgi.model import unpack
from icgi.model.formats import uai
from icgi.model.formats.uai import parse_evidence, parse_model
from icgi.model.graph import FactorGraph

SMALL = b"""MARKOV
3
2 2 3
3
1 0
2 0 1
2 2 1

2
0.4 0.6
4
1 0 0.25 4e0
6
1 2
3 4
5 6
"""


def parsed(text: bytes) -> FactorGraph:
    return parse_model(text, "here.uai")


def potentials(model: FactorGraph) -> list[float]:
    return [float(v) for table in model.log_tables for v in np.exp(table.ravel())]


def same(a: FactorGraph, b: FactorGraph, tolerance: float = 0.0) -> None:
    assert_array_equal(a.cards, b.cards)
    assert a.scopes == b.scopes
    for left, right in zip(a.log_tables, b.log_tables, strict=True):
        assert_allclose(left, right, rtol=tolerance, atol=tolerance, strict=True)


# Models


def test_the_last_variable_of_a_scope_changes_fastest() -> None:
    model = parsed(SMALL)
    assert model.cards.tolist() == [2, 2, 3]
    assert model.scopes == ((0,), (0, 1), (2, 1))
    assert_allclose(np.exp(model.log_tables[1]), [[1, 0], [0.25, 4]])
    assert_allclose(np.exp(model.log_tables[2]), [[1, 2], [3, 4], [5, 6]])
    assert model.log_tables[1][0, 1] == -np.inf


def test_tables_are_read_only_views_of_one_array() -> None:
    tables = parsed(SMALL).log_tables
    assert all(table.base is not None and not table.flags.writeable for table in tables)
    addresses = [table.__array_interface__["data"][0] for table in tables]
    assert np.diff(addresses).tolist() == [2 * 8, 4 * 8]


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace(b"MARKOV", b"bayes"),
        SMALL.replace(b"MARKOV", b"Markov"),
        SMALL.replace(b"\n", b"\r\n"),
        SMALL.replace(b"\n", b" "),
        SMALL.replace(b" ", b"\t \v\f\n"),
        b"\n  " + SMALL + b"\n \n",
        SMALL.strip(),
        b"\xef\xbb\xbf" + SMALL,
        SMALL.replace(b"0.25", b"+.25").replace(b"4e0", b"0.4E+01").replace(b" 6", b" 6."),
    ],
)
def test_layout_and_header_do_not_matter(text: bytes) -> None:
    same(parsed(text), parsed(SMALL))


def test_models_at_the_edge() -> None:
    assert parsed(b"MARKOV 0 0").n_variables == 0
    assert parsed(b"MARKOV 2 3 1 0").n_factors == 0
    constant = parsed(b"MARKOV 1 1 3 0 1 0 0 1 0.5 1 7 1 0")
    assert constant.scopes == ((), (0,), ())
    assert [t.shape for t in constant.log_tables] == [(), (1,), ()]
    assert_allclose(potentials(constant), [0.5, 7, 0])


def test_scopes_may_have_as_many_variables_as_an_array_has_axes() -> None:
    def wide(k: int) -> bytes:
        cards, scope = " ".join(["1"] * k), " ".join(map(str, range(k)))
        return f"MARKOV {k} {cards} 1 {k} {scope} 1 0.5".encode()

    assert parsed(wide(uai.LONGEST_SCOPE)).log_tables[0].ndim == uai.LONGEST_SCOPE
    with pytest.raises(ModelFormatError, match=f"at most {uai.LONGEST_SCOPE} axes"):
        parsed(wide(uai.LONGEST_SCOPE + 1))


@pytest.mark.parametrize(
    "word", ["1e-400", "3.25E+5000", "4.9e-324", "1e-310", "1.7976931348623159e308"]
)
def test_potentials_beyond_a_double_keep_their_logarithm(word: str) -> None:
    model = parsed(f"MARKOV 1 2 1 1 0 2 {word} 0".encode())
    assert_allclose(model.log_tables[0], [float(Decimal(word).ln()), -np.inf], rtol=1e-15)


def test_what_is_zero_stays_zero() -> None:
    model = parsed(b"MARKOV 1 6 1 1 0 6 0 0.000000 -0.0 0e5 0e-99999999999999999999 .0e99999")
    assert np.isneginf(model.log_tables[0]).all()


WRONG = {
    "empty": (b"", 1, "end of the file"),
    "blank": (b" \n\n ", 3, "end of the file"),
    "evidence": (b"1 0 1", 1, "MARKOV or BAYES"),
    "header": (b"MARKOVIAN 1 2 0", 1, "'MARKOVIAN'"),
    "binary": (b"\x00\xff\xfe", 1, "MARKOV or BAYES"),
    "no variables": (b"MARKOV\n", 2, "number of variables"),
    "variables": (b"MARKOV\n-3\n", 2, "'-3'"),
    "few variables": (b"MARKOV\n3\n2 2", 2, "3 variables are announced, but only 2 numbers"),
    "no states": (b"MARKOV\n2\n2 0\n0", 3, "variable 1"),
    "states": (b"MARKOV\n2\n2 2.0\n0", 3, "'2.0'"),
    "no factors": (b"MARKOV\n2\n2 2\n", 4, "number of factors"),
    "factors": (b"MARKOV\n2\n2 2\n5\n0", 4, "5 factors are announced, but only 1"),
    "arity": (SMALL.replace(b"1 0\n", b"x 0\n", 1), 5, "scope of factor 0 has 'x'"),
    "scope": (SMALL.replace(b"2 0 1\n", b"2 0 3\n"), 6, "factor 1 names variable '3'"),
    "negative scope": (SMALL.replace(b"2 0 1\n", b"2 0 -1\n"), 6, "factor 1 has '-1'"),
    "huge scope": (SMALL.replace(b"2 0 1\n", b"2 0 " + b"9" * 99), 6, "names variable '999"),
    "twice": (SMALL.replace(b"2 0 1\n", b"2 1 1\n"), 6, "factor 1 names variable '1' twice"),
    "scope cut off": (SMALL[:24], 6, "factor 1 has the end of the file"),
    "length": (SMALL.replace(b"\n4\n", b"\n5\n"), 11, "factor 1 over .* needs 4 values.*'5'"),
    "order": (SMALL.replace(b"2 0 1\n", b"2 0 2\n"), 11, r"factor 1 over .*\(0, 2\) needs 6 .*'4'"),
    "long table": (SMALL.replace(b"4e0", b"4e0 7.5"), 12, "factor 2 .* needs 6 values.*'7.5'"),
    "no tables": (SMALL[: SMALL.index(b"\n2\n0.4")], 8, "factor 0 .* needs 2 .*end of the file"),
    "cut off": (SMALL[:-5], 15, "factor 2 .* ends after 4"),
    "negative": (SMALL.replace(b"0.25", b"-0.25"), 12, "entry 2 .* factor 1 is '-0.25'"),
    "tiny negative": (SMALL.replace(b"0.25", b"-1e-999"), 12, "negative"),
    "nan": (SMALL.replace(b"0.25", b"nan"), 12, "entry 2 of the table of factor 1 is 'nan'"),
    "inf": (SMALL.replace(b"\n5", b"\ninf"), 16, "entry 4 of the table of factor 2 is 'inf'"),
    "word": (SMALL.replace(b"0.4", b"0,4"), 10, "entry 0 of the table of factor 0 is '0,4'"),
    "underscore": (SMALL.replace(b"0.4", b"0_4"), 10, "'0_4'"),
    "hexadecimal": (SMALL.replace(b"0.4", b"0x4"), 10, "'0x4'"),
    "exponent": (SMALL.replace(b"0.4", b"1e"), 10, "'1e'"),
    "point": (SMALL.replace(b"0.4", b"."), 10, "'.'"),
    "points": (SMALL.replace(b"0.4", b"1.2.3"), 10, "'1.2.3'"),
    "beyond decimals": (SMALL.replace(b"0.4", b"1e9999999"), 10, "'1e9999999'"),
    "below decimals": (SMALL.replace(b"0.4", b"1e-9999999"), 10, "'1e-9999999'"),
    "zero byte": (SMALL.replace(b"0.4", b"0\x004"), 10, "entry 0"),
    "trailing": (SMALL + b"7", 17, "'7' after the last table"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_broken_model_is_refused_with_its_place(case: str) -> None:
    text, line, message = WRONG[case]
    with pytest.raises(ModelFormatError, match=f"^here.uai, line {line}: .*{message}.*;"):
        parsed(text)


HUGE = [
    b"MARKOV 1000000000000 2 2 2",
    b"MARKOV 99999999999999999999999999999999 2 2 2",
    b"MARKOV 1 1000000000 0",
    b"MARKOV 1 99999999999999999999999999 1 1 0 1 1",
    b"MARKOV 3 1 2 200000000 0",
    b"MARKOV 1 2 1000000000000 1 0",
    b"MARKOV 1 2 1 1000000000000 0",
    b"MARKOV 1 260000000 1 1 0 260000000 0.5",
    b"MARKOV 3 80000000 80000000 80000000 1 3 0 1 2 512000000000000000000000 0.5",
    b"MARKOV 40 " + b"4 " * 40 + b"1 40 " + b" ".join(b"%d" % i for i in range(40)) + b" 0 0.5",
    b"MARKOV 2 2 2 1 2 0 1 1000000000000 1 2 3 4",
    b"MARKOV 1 2 1 1 0 2 1 " + b"9" * 100_000 + b"e",
]  # fmt: skip


@pytest.mark.parametrize("text", HUGE, ids=range(len(HUGE)))
def test_absurd_sizes_cost_no_memory(text: bytes) -> None:
    with traced() as peak, pytest.raises(ModelFormatError, match=r"^here\.uai, line 1: "):
        parsed(text)
    assert peak() < 1_000_000


class traced:
    """Peak of memory that Python and numpy allocate inside a block."""

    def __enter__(self):
        parsed(SMALL)  # compiling is not what is measured
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]
        self.peak = 0
        return lambda: self.peak

    def __exit__(self, *error: object) -> None:
        self.peak = tracemalloc.get_traced_memory()[1] - self.before
        tracemalloc.stop()


# Files


def test_packed_files_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "model.uai.gz"
    uai.write_model(parsed(SMALL), path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    same(uai.read_model(path), parsed(SMALL), 1e-15)
    same(uai.read_model(str(path)), parsed(SMALL), 1e-15)
    evidence = tmp_path / "model.uai.evid.gz"
    evidence.write_bytes(gzip.compress(b"1 0 1"))
    assert uai.read_evidence(evidence) == {0: 1}


def test_damaged_packed_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.uai.gz"
    packed = gzip.compress(SMALL)
    middle = len(packed) // 2
    for data in (packed[:-9], packed[:3], packed[:middle] + b"????" + packed[middle + 4 :]):
        path.write_bytes(data)
        with pytest.raises(ModelFormatError, match=r"model\.uai\.gz: damaged gzip file"):
            uai.read_model(path)


def test_a_packed_file_does_not_grow_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.uai.gz"
    path.write_bytes(gzip.compress(b"MARKOV " + b" " * 30_000_000))
    for setting, value in (("LARGEST", 1_000_000), ("FREE", 100_000)):
        monkeypatch.setattr(unpack, setting, value)
        message = rf"model\.uai\.gz: {path.stat().st_size} bytes unpack to more than "
        with traced() as peak, pytest.raises(ModelFormatError, match=message):
            uai.read_model(path)
        assert peak() < 20_000_000
        with pytest.raises(EvidenceError, match=message):
            uai.read_evidence(path)
        monkeypatch.undo()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_packed_files_come_through_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(SMALL)))
    writer.start()
    assert uai.read_model(tmp_path / "pipe").scopes == parsed(SMALL).scopes
    writer.join()


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"absent\.uai: no such file in .*check the name"):
        uai.read_model(tmp_path / "absent.uai")
    with pytest.raises(EvidenceError, match="no such file"):
        uai.read_evidence(tmp_path / "absent.evid")
    with pytest.raises(ModelFormatError, match="is a folder; give a file"):
        uai.read_model(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.uai").touch()
    with pytest.raises(EvidenceError, match=r"inner is a folder that holds a\.uai; give a file"):
        uai.read_evidence(tmp_path / "inner")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        uai.read_model("a\0b")
    with pytest.raises(ModelFormatError, match="cannot be written"):
        uai.write_model(parsed(SMALL), tmp_path / "absent" / "model.uai")
    uai.write_model(parsed(SMALL), tmp_path / "there.uai.gz")
    with pytest.raises(ModelFormatError, match=r"there is .*there\.uai\.gz"):
        uai.read_model(tmp_path / "there.uai")


def test_typed_numbers_survive_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "model.uai"
    words = "0.1 0.3 0.123456789012345 7 1e-05 0 1e+20 1.2345e-300"
    model = parsed(f"MARKOV 1 8 1 1 0 8 {words}".encode())
    for _ in range(3):
        uai.write_model(model, path)
        assert path.read_text().splitlines()[-1] == words
        model = uai.read_model(path)


def test_logarithms_beyond_a_double_survive(tmp_path: Path) -> None:
    theta = np.array([800.0, -800.0, 1e6, -1e6, -720.5, -np.inf])
    uai.write_model(FactorGraph(np.array([6]), ((0,),), (theta,)), tmp_path / "model.uai")
    assert_allclose(uai.read_model(tmp_path / "model.uai").log_tables[0], theta, rtol=1e-15)


@pytest.mark.parametrize("value", [1e9, -1e300])
def test_what_no_file_can_hold_is_not_written(tmp_path: Path, value: float) -> None:
    model = FactorGraph(np.array([2]), ((0,),), (np.array([0.0, value]),))
    with pytest.raises(ModelFormatError, match="factor 0"):
        uai.write_model(model, tmp_path / "model.uai")
    assert not (tmp_path / "model.uai").exists()


# Evidence


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("", {}),
        (" \n", {}),
        ("0", {}),
        ("0\n", {}),
        ("1\n0\n", {}),
        ("1 0", {}),
        ("2 10 1 5010 0", {10: 1, 5010: 0}),
        ("1\n2 10 1 5010 0 \n", {10: 1, 5010: 0}),
        ("1 2 10 1 5010 0", {10: 1, 5010: 0}),
        ("2\n10 1\n5010 0\n", {10: 1, 5010: 0}),
        ("1\r\n2\r\n10 1\r\n5010 0\r\n", {10: 1, 5010: 0}),
        ("1 1 0", {1: 0}),
        ("1\n1 0\n", {1: 0}),
        ("1\n1 1 0\n", {1: 0}),
        ("2 3 1 3 1", {3: 1}),
        ("2 0 1 3 0", {0: 1, 3: 0}),
        ("\ufeff1 4 1", {4: 1}),
    ],
)
def test_both_forms_of_evidence_are_read(
    tmp_path: Path, text: str, evidence: dict[int, int]
) -> None:
    (tmp_path / "model.evid").write_text(text, encoding="utf-8")
    assert uai.read_evidence(tmp_path / "model.evid") == evidence


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2\n1 3 0\n1 4 1\n", "2 evidence samples"),
        ("2 1 3 0 1 4 1", "2 evidence samples"),
        ("2\n0\n1 3 0", "2 evidence samples"),
        ("2 10 1 5010", "2 observed variables need 4 more numbers, found 3"),
        ("1 2 10 1 5010", "found 4"),
        ("0 1 1", "found 2"),
        ("1 0\nx", "line 2: 'x'"),
        ("1 0 -1", "line 1: '-1'"),
        ("1 0 1.0", "'1.0'"),
        ("1 0 " + "9" * 5000, "is not a count"),
        ("99999999999 1 1", "99999999999 observed variables"),
        ("2 2 1 2 0", "variable 2 is observed in state 1 and in state 0"),
        ("1 3 0", "names variable 3"),
        ("1 2 3", "state 3, but it has 3 states"),
        ("MARKOV 1", "'MARKOV'"),
        ("\x00", "is not a count"),
    ],
)
def test_broken_evidence_is_refused(text: str, message: str) -> None:
    with pytest.raises(EvidenceError, match=f"^here.evid.*{message}.*;"):
        parse_evidence(text.encode(), "here.evid", parsed(SMALL))


# Answers


def test_marginals_survive_a_round_trip(tmp_path: Path) -> None:
    path, rng = tmp_path / "model.MAR", np.random.default_rng(0)
    rows = [rng.dirichlet(np.ones(k)) for k in (1, 2, 5, 81)]
    rows[1] = np.array([0.0, 1.0])
    padded = np.zeros((4, 81))
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    for probs in (rows, padded):
        uai.write_marginals(path, probs, [1, 2, 5, 81])
        for got, row in zip(uai.read_marginals(path), rows, strict=True):
            assert_array_equal(got, row)
    assert path.read_text().startswith("MAR\n4 1 1 2 0 1 5 ")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("MAR\n3 2 0.1 0.9 2 0.3 0.7 3 0.2 0.2 0.6", [[0.1, 0.9], [0.3, 0.7], [0.2, 0.2, 0.6]]),
        ("MAR\n1\n2 2 0.1 0.9 1 1", [[0.1, 0.9], [1]]),
        ("mar 1 2 0 1", [[0, 1]]),
        ("MAR\n1\n1 2 0 1", [[0, 1]]),
        ("MAR\n1\n1 1 1", [[1]]),
        ("MAR\n1 1 1", [[1]]),
        ("MAR\n0\n", []),
        ("MAR\n1 2 .5 .5\n-BEGIN-\n1 2 1e-1 .9\n", [[0.1, 0.9]]),
        ("MAR\n-BEGIN-\n1\n1 2 .5 .5\n-BEGIN-\nMAR\n1\n1 2 0.1 0.9", [[0.1, 0.9]]),
    ],
)
def test_answers_of_other_programs_are_read(
    tmp_path: Path, text: str, rows: list[list[float]]
) -> None:
    (tmp_path / "a.MAR").write_text(text)
    assert [row.tolist() for row in uai.read_marginals(tmp_path / "a.MAR")] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("PR\n1", "'PR'"),
        ("MAR", "nothing follows"),
        ("MAR 1 2 .5 .5 -BEGIN-", "nothing follows the last -BEGIN-"),
        ("MAR 1", "number of variables"),
        ("MAR x", "number of variables"),
        ("MAR 2 2 .5 .5", "variable 1 of 2"),
        ("MAR 2 2 .5 .5 2 1", "variable 1 of 2"),
        ("MAR 1000000000000 2 .5 .5", "variable 1 of"),
        ("MAR 2 1000000000000 .5 .5", "variable 0 of"),
        ("MAR 2 0 0 1", "variable 0 of"),
        ("MAR 2 2 .5 .5 1 1 7", "1 words follow"),
        ("MAR 1 2 .5 nan", "'nan'"),
        ("MAR 1 2 .5 -.5", "'-.5'"),
        ("MAR 1 2 .5 5", "'5'"),
        ("MAR 1 2 .5 x", "'x'"),
        ("MAR 1 2 .5 .4", "variable 0 has probabilities that add up to 0.9"),
        ("MAR 2 1 1 3 0 0 0", "variable 1 has probabilities that add up to 0;"),
    ],
)
def test_broken_answers_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.MAR").write_text(text)
    with pytest.raises(ModelFormatError, match=rf"a\.MAR: .*{message}"):
        uai.read_marginals(tmp_path / "a.MAR")


def test_answers_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    for probs, cards in (([[0.5, np.nan]], [2]), ([[1.0]], [2])):
        with pytest.raises(ModelFormatError, match="variable 0"):
            uai.write_marginals(tmp_path / "a.MAR", np.array(probs), cards)


@pytest.mark.parametrize("value", [606.279, -1e-3, 0.0, 12345.678901234567, -math.inf])
def test_the_partition_function_survives_a_round_trip(tmp_path: Path, value: float) -> None:
    uai.write_pr(tmp_path / "a.PR", value)
    assert uai.read_pr(tmp_path / "a.PR") == value


@pytest.mark.parametrize(
    ("text", "value"), [("PR\n1\n-3.5", -3.5), ("PR 2 -BEGIN- 7e1", 70.0), ("pr\n1\n", 1.0)]
)
def test_partition_functions_of_other_programs_are_read(
    tmp_path: Path, text: str, value: float
) -> None:
    (tmp_path / "a.PR").write_text(text)
    assert uai.read_pr(tmp_path / "a.PR") == value


@pytest.mark.parametrize(
    "text", ["", "PR", "MAR 1", "PR x", "PR nan", "PR 1 2 3", "PR inf", "PR 1e999"]
)
def test_broken_partition_functions_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.PR").write_text(text)
    with pytest.raises(ModelFormatError, match=r"a\.PR: "):
        uai.read_pr(tmp_path / "a.PR")


# Laws


def read_number(word: str) -> float | None:
    """Number that compiled code reads, None where it leaves the word to Python."""
    value, end = scanner._number(np.frombuffer(b" " + word.encode() + b" ", np.uint8), 1)
    assert end == len(word) + 1
    return None if value < 0 else value


@given(st.floats(min_value=0, allow_infinity=False), st.integers(0, 30))
@settings(max_examples=500, deadline=None)
def test_printed_doubles_are_read_to_the_last_bit(x: float, digits: int) -> None:
    for word in (repr(x), f"{x:.{digits}e}", f"{x:.{digits}g}", f"{x:.17g}"):
        assert read_number(word) in (float(word), None)


@pytest.mark.parametrize(
    "word",
    ["0", "1", "0.5", "+.5", "1.", "1e-05", "0.000001", "12E+3", "0.12345678901234567", "1e300"],
)
def test_ordinary_numbers_do_not_need_python(word: str) -> None:
    assert read_number(word) == float(word)


@given(st.integers(0, 10**25), st.integers(0, 10**25), st.integers(-345, 330))
@settings(max_examples=500, deadline=None)
def test_any_decimal_is_read_to_the_last_bit(whole: int, fraction: int, power: int) -> None:
    for word in (
        f"{whole}",
        f"{whole}.{fraction}",
        f".{fraction:026d}",
        f"{whole}.{fraction}e{power}",
    ):
        assert read_number(word) in (float(word), None)


@pytest.mark.parametrize(
    "word",
    [
        "9007199254740993",  # half-way, ties to even
        "9007199254740992.99999999999999999999",
        "2.2250738585072011e-308",  # hung other parsers
        "1.7976931348623158e308",
        "0.1000000000000000055511151231257827021181583404541015625",
    ],
)
def test_infamous_decimals_are_read_to_the_last_bit(word: str) -> None:
    assert read_number(word) in (float(word), None)


def test_a_hundred_thousand_hard_numbers_are_read_to_the_last_bit() -> None:
    rng, left = random.Random(0), 0
    for k in range(100_000):
        x = abs(struct.unpack("d", rng.randbytes(8))[0]) if k % 2 else rng.random()
        if not 2.3e-308 < x < 1e308:
            continue
        nearly = Decimal(x) + (Decimal(math.nextafter(x, math.inf)) - Decimal(x)) / 2
        word = repr(x) if k % 4 < 2 else f"{nearly:.{rng.randrange(15, 22)}e}"
        value = read_number(word)
        left += value is None
        assert value in (float(word), None), word
    assert left < 30_000


@st.composite
def models(draw: st.DrawFn) -> FactorGraph:
    cards = draw(st.lists(st.integers(1, 4), max_size=6))
    n = len(cards)
    scopes = draw(
        st.lists(
            st.lists(st.integers(0, n - 1), unique=True, max_size=3) if n else st.just([]),
            max_size=5,
        )
    )
    entries = st.one_of(st.just(-math.inf), st.floats(-900, 900), st.floats(-3, 3))
    tables = []
    for scope in scopes:
        shape = [cards[i] for i in scope]
        size = math.prod(shape)
        tables.append(
            np.array(draw(st.lists(entries, min_size=size, max_size=size))).reshape(shape)
        )
    return FactorGraph(np.array(cards, np.int64), tuple(map(tuple, scopes)), tuple(tables))


@given(models())
@settings(max_examples=150, deadline=None)
def test_models_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, model: FactorGraph
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.uai"
    uai.write_model(model, path)
    same(uai.read_model(path), model, 1e-15)


def plain_parse(text: bytes) -> tuple[list[int], list[list[int]], list[list[float]]]:
    """Read a sound model the obvious way."""
    words: Iterator[bytes] = iter(text.split())
    next(words)
    cards = [int(next(words)) for _ in range(int(next(words)))]
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    tables = [[float(next(words)) for _ in range(int(next(words)))] for _ in scopes]
    assert next(words, None) is None
    return cards, scopes, tables


def agrees_with_plain_parse(text: bytes) -> None:
    model = parsed(text)
    cards, scopes, tables = plain_parse(text)
    assert model.cards.tolist() == cards
    assert [list(scope) for scope in model.scopes] == scopes
    assert [t.shape for t in model.log_tables] == [tuple(cards[i] for i in s) for s in scopes]
    values = [v for table in tables for v in table]
    with np.errstate(divide="ignore"):
        expected = np.log(np.array(values, np.float64))
    found = np.concatenate([np.empty(0), *(t.ravel() for t in model.log_tables)])
    assert_allclose(found, expected, rtol=1e-15, atol=1e-15)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_text_reads_like_a_plain_reader_reads_it(data: st.DataObject) -> None:
    gap = st.sampled_from([" ", "\n", "\t", "\r\n", "  \n "])
    number = st.one_of(
        st.floats(0, 1e300).filter(lambda x: x == 0 or x > 1e-300).map(repr),
        st.integers(0, 10**25).map(str),
        st.from_regex(r"[0-9]{1,4}\.[0-9]{0,24}([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    )
    cards = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    n = len(cards)
    scopes = data.draw(
        st.lists(st.lists(st.integers(0, n - 1), unique=True, max_size=3), max_size=4)
    )
    words = [data.draw(st.sampled_from(["MARKOV", "BAYES", "markov"])), n, *cards, len(scopes)]
    for scope in scopes:
        words += [len(scope), *scope]
    for scope in scopes:
        size = math.prod(cards[i] for i in scope)
        words += [size, *data.draw(st.lists(number, min_size=size, max_size=size))]
    agrees_with_plain_parse("".join(f"{word}{data.draw(gap)}" for word in words).encode())


BROKEN_WORDS = [
    b"", b"-1", b"0", b"1", b"2", b"3", b"64", b"65", b"1000000", b"100000000", b"1000000000000",
    b"9" * 30, b"nan", b"inf", b"-inf", b"1e5", b"1e-400", b"1e9999999", b"x", b".", b"-", b"+",
    b"e", b"0.5", b"\x00", b"\xff", b"MARKOV", b"-0.0", b"1_0", b"0x1p3", "½".encode(),
]  # fmt: skip


def refused_or_sound(text: bytes) -> None:
    with traced() as peak:
        try:
            model = parsed(text)
        except ModelFormatError as error:
            assert str(error).startswith("here.uai, line ")  # noqa: PT017
        else:
            for table in model.log_tables:
                assert not np.isnan(table).any()
                assert not np.isposinf(table).any()
    assert peak() < 200_000


@given(models(), st.data())
@settings(max_examples=300, deadline=None)
def test_mutilated_models_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, model: FactorGraph, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutilated.uai"
    uai.write_model(model, path)
    text = path.read_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        match data.draw(st.sampled_from(["cut", "byte", "word", "delete", "insert", "double"])):
            case "cut":
                text = text[:at]
            case "byte":
                text = text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[at + 1 :]
            case change:
                words = text.split()
                k = data.draw(st.integers(0, len(words)))
                new = [data.draw(st.sampled_from(BROKEN_WORDS))] if change != "double" else words
                words[k : k + (change in ("word", "delete"))] = new if change != "delete" else []
                text = b"\n".join(words)
    refused_or_sound(text)


def test_a_model_cut_at_any_byte_is_refused() -> None:
    for end in range(len(SMALL.rstrip()) - 1):
        with pytest.raises(ModelFormatError):
            parsed(SMALL[:end])


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused_or_read(noise: bytes) -> None:
    refused_or_sound(noise)
    refused_or_sound(b"MARKOV " + noise)


WORDS = st.one_of(st.sampled_from(BROKEN_WORDS), st.integers(0, 4).map(lambda i: b"%d" % i))
GAPS = st.sampled_from([b" ", b"\n"])


@given(st.lists(st.tuples(WORDS, GAPS), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_evidence_is_refused_or_within_the_model(words: list[tuple[bytes, bytes]]) -> None:
    model = parsed(SMALL)
    try:
        evidence = parse_evidence(b"".join(w + g for w, g in words), "here.evid", model)
    except EvidenceError:
        return
    assert all(0 <= i < 3 and 0 <= x < model.cards[i] for i, x in evidence.items())


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 9), max_size=5), st.data())
@settings(max_examples=200, deadline=None)
def test_evidence_reads_back_in_both_forms(evidence: dict[int, int], data: st.DataObject) -> None:
    words = [len(evidence), *(w for pair in evidence.items() for w in pair)]
    words = data.draw(st.sampled_from([words, [1, *words]]))
    # All on one line: only line ends can make several samples of what also reads as pairs.
    assert parse_evidence(" ".join(map(str, words)).encode(), "here.evid") == evidence


@given(st.lists(st.tuples(st.one_of(WORDS, st.just(b"-BEGIN-")), GAPS), max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_answer_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, words: list[tuple[bytes, bytes]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.MAR"
    text = b"".join(w + g for w, g in words)
    for kind, read in ((b"MAR ", uai.read_marginals), (b"PR ", uai.read_pr)):
        path.write_bytes(kind + text)
        try:
            read(path)
        except ModelFormatError as error:
            assert str(error).startswith(str(path))  # noqa: PT017


@given(
    st.sampled_from([b"2 0 1 2 2\n", b"1\n1 0 1\n", b"MAR\n2 2 0.25 0.75 3 0.2 0.3 0.5\n"]),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255), st.integers(0, 2)), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_small_changes_of_sound_files_are_refused_or_read(
    text: bytes, changes: list[tuple[int, int, int]]
) -> None:
    for at, byte, cut in changes:
        text = text[:at] + bytes([byte]) + text[at + cut :]
    for parse in (uai.parse_marginals, uai.parse_evidence, uai.parse_pr, parse_model):
        with contextlib.suppress(ModelFormatError, EvidenceError):
            parse(text, "here")


# Published files

DATA = os.environ.get("ICGI_DATA")
ARCHIVES = sorted(Path(DATA, "uai").glob("*.tar.gz")) if DATA else []


@pytest.mark.skipif(not ARCHIVES, reason="set ICGI_DATA to the folder that holds uai/*.tar.gz")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.split(".")[0])
def test_published_files_read_like_a_plain_reader_reads_them(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as files:
        texts = {m.name: files.extractfile(m).read() for m in files.getmembers() if m.isfile()}
    for name, text in texts.items():
        path = tmp_path / Path(name).name
        path.write_bytes(text)
        if name.endswith(".uai"):
            agrees_with_plain_parse(text)
        elif name.endswith((".MAR", ".MAR.exact")):
            rows = uai.read_marginals(path)
            words = text.split()[1:]
            assert len(rows) == int(words[0])
            assert [w for row in rows for w in (len(row), *row)] == list(map(float, words[1:]))
        elif name.endswith(".PR"):
            assert uai.read_pr(path) == float(text.split()[1])
    for name, text in texts.items():
        if name.endswith(".evid") and name[: -len(".evid")] in texts:
            model = parsed(texts[name[: -len(".evid")]])
            numbers = list(map(int, text.split()))
            evidence = dict(zip(numbers[1::2], numbers[2::2], strict=True))
            assert parse_evidence(text, name, model) == evidence
            assert parse_evidence(texts.get(name + ".orig", text), name, model) == evidence
