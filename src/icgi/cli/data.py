"""`icgi data info`: what a labelled set holds and how far its labels can be trusted."""

import json as json_format
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError

SMALLEST, LARGEST = 1e-5, 2.0  # ends of the plot: smaller errors and larger R-hats are drawn there


def run(
    verb: Annotated[str, typer.Argument(metavar="info", help="What to do: info.")],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="SET", help="Folder of a labelled set; `shipped`: the one of the package."
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the reliability of the labels (.png)."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Contents of a labelled set: counts per family, methods, how reliable its labels are."""
    from icgi.data.store import SHIPPED, LabelledSet
    from icgi.extras import require_extra
    from icgi.wording import shown

    if verb != "info":
        raise typer.BadParameter(f"unknown verb {verb!r}; there is: info", param_hint="data")
    if plot is not None:
        require_extra("matplotlib", "plot", "a drawing of the labels")
    shipped = str(folder) == SHIPPED.name and not folder.exists()
    stored = LabelledSet(SHIPPED if shipped else folder)
    bad = stored.verify()
    try:
        rows = _rows(stored)
    except IcgiError as error:
        listed = "\n".join(f"  {line}" for line in bad or [str(error)])
        raise IcgiError(f"{stored.folder} is damaged and cannot be described:\n{listed}") from error
    if plot is not None:
        _plot(rows, plot)
    if json:
        summary = {"description": stored.manifest["description"], "damaged": bad, "groups": rows}
        for row in rows:
            row.pop("sampled")
        typer.echo(json_format.dumps(summary, indent=1))
        return
    output.title(f"{shown(stored.manifest['description'])}: {len(stored)} instances")
    names = ("family", "split", "instances", "labelled", "methods")
    columns = [output.Column(n, right=n in ("instances", "labelled")) for n in names]
    columns += [output.Column(n, right=True) for n in ("max error", "max ŝ", "R-hat>1.05")]
    output.table(columns, [_cells(row) for row in rows])
    if plot is not None:
        typer.echo(f"wrote {plot}")
    if bad:
        listed = "".join(f"\n  {shown(line)}" for line in bad)
        output.warn(f"the set is damaged; restore the files or label it again:{listed}")


def _rows(stored: Any) -> list[dict[str, Any]]:
    answers = {row["instance"]: row for row in stored.answers()}
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for identity in stored.identities():
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
                "sampled": [
                    (row["max_std_error"], row["max_s_hat"], row["r_hat"])
                    for row in done
                    if row["method"] == "pt"
                ],
            }
        )
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    from icgi.wording import shown

    counts = sorted(row["methods"].items())
    methods = ", ".join(f"{shown(name)} {count}" for name, count in counts)
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
    """Methods per group; how the reliability of sampled labels is distributed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    height = max(3.6, 1.0 + 0.22 * len(rows))
    figure, axes = plt.subplots(1, 3, figsize=(13, height), layout="constrained")
    names = [f"{r['family']} {r['split']}" for r in rows]
    bottom = np.zeros(len(rows))
    for method in sorted({m for r in rows for m in r["methods"]}):
        heights = np.array([r["methods"].get(method, 0) for r in rows])
        axes[0].barh(names, heights, left=bottom, label=method)
        bottom += heights
    axes[0].set_xlabel("labelled instances")
    if bottom.any():
        axes[0].legend(frameon=False)
    sampled = [(f"{r['family']} {r['split']}", np.array(r["sampled"])) for r in rows]
    sampled = [(name, values) for name, values in sampled if len(values)]
    for name, values in sampled:
        share = np.arange(1, len(values) + 1) / len(values)
        error, s_hat = np.maximum(np.sort(values[:, :2], axis=0), SMALLEST).T
        (line,) = axes[1].step(error, share, where="post", marker=".", label=name)
        axes[1].step(s_hat, share, where="post", linestyle=":", color=line.get_color())
        rhat = np.minimum(np.sort(values[:, 2]), LARGEST)
        axes[2].step(rhat, share, where="post", marker=".", label=name)
    axes[1].set_xlabel("largest standard error (dotted: ŝ) of an instance")
    axes[2].set_xlabel("R-hat of an instance")
    axes[2].axvline(1.05, color="grey", linewidth=1)
    for axis in axes[1:]:
        axis.set_ylabel("share of sampled instances")
        axis.set_ylim(0, 1.05)
        if not sampled:
            text = "every label is exact" if bottom.any() else "no labels yet"
            axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
    if sampled:
        axes[1].set_xscale("log")
        axes[1].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
