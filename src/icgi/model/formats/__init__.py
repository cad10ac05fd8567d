"""File formats of models by ending: the one dictionary, and a file for each format beside UAI's."""

import os
from collections.abc import Callable, Mapping

from icgi.errors import ModelFormatError
from icgi.model.formats.bif import parse_bif
from icgi.model.graph import FactorGraph
from icgi.model.uai import parse_model, read_bytes

FORMATS: Mapping[str, Callable[[bytes, str], FactorGraph]] = {
    ".uai": parse_model,
    ".bif": parse_bif,
}


def read(path: str | os.PathLike[str]) -> FactorGraph:
    """Model of a file in the format that its ending names (UAI for any other), packed or not."""
    name = os.fspath(path).lower().removesuffix(".gz")
    parse = FORMATS.get(os.path.splitext(name)[1], parse_model)
    return parse(read_bytes(path, ModelFormatError), os.fspath(path))
