"""γ and M_eff of the paper's loss, and its calibration loss, on labels of known noise.

    python benchmarks/dirichlet.py run [--steps N]     trains what is missing; one line per run
    python benchmarks/dirichlet.py render              table of docs/uncertainty.md

A small network of the kind of `icgi:fast` is trained by the paper's loss alone, on up to 16 spins
that are labelled as if by chains: each model has an effective sample size M of its own, eight
ensembles draw M/8 states each from the true marginals, μ̂ is their mean and ŝ the deviation between
them. `own` is the loss with each label's own M instead of one M_eff; γ = 0 is the loss without
calibration loss. Truth for validation is exact. Nothing else differs between runs: models, labels,
batches, steps.
"""

import argparse
import dataclasses
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from icgi.calibration.scales import RARE
from icgi.conformal.bands import EXCEPTIONS
from icgi.conformal.metrics import calibration_error, class_bins, rank_correlation
from icgi.conformal.quantiles import largest_of_most, weighted_quantile
from icgi.neural import losses
from icgi.train.config import Bucket, TrainConfig, tiny
from icgi.train.examples import Examples, Recipe, made
from icgi.train.kinds import Limits
from icgi.train.loop import run_task
from icgi.train.task import Batches, Task, answers

ROOT = Path(__file__).parent
LINES = ROOT / "results" / "dirichlet.jsonl"
PAGE = ROOT.parent / "docs" / "uncertainty.md"
BEGIN, END = "<!-- dirichlet -->", "<!-- end of dirichlet -->"
SEEDS = (42, 123, 456)
GAMMAS = (0.0, 1.0, 5.0, 10.0)
OWN = math.nan  # in place of M_eff: each label's own
EFFECTIVES = (100.0, 1000.0, 10_000.0, OWN)
SMALL, COLD = Limits(8, 16, 2.5), Limits(8, 16, 5.0, 2.5)
COUNTS = {"train": 2000, "validation": 400, "cold": 400}
LEAST, MOST = 30.0, 3000.0  # effective sample size of a model's labels, orders of magnitude alike
ENSEMBLES = 8
LEVEL = 0.9


def models(part: str) -> Examples:
    """Models with exact labels: those of training, others like them, and colder ones."""
    limits = COLD if part == "cold" else SMALL
    return made(Recipe("training", limits, COUNTS[part], len(part)), True)


