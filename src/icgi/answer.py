"""The answer with the model's names, ready to print or save."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from icgi.errors import IcgiError
from icgi.extras import require_extra
from icgi.inference import Budget, Engine, Marginals, Status
from icgi.joint import Joint, ask_joints
from icgi.lookup import Row, chosen_variables, row_of, variable_number
from icgi.model.condition import Evidence
from icgi.model.findings import Findings, enter
from icgi.model.graph import (
    BoolArray,
    FactorGraph,
    FloatArray,
    IntArray,
    state_names,
    variable_name,
)
from icgi.randomness import generator
from icgi.units import ten_digits
from icgi.wording import harmless


class Promise(Protocol):
    """What is promised about an answer (`calibration.apply.Guarantee`)."""

    def sets(self, level: float = 0.9) -> BoolArray | None:
        """States in each variable's set, n k; None where nothing is promised."""
        ...

    def bands(self, level: float = 0.9) -> tuple[FloatArray, FloatArray] | None:
        """Ends of the band of every probability, n k; None where nothing is promised."""
        ...

    def sentences(self, level: float = 0.9) -> Sequence[str]:
        """What is promised, in words."""
        ...

    def as_json(self, level: float = 0.9) -> dict[str, Any]:
        """The same as plain values."""
        ...


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
    findings: Findings | None = None  # likelihoods and excluded states beside the evidence
    settings: Engine | None = None  # the engine itself, which is asked again for joints
    promise: "Callable[[Answer], Promise] | None" = None  # what calibration has to say, when asked

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
        errors = self.marginals.errors
        return None if errors is None else _locked(errors)

    def __len__(self) -> int:
        return self.model.n_variables

    def __getitem__(self, variable: int | str) -> Row:
        """Marginal of one variable, by number or name; its states have numbers and names, too."""
        i = variable_number(self.model, variable)
        return row_of(self.model, i, self.probs[i])

    def __iter__(self) -> Iterator[FloatArray]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, variable: object) -> bool:
        """Whether there is a variable of this name or number."""
        try:
            variable_number(self.model, variable)  # type: ignore[arg-type]
        except (KeyError, IndexError, TypeError):
            return False
        return True

    def keys(self) -> Sequence[int | str]:
        """Names of the variables, their numbers where they have none: `dict(answer)` works."""
        return self.model.names or range(len(self))

    def joint(self, *variables: int | str) -> Joint:
        """Joint distribution of any variables, from the same engine and budget."""
        return self.joints([variables])[0]

    def joints(self, chosen: Sequence[Sequence[int | str]]) -> list[Joint]:
        """Joint distributions of several choices of variables, from one run where that can be."""
        scopes = [chosen_variables(self.model, variables) for variables in chosen]
        if self.settings is None:
            raise IcgiError("this answer does not know its engine; ask icgi.marginals again")
        rng, budget = generator(self.seed or 0), self.budget or Budget()
        entered = self.model if self.findings is None else enter(self.model, self.findings)
        return ask_joints(entered, self.evidence, scopes, self.settings, budget, rng)

    def factor(self, number: int) -> Joint:
        """Joint distribution of the variables of one factor, counted from zero as in the model."""
        if not 0 <= number < self.model.n_factors:
            raise IndexError(f"factor {number} of a model with {self.model.n_factors} factors")
        if not self.model.scopes[number]:
            raise IcgiError(f"factor {number} is a constant: it has no variables")
        found = self._factors[self.model.scopes[number]]
        return found

    @property
    def pairs(self) -> Mapping[tuple[int, int], Joint]:
        """Joint distribution of the variables of every factor that has two, by their numbers."""
        return {s: joint for s, joint in self._factors.items() if len(s) == 2}

    @cached_property
    def _factors(self) -> dict[tuple[int, ...], Joint]:
        scopes = list(dict.fromkeys(scope for scope in self.model.scopes if scope))
        return dict(zip(scopes, self.joints(scopes), strict=True))

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

    @cached_property
    def guarantee(self) -> Promise | None:
        """What calibration promises about this answer; prints as sentences. None: not looked up."""
        return None if self.promise is None else self.promise(self)

    def sets(self, level: float = 0.9) -> BoolArray | None:
        """Calibrated sets of states, n k; None where `guarantee` promises nothing."""
        return None if self.guarantee is None else self.guarantee.sets(level)

    def bands(self, level: float = 0.9) -> tuple[FloatArray, FloatArray] | None:
        """Calibrated lower and upper ends of every probability; None where nothing is promised."""
        return None if self.guarantee is None else self.guarantee.bands(level)

    def to_frame(self, level: float = 0.9) -> Any:
        """`pandas` table with one row per variable and state; sets and bands are of a level."""
        require_extra("pandas", "data", "to_frame")
        import pandas as pd

        return pd.DataFrame(self._columns(level))

    def to_json(self, level: float = 0.9) -> str:
        """One JSON object: status, log Z, how it was obtained, every marginal, what is promised."""
        from icgi import __version__

        log_z, error = self.log_z, self.std_error
        sets, band = self.sets(level), self.bands(level)
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
                **self._soft_evidence(),
                "guarantee": None if self.guarantee is None else self.guarantee.as_json(level),
                "marginals": [
                    {
                        "variable": variable_name(self.model, i),
                        "probabilities": self._by_state(i, self.probs[i]),
                        **({} if error is None else {"std_errors": self._by_state(i, error[i])}),
                        **({} if sets is None else {"set": self._members(i, sets[i])}),
                        **({} if band is None else {"band": self._ends(i, band)}),
                    }
                    for i in range(len(self))
                ],
            }
        )

    def _soft_evidence(self) -> dict[str, Any]:
        """Likelihoods and excluded states by name, where there are any."""
        found = self.findings or Findings()
        weights = {
            variable_name(self.model, i): self._by_state(i, row)
            for i, row in found.likelihood.items()
        }
        excluded = {
            variable_name(self.model, i): [state_names(self.model, i)[x] for x in states]
            for i, states in found.excluded.items()
        }
        parts = (("likelihood", weights), ("excluded", excluded))
        return {name: part for name, part in parts if part}

    def _by_state(self, i: int, row: FloatArray) -> dict[str, float | None]:
        names = state_names(self.model, i)
        return {name: _plain(value) for name, value in zip(names, row.tolist(), strict=False)}

    def _members(self, i: int, row: BoolArray) -> list[str]:
        return [name for name, kept in zip(state_names(self.model, i), row, strict=False) if kept]

    def _ends(self, i: int, band: tuple[FloatArray, FloatArray]) -> dict[str, list[float]]:
        low, high = (side[i].tolist() for side in band)
        return {
            name: [a, b] for name, a, b in zip(state_names(self.model, i), low, high, strict=False)
        }

    def save(self, path: str | Path, level: float = 0.9) -> None:
        """Write the answer; the ending chooses `.MAR`, `.json`, `.csv` or `.parquet`.

        All but `.MAR` also hold the sets and bands of a level, where they are promised.
        """
        path = Path(path)
        writers: dict[str, Callable[[Path], None]] = {
            ".mar": self._save_mar,
            ".json": lambda partial: self._save_json(partial, level),
            ".csv": lambda partial: self._save_csv(partial, level),
            ".parquet": lambda partial: self._save_parquet(partial, level),
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
        except IcgiError as error:
            if isinstance(error.__cause__, OSError):  # it would name the temporary file
                raise IcgiError(
                    f"cannot write {path}: {error.__cause__.strerror}"
                ) from error.__cause__
            raise
        finally:
            partial.unlink(missing_ok=True)

    def plot(self, top: int = 20, level: float = 0.9, ax: Any = None) -> Any:
        """Bars of the most uncertain marginals, with bands where the error is known."""
        from icgi.display import plot

        return plot(self, top, level, ax)

    def _repr_html_(self) -> str:
        from icgi.display import html

        return html(self)

    def __repr__(self) -> str:
        log_z = "" if self.log_z is None else f", log Z = {ten_digits(self.log_z)}"
        from icgi.display import plain_engine

        engine = plain_engine(self.engine)
        return f"Answer({len(self)} variables, {engine}: {self.status.value}{log_z})"

    def _columns(self, level: float) -> dict[str, Any]:
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
        if self.status is Status.EXACT:
            return columns  # a band without width says nothing that the probability does not
        if (sets := self.sets(level)) is not None:
            columns["in_set"] = sets[valid]
        if (band := self.bands(level)) is not None:
            columns["band_low"], columns["band_high"] = band[0][valid], band[1][valid]
        return columns

    def _save_mar(self, path: Path) -> None:
        from icgi.model.formats.uai import write_marginals

        write_marginals(path, self.probs, self.model.cards)

    def _save_json(self, path: Path, level: float) -> None:
        path.write_text(self.to_json(level) + "\n")

    def _save_csv(self, path: Path, level: float) -> None:
        import csv

        columns = self._columns(level)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(harmless, row) for row in zip(*columns.values(), strict=True))

    def _save_parquet(self, path: Path, level: float) -> None:
        require_extra("pyarrow.parquet", "data", "writing .parquet")
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(self._columns(level))
        if self.guarantee is not None:  # columns alone do not say what sets and bands promise
            table = table.replace_schema_metadata(
                {"guarantee": json.dumps(self.guarantee.as_json(level), ensure_ascii=False)}
            )
        pq.write_table(table, path)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_FEW = 2**16  # entries of all tables of a model that is small
