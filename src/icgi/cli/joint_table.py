"""Printed joint distributions: one row per combination of states, the likeliest first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from icgi.cli import output
from icgi.model.graph import state_names

if TYPE_CHECKING:
    from icgi.joint import Joint

_ROWS = 20


def show(joints: "Sequence[Joint]") -> None:
    """Print every joint distribution, and the mutual information of pairs."""
    for joint in joints:
        typer.echo()
        _table(joint)


def _table(joint: "Joint") -> None:
    import numpy as np

    names = [state_names(joint.model, i) for i in joint.variables]
    order = np.argsort(-joint.probs, axis=None, kind="stable")
    columns = [output.Column(name, style="bold") for name in joint.names]
    columns.append(output.Column("probability", right=True, style="cyan"))
    if joint.std_error is not None:
        columns.append(output.Column("std error", right=True))
    rows = []
    for at in zip(*np.unravel_index(order[:_ROWS], joint.probs.shape), strict=True):
        row = [states[x] for states, x in zip(names, at, strict=True)]
        row.append(f"{joint.probs[at]:.6f}")
        rows.append([*row, *([] if joint.std_error is None else [f"{joint.std_error[at]:.2g}"])])
    output.table(columns, rows)
    if len(order) > _ROWS:
        typer.echo(f"… and {len(order) - _ROWS:,} more combinations; --json has all")
    heading = f"joint of {', '.join(joint.names)}: {joint.status.value}"
    if joint.note:
        heading += f", {joint.note}"
    if len(joint.variables) == 2:
        bits, error = joint.mutual_information()
        band = f" ± {error:.2g}" if error else ""
        heading += f"; mutual information {bits:.6g}{band} bits"
    typer.echo(f"{heading}.")
