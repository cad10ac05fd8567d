"""XMLBIF 0.3, the interchange format of Bayesian networks in XML; names and order are kept.

A `DEFINITION` has one `FOR` (the variable X), a `GIVEN` for each parent and a `TABLE` in which X
changes fastest and the first parent slowest. The document type may describe elements, as the
standard one does; entities are refused, and nothing outside the file is ever read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape

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
from icgi.wording import shown

_INSIDE = {  # element -> elements that may hold it
    "BIF": {""},
    "NETWORK": {"BIF"},
    "VARIABLE": {"NETWORK"},
    "DEFINITION": {"NETWORK"},
    "NAME": {"NETWORK", "VARIABLE"},
    "OUTCOME": {"VARIABLE"},
    "VALUE": {"VARIABLE"},  # of the older version 0.2
    "FOR": {"DEFINITION"},
    "GIVEN": {"DEFINITION"},
    "TABLE": {"DEFINITION"},
    "PROPERTY": {"NETWORK", "VARIABLE", "DEFINITION"},
    "OBS": {"VARIABLE"},
}


@dataclass
class _Reader:
    """What has been read, and the elements around the place where the parser is."""

    path: str
    parser: expat.XMLParserType
    open: list[str] = field(default_factory=lambda: [""])
    text: list[str] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)  # of one VARIABLE or DEFINITION
    states: dict[str, list[str]] = field(default_factory=dict)
    definitions: list[tuple[int, dict[str, list[str]]]] = field(default_factory=list)  # with line

    def fail(self, message: str, line: int = 0) -> NoReturn:
        where = line or self.parser.CurrentLineNumber
        raise ModelFormatError(f"{self.path}, line {where}: {shown(message)}")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self.open[-1] not in _INSIDE.get(name, set()):
            if self.open == [""]:
                self.fail(f"found <{name[:40]}> where XMLBIF has <BIF>; is this an XMLBIF file?")
            self.fail(f"<{name[:40]}> has no place in <{self.open[-1] or 'the file'}>; remove it")
        if name == "VARIABLE" and attributes.get("TYPE", "nature") != "nature":
            self.fail(
                f"a variable of TYPE {attributes['TYPE'][:40]!r}; only nature (chance) variables "
                "have marginals: remove decisions and utilities"
            )
        if name in ("VARIABLE", "DEFINITION"):
            self.parts = {}
        self.open.append(name)
        self.text = []

    def characters(self, text: str) -> None:
        if self.open[-1] in ("BIF", "NETWORK", "VARIABLE", "DEFINITION") and text.strip():
            self.fail(f"found {text.strip()[:40]!r} between the elements of <{self.open[-1]}>")
        self.text.append(text)

    def end(self, name: str) -> None:
        self.open.pop()
        if name == "VARIABLE":
            self.variable()
        elif name == "DEFINITION":
            self.definitions.append((self.parser.CurrentLineNumber, self.parts))
        elif self.open[-1] in ("VARIABLE", "DEFINITION"):
            self.parts.setdefault(name, []).append("".join(self.text).strip())

    def variable(self) -> None:
        names = self.parts.get("NAME", [])
        outcomes = self.parts.get("OUTCOME", []) + self.parts.get("VALUE", [])
        if len(names) != 1:
            self.fail(f"a <VARIABLE> with {len(names)} names; give one <NAME>")
        if names[0] in self.states:
            self.fail(f"variable {names[0]!r} is described twice; keep one description")
        if not outcomes:
            self.fail(f"variable {names[0]!r} has no <OUTCOME>; give one for each state")
        if len(set(outcomes)) < len(outcomes):
            self.fail(f"two states of variable {names[0]!r} have the same name; rename one")
        self.states[names[0]] = outcomes

    def entity(self, *_: object) -> None:
        self.fail("the file defines or uses an entity; write the text itself in its place")

    def external(self, *_: object) -> int:
        self.fail("the file refers to another file; write the text itself in its place")

    def table(self, line: int, parts: dict[str, list[str]]) -> tuple[list[str], FloatArray]:
        """Scope (the variable first) and table of a definition."""
        heads, parents = parts.get("FOR", []), parts.get("GIVEN", [])
        if len(heads) != 1:
            self.fail(f"a <DEFINITION> with {len(heads)} <FOR>; give one variable", line)
        scope = [heads[0], *parents]
        for name in scope:
            if name not in self.states:
                self.fail(f"{name!r} has no <VARIABLE>; check the spelling", line)
        if len(set(scope)) < len(scope):
            self.fail(f"the definition of {scope[0]!r} names a variable twice", line)
        tables = parts.get("TABLE", [])
        if len(tables) != 1:
            self.fail(f"the definition of {scope[0]!r} has {len(tables)} <TABLE>; give one", line)
        shape = [len(self.states[name]) for name in [*parents, scope[0]]]
        size = float(np.prod([float(c) for c in shape]))
        if size > LARGEST_TABLE or len(scope) > LONGEST_SCOPE:
            self.fail(f"the table of {scope[0]!r} would be too large: {size:g} entries", line)
        values = self.numbers(line, scope[0], tables[0].split(), int(size)).reshape(shape)
        sums = values.sum(-1)
        bad = float(sums.flat[int(np.abs(sums - 1).argmax())])
        if abs(bad - 1) > SUM_TOLERANCE:
            self.fail(f"a row of {scope[0]!r} sums to {bad:g} instead of 1", line)
        return scope, np.moveaxis(values, -1, 0)

    def numbers(self, line: int, name: str, words: list[str], count: int) -> FloatArray:
        if len(words) != count:
            self.fail(f"the table of {name!r} holds {len(words)} numbers instead of {count}", line)
        try:
            values = np.array(words, dtype=np.float64)
        except ValueError as error:
            self.fail(f"the table of {name!r} holds something that is no number ({error})", line)
        if not (values.min() >= 0 and values.max() < np.inf):
            self.fail(f"the table of {name!r} holds a negative or infinite number", line)
        return values


def parse_xmlbif(data: bytes, path: str) -> FactorGraph:
    """Bayesian network of an XMLBIF file; factors are in the order of its definitions."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    reader = _Reader(path, parser)
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.EntityDeclHandler = parser.SkippedEntityHandler = reader.entity
    parser.ExternalEntityRefHandler = reader.external
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise ModelFormatError(
            f"{path}, line {error.lineno}: no well-formed XML ({message}); fetch the file again, "
            "or repair the element at this place"
        ) from error
    except (LookupError, ValueError) as error:  # an encoding that does not exist
        raise ModelFormatError(f"{path}: cannot be decoded ({error}); save it as UTF-8") from error
    if not reader.states:
        raise ModelFormatError(f"{path}: no <VARIABLE> found; is this an XMLBIF file?")
    factors = [reader.table(line, parts) for line, parts in reader.definitions]
    heads = [scope[0] for scope, _ in factors]
    for name in reader.states:
        if heads.count(name) != 1:
            raise ModelFormatError(
                f"{path}: variable {name!r} has {heads.count(name)} definitions; every variable "
                "of a Bayesian network needs one"
            )
    return assemble(reader.states, factors)


