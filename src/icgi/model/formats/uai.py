"""UAI files: compiled code turns the text into arrays, and every mistake has a place.

Numbers are rounded correctly, to the last bit. Nothing is allocated on the word of a file: the
words it holds are counted first. Potentials outside the range of a double keep their logarithm.
"""

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal, DecimalException, InvalidOperation, Overflow, Underflow
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from icgi.errors import EvidenceError, ModelFormatError
from icgi.kernels import brief
from icgi.model.formats.files import AnyPath, read_bytes, write_text
from icgi.model.graph import LARGEST_DENSE, FactorGraph, FloatArray, IntArray, starts
from icgi.model.text import count_words, next_word, scopes, tables, whole_numbers
from icgi.model.wiring import Wiring, unwire

LONGEST_SCOPE = 64 if int(np.__version__.split(".")[0]) >= 2 else 32  # axes numpy allows

ROUNDED = 0.0101  # how far a sum of probabilities may be from one: two printed digits, few states

_BOM = b"\xef\xbb\xbf"  # some Windows editors write it in front
_WORD = re.compile(rb"\S{1,40}")  # as much as an error shows
_LONG_WORD = re.compile(rb"\S*")
_WHOLE = re.compile(rb"\d{1,17}")
_NUMBER = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")  # one way to match: linear
_WIDE = Context(
    prec=25, Emax=999_999, Emin=-999_999, traps=[Overflow, Underflow, InvalidOperation]
)  # for potentials that a double cannot hold
_SAFE_LOG = 700.0  # exp(±700) is a normal double


def read_model(path: AnyPath) -> FactorGraph:
    """Model of a `.uai` file, packed with gzip or not."""
    return parse_model(read_bytes(path, ModelFormatError), str(path))


def read_evidence(path: AnyPath, model: FactorGraph | None = None) -> dict[int, int]:
    """Observed state of each observed variable; see `parse_evidence`."""
    return parse_evidence(read_bytes(path, EvidenceError), str(path), model)


def read_marginals(path: AnyPath) -> list[FloatArray]:
    """Probabilities of every variable of a `.MAR` file; see `parse_marginals`."""
    return parse_marginals(read_bytes(path, ModelFormatError), str(path))


def parse_marginals(data: bytes, path: str) -> list[FloatArray]:
    """Probabilities from `MAR n k p … k p …`; of `-BEGIN-` blocks the last counts."""
    words = _answer(data, path, b"MAR")
    # One variable takes 2 + card words, so a leading 1 that does not fit is a sample count.
    if words[0] == b"1" and (len(words) < 2 or len(words) != 2 + _whole(words[1])):
        words = words[1:]
    n, at = _whole(words[0]) if words else -1, 1
    if n < 0:
        raise ModelFormatError(
            f"{path}: no number of variables after the word MAR; write `MAR`, then `n`, then for "
            "every variable its number of states and its probabilities"
        )
    rows = []
    for i in range(n):
        card = _whole(words[at]) if at < len(words) else -1
        if card < 1 or at + 1 + card > len(words):
            raise ModelFormatError(
                f"{path}: variable {i} of {n} lacks its number of states or some of its "
                "probabilities; the file was cut off, or holds more than one evidence sample"
            )
        rows.append(_probabilities(words[at + 1 : at + 1 + card], f"{path}: variable {i}"))
        at += 1 + card
    if at < len(words):
        raise ModelFormatError(
            f"{path}: {len(words) - at} words follow the last of {n} variables; remove them, or "
            "keep only one evidence sample"
        )
    return rows


def read_pr(path: AnyPath) -> float:
    """log10 of the partition function in a `.PR` file; see `parse_pr`."""
    return parse_pr(read_bytes(path, ModelFormatError), str(path))


def parse_pr(data: bytes, path: str) -> float:
    """log10 of the partition function from `PR x`; of `-BEGIN-` blocks the last counts."""
    words = _answer(data, path, b"PR")
    if len(words) == 2 and words[0] == b"1":  # sample count
        words = words[1:]
    sound = _NUMBER.fullmatch(words[0]) or words[0].lower() == b"-inf"  # −inf: Z is zero
    if len(words) == 1 and sound and (log10_z := float(words[0])) < math.inf:
        return log10_z
    raise ModelFormatError(
        f"{path}: found {_shown(b' '.join(words[:4]))} after the word PR; write `PR` and then one "
        "number, log10 Z"
    )


def write_model(model: FactorGraph, path: AnyPath) -> None:
    """Write a `MARKOV` file (packed if the name ends in `.gz`); names of variables are not kept."""
    write_text(path, "".join(format_uai(model)))


