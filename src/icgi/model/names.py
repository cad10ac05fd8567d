"""Names that may be printed: nothing in them moves a cursor, colours a terminal or hides itself."""

import unicodedata
from collections.abc import Sequence

from icgi.errors import ModelFormatError

# Control characters, halves of characters, separators of lines and paragraphs.
_REFUSED = ("Cc", "Cs", "Zl", "Zp")
_TURNING = frozenset(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # of writing direction


def is_plain(name: str) -> bool:
    """Whether a name is free of control characters; letters of any language are fine."""
    return name.isprintable() or not any(map(_is_refused, name))


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse names with control characters; `what` says what they name."""
    if "".join(names).isprintable():  # one look at all of them, the usual case
        return
    for name in names:
        if not is_plain(name):
            raise ModelFormatError(
                f"the name of a {what}, {escaped(name)!s}, holds control characters; rename it"
            )


def escaped(text: str) -> str:
    """Text with its control characters written as escapes, for terminals and messages."""
    if is_plain(text):
        return text
    return "".join(ascii(c)[1:-1] if _is_refused(c) else c for c in text)


def _is_refused(character: str) -> bool:
    return unicodedata.category(character) in _REFUSED or character in _TURNING
