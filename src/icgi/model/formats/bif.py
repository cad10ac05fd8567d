"""BIF, the interchange format of Bayesian networks: names and states kept, in the file's order.

A file is a `network` block, a `variable` block for each variable and a `probability` block for each
conditional table P(X | parents). Rows of a table are `(states of the parents) numbers;`, or one
`table numbers;` with the states of X first and the last parent changing fastest; `default numbers;`
fills the rows not given. Comments are those of C and C++.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from icgi.errors import ModelFormatError
from icgi.model.formats.network import (
    LARGEST_TABLE,
    LONGEST_SCOPE,
    SUM_TOLERANCE,
    assemble,
    conditionals,
    plain_words,
)
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name
from icgi.wording import did_you_mean, shown, some

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}()\[\]|;,]|[^\s{}()\[\]|;,"]+')
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)  # or a quoted name
_MARKS = frozenset("{}()[]|;,")


@dataclass(slots=True)
class _Words:
    """The words of a file, and where the reader is."""

    path: str
    text: str
    words: list[str]
    place: int = 0

    def peek(self) -> str:
        """Next word; empty at the end."""
        return self.words[self.place] if self.place < len(self.words) else ""

    def take(self) -> str:
        """Next word, which is thereby read."""
        word = self.peek()
        if not word:
            self.fail("the file ends here; is it complete?")
        self.place += 1
        return word

    def expect(self, *wanted: str) -> str:
        """Next word, which has to be one of these."""
        word = self.take()
        if word not in wanted:
            self.place -= 1
            self.fail(f"found {word[:40]!r} where {' or '.join(map(repr, wanted))} should be")
        return word

    def name(self, what: str) -> str:
        """Next word as a name, without quotation marks."""
        word = self.take()
        if word in _MARKS:
            self.place -= 1
            self.fail(f"found {word!r} where the name of {what} should be")
        return word[1:-1] if word.startswith('"') else word

    def until(self, end: str) -> list[str]:
        """Words up to a mark, commas left out; the mark is read too."""
        try:
            stop = self.words.index(end, self.place)
        except ValueError:
            self.fail(f"no {end!r} until the end of the file")
        found = [word for word in self.words[self.place : stop] if word != ","]
        self.place = stop + 1
        return found

    def skip_block(self) -> None:
        """Everything from `{` to its `}`."""
        self.expect("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take(), 0)

    def fail(self, message: str) -> NoReturn:
        """Raise `ModelFormatError` with the line of the next word."""
        starts = (found.start() for found in _TOKEN.finditer(self.text))
        at = next((s for k, s in enumerate(starts) if k == self.place), len(self.text))
        line = self.text.count("\n", 0, at) + 1
        raise ModelFormatError(f"{self.path}, line {line}: {shown(message)}")


def parse_bif(data: bytes, path: str) -> FactorGraph:
    """Bayesian network of a BIF file; factors are in the order of its probability blocks."""
    try:
        raw = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raw = data.decode("latin-1")  # older files carry names in it
    # comments become blanks, so that lines keep their numbers
    text = _COMMENT.sub(_blank, raw) if "//" in raw or "/*" in raw else raw
    words = _Words(path, text, _TOKEN.findall(text))
    states: dict[str, list[str]] = {}
    factors: list[tuple[tuple[str, ...], FloatArray]] = []
    given: set[str] = set()
    while words.peek():
        kind = words.expect("network", "variable", "probability")
        if kind == "network":
            while words.peek() != "{":
                words.take()
            words.skip_block()
        elif kind == "variable":
            name, found = _variable(words)
            if name in states:
                words.fail(f"variable {name!r} is described twice; keep one description")
            states[name] = found
        else:
            scope, table = _probability(words, states)
            if scope[0] in given:
                words.fail(f"variable {scope[0]!r} has two probability blocks; keep one")
            given.add(scope[0])
            factors.append((scope, table))
    return _network(path, states, factors)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def _network(
    path: str, states: dict[str, list[str]], factors: list[tuple[tuple[str, ...], FloatArray]]
) -> FactorGraph:
    if not states:
        raise ModelFormatError(f"{path}: no variable block found; is this a BIF file?")
    heads = {scope[0] for scope, _ in factors}
    missing = [name for name in states if name not in heads]
    if missing:
        raise ModelFormatError(
            f"{path}: variable {missing[0]!r} has no probability block; every variable of a "
            "Bayesian network needs one"
        )
    return assemble(states, factors)


def _variable(words: _Words) -> tuple[str, list[str]]:
    """Name and states of a `variable` block; properties are passed over."""
    name = words.name("a variable")
    words.expect("{")
    states: list[str] = []
    while words.peek() != "}":
        if words.take() != "type":
            words.until(";")  # a property
            continue
        words.expect("discrete")
        words.expect("[")
        count = words.take()
        words.expect("]")
        words.expect("{")
        states = [word[1:-1] if word.startswith('"') else word for word in words.until("}")]
        if not count.isdecimal() or int(count) != len(states):
            words.fail(f"variable {name!r} has {len(states)} states, but announces {count[:20]}")
        if len(set(states)) < len(states):
            words.fail(f"two states of variable {name!r} have the same name; rename one")
        if words.peek() == ";":
            words.take()
    words.expect("}")
    if not states:
        words.fail(f"variable {name!r} has no line `type discrete [ n ] {{ … }};`")
    return name, states


def _probability(words: _Words, states: dict[str, list[str]]) -> tuple[tuple[str, ...], FloatArray]:
    """Scope (the variable, then its parents) and table of a `probability` block."""
    words.expect("(")
    scope = [words.name("a variable")]
    if words.peek() == "|":
        words.take()
    while words.peek() != ")":
        if words.peek() == ",":
            words.take()
        else:
            scope.append(words.name("a parent"))
    words.expect(")")
    for name in scope:
        if name not in states:
            words.fail(f"{name!r} has no variable block above; check the spelling")
    if len(set(scope)) < len(scope):
        words.fail(f"the probability block of {scope[0]!r} names a variable twice")
    cards = [len(states[name]) for name in scope]
    if len(scope) > LONGEST_SCOPE:
        words.fail(f"{scope[0]!r} has {len(scope) - 1} parents; at most {LONGEST_SCOPE - 1}")
    if np.prod([float(c) for c in cards]) > LARGEST_TABLE:
        words.fail(f"the table of {scope[0]!r} would have more than {LARGEST_TABLE} entries")
    table = np.full((*cards[1:], cards[0]), np.nan)  # a row for each choice of parents
    default: FloatArray | None = None
    index = [{state: x for x, state in enumerate(states[name])} for name in scope[1:]]
    words.expect("{")
    _even_rows(words, table, index)
    while words.peek() != "}":
        word = words.take()
        if word == "(":
            where = _row(words, scope, index)
            table[where] = _numbers(words, cards[0], f"a row of {scope[0]!r}")
        elif word == "table":
            flat = _numbers(words, table.size, f"the table of {scope[0]!r}")
            table = np.moveaxis(flat.reshape(cards), 0, -1).copy()
        elif word == "default":
            default = _numbers(words, cards[0], f"the default row of {scope[0]!r}")
        else:
            words.until(";")  # a property
    words.expect("}")
    empty = np.isnan(table[..., :1]).any(-1)
    if empty.any():
        if default is None:
            first = np.argwhere(np.atleast_1d(empty))[0].tolist()[: len(scope) - 1]
            parents = ", ".join(states[name][x] for name, x in zip(scope[1:], first, strict=True))
            words.fail(f"the table of {scope[0]!r} has no row for ({parents})")
        table[empty] = default
    _check_rows(words, scope[0], table)
    return tuple(scope), np.moveaxis(table, -1, 0)


def _even_rows(words: _Words, table: FloatArray, index: list[dict[str, int]]) -> None:
    """Read a block of nothing but rows column by column, which is quick; else read nothing."""
    parents, states = len(index), table.shape[-1]
    length = 2 * parents + 1 + 2 * states  # words of a row, marks included
    try:
        stop = words.words.index("}", words.place)
    except ValueError:
        return
    block = words.words[words.place : stop]
    marks = [(0, "("), (2 * parents, ")"), (length - 1, ";")]
    marks += [
        (at, ",") for at in (*range(2, 2 * parents, 2), *range(2 * parents + 2, length - 1, 2))
    ]
    if not parents or not block or len(block) % length:
        return
    if any(set(block[at::length]) != {mark} for at, mark in marks):
        return
    try:
        where = [
            [known[state] for state in block[1 + 2 * a :: length]] for a, known in enumerate(index)
        ]
        columns = [
            list(map(float, block[2 * parents + 1 + 2 * x :: length])) for x in range(states)
        ]
    except (KeyError, ValueError):
        return  # a quoted name, or a mistake that reading row by row will name
    values = np.array(columns)
    if values.min() >= 0 and values.max() < np.inf:
        table[tuple(where)] = values.T
        words.place = stop


def _row(words: _Words, scope: list[str], index: list[dict[str, int]]) -> tuple[int, ...]:
    """States of the parents that a row is for."""
    begin = words.place
    found = words.until(")")
    if len(found) != len(index):
        words.place = begin
        words.fail(f"a row of {scope[0]!r} names {len(found)} of {len(index)} parents")
    where = []
    for name, state, numbers in zip(scope[1:], found, index, strict=True):
        plain = state[1:-1] if state.startswith('"') else state
        if plain not in numbers:
            words.place = begin
            meant = did_you_mean(plain, numbers)
            words.fail(f"{name!r} has no state {plain!r}{meant}; its states are {some(numbers)}")
        where.append(numbers[plain])
    return tuple(where)


def _numbers(words: _Words, count: int, what: str) -> FloatArray:
    begin = words.place
    found = words.until(";")
    try:
        values = np.array(found, dtype=np.float64)
    except ValueError:
        bad = next(word for word in found if not _is_number(word))
        words.place = begin
        words.fail(f"{what} holds {bad[:40]!r}, which is no number")
    if len(values) != count:
        words.place = begin
        words.fail(f"{what} holds {len(values)} numbers instead of {count}")
    if len(values) and not (values.min() >= 0 and values.max() < np.inf):
        words.place = begin
        words.fail(f"{what} holds a negative or infinite number; give probabilities")
    return np.asarray(values)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _check_rows(words: _Words, name: str, table: FloatArray) -> None:
    """Every row of a conditional table is a distribution, up to the rounding of its digits."""
    sums = table.sum(-1)
    worst = float(np.abs(sums - 1).max())
    if not worst <= SUM_TOLERANCE:
        bad = float(sums.flat[int(np.abs(sums - 1).argmax())])
        words.fail(f"a row of {name!r} sums to {bad:g} instead of 1")


def format_bif(model: FactorGraph, name: str = "unknown") -> Iterator[str]:
    """Pieces of a BIF file of a model that is a Bayesian network."""
    tables = conditionals(model, "BIF")
    plain_words(model, '"\\', "BIF")
    yield f"network {_quoted(name)} {{\n}}\n"
    names = [_quoted(variable_name(model, i)) for i in range(model.n_variables)]
    states = [list(map(_quoted, state_names(model, i))) for i in range(model.n_variables)]
    for label, found in zip(names, states, strict=True):
        row = ", ".join(found)
        yield f"variable {label} {{\n  type discrete [ {len(found)} ] {{ {row} }};\n}}\n"
    for each in tables:
        parents = [names[j] for j in each.parents]
        given = f" | {', '.join(parents)}" if parents else ""
        yield f"probability ( {names[each.child]}{given} ) {{\n"
        for where in np.ndindex(each.table.shape[:-1]):
            row = ", ".join(states[j][x] for j, x in zip(each.parents, where, strict=True))
            head = f"({row})" if parents else "table"
            yield f"  {head} {', '.join(map(repr, each.table[where].tolist()))};\n"
        yield "}\n"


def _quoted(name: str) -> str:
    plain = re.fullmatch(r'[^\s{}()\[\]|;,"]+', name) and not name.startswith(("//", "/*"))
    return name if plain and "//" not in name and "/*" not in name else f'"{name}"'
