import sys
from pathlib import Path

import pytest

from icgi import extras
from icgi.errors import IcgiError
from icgi.extras import install_command, require_extra


def test_a_module_that_is_there_is_returned() -> None:
    assert require_extra("json", "data", "nothing").loads("1") == 1


def test_a_missing_module_is_refused_with_the_command() -> None:
    with pytest.raises(IcgiError, match=r"a labelled set needs nowhere; install it with: pip"):
        require_extra("nowhere.inner", "data", "a labelled set")


def test_a_module_that_does_not_load_is_told_apart(tmp_path, monkeypatch) -> None:
    (tmp_path / "halfway.py").write_text("import nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(IcgiError, match=r"halfway, which cannot be loaded \(No module named 'now"):
        require_extra("halfway", "data", "a labelled set")
    sys.modules.pop("halfway", None)


def test_the_command_fits_where_the_package_is(tmp_path, monkeypatch) -> None:
    for root, has_project in (("site-packages", False), ("checkout", True)):
        file = tmp_path / root / "src" / "icgi" / "extras.py"
        file.parent.mkdir(parents=True)
        if has_project:
            (tmp_path / root / "pyproject.toml").touch()
        monkeypatch.setattr(extras, "__file__", str(file))
        monkeypatch.chdir(tmp_path)
        where = tmp_path / root
        expected = f"pip install -e '{where}[data]'" if has_project else "pip install 'icgi[data]'"
        assert install_command("data") == expected
        monkeypatch.chdir(where)
        assert ("'.[data]'" in install_command("data")) == has_project
    assert Path.cwd() == where
