"""Models and answers as the viewer, the service and the report take them: plain JSON objects."""

import json
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from icgi.answer import Answer
from icgi.calibration import sentences
from icgi.engines import ENGINES
from icgi.inference import Status
from icgi.model.graph import FactorGraph, FloatArray, state_names, variable_name
from icgi.wording import shown

DOUBTFUL = 0.05  # standard error of a probability beyond which it says little

ENGINE_WORDS = {
    "auto": "automatic: exact where it fits, else the best of several approximations",
    "exact": "exact inference by the cheapest method that fits",
    "enumerate": "sum over all configurations",
    "jt": "junction tree",
    "pfaffian": "planar spin model, exact in polynomial time",
    "mf": "mean field",
    "lbp": "loopy belief propagation",
    "trbp": "tree-reweighted belief propagation",
    "gbp": "generalised belief propagation",
    "ibia": "forests of bounded cliques, one after the other",
    "tap": "Thouless–Anderson–Palmer equations",
    "ttve": "elimination with tensor trains",
    "pt": "sampling by parallel tempering",
    "pa": "sampling by population annealing",
    "pt-gpu": "sampling by parallel tempering on a GPU",
    "icgi": "trained network",
    "gnn-bp": "trained network that passes messages",
    "bpnn": "belief propagation with learned changes",
    "direct-gnn": "trained graph attention network",
    "ensemble": "five trained networks",
}
"""What each engine is, for people who do not know its short name."""


def model_facts(model: FactorGraph, name: str) -> dict[str, Any]:
    """Names and sizes of a model; what everything else is said in terms of."""
    return {
        "name": shown(name),
        "variables": [
            {"name": variable_name(model, i), "states": list(state_names(model, i))}
            for i in range(model.n_variables)
        ],
        "factors": model.n_factors,
        "entries": int(sum(table.size for table in model.log_tables)),
        "max_states": model.max_states,
    }


def answer_facts(answer: Answer, level: float = 0.9) -> dict[str, Any]:
    """The JSON form of an answer, with what a reader of it wants to see worked out."""
    calibrated = None if answer.status is Status.EXACT else answer.bands(level)
    band = answer.interval(level) if calibrated is None else calibrated
    return with_readings(json.loads(answer.to_json(level)), level, band) | {
        "note": answer.marginals.note
    }


def with_readings(
    found: dict[str, Any],
    level: float,
    band: tuple[FloatArray, FloatArray] | None = None,
) -> dict[str, Any]:
    """Answer in JSON form with entropies, bands, trust and plain words added.

    Without a given `band` bands are p ± z s from the standard errors s, where there are any.
    """
    status = Status(found["status"]) if found.get("status") else None
    observed = found.get("evidence") or {}
    half = NormalDist().inv_cdf((1 + level) / 2)
    rows = [_row(row, i, observed, status, half, band) for i, row in enumerate(found["marginals"])]
    banded = any("low" in row for row in rows)
    promise = found.get("guarantee") if isinstance(found.get("guarantee"), dict) else None
    return {
        **found,
        "level": level,
        "engine_name": engine_name(found.get("engine") or ""),
        "engine_words": engine_words(found.get("engine") or ""),
        "guarantee": guarantee(status, level, banded, promise),
        "promise": promise,
        "calibrated": _calibrated(promise),
        "marginals": rows,
    }


def _row(
    row: Mapping[str, Any],
    i: int,
    observed: Mapping[str, str],
    status: Status | None,
    half: float,
    band: tuple[FloatArray, FloatArray] | None,
) -> dict[str, Any]:
    names = list(row["probabilities"])
    p = np.array([x if x is not None else 0.0 for x in row["probabilities"].values()])
    bits = float(-(p[p > 0] * np.log2(p[p > 0])).sum() + 0.0)
    made = {**row, "entropy": bits, "observed": row["variable"] in observed}
    errors = row.get("std_errors")
    error = None
    if errors is not None:
        s = np.array([x if x is not None else 1.0 for x in errors.values()])
        error = float(s.max(initial=0.0))
    if status is not Status.EXACT and error is not None and not made["observed"]:
        low, high = np.clip(p - half * s, 0, 1), np.clip(p + half * s, 0, 1)
        if band is not None:
            low, high = band[0][i, : len(p)], band[1][i, : len(p)]
        made["low"] = dict(zip(names, low.tolist(), strict=True))
        made["high"] = dict(zip(names, high.tolist(), strict=True))
    if row.get("band") and status is not Status.EXACT and not made["observed"]:
        made["low"] = {name: ends[0] for name, ends in row["band"].items()}  # calibrated
        made["high"] = {name: ends[1] for name, ends in row["band"].items()}
    made["error"] = error
    if row.get("band") and "low" in made:  # the calibrated band says more than the engine does
        error = max(made["high"][x] - made["low"][x] for x in made["low"]) / 2 / half
    made["trust"] = trust(status, error, made["observed"])
    return made


def trust(status: Status | None, error: float | None, observed: bool = False) -> str:
    """One word for a row: `observed`, `exact`, `good`, `doubtful`, or `unknown`."""
    if observed:
        return "observed"
    if status is Status.EXACT:
        return "exact"
    if status is Status.DIVERGED:
        return "doubtful"
    if error is None or not math.isfinite(error):
        return "unknown"
    return "doubtful" if error > DOUBTFUL else "good"


def engine_name(text: str) -> str:
    """Short name of an engine from its settings as text: `jt` of `JunctionTree()`."""
    kind = text.partition("(")[0]
    return next((n for n, at in ENGINES.items() if at.endswith(f":{kind}")), kind)


def engine_words(text: str) -> str:
    """What an engine is, in plain words."""
    return ENGINE_WORDS.get(engine_name(text), "of an unknown engine")


def _calibrated(promise: Mapping[str, Any] | None) -> bool:
    """Whether bands are those of a calibration, and not the engine's own."""
    return promise is not None and promise.get("kind") in ("groups", "weighted")


def guarantee(
    status: Status | None,
    level: float,
    banded: bool,
    promise: Mapping[str, Any] | None = None,
) -> str:
    """What an answer promises, in one sentence; `promise` is what a calibration says of it."""
    if status is Status.EXACT:
        return "Every probability is exact up to rounding."
    if status is Status.DIVERGED:
        return "The engine's own checks failed, so these numbers promise nothing."
    if promise is not None and _calibrated(promise):
        bands = next((s for s in promise["sentences"] if s.startswith("Bands: ")), "")
        return sentences.CALIBRATED.format(promise=bands.removeprefix("Bands: "))
    if banded:
        return (
            f"The {100 * level:g} % bands are the engine's own estimate of its error, "
            "not a proven bound."
        )
    return "The error of these numbers is not known, so they promise nothing."
