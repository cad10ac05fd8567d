"""The answer a person holds: marginals together with the model's names, ready to print or save."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icgi.errors import IcgiError
from icgi.inference import Marginals, Status
from icgi.model.condition import Evidence
from icgi.model.graph import FactorGraph, FloatArray, IntArray, state_names, variable_name


@dataclass(frozen=True, eq=False)
class Answer:
    """Marginals of one question, indexed by variable name or number."""

    model: FactorGraph
    evidence: Evidence
    marginals: Marginals
    engine: str
    seconds: float

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
        try:
            import pandas as pd
        except ImportError as missing:
            raise IcgiError("to_frame needs pandas: pip install 'icgi[data]'") from missing
        return pd.DataFrame(self._columns())

    def to_json(self) -> str:
        """One JSON object: status, log Z, how it was obtained, and every marginal."""
        log_z = self.log_z
        return json.dumps(
            {
                "engine": self.engine,
                "status": self.status.value,
                "advice": self.status.advice,
                "log_z": log_z if log_z is not None and math.isfinite(log_z) else None,
                "seconds": self.seconds,
                "stats": {key: _plain(value) for key, value in self.stats.items()},
                "evidence": {
                    variable_name(self.model, i): state_names(self.model, i)[x]
                    for i, x in self.evidence.items()
                },
                "marginals": [
                    {
                        "variable": variable_name(self.model, i),
                        "probabilities": dict(
                            zip(state_names(self.model, i), self[i].tolist(), strict=True)
                        ),
                    }
                    for i in range(len(self))
                ],
            }
        )

    def save(self, path: str | Path) -> None:
        """Write the answer; the ending chooses `.MAR`, `.json`, `.csv` or `.parquet`."""
        path = Path(path)
        writers = {
            ".mar": self._save_mar,
            ".json": self._save_json,
            ".csv": self._save_csv,
            ".parquet": self._save_parquet,
        }
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

        shown = self.by_uncertainty()[:20].tolist()
        rows = "".join(
            f"<tr><td>{escape(variable_name(self.model, i))}</td>"
            + f"<td>{'observed' if i in self.evidence else f'{bits:.3f}'}</td><td>"
            + ", ".join(
                f"{escape(name)}: {p:.4f}"
                for name, p in zip(state_names(self.model, i), self[i].tolist(), strict=True)
            )
            + "</td></tr>"
            for i in shown
            for bits in [self.entropy()[i]]
        )
        more = f"<p>… and {len(self) - len(shown)} more</p>" if len(self) > len(shown) else ""
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
                raise KeyError(variable)
            variable = int(variable)
        if not 0 <= variable < len(self):
            raise IndexError(f"variable {variable} of a model with {len(self)} variables")
        return int(variable)

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
            writer.writerows(zip(*columns.values(), strict=True))

    def _save_parquet(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as missing:
            raise IcgiError("writing .parquet needs pyarrow: pip install 'icgi[data]'") from missing
        pq.write_table(pa.table(self._columns()), path)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
