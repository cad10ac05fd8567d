"""File formats of models by ending: one dictionary, a file for each format, gzip for all of them.

A reader is `(bytes, name of the file) -> FactorGraph`, a writer `FactorGraph -> pieces of text`;
both are imported when they are first needed. What a format cannot hold is reported, or refused.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from icgi.errors import ModelFormatError
from icgi.model.formats.files import AnyPath, read_bytes, write_text
from icgi.model.graph import FactorGraph
from icgi.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Format:
    """One format: what it is called, who reads and writes it, and what it can hold."""

    title: str
    read: str  # "module:function"
    write: str = ""  # nothing: only read
    names: bool = True  # of variables and states
    single: bool = False  # numbers of six digits, as pyAgrum writes them
    models_only: bool = True  # whether the ending says that a file is a model


FORMATS: Mapping[str, Format] = {
    ".uai": Format("UAI", "uai:parse_model", "uai:format_uai", names=False),
    ".bif": Format("BIF", "bif:parse_bif", "bif:format_bif"),
    ".xmlbif": Format("XMLBIF", "xmlbif:parse_xmlbif", "xmlbif:format_xmlbif"),
    ".bifxml": Format("XMLBIF", "xmlbif:parse_xmlbif", "xmlbif:format_xmlbif"),
    ".xml": Format("XMLBIF", "xmlbif:parse_xmlbif", "xmlbif:format_xmlbif", models_only=False),
    ".json": Format("JSON of icgi", "json:parse_json", "json:format_json", models_only=False),
    ".net": Format("Hugin NET", "agrum:parse_net", "agrum:format_net", single=True),
    ".dsl": Format("GeNIe DSL", "agrum:parse_dsl", "agrum:format_dsl", single=True),
    ".xdsl": Format("GeNIe XDSL", "agrum:parse_xdsl", "agrum:format_xdsl", single=True),
    ".o3prm": Format("O3PRM", "agrum:parse_o3prm", "agrum:format_o3prm", single=True),
    ".mtx": Format("Matrix Market", "couplings:parse_mtx", "couplings:format_mtx", names=False),
    ".gset": Format("GSet", "couplings:parse_gset"),
}


def ending_of(path: AnyPath) -> str:
    """Ending of a file, in small letters and without that of gzip."""
    return os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]


def is_model(path: AnyPath) -> bool:
    """Whether the name of a file says that it is a model."""
    name = os.fspath(path).lower().removesuffix(".gz")
    found = FORMATS.get(ending_of(path))
    return name.endswith(".icgi.json") or (found is not None and found.models_only)


def read(path: AnyPath) -> FactorGraph:
    """Model of a file in the format that its ending names (UAI for any other), packed or not."""
    return parse(read_bytes(path, ModelFormatError), os.fspath(path))


def parse(data: bytes, name: str) -> FactorGraph:
    """Model of unpacked bytes in the format that the ending of the name stands for."""
    chosen = FORMATS.get(ending_of(name), FORMATS[".uai"])
    model: FactorGraph = _function(chosen.read)(data, name)
    return model


def write(model: FactorGraph, path: AnyPath) -> list[str]:
    """Write a model in the format of the ending; return what the format could not hold."""
    ending = ending_of(path)
    chosen = FORMATS.get(ending)
    writable = [known for known, each in FORMATS.items() if each.write]
    if chosen is None or not chosen.write:
        what = f"{chosen.title} is only read" if chosen else f"the ending {ending!r} is unknown"
        raise ModelFormatError(
            f"{os.fspath(path)}: cannot be written, {what}{did_you_mean(ending, writable)}; the "
            f"ending should be one of {', '.join(writable)}, with or without .gz"
        )
    write_text(path, "".join(_function(chosen.write)(model)))
    return lost(model, chosen)


def lost(model: FactorGraph, chosen: Format) -> list[str]:
    """What a format does not hold of a model, a sentence each."""
    remarks = []
    if not chosen.names and model.names is not None:
        remarks.append("names of variables are not kept, they become numbers counted from 0")
    if not chosen.names and model.states is not None:
        remarks.append("names of states are not kept, they become numbers counted from 0")
    if chosen.single:
        remarks.append("numbers are kept with six digits, and the order of variables may change")
    if chosen.write.endswith("format_mtx"):
        remarks.append("constants are not kept: log Z is that of the couplings alone")
    return remarks


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"icgi.model.formats.{module}"), name)
