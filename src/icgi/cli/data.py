"""`icgi data info`: what a labelled set holds and how far its labels can be trusted."""

import json as json_format
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from icgi.cli import options, output


def run(
    verb: Annotated[str, typer.Argument(metavar="info", help="What to do: info.")],
    folder: Annotated[Path, typer.Argument(metavar="SET", help="Folder of a labelled set.")],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the reliability of the labels (.png)."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Counts per family, methods, and the reliability of the labels: standard error, ŝ, R-hat."""
    from icgi.data.store import LabelledSet

    if verb != "info":
        raise typer.BadParameter(f"unknown verb {verb!r}; there is: info", param_hint="data")
    stored = LabelledSet(folder)
    rows = _rows(stored)
    bad = stored.verify()
    if plot is not None:
        _plot(rows, plot)
    if json:
        summary = {"description": stored.manifest["description"], "damaged": bad, "groups": rows}
        for row in rows:
            row.pop("errors")
        typer.echo(json_format.dumps(summary, indent=1))
        return
    output.title(f"{stored.manifest['description']}: {len(stored)} instances")
    names = ("family", "split", "instances", "labelled", "methods")
    columns = [output.Column(n, right=n in ("instances", "labelled")) for n in names]
    columns += [output.Column(n, right=True) for n in ("max error", "max ŝ", "R-hat>1.05")]
    output.table(columns, [_cells(row) for row in rows])
    if plot is not None:
        typer.echo(f"wrote {plot}")
    if bad:
        output.warn(f"damaged or missing: {', '.join(bad)}; restore them or label the set again")


def _rows(stored: Any) -> list[dict[str, Any]]:
    answers = {row["instance"]: row for row in stored.answers()}
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for identity, _ in stored.models():
        groups[identity.family, identity.split].append(answers.get(identity.name))
    rows = []
    for (family, split), found in sorted(groups.items()):
        done = [row for row in found if row is not None]
        methods: dict[str, int] = defaultdict(int)
        for row in done:
            methods[row["method"]] += 1
        rows.append(
            {
                "family": family,
                "split": split,
                "instances": len(found),
                "labelled": len(done),
                "methods": dict(methods),
                "max_std_error": max((row["max_std_error"] for row in done), default=0.0),
                "max_s_hat": max((row["max_s_hat"] for row in done), default=0.0),
                "unconverged": sum(row["r_hat"] > 1.05 for row in done),
                "errors": [row["max_std_error"] for row in done if row["method"] == "pt"],
            }
        )
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    methods = ", ".join(f"{name} {count}" for name, count in sorted(row["methods"].items()))
    return [
        row["family"],
        row["split"],
        str(row["instances"]),
        str(row["labelled"]),
        methods or "–",
        f"{row['max_std_error']:.2g}",
        f"{row['max_s_hat']:.2g}",
        str(row["unconverged"]),
    ]


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    sampled = {f"{r['family']} {r['split']}": r["errors"] for r in rows if r["errors"]}
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    names = [f"{r['family']} {r['split']}" for r in rows]
    bottom = np.zeros(len(rows))
    for method in sorted({m for r in rows for m in r["methods"]}):
        heights = np.array([r["methods"].get(method, 0) for r in rows])
        axes[0].barh(names, heights, left=bottom, label=method)
        bottom += heights
    axes[0].set_xlabel("labelled instances")
    axes[0].legend(frameon=False)
    for name, errors in sampled.items():
        values = np.sort(errors)
        axes[1].plot(values, np.arange(1, len(values) + 1) / len(values), label=name, marker=".")
    axes[1].set_xlabel("largest standard error of an instance")
    axes[1].set_ylabel("share of sampled instances")
    if sampled:
        axes[1].set_xscale("log")
        axes[1].legend(frameon=False, fontsize="small")
    else:
        axes[1].text(0.5, 0.5, "every label is exact", ha="center", transform=axes[1].transAxes)
    figure.savefig(path, dpi=120)
    plt.close(figure)
