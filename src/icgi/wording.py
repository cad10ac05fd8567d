"""Names and near misses in messages: what may be printed of a text, and what was probably meant."""

import difflib
import unicodedata
from collections.abc import Iterable

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, direction of writing, line ends


def shown(text: str) -> str:
    r"""Text of one line that a terminal or a browser can do nothing with but show.

    Control characters and those that turn the direction of writing become `\x1b`, `\u202e`, ….
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ch.encode("unicode_escape").decode() if unicodedata.category(ch) in _UNSEEN else ch
        for ch in text
    )


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
