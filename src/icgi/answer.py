"""The answer a person holds: marginals together with the model's names, ready to print or save."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from icgi.errors import IcgiError
from icgi.extras import require_extra
from icgi.inference import Budget, Marginals, Status
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray, IntArray, state_names, variable_name
from icgi.wording import did_you_mean, harmless, shown, some


@dataclass(frozen=True, eq=False)
class Answer:
    """Marginals of one question, indexed by variable name or number; its arrays are read-only."""

    model: FactorGraph
    evidence: Evidence
    marginals: Marginals
    engine: str
    seconds: float  # of the engine, compiling left out
    budget: Budget | None = None  # what was allowed, where that is known
    seed: int | None = None
    command: str | None = None  # that was typed

    def __post_init__(self) -> None:
        object.__setattr__(self, "marginals", _read_only(self.marginals))

    @property
    def probs(self) -> FloatArray:
        """All marginals, n k; rows sum to one, zero from `cards[i]` on."""
        return self.marginals.probs

    @property
    def status(self) -> Status:
        """How the answer was reached; `status.advice` says what to make of it."""
        return self.marginals.status

    @property
    def log_z(self) -> float | None:
        """Natural logarithm of the partition function with the evidence entered."""
        return self.marginals.log_z

    @property
    def stats(self) -> Mapping[str, float]:
        """What the engine measured on the way."""
        return self.marginals.stats

    @property
    def std_error(self) -> FloatArray | None:
        """Estimated standard error of every probability, n k; None where the engine has none.

        Of a Dirichlet α it is √(p (1 − p) / (α₀ + 1)), p = α / α₀.
        """
        found = self.marginals
        if found.std_error is not None or found.concentration is None:
            return found.std_error
        total = found.concentration.sum(1, keepdims=True)
        p = found.concentration / np.maximum(total, 1e-300)
        error: FloatArray = np.sqrt(p * (1 - p) / (total + 1))
        error.flags.writeable = False
        return error

    def __len__(self) -> int:
        return self.model.n_variables

    def __getitem__(self, variable: int | str) -> FloatArray:
        """Marginal of one variable, by number or name."""
        i = self._number(variable)
        return self.probs[i, : self.model.cards[i]]

    def __iter__(self) -> Iterator[FloatArray]:
        return (self[i] for i in range(len(self)))

    def entropy(self) -> FloatArray:
        """Entropy of every marginal in bits."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = self.probs * np.log2(self.probs)
        return np.asarray(-np.nansum(np.where(self.probs > 0, terms, 0.0), axis=1) + 0.0)

    def by_uncertainty(self) -> IntArray:
        """Return variables from the most to the least uncertain; observed ones last."""
        entropy = self.entropy()
        observed = np.zeros(len(self), bool)
        observed[list(self.evidence)] = True
        return np.lexsort((np.arange(len(self)), -entropy, observed))

    def top(self, count: int = 10) -> list[tuple[str, str, float]]:
        """(variable, likeliest state, its probability) of the most uncertain variables."""
        return [
            (variable_name(self.model, i), state_names(self.model, i)[best], float(row[best]))
            for i in self.by_uncertainty()[:count].tolist()
            for row in [self[i]]
            for best in [int(row.argmax())]
        ]

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray] | None:
        """Central intervals of every probability at a level, where the engine knows its error.

        A standard error s gives p ± z s with Φ(z) = (1 + level)/2; a Dirichlet α gives quantiles
        (1 ∓ level)/2 of p_x ~ Beta(α_x, α₀ − α_x), widened to contain p_x. None where the engine
        has neither.
        """
        found = self.marginals
        if found.std_error is not None:
            from statistics import NormalDist

            half = NormalDist().inv_cdf((1 + level) / 2) * found.std_error
            return np.clip(found.probs - half, 0, 1), np.clip(found.probs + half, 0, 1)
        if found.concentration is None:
            return None
        from scipy.stats import beta

        alpha = found.concentration
        rest = alpha.sum(1, keepdims=True) - alpha
        spread = (alpha > 0) & (rest > 0)  # elsewhere the state is certain or impossible
        low, high = found.probs.copy(), found.probs.copy()
        low[spread] = beta.ppf((1 - level) / 2, alpha[spread], rest[spread])
        high[spread] = beta.ppf((1 + level) / 2, alpha[spread], rest[spread])
        # with α below one nearly all mass is at one end, and the mean may lie outside
        return np.minimum(low, found.probs), np.maximum(high, found.probs)

    def to_frame(self) -> Any:
        """`pandas` table with one row per variable and state."""
        require_extra("pandas", "data", "to_frame")
        import pandas as pd

        return pd.DataFrame(self._columns())

    def to_json(self) -> str:
        """One JSON object: status, log Z, how it was obtained, and every marginal."""
        from icgi import __version__

        log_z, error = self.log_z, self.std_error
        return json.dumps(
            {
                "engine": self.engine,
                "status": self.status.value,
                "advice": self.status.advice,
                "log_z": log_z if log_z is not None and math.isfinite(log_z) else None,
                "seconds": self.seconds,
                "version": __version__,
                "command": self.command,
                "seed": self.seed,
                "budget": None if self.budget is None else _budget(self.budget),
                "model": {
                    "variables": len(self),
                    "factors": self.model.n_factors,
                    "sha256": model_digest(self.model),
                },
                "stats": {key: _plain(value) for key, value in self.stats.items()},
                "evidence": {
                    variable_name(self.model, i): state_names(self.model, i)[x]
                    for i, x in self.evidence.items()
                },
                "marginals": [
                    {
                        "variable": variable_name(self.model, i),
                        "probabilities": self._by_state(i, self.probs[i]),
                        **({} if error is None else {"std_errors": self._by_state(i, error[i])}),
                    }
                    for i in range(len(self))
                ],
            }
        )

    def _by_state(self, i: int, row: FloatArray) -> dict[str, float | None]:
        names = state_names(self.model, i)
        return {name: _plain(value) for name, value in zip(names, row.tolist(), strict=False)}

    def save(self, path: str | Path) -> None:
        """Write the answer; the ending chooses `.MAR`, `.json`, `.csv` or `.parquet`."""
        path = Path(path)
        writers = {
            ".mar": self._save_mar,
            ".json": self._save_json,
            ".csv": self._save_csv,
            ".parquet": self._save_parquet,
        }
        if path.is_dir():
            raise IcgiError(f"cannot write {path}: it is a folder; give a file name")
        if path.suffix.lower() not in writers:
            raise IcgiError(
                f"cannot write {path.name!r}: the ending should be .MAR, .json, .csv or .parquet"
            )
        if not path.parent.is_dir():
            raise IcgiError(f"cannot write {path}: the folder {path.parent} does not exist")
        partial = path.with_name(path.name + ".partial")
        try:
            writers[path.suffix.lower()](partial)
            partial.replace(path)
        except OSError as error:
            raise IcgiError(f"cannot write {path}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)

    def _repr_html_(self) -> str:
        from html import escape

        first = self.by_uncertainty()[:20].tolist()
        rows = "".join(
            f"<tr><td>{escape(shown(variable_name(self.model, i)))}</td>"
            + f"<td>{'observed' if i in self.evidence else f'{bits:.3f}'}</td><td>"
            + ", ".join(
                f"{escape(shown(name))}: {p:.4f}"
                for name, p in zip(state_names(self.model, i), self[i].tolist(), strict=True)
            )
            + "</td></tr>"
            for i in first
            for bits in [self.entropy()[i]]
        )
        more = f"<p>… and {len(self) - len(first)} more</p>" if len(self) > len(first) else ""
        return (
            f"<p><b>{escape(self.engine)}</b>: {self.status.value}. {self.status.advice}</p>"
            "<table><tr><th>variable</th><th>entropy (bits)</th><th>marginal</th></tr>"
            f"{rows}</table>{more}"
        )

    def __repr__(self) -> str:
        log_z = "" if self.log_z is None else f", log Z = {self.log_z:.10g}"
        return f"Answer({len(self)} variables, {self.engine}: {self.status.value}{log_z})"

    def _number(self, variable: int | str) -> int:
        if isinstance(variable, str):
            if self.model.names is not None and variable in self.model.names:
                return self.model.names.index(variable)
            if not variable.isdigit():
                raise KeyError(self._unknown(variable))
            variable = int(variable)
        if not 0 <= variable < len(self):
            raise IndexError(f"variable {variable} of a model with {len(self)} variables")
        return int(variable)

    def _unknown(self, name: str) -> str:
        names = self.model.names
        if names is None:
            return f"no variable {name!r}: this model has no names, only numbers"
        return f"no variable {name!r}{did_you_mean(name, names)}; there are: {some(names)}"

    def _columns(self) -> dict[str, Any]:
        cards = self.model.cards
        valid = np.arange(self.model.max_states) < cards[:, None]
        number = np.repeat(np.arange(len(self)), cards)
        columns: dict[str, Any] = {
            "variable": number,
            "name": [variable_name(self.model, i) for i in number.tolist()],
            "state": np.nonzero(valid)[1],
            "state_name": [s for i in range(len(self)) for s in state_names(self.model, i)],
            "probability": self.probs[valid],
        }
        if self.marginals.std_error is not None:
            columns["std_error"] = self.marginals.std_error[valid]
        return columns

    def _save_mar(self, path: Path) -> None:
        from icgi.model.uai import write_marginals

        write_marginals(path, self.probs, self.model.cards)

    def _save_json(self, path: Path) -> None:
        path.write_text(self.to_json() + "\n")

    def _save_csv(self, path: Path) -> None:
        import csv

        columns = self._columns()
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(harmless, row) for row in zip(*columns.values(), strict=True))

    def _save_parquet(self, path: Path) -> None:
        require_extra("pyarrow.parquet", "data", "writing .parquet")
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(self._columns()), path)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def model_digest(model: FactorGraph) -> str:
    """SHA-256 of sizes, scopes and tables: the same for the same numbers, whatever the names."""
    digest = hashlib.sha256(model.cards.astype("<i8").tobytes())
    arity = np.fromiter(map(len, model.scopes), "<i8", model.n_factors)
    digest.update(arity.tobytes())
    digest.update(np.array([i for scope in model.scopes for i in scope], "<i8").tobytes())
    for table in model.log_tables:
        digest.update(np.ascontiguousarray(table, "<f8").tobytes())
    return digest.hexdigest()


def _budget(budget: Budget) -> dict[str, float | None]:
    return {
        "seconds": _plain(budget.seconds),
        "iterations": budget.iterations,
        "table_bytes": budget.table_bytes,
    }


def _read_only(found: Marginals) -> Marginals:
    """Same marginals, seen through arrays that cannot be written to."""
    arrays: dict[str, Any] = {
        name: _locked(value)
        for name in ("probs", "concentration", "std_error", "deviation", "ess", "rhat")
        if (value := getattr(found, name)) is not None
    }
    if found.pairs is not None:
        arrays["pairs"] = {pair: _locked(table) for pair, table in found.pairs.items()}
    return replace(found, **arrays)


def _locked(array: FloatArray) -> FloatArray:
    seen = np.asarray(array).view()  # the array itself may be somebody's to write to
    seen.flags.writeable = False
    return seen