def format_uai(model: FactorGraph) -> Iterator[str]:
    """Pieces of a `MARKOV` text.

    What a person typed survives any number of round trips. A potential beyond the range of a
    double is written all the same (`1E+400`), though not every other program can read it.
    """
    yield f"MARKOV\n{model.n_variables}\n" + " ".join(map(str, model.cards.tolist()))
    yield f"\n{model.n_factors}\n"
    for scope in model.scopes:
        yield " ".join(map(str, (len(scope), *scope))) + "\n"
    for f, table in enumerate(model.log_tables):
        try:
            words = " ".join(map(_potential, table.ravel().tolist()))
        except (ValueError, DecimalException) as error:
            raise ModelFormatError(
                f"factor {f} has entries that no potential can have or no number can hold; "
                "repair or rescale its table before writing it as .uai"
            ) from error
        yield f"\n{table.size}\n{words}\n"


def write_marginals(
    path: AnyPath, probs: FloatArray | Sequence[FloatArray], cards: Sequence[int] | IntArray
) -> None:
    """Write a `.MAR` file that reads back exactly; rows of `probs` may be padded."""
    words = [str(len(cards))]
    for i, (row, card) in enumerate(zip(probs, map(int, cards), strict=True)):
        states = np.asarray(row, np.float64)[:card]
        if len(states) < card or not np.isfinite(states).all():
            raise ModelFormatError(
                f"variable {i} lacks finite probabilities for its {card} states; {path} was not "
                "written, check the status of the answer"
            )
        words += [str(card), *map(_shortest, states.tolist())]
    write_text(path, "MAR\n" + " ".join(words) + "\n")


def write_pr(path: AnyPath, log10_z: float) -> None:
    """Write a `.PR` file: log10 of the partition function."""
    write_text(path, f"PR\n{_shortest(float(log10_z))}\n")


def parse_evidence(data: bytes, where: str, model: FactorGraph | None = None) -> dict[int, int]:
    """Evidence from `k v1 x1 … vk xk`, or the same after a sample count of 1; nothing means none.

    White space does not matter: the first form has an odd number of numbers, the second an even
    one. Hence `1 0` is one sample without evidence. `2 0 1 3 0` can be two pairs or two samples;
    it is two samples only if the count and every sample stand on lines of their own.
    """
    numbers = []
    for word in re.finditer(rb"\S+", data.removeprefix(_BOM)):
        numbers.append(_whole(word[0]))
        if numbers[-1] < 0:
            raise EvidenceError(
                f"{where}, line {_line(data, word.start())}: {_shown(word[0])} is not a count; "
                "write the number of observed variables, then pairs of variable and state"
            )
    if _has_several_samples(numbers, data):
        raise EvidenceError(
            f"{where}: holds {numbers[0]} evidence samples; one question has one sample, so put "
            "each into a file of its own"
        )
    if len(numbers) % 2 == 0 and numbers[:1] == [1]:
        numbers = numbers[1:]
    if numbers and len(numbers) != 1 + 2 * numbers[0]:
        raise EvidenceError(
            f"{where}: {numbers[0]} observed variables need {2 * numbers[0]} more numbers, found "
            f"{len(numbers) - 1}; write `k v1 x1 … vk xk`, or `0` for no evidence"
        )
    evidence: dict[int, int] = {}
    for i, x in zip(numbers[1::2], numbers[2::2], strict=True):
        _check_observation(evidence, i, x, where, model)
        evidence[i] = x
    return evidence


def parse_model(data: bytes, where: str) -> FactorGraph:
    """Model in UAI text, `MARKOV` or `BAYES`; `where` names the source in errors.

    In a table the last variable of the scope changes fastest. All tables are views of one array.
    """
    with brief(4 * len(data)):
        source = _source(data.removeprefix(_BOM), where)
        cards, position = _read_cards(source, _read_header(source))
        scope_start, scope, sizes, position = _read_scopes(source, position, cards)
        values = _read_tables(source, position, cards, (scope_start, scope), sizes)
    # every number was checked while it was read
    return unwire(Wiring(cards, scope_start, scope, starts(sizes), values))


class _Source(NamedTuple):
    data: bytes
    text: NDArray[np.uint8]  # the same bytes, not a copy
    where: str
    words: int  # in the whole file

    def word(self, position: int) -> str:
        """Word at a position, as an error shows it."""
        found = _WORD.match(self.data, position)
        return _shown(found[0]) if found else "the end of the file"

    def fail(self, position: int, message: str) -> NoReturn:
        raise ModelFormatError(f"{self.where}, line {_line(self.data, position)}: {message}")


def _source(data: bytes, where: str) -> _Source:
    text = np.frombuffer(data or b" ", np.uint8)  # numpy refuses an empty buffer
    return _Source(data, text, where, count_words(text))