_SIZE = attrgetter("size")


def model_digest(model: FactorGraph) -> str:
    """SHA-256 of sizes, scopes and tables: the same for the same numbers, whatever the names."""
    digest = hashlib.sha256(model.cards.astype("<i8").tobytes())
    if (flat := model.flat) is not None:
        for row in (np.diff(flat.scope_start), flat.scope):
            digest.update(row.astype("<i8").tobytes())
        digest.update(np.ascontiguousarray(flat.values, "<f8").data)
        return digest.hexdigest()
    arity = np.fromiter(map(len, model.scopes), "<i8", model.n_factors)
    digest.update(arity.tobytes())
    digest.update(np.fromiter(chain.from_iterable(model.scopes), "<i8").tobytes())
    tables = model.log_tables
    if sum(map(_SIZE, tables)) < _FEW:
        digest.update(table_bytes(tables))  # much quicker where there are many
        return digest.hexdigest()
    for table in tables:
        digest.update(np.ascontiguousarray(table, "<f8").data)
    return digest.hexdigest()


def table_bytes(tables: Sequence[FloatArray]) -> bytes:
    """Entries of all tables one after the other, as eight bytes each, the lowest first."""
    if sys.byteorder == "little":
        with suppress(BufferError, TypeError):  # a table that is a view of another order
            return b"".join(cast("Any", tables))
    return np.concatenate([*map(np.ravel, tables), np.zeros(0)]).astype("<f8").tobytes()


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
