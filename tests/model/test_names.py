import pytest

from icgi.errors import ModelFormatError
from icgi.model.names import check_names
from icgi.wording import is_plain
from icgi.wording import shown as escaped


@pytest.mark.parametrize("name", ["", "a b", "Größe", "温度", "👩‍🚀", "a\u00a0b", "=1+1", "<b>"])
def test_names_of_any_language_are_plain(name: str) -> None:
    assert is_plain(name)
    assert escaped(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_refused_or_escaped(name: str, shown: str) -> None:
    assert escaped(name) == shown
    with pytest.raises(ModelFormatError) as error:
        check_names(("fine", name), "variable")
    assert shown in str(error.value)
