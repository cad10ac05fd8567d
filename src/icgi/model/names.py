"""Names of variables and states: nothing in them moves a cursor, colours a terminal or hides."""

from collections.abc import Sequence

from icgi.errors import ModelFormatError
from icgi.wording import is_plain, shown


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse names with control characters; `what` says what they name."""
    if "".join(names).isprintable():  # one look at all of them, the usual case
        return
    for name in names:
        if not is_plain(name):
            raise ModelFormatError(
                f"the name of a {what}, {shown(name)}, holds control characters; rename it"
            )