def _read_header(source: _Source) -> int:
    position = next_word(source.text, 0)
    header = _WORD.match(source.data, position)
    if header is None or header[0].upper() not in (b"MARKOV", b"BAYES"):
        source.fail(
            position,
            f"found {source.word(position)} where a UAI model has the word MARKOV or BAYES; check "
            "that this is a model, not an evidence or answer file",
        )
    return header.end()


def _read_count(source: _Source, position: int, what: str, left: int) -> tuple[int, int]:
    number = np.empty(1, np.int64)
    read, position = whole_numbers(source.text, position, number, 0)
    if not read:
        source.fail(
            position,
            f"found {source.word(position)} where the number of {what} is expected; check the "
            "counts before it",
        )
    if number[0] > left:
        source.fail(
            position,
            f"{number[0]} {what} are announced, but only {left} numbers follow; the file was cut "
            "off, or the count is wrong",
        )
    return int(number[0]), position


def _read_cards(source: _Source, position: int) -> tuple[IntArray, int]:
    n, position = _read_count(source, position, "variables", source.words - 2)
    cards = np.empty(n, np.int64)
    read, position = whole_numbers(source.text, position, cards, 1)
    if read < n:
        source.fail(
            position,
            f"found {source.word(position)} where the number of states of variable {read} is "
            "expected, at least 1; check the number of variables and the domain sizes",
        )
    if n * int(cards.max(initial=0)) > LARGEST_DENSE:
        source.fail(
            position,
            f"{n} variables of up to {cards.max()} states make more than {LARGEST_DENSE} entries "
            "of a dense array; check the domain sizes, or code the largest variable as several",
        )
    return cards, position


def _read_scopes(
    source: _Source, position: int, cards: IntArray
) -> tuple[IntArray, IntArray, IntArray, int]:
    """Where each scope begins, all scopes, the sizes of their tables, and where they begin."""
    left = source.words - 3 - len(cards)
    m, position = _read_count(source, position, "factors", left)
    start, sizes = np.zeros(m + 1, np.int64), np.empty(m, np.int64)
    scope = np.empty(min(left, LONGEST_SCOPE * m), np.int64)
    f, problem, position = scopes(source.text, position, cards, LONGEST_SCOPE, start, scope, sizes)
    if f < m:
        message = _SCOPE_PROBLEMS[problem].format(
            word=source.word(position), longest=LONGEST_SCOPE, n=len(cards)
        )
        source.fail(position, f"the scope of factor {f} {message}")
    return start, scope[: start[m]].copy(), sizes, position


_SCOPE_PROBLEMS = (
    "has {word} where a count or a variable is expected; check the number of factors, and the "
    "count in front of every scope",
    "announces {word} variables, but an array has at most {longest} axes; split the factor, or "
    "check the count",
    "names variable {word}, but there are only {n}, counted from 0; check the scope",
    "names variable {word} twice; merge the two axes of its table, or check the scope",
)  # in the order of the numbers that `_scopes` returns


def _read_tables(
    source: _Source,
    position: int,
    cards: IntArray,
    scopes: tuple[IntArray, IntArray],
    sizes: IntArray,
) -> FloatArray:
    """Logarithms of all tables, one after the other."""
    # A file holds no more values than words, whatever its scopes promise; as a float the promise
    # cannot overflow.
    values = np.empty(int(min(sizes.sum(dtype=np.float64), source.words)))
    f, inside, read, position = tables(source.text, position, sizes, values)
    _take_logarithms(source, values[:read], np.cumsum(sizes[: f + 1]))
    if f < len(sizes):
        start, flat = scopes
        scope = tuple(flat[start[f] : start[f + 1]].tolist())
        size = math.prod(int(cards[i]) for i in scope)
        needs = f"factor {f} over the variables {scope} needs {size} values"
        if inside >= 0:
            source.fail(
                position,
                f"{needs}, but the file ends after {inside}; it was cut off, so fetch it again",
            )
        source.fail(
            position,
            f"{needs}, but found {source.word(position)} where their number is expected; check it, "
            "the length of the table before it, and the order of the scopes",
        )
    if position < len(source.text):
        source.fail(
            position,
            f"found {source.word(position)} after the last table; remove what follows, or check "
            "the number of factors",
        )
    return values