def labelled(exact: Examples, seed: int = 0) -> tuple[Examples, Tensor]:
    """Labels with the noise of chains, and the effective sample size behind each (b n)."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.uniform(math.log(LEAST), math.log(MOST), len(exact)))
    each = np.maximum(np.round(size / ENSEMBLES), 1).astype(int)[:, None]
    up = exact.reference[..., 0].double().clamp(0, 1).numpy()
    shares = np.stack([rng.binomial(each, up) / each for _ in range(ENSEMBLES)])
    p = np.where(exact.asked.numpy() > 0, shares.mean(0), up)
    spread = shares.std(0, ddof=1) * exact.asked.numpy()
    noisy = dataclasses.replace(
        exact,
        reference=torch.from_numpy(np.stack([p, 1 - p], -1).astype(np.float32)),
        spread=torch.from_numpy(spread.astype(np.float32)),
    )
    effective = np.broadcast_to(ENSEMBLES * each, p.shape)
    return noisy, torch.from_numpy(effective.astype(np.float64))


class Noisy(Task):
    """The paper's loss alone, with each label's own M where there is no M_eff."""

    def __init__(self, config: TrainConfig, data: Examples, own: Tensor, held: Examples) -> None:
        super().__init__(config, [data], [held])
        self.own = own

    def loss(self, network: nn.Module, batch: Batches, late: Tensor) -> Tensor:
        """Composite loss of the batch that was drawn."""
        form, reference, spread, asked, _ = batch.take()
        alpha = network(form, batch.draws)
        safe = torch.where(alpha > 0, alpha, 1e-30)
        fixed = self.config.effective
        effective = self.own[batch.index] if math.isnan(fixed) else fixed
        found = losses.composite(safe, reference, spread, self.config.gamma, effective)
        return losses.graph_mean(found, asked)


def config(gamma: float, effective: float, seed: int, steps: int) -> TrainConfig:
    return dataclasses.replace(
        tiny("fast", features=16, heads=2, layers=1, hidden=16, core=3),
        buckets=(Bucket("training", SMALL, COUNTS["train"]),), seed=seed, loss="paper",
        gamma=gamma, effective=effective, steps=steps, warm_up=20, rate=1e-2, average=0.95,
        validate_every=steps,
    )  # fmt: skip


def judged(network: Any, exact: Examples) -> dict[str, float]:
    """Errors, and what α says of them: 90 % intervals of Beta(α), and bands of equal coverage."""
    with torch.no_grad():
        alpha = answers(network, exact, 200).double().numpy()
    asked = exact.asked.numpy() > 0
    a, truth = alpha[asked], exact.reference.double().numpy()[asked]
    total = a.sum(1)
    p = a / total[:, None]
    gap = np.abs(p - truth)[:, 0]
    sigma = np.sqrt(p[:, 0] * p[:, 1] / (total + 1))
    low, high = stats.beta.ppf([[(1 - LEVEL) / 2], [(1 + LEVEL) / 2]], a[:, 0], a[:, 1])
    y = truth[:, 0]
    missed = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return {
        "mae": float(2 * gap.mean()),
        "ece": calibration_error(class_bins(p, truth, np.ones(p.shape, bool))),
        "covered": float(((low <= y) & (y <= high)).mean()),
        "half-width": float(np.median(high - low) / 2),
        "interval score": float((high - low + 2 / (1 - LEVEL) * missed).mean()),
        "rank": float(rank_correlation(sigma, gap)),
        "total": float(np.median(total)),
        "band": band(alpha, exact),
    }


def band(alpha: np.ndarray, exact: Examples) -> float:
    """Median half-width of conformal 90 % bands on σ of α, tested and calibrated on halves."""
    asked, truth = exact.asked.numpy() > 0, exact.reference.double().numpy()
    total = alpha.sum(-1)
    p = alpha / total[..., None]
    sigma = np.sqrt(p[..., 0] * (1 - p[..., 0]) / (total + 1)) + RARE
    gap = np.abs(p - truth)[..., 0]
    score = np.array([
        largest_of_most((g / s)[a], EXCEPTIONS) for g, s, a in zip(gap, sigma, asked, strict=True)
    ])  # fmt: skip
    half = np.arange(len(score)) % 2 == 0
    q = weighted_quantile(score[half], np.ones(half.sum()), 1.0, 1 - LEVEL)
    return float(np.median(np.minimum(q * sigma[~half], 1.0)[asked[~half]]))


def name_of(effective: float) -> str:
    return "own" if math.isnan(effective) else f"{effective:g}"


def read() -> list[dict[str, Any]]:
    return [json.loads(x) for x in LINES.read_text().splitlines()] if LINES.exists() else []


def run(steps: int) -> None:
    torch.set_num_threads(1)
    have = {(x["gamma"], x["effective"], x["seed"], x["steps"]) for x in read()}
    exact, validation, cold = (models(part) for part in COUNTS)
    noisy, own = labelled(exact)
    for seed in SEEDS:
        for gamma in GAMMAS:
            for effective in EFFECTIVES:
                key = (gamma, name_of(effective), seed, steps)
                if key in have:
                    continue
                began = time.process_time()
                task = Noisy(config(gamma, effective, seed, steps), noisy, own, validation)
                with tempfile.TemporaryDirectory() as folder:
                    network = run_task(task, Path(folder)).network
                line = {
                    "gamma": gamma, "effective": name_of(effective), "seed": seed, "steps": steps,
                    "validation": rounded(judged(network, validation)),
                    "cold": rounded(judged(network, cold)),
                    "seconds": round(time.process_time() - began, 1),
                }  # fmt: skip
                with LINES.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(key, line["validation"], line["seconds"], flush=True)


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


COLUMNS = ("mae", "ece", "covered", "half-width", "interval score", "rank", "band")
HEAD = (
    "mean L1 error", "ECE", "true p within 90 % of Beta(α)", "their half-width",
    "interval score", "rank correlation", "half-width of calibrated bands",
)  # fmt: skip


def render() -> None:
    lines = read()
    rows = []
    for where in ("validation", "cold"):
        rows += [
            f"\n{'Models like those of training' if where == 'validation' else 'Colder models'}:\n",
            "| γ | M_eff | " + " | ".join(HEAD) + " |",
            "|---|---|" + "---|" * len(HEAD),
        ]
        for gamma in GAMMAS:
            for effective in EFFECTIVES:
                same = [
                    x[where] for x in lines
                    if (x["gamma"], x["effective"]) == (gamma, name_of(effective))
                ]  # fmt: skip
                if same:
                    cells = [cell([x[c] for x in same]) for c in COLUMNS]
                    rows.append(f"| {gamma:g} | {name_of(effective)} | " + " | ".join(cells) + " |")
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(rows) + f"\n\n{END}{after}")


def cell(values: list[float]) -> str:
    """Mean over seeds and their deviation."""
    more = f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "render"])
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    run(given.steps) if given.what == "run" else render()


if __name__ == "__main__":
    main()
