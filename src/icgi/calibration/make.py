"""Make a calibration: measure models one by one, keep a line for each, then choose and write.

An interrupted run goes on from its lines. Models to tune on come first: with them the powers of the
scale are fitted, so that those who calibrate have no part in any choice.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from icgi.calibration.check import checked
from icgi.calibration.classifier import told_apart
from icgi.calibration.features import portrait
from icgi.calibration.file import Calibration
from icgi.calibration.identity import approximating, identity, weights_digest
from icgi.calibration.measure import Line, measured, rounded
from icgi.calibration.scales import SIMPLE, TINY, Coefficients, fitted, scale
from icgi.calibration.sets import Case
from icgi.conformal.bands import EXCEPTIONS
from icgi.conformal.metrics import BINS
from icgi.conformal.quantiles import largest_of_most, weighted_quantile
from icgi.data.jobs.run import Executor
from icgi.data.sources import source
from icgi.engines import parse_engine
from icgi.errors import CheckpointError, IcgiError
from icgi.inference import Budget, Status
from icgi.model.condition import condition
from icgi.model.graph import FloatArray

FEWEST_TUNING = 5  # models, below which no powers are fitted
FEWEST = 10  # calibration models that were not answered exactly
LEVEL = 0.9  # at which scales are compared
SCORE = "least-ambiguous"
FITTED = "fitted"


@dataclass(frozen=True, slots=True)
class Making:
    """What is calibrated, and how."""

    engine: str  # as typed
    source: str  # name of the set
    budget: Budget
    seed: int = 0
    most_seconds: float | None = (
        None  # seconds of an answer are drawn between the budget's and this
    )
    patience: float | None = None  # seconds after which a model is given up
    real: tuple[str, ...] | None = None  # families of real models; None: all that there are

    def head(self) -> Line:
        """First line of the file of lines: what the others belong to."""
        from icgi import __version__

        found = repr(parse_engine(approximating(self.engine)))
        return {
            "engine": self.engine,
            "identity": identity(found),
            "weights": weights_digest(found),
            "version": __version__,
            "set": self.source,
            "budget": budget_fields(self.budget, self.most_seconds),
            "seed": self.seed,
            **({} if self.patience is None else {"patience": self.patience}),
            **({} if self.real is None else {"real": list(self.real)}),
        }


def budget_fields(budget: Budget, most: float | None = None) -> dict[str, float | None]:
    """Budget as JSON can hold it."""
    seconds = budget.seconds if np.isfinite(budget.seconds) else None
    found = {"seconds": seconds, "iterations": budget.iterations}
    return found if most is None else {**found, "most_seconds": most}


def measure_all(
    making: Making,
    cases: Sequence[Case],
    path: Path,
    done: Callable[[Line], None] = lambda line: None,
    executor: Executor | None = None,
) -> list[Line]:
    """Lines of all cases; those in the file are kept, the others are measured and added to it."""
    place = {case.name: k for k, case in enumerate(cases)}
    lines = known_lines(making, path)
    have = {line["name"] for line in lines}
    if not path.exists() or not path.stat().st_size:  # empty: the disk was full
        path.write_text(json.dumps(making.head()) + "\n")
    engine = parse_engine(approximating(making.engine))
    for tuning in (True, False):
        todo = [c for c in cases if c.name not in have and (c.role == "tune") == tuning]
        scales: dict[str, Coefficients] = {} if tuning else scales_of(lines)
        how = (
            making.budget, scales, making.seed, making.most_seconds, executor, making.patience,
        )  # fmt: skip
        with closing(measured(todo, engine, *how)) as incoming:
            for line in incoming:
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                lines.append(line)
                done(line)
        lines.sort(key=lambda line: place.get(line["name"], len(place)))  # workers differ in speed
    return lines


def known_lines(making: Making, path: Path) -> list[Line]:
    """Lines of an interrupted run; a torn last line is dropped from the file."""
    if not path.exists():
        return []
    texts = path.read_text().splitlines(keepends=True)
    if texts and not texts[-1].endswith("\n"):
        texts.pop()
        path.write_text("".join(texts))
    if not texts:
        return []
    try:
        head, *lines = [json.loads(text) for text in texts]
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged ({error}); remove it and start again") from None
    if head != making.head():
        different = ", ".join(k for k, v in making.head().items() if head.get(k) != v)
        raise CheckpointError(
            f"{path} holds the lines of another calibration (other {different}); remove it, or "
            "give another file"
        )
    return lines


def scales_of(lines: Sequence[Line]) -> dict[str, Coefficients]:
    """Scales to try: the simple ones, and one fitted to the tuning models."""
    tuning = [x for x in lines if x["role"] == "tune" and "errors" in x]
    if len(tuning) < FEWEST_TUNING:
        return dict(SIMPLE)
    errors = [np.array(x["errors"]) for x in tuning]
    logs = [np.array(x["signals"]) for x in tuning]
    found = fitted(errors, logs)
    # the constant of a simple scale is the size of errors: bands have readable factors then
    return {name: _sized(c, errors, logs) for name, c in {**SIMPLE, FITTED: found}.items()}


def _sized(
    c: Coefficients, errors: Sequence[FloatArray], logs: Sequence[FloatArray]
) -> Coefficients:
    """Same powers with the constant for which most errors of most tuning models are within σ."""
    ratios = [
        largest_of_most(e / scale(x, c), EXCEPTIONS) for e, x in zip(errors, logs, strict=True)
    ]
    size = float(np.log(max(float(np.quantile(ratios, LEVEL)), 1e-6)))
    return (round(c[0] + size, 4), *c[1:])


def calibration(making: Making, lines: Sequence[Line]) -> Calibration:
    """Put lines together: the scale of the narrowest bands, and all that a promise needs."""
    used = [x for x in lines if x["role"] == "calibrate" and "bands" in x]
    if len(used) < FEWEST:
        refused = next((x["why"] for x in lines if x["status"] == "refused"), "")
        why = f"; one refusal: {refused}" if refused else "; exact answers need no calibration"
        raise IcgiError(
            f"only {len(used)} models of {making.source} were answered approximately, a "
            f"calibration needs {FEWEST}{why}"
        )
    scales = scales_of(lines)
    widths = {name: width(lines, name, c) for name, c in scales.items()}
    chosen = min(widths, key=lambda name: (widths[name], name))
    head = making.head()
    top = np.zeros((BINS, 3))
    for line in used:
        for b, *sums in line["top"]:
            top[int(b)] += sums
    if making.patience is not None:  # of longer answers nothing is known
        head["budget"]["most_work"] = max((x.get("work", 0.0) for x in used), default=0.0)
    made = Calibration(
        **{k: head[k] for k in ("engine", "identity", "weights", "version", "budget")},
        source=making.source,
        score=SCORE,
        scale=chosen,
        coefficients=scales[chosen],
        exceptions=EXCEPTIONS,
        widths=widths,
        families=tuple(x["family"] for x in used),
        structures=tuple(x["structure"] for x in used),
        trusted=tuple(Status(x["status"]).trusted for x in used),
        routes=tuple(x.get("route", "") for x in used),
        features=np.array([x["features"] for x in used]),
        stated=_stated(used, scales["mean own"]),
        work=np.array([_work(x) for x in used]),
        sets=np.array([x["sets"][SCORE] for x in used]),
        bands=np.array([x["bands"][chosen] for x in used]),
        top=np.round(top, 3),
    )
    return replace(made, kept=checked(made, [x["name"] for x in used]))


def _stated(used: Sequence[Line], mean_own: Coefficients) -> FloatArray:
    """Mean error that the engine stated on each model, from the scale that is a multiple of it."""
    found = np.array([x["sigma"]["mean own"] for x in used]) / np.exp(mean_own[0])
    return np.array(rounded(np.where(found <= 2 * TINY, 0.0, found)))


def _work(line: Line) -> float:
    """Work of an answer that its budget ended; −1 where it ended by itself, or states none."""
    return -1.0 if Status(line["status"]).trusted else float(line.get("work", -1.0))


def weighted_toward(made: Calibration, target: str) -> Calibration:
    """Same calibration with weights towards the models of a folder or preset, by their features."""
    drawn = [
        portrait(condition(model, identity.evidence).model).values
        for identity, model in source(target)
    ]
    if len(drawn) < FEWEST:
        raise IcgiError(
            f"{target} has {len(drawn)} models; telling them from calibration models takes {FEWEST}"
        )
    name = Path(target).name
    return replace(made, toward=told_apart(made.features, np.array(drawn), name))


def width(lines: Sequence[Line], name: str, c: Coefficients) -> float:
    """Median half-width at 90 % of a scale, within each family, mean of their logarithms.

    Every scale gets the factor that covers the same share of the tuning models of a family; of the
    others where there are none.
    """
    found = []
    chosen = [x for x in lines if "errors" in x] or [x for x in lines if "bands" in x]
    for family in sorted({x["family"] for x in chosen}):
        scores, sigmas = [], []
        for line in (x for x in chosen if x["family"] == family):
            if "errors" in line:
                sigma = scale(np.array(line["signals"]), c)
                scores.append(largest_of_most(np.array(line["errors"]) / sigma, EXCEPTIONS))
                sigmas.append(float(np.median(sigma)))
            else:
                scores.append(line["bands"][name])
                sigmas.append(line["sigma"][name])
        q = weighted_quantile(np.array(scores), np.ones(len(scores)), 0.0, 1 - LEVEL)
        found.append(np.log(max(q * float(np.median(sigmas)), 1e-12)))
    return float(f"{np.exp(np.mean(found)):.4g}") if found else float("inf")