def format_xmlbif(model: FactorGraph) -> Iterator[str]:
    """Pieces of an XMLBIF file of a model that is a Bayesian network."""
    tables = conditionals(model, "XMLBIF")
    plain_words(model, "", "XMLBIF")
    names = [escape(variable_name(model, i)) for i in range(model.n_variables)]
    # without the usual document type, at which the reader of pyAgrum stops
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield '<BIF VERSION="0.3">\n<NETWORK>\n<NAME>unknown</NAME>\n'
    for i, name in enumerate(names):
        states = "".join(f"  <OUTCOME>{escape(s)}</OUTCOME>\n" for s in state_names(model, i))
        yield f'<VARIABLE TYPE="nature">\n  <NAME>{name}</NAME>\n{states}</VARIABLE>\n'
    for each in tables:
        given = "".join(f"  <GIVEN>{names[j]}</GIVEN>\n" for j in each.parents)
        rows = each.table.reshape(-1, each.table.shape[-1])
        text = "\n".join("    " + " ".join(map(repr, row)) for row in rows.tolist())
        yield (
            f"<DEFINITION>\n  <FOR>{names[each.child]}</FOR>\n{given}"
            f"  <TABLE>\n{text}\n  </TABLE>\n</DEFINITION>\n"
        )
    yield "</NETWORK>\n</BIF>\n"
