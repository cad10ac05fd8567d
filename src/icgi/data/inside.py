"""Paths that a manifest names are confined to its own folder."""

from pathlib import Path, PurePosixPath, PureWindowsPath

from icgi.errors import ModelFormatError
from icgi.wording import is_plain


def inside(folder: Path, name: str, manifest: str) -> Path:
    """Path of a named file; refuses names that lead out of the folder, links included."""
    kinds = PurePosixPath(name), PureWindowsPath(name)
    strange = not name or not is_plain(name)
    strange = strange or any(p.is_absolute() or p.drive or ".." in p.parts for p in kinds)
    path = folder / name
    if strange or not path.resolve().is_relative_to(folder.resolve()):
        raise ModelFormatError(
            f"{folder / manifest} names the file {name!r}, which is not in its folder; a manifest "
            "names files beside it, so check where it comes from"
        )
    return path
