"""NET, DSL, XDSL and O3PRM files, read and written by pyAgrum (extra `bn`).

pyAgrum keeps numbers of such files in six or seven digits. What it wrote is read again: where a
name, a state or a number came out differently, the model is refused instead.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from icgi.errors import ModelFormatError
from icgi.extras import require_extra
from icgi.model.adapters import from_pyagrum, to_pyagrum
from icgi.model.graph import FactorGraph

_DIGITS = 2e-5  # how far a probability may be from the one that was written


def _library() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own compiled types
        gum = require_extra("pyagrum", "bn", "NET, DSL, XDSL and O3PRM files")
        require_extra("pyagrum.prm", "bn", "O3PRM files")
    return gum


def _reader(ending: str) -> Callable[[bytes, str], FactorGraph]:
    def parse(data: bytes, path: str) -> FactorGraph:
        """Bayesian network as pyAgrum reads it."""
        gum = _library()
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, f"network{ending}")
            copy.write_bytes(data)
            try:
                with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
                    network = gum.loadBN(str(copy))
                return from_pyagrum(network)
            except (gum.GumException, ModelFormatError, RuntimeError, ValueError) as error:
                raise ModelFormatError(
                    f"{path}: {_shortened(error, folder)}; pyAgrum could not read it: check that "
                    f"it is a {ending} file"
                ) from error

    return parse


def _shortened(error: Exception, folder: str) -> str:
    lines = [line.strip() for line in str(error).replace(folder, "").splitlines() if line.strip()]
    return "; ".join(lines[:3])[:300] or type(error).__name__


def _writer(ending: str) -> Callable[[FactorGraph], Iterator[str]]:
    def write(model: FactorGraph) -> Iterator[str]:
        """Text of a Bayesian network as pyAgrum writes it."""
        gum = _library()
        network = to_pyagrum(model, ending)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"network{ending}")
            try:
                gum.saveBN(network, str(path), False)
            except gum.GumException as error:
                raise ModelFormatError(
                    f"pyAgrum cannot write this model as {ending} ({_shortened(error, folder)}); "
                    "write it as .json"
                ) from error
            data = path.read_bytes()
        try:
            again = _reader(ending)(data, "what it wrote")
        except ModelFormatError as error:
            raise ModelFormatError(
                f"pyAgrum cannot write this model as {ending}, as it cannot read {error}; write it "
                "as .json"
            ) from error
        _compare(model, again, ending)
        yield data.decode()

    return write


def _compare(model: FactorGraph, again: FactorGraph, ending: str) -> None:
    """Refuse a file that would give another model back."""
    from icgi.model.formats.network import conditionals
    from icgi.model.graph import state_names, variable_name

    def tables(of: FactorGraph) -> dict[str, tuple[Any, ...]]:
        found = {}
        for each in conditionals(of, ending):
            parents = sorted(each.parents, key=lambda i: variable_name(of, i))
            axes = [each.parents.index(i) for i in parents]
            found[variable_name(of, each.child)] = (
                tuple(state_names(of, each.child)),
                [variable_name(of, i) for i in parents],
                each.table.transpose([*axes, len(axes)]),
            )
        return found

    ours = tables(model)
    try:
        theirs = tables(again)
    except ModelFormatError as odd:
        raise ModelFormatError(
            f"{ending} as pyAgrum writes it would not be this network again; names with spaces or "
            "signs can be the reason: rename them, or write this model as .json, .bif or .xmlbif"
        ) from odd
    for name, (states, parents, table) in ours.items():
        other = theirs.get(name)
        if (
            other is None
            or other[:2] != (states, parents)
            or np.abs(other[2] - table).max() > _DIGITS
        ):
            raise ModelFormatError(
                f"{ending} as pyAgrum writes it would change variable {name!r} (its name, its "
                "states or its probabilities); write this model as .json, .bif or .xmlbif"
            )


parse_net, format_net = _reader(".net"), _writer(".net")
parse_dsl, format_dsl = _reader(".dsl"), _writer(".dsl")
parse_xdsl, format_xdsl = _reader(".xdsl"), _writer(".xdsl")
parse_o3prm, format_o3prm = _reader(".o3prm"), _writer(".o3prm")
