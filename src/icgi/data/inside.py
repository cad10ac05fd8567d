"""Paths that a manifest names are confined to its own folder."""

import os
from collections.abc import Iterable
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


def all_inside(folder: Path, names: Iterable[str], manifest: str) -> None:
    """Refuse the first of many names that leads out of the folder.

    A plain name of something that is no link stays inside; only other names are followed one by
    one, which takes fifty times as long.
    """
    with os.scandir(folder) as found:
        links = {each.name for each in found if each.is_symlink()}
    for name in names:
        plain = is_plain(name) and not set(name) & set("/\\:") and name not in ("", ".", "..")
        if not plain or name in links:
            inside(folder, name, manifest)
