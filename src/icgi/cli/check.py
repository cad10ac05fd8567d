"""`icgi check`: how far an answer is from a reference."""

import json as json_format
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icgi.cli import options, output
from icgi.errors import IcgiError, ModelFormatError

if TYPE_CHECKING:
    from icgi.model.graph import FloatArray, IntArray

_WORST = 5
_DIGITS = 6  # as in published references
_ROUNDED = 1e-3  # what rounding leaves of a sum of one


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Marginals of the same variables in both files, rows padded with zeros."""

    answer: "FloatArray"  # n k
    reference: "FloatArray"  # n k
    cards: "IntArray"  # n
    variables: "IntArray"  # n        their numbers in the files

    def uneven(self) -> "dict[str, list[int]]":
        """Variables whose probabilities do not sum to one, in each of the files."""
        sums = {"answer": self.answer.sum(1), "reference": self.reference.sum(1)}
        return {
            which: self.variables[abs(total - 1) > _ROUNDED].tolist()
            for which, total in sums.items()
        }


def run(
    answer: Annotated[
        Path, typer.Argument(metavar="A.MAR", readable=False, help="The answer to judge.")
    ],
    reference: Annotated[
        Path, typer.Argument(metavar="B.MAR", readable=False, help="The reference.")
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            readable=False,
            help="Model that both files should fit.",
        ),
    ] = None,
    evidence: options.EvidenceFile = None,
    json: options.Json = False,
) -> None:
    """Compare an answer with a reference: mean and largest error, KL, Hellinger, UAI-2022 score.

    With -e, observed variables are left out, as in the competition. MAE is the mean over
    variables of the L1 distance, the largest error its maximum; KL is KL(reference ‖ answer) in
    nats; the score is 100 for an exact answer and 0 for one no better than uniform marginals.
    """
    from icgi import metrics

    both = _read(answer, reference)
    pair = _unobserved(both, model, evidence)
    p, q = pair.answer, pair.reference
    found = {
        "variables": len(pair.variables),
        "observed": len(both.variables) - len(pair.variables),
        "mae": metrics.mean_absolute_error(p, q),
        "max": metrics.max_error(p, q),
        "kl": metrics.mean_kl(p, q),
        "hellinger": metrics.mean_hellinger(p, q),
        "uai_2022_score": metrics.uai_2022_score(p, q, pair.cards),
    }
    l1 = metrics.l1(p, q)
    worst = [i for i in (-l1).argsort(kind="stable")[:_WORST].tolist() if l1[i] > 0]
    if json:
        finite = {key: value if math.isfinite(value) else None for key, value in found.items()}
        rows = [_as_json(pair, i, float(l1[i])) for i in worst]
        typer.echo(
            json_format.dumps({**finite, "not_summing_to_one": both.uneven(), "worst": rows})
        )
        return
    _warn_of_sums(both, answer, reference)
    output.facts(_facts(found, int((metrics.kl(p, q) == math.inf).sum())))
    if worst:
        typer.echo()
        _show_worst(pair, worst, l1)


def _warn_of_sums(both: Pair, answer: Path, reference: Path) -> None:
    for path, (which, wrong) in zip((answer, reference), both.uneven().items(), strict=True):
        if not wrong:
            continue
        sums = (both.answer if which == "answer" else both.reference).sum(1)
        output.warn(
            f"{path}: the probabilities of {len(wrong)} of {len(both.variables)} variables do not "
            f"sum to one, the first of variable {wrong[0]}, to {sums[wrong[0]]:.6g}; the distances "
            "below mean little for them"
        )


def _as_json(pair: Pair, i: int, l1: float) -> dict[str, object]:
    return {
        "variable": int(pair.variables[i]),
        "l1": l1,
        "answer": pair.answer[i, : pair.cards[i]].tolist(),
        "reference": pair.reference[i, : pair.cards[i]].tolist(),
    }


def _read(answer: Path, reference: Path) -> Pair:
    import numpy as np

    from icgi.model.formats.uai import read_marginals

    ours, theirs = read_marginals(answer), read_marginals(reference)
    if len(ours) != len(theirs):
        raise ModelFormatError(
            f"{answer} has {len(ours)} variables, {reference} has {len(theirs)}; they answer "
            "different models"
        )
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        if len(p) != len(q):
            raise ModelFormatError(
                f"variable {i} has {len(p)} states in {answer} and {len(q)} in {reference}; they "
                "answer different models"
            )
    cards = np.array([len(p) for p in ours], dtype=np.int64)
    return Pair(_padded(ours, cards), _padded(theirs, cards), cards, np.arange(len(cards)))


def _padded(rows: "list[FloatArray]", cards: "IntArray") -> "FloatArray":
    import numpy as np

    full = np.zeros((len(rows), int(cards.max(initial=1))))
    full[np.arange(full.shape[1]) < cards[:, None]] = np.concatenate(rows) if rows else []
    return full


def _unobserved(pair: Pair, model_path: Path | None, evidence_path: Path | None) -> Pair:
    """Check the files against the model, and leave out what the evidence observes."""
    import numpy as np

    from icgi.api import load, load_evidence

    model = None if model_path is None else load(model_path)
    if model is not None and not np.array_equal(model.cards, pair.cards):
        raise ModelFormatError(
            f"{model_path} has {model.n_variables} variables and the marginals {len(pair.cards)}, "
            "or other numbers of states; they do not belong together"
        )
    observed = [] if evidence_path is None else sorted(load_evidence(evidence_path, model))
    if observed and observed[-1] >= len(pair.cards):
        raise IcgiError(
            f"{evidence_path} observes variable {observed[-1]}, but the marginals have "
            f"{len(pair.cards)} variables; they do not belong together"
        )
    free = np.setdiff1d(pair.variables, observed)
    return Pair(pair.answer[free], pair.reference[free], pair.cards[free], free)


def _facts(found: dict[str, float], impossible: int) -> list[tuple[str, str]]:
    divergence = f"{found['kl']:.6g} nats"
    if impossible:
        divergence = f"infinite: {impossible} variables exclude a state the reference does not"
    return [
        ("variables", f"{found['variables']:,} compared, {found['observed']:,} observed left out"),
        ("MAE", f"{found['mae']:.6g}   (mean L1 distance)"),
        ("largest error", f"{found['max']:.6g}   (L1 distance)"),
        ("KL", divergence),
        ("Hellinger", f"{found['hellinger']:.6g}"),
        ("UAI-2022 score", f"{found['uai_2022_score']:.4g} of 100   (0: no better than uniform)"),
    ]


def _show_worst(pair: Pair, worst: list[int], l1: "FloatArray") -> None:
    from icgi.cli.answer_table import some_probabilities

    columns = [
        output.Column("worst variable", style="bold"),
        output.Column("L1", right=True, style="cyan"),
        output.Column("answer", fold=True),
        output.Column("reference", fold=True),
    ]
    rows = []
    for i in worst:
        p, q = pair.answer[i, : pair.cards[i]], pair.reference[i, : pair.cards[i]]
        name = str(pair.variables[i])
        texts = [some_probabilities(row, by=q, digits=_DIGITS) for row in (p, q)]
        rows.append([name, f"{l1[i]:.3g}", *texts])
    output.table(columns, rows)