def _take_logarithms(source: _Source, values: FloatArray, ends: IntArray) -> None:
    """Replace potentials by their logarithms, and hard words (minus their position) likewise."""
    hard = np.flatnonzero(values < 0)
    logarithms = np.empty(len(hard))
    for a, j in enumerate(hard.tolist()):
        position = int(-values[j])
        word = _LONG_WORD.match(source.data, position)
        try:
            logarithms[a] = _logarithm(word[0] if word else b"")
        except ValueError as error:
            f = int(np.searchsorted(ends, j, side="right"))
            entry = j - int(ends[f - 1] if f else 0)
            source.fail(
                position,
                f"entry {entry} of the table of factor {f} is {source.word(position)}, which is "
                f"{error}; potentials are finite, non-negative numbers, not logarithms",
            )
    values[hard] = 1.0
    with np.errstate(divide="ignore"):
        np.log(values, out=values)
    values[hard] = logarithms


def _logarithm(word: bytes) -> float:
    """Logarithm of a potential that compiled code cannot read or a double cannot hold."""
    if not _NUMBER.fullmatch(word):
        raise ValueError("not a finite number")
    try:
        exact = _WIDE.create_decimal(word.decode())
    except DecimalException:
        raise ValueError("beyond a million decimal places") from None
    if exact < 0:
        raise ValueError("negative")
    return float(_WIDE.ln(exact))


@lru_cache(maxsize=2**14)  # real models repeat few values, and printing is slow
def _potential(theta: float) -> str:
    """Write exp θ with as few digits as keep θ."""
    if not -_SAFE_LOG < theta < _SAFE_LOG:
        if math.isnan(theta) or theta == math.inf:
            raise ValueError(theta)
        return "0" if theta == -math.inf else f"{_WIDE.exp(Decimal(theta)):.16E}"
    value = math.exp(theta)
    for digits in (12, 15):
        word = f"{value:.{digits}g}"
        if math.isclose(math.log(float(word)), theta, rel_tol=4e-16, abs_tol=2e-16):
            return word
    return f"{value:.17g}"


def _shortest(value: float) -> str:
    return repr(value).removesuffix(".0")


def _answer(data: bytes, path: str, kind: bytes) -> list[bytes]:
    """Words of the last answer in a result file."""
    words = data.removeprefix(_BOM).split()
    if not words or words[0].upper() != kind:
        found = _shown(words[0]) if words else "an empty file"
        raise ModelFormatError(
            f"{path}: found {found} where the word {kind.decode()} is expected; check that this is "
            f"an answer file of that kind"
        )
    starts = [0] + [a + 1 for a, word in enumerate(words) if word.upper() == b"-BEGIN-"]
    last = words[starts[-1] :]
    last = last[1:] if last and last[0].upper() == kind else last
    if not last:
        raise ModelFormatError(
            f"{path}: nothing follows the last {'-BEGIN-' if len(starts) > 1 else kind.decode()}; "
            "the program that wrote it was stopped too early"
        )
    return last


def _probabilities(words: list[bytes], what: str) -> FloatArray:
    for word in words:
        if not _NUMBER.fullmatch(word) or not 0 <= float(word) <= 1.001:
            raise ModelFormatError(
                f"{what} has the probability {_shown(word)}; probabilities are numbers from 0 to 1"
            )
    row = np.array(list(map(float, words)))
    if abs(row.sum() - 1) > ROUNDED:
        raise ModelFormatError(
            f"{what} has probabilities that add up to {row.sum():.6g}; they should add up to 1"
        )
    return row


def _has_several_samples(numbers: list[int], data: bytes) -> bool:
    if not numbers or numbers[0] < 2:
        return False
    at = 1
    for _ in range(numbers[0]):
        if at >= len(numbers):
            return False
        at += 1 + 2 * numbers[at]
    if at != len(numbers):
        return False
    lines = [line for line in map(bytes.split, data.splitlines()) if line]
    by_line = len(lines[0]) == 1 and all(len(a) == 1 + 2 * _whole(a[0]) for a in lines[1:])
    return by_line or len(numbers) != 1 + 2 * numbers[0]


def _check_observation(
    evidence: dict[int, int], i: int, x: int, where: str, model: FactorGraph | None
) -> None:
    if evidence.get(i, x) != x:
        raise EvidenceError(
            f"{where}: variable {i} is observed in state {evidence[i]} and in state {x}; keep one"
        )
    if model is None:
        return
    if i >= model.n_variables:
        raise EvidenceError(
            f"{where}: evidence names variable {i}, but the model has {model.n_variables}, counted "
            "from 0; check that the evidence belongs to this model"
        )
    if x >= model.cards[i]:
        raise EvidenceError(
            f"{where}: evidence gives variable {i} the state {x}, but it has {model.cards[i]} "
            "states, counted from 0; check that the evidence belongs to this model"
        )


def _whole(word: bytes) -> int:
    """Non-negative integer, −1 for anything else."""
    return int(word) if _WHOLE.fullmatch(word) else -1


def _shown(word: bytes) -> str:
    return repr(word[:40].decode(errors="replace"))


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
