"""Names and near misses in messages: what may be printed of a text, and what was probably meant."""

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

# Control characters, halves of characters, separators of lines and paragraphs.
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # of writing


def is_plain(text: str) -> bool:
    """Whether a text is free of control characters; letters of any language are fine."""
    return text.isprintable() or not any(map(_is_unseen, text))


def shown(text: str) -> str:
    r"""Text of one line that a terminal or a browser can do nothing with but show.

    Control characters and those that turn the direction of writing become `\x1b`, `\u202e`, ….
    """
    if is_plain(text):
        return text
    return "".join(c.encode("unicode_escape").decode() if _is_unseen(c) else c for c in text)


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or character in _TURNING


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'lbp'?)` where a known word is near, else nothing."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(by_lower[each]) for each in near)}?)" if near else ""


def some(words: Iterable[str], most: int = 12) -> str:
    """Words in a row, of many the first ones."""
    listed = list(words)
    rest = f", … ({len(listed) - most} more)" if len(listed) > most else ""
    return ", ".join(map(shown, listed[:most])) + rest


def harmless(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe; numbers may be."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text in columns, the first one to the left, the others to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(wide[0]), *map(str.rjust, row[1:], wide[1:])]) for row in rows
    )
