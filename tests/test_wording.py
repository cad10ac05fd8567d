import pytest

from icgi.wording import did_you_mean, shown, some


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rain", "rain"),
        ("Größe β", "Größe β"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_near_words_are_offered_and_far_ones_are_not() -> None:
    assert did_you_mean("lpb", ["lbp", "jt"]) == " (did you mean 'lbp'?)"
    assert did_you_mean("Rain", ["rain", "snow"]) == " (did you mean 'rain'?)"
    assert did_you_mean("magic", ["lbp", "jt"]) == ""
    assert did_you_mean("x", []) == ""


def test_long_lists_are_cut() -> None:
    assert some("abc") == "a, b, c"
    assert some(map(str, range(5)), 3) == "0, 1, 2, … (2 more)"
