"""`icgi train`: train a network from a preset or a file; stop and go on at any time."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from icgi.cli import options, output
from icgi.extras import require_extra


def run(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A network (paper, fast, general, gnn-bp, bpnn, direct-gnn), a preset (ablations "
            "such as paper-star, paper-random-order; paper-schedule; tiny and NETWORK-tiny end "
            "within a minute), or the train.json of an earlier run.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where everything is kept."),
    ],
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="S", min=0.1, help="Length of the schedule."),
    ] = None,
    total: Annotated[
        float | None,
        typer.Option(
            "--total", metavar="S", min=1, help="Time for everything, data and measuring included."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--start", metavar="FILE", help="Weights (.safetensors) to begin with."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="FOLDER|FAMILY",
            help="Your own models instead of the preset's: a labelled set (icgi label), or a "
            "family, as in ba:n=40,m=2; may be given several times.",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", min=1, help="Steps of the schedule.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="R", min=0, help="Learning rate.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Processes that make models.")
    ] = 1,
    tests: Annotated[
        int, typer.Option("--tests", metavar="N", min=0, help="Models per test set; 0: no tests.")
    ] = 32,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="Of weights, order of models, noise."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Train a network on models that are drawn and labelled on the way, and measure it.

    The folder gets weights.safetensors and weights.json (the best so far, at every validation),
    checkpoint.pt, train.json, log.jsonl, results.json and curve.png. The same command goes on
    where it was stopped and ends with the same numbers. Under torchrun all processes train one
    network. Labels are exact, and kept in the cache folder: other seeds and networks share them.
    Use the result with --engine icgi:weights=FOLDER/weights.safetensors.
    """
    require_extra("torch", "nn", "training")
    from icgi.train.parallel import first_process
    from icgi.train.runs import Limits, configuration
    from icgi.train.runs import run as train

    quiet = quiet or not first_process()
    settings = configuration(config)
    out.mkdir(parents=True, exist_ok=True)
    watch = _Watch(quiet)
    with output.working(quiet) as doing:
        doing("drawing and labelling models")
        result, _ = train(
            settings, out, Limits(seconds, total, rate, seed, tuple(data or ()), steps), start,
            workers, tests,
            watch.report, lambda text: output.note(text, quiet),
            lambda step, progress: doing(f"step {step}, {progress:.0%} of the schedule"),
        )  # fmt: skip
    if not first_process():
        return
    plot = _plot(result.history, out / "curve.png")
    if not quiet:
        best = min(line["mae"][0] for line in result.history)
        typer.echo(f"{out}: {result.steps} steps, best validation MAE {best:.4f}{plot}")


class _Watch:
    """The validation table, a line as each is known."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.began, self.headed = quiet, time.monotonic(), False

    def report(self, line: dict[str, Any]) -> None:
        if "note" in line:
            output.note(line["note"], self.quiet)
            return
        if self.quiet:
            return
        if not self.headed:
            typer.echo(f"{'step':>8}{'seconds':>10}{'loss':>12}   validation MAE")
            self.headed = True
        errors = "  ".join(f"{error:.4f}" for error in line["mae"])
        typer.echo(f"{line['step']:>8}{line['seconds']:>10.1f}{line['loss']:>12.4g}   {errors}")


def _plot(history: list[dict[str, Any]], path: Path) -> str:
    """Draw the validation curve, where matplotlib is installed; says so."""
    try:
        import matplotlib
    except ImportError:
        return ""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    steps = [line["step"] for line in history]
    for k in range(len(history[0]["mae"])):
        axes.plot(steps, [line["mae"][k] for line in history], "o-", ms=3, label=f"set {k}")
    axes.set(xlabel="step", ylabel="validation MAE", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"; {path.name} shows the curve"
