"""Optional parts of the installation: asked for before anything is computed."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from icgi.errors import IcgiError


def require_extra(module: str, extra: str, what_for: str) -> Any:
    """Import and return a module of an extra, or refuse with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        package = module.partition(".")[0]
        # A module that is there but fails to load is another trouble than one that is not there.
        broken = importlib.util.find_spec(package) is not None
        found = f"{package}, which cannot be loaded ({missing})" if broken else package
        raise IcgiError(
            f"{what_for} needs {found}; install it with: {install_command(extra)}"
        ) from missing


def install_command(extra: str) -> str:
    """Return the command that installs an extra of this very copy of the package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file():
        return f"pip install 'icgi[{extra}]'"
    here = "." if Path.cwd() == checkout else str(checkout)
    return f"pip install -e '{here}[{extra}]'"
