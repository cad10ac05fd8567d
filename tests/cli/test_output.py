import pytest

from icgi.cli import output
from icgi.cli.failures import complain


def test_nothing_printed_is_obeyed_by_a_terminal(capsys) -> None:
    bad = "a\x1b]0;title\x07b"
    output.table([output.Column("name")], [[bad]])
    output.facts([("name", bad)])
    output.note(bad)
    output.warn(bad)
    complain(bad)
    text = "".join(capsys.readouterr())
    assert text.count("a\\x1b]0;title\\x07b") == 5
    assert not any(ch in text for ch in "\x1b\x07")


def test_work_that_fails_fails_as_itself() -> None:
    def fail() -> None:
        raise ValueError("as itself")

    for run in (output.interruptible, output.stoppable):
        with pytest.raises(ValueError, match="as itself"):
            run(fail)


def test_work_that_nobody_stops() -> None:
    assert output.stoppable(lambda: 3) == (3, False)
