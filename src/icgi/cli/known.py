"""Options for what is known about variables: observed, likely, excluded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icgi.errors import EvidenceError, IcgiError

if TYPE_CHECKING:
    from icgi.model.findings import Findings
    from icgi.model.graph import FactorGraph


@dataclass(frozen=True, slots=True)
class Given:
    """The words of a command line that say what is known."""

    file: Path | None
    observe: Sequence[str]
    likely: Sequence[str]
    exclude: Sequence[str]

    def words(self) -> list[str]:
        """Options that repeat it."""
        words = ["-e", str(self.file)] if self.file else []
        for option, texts in (
            ("--observe", self.observe), ("--likely", self.likely), ("--exclude", self.exclude)
        ):  # fmt: skip
            words += [word for text in texts for word in (option, text)]
        return words


def combined(
    model: "FactorGraph",
    file: Path | None,
    observed: Sequence[str],
    likely: Sequence[str],
    excluded: Sequence[str],
) -> "Findings":
    """Findings of a file and of the options; what is given twice has to agree."""
    from icgi.model.findings import Findings, resolve
    from icgi.model.formats.evidence import read_findings
    from icgi.model.graph import state_names, variable_name

    first = read_findings(file, model) if file else Findings()
    evidence, weights, left_out = (
        dict(first.observed), dict(first.likelihood), dict(first.excluded)
    )  # fmt: skip
    for text in observed:
        variable, state = _sides(model, "--observe", text, "STATE", "3=1")
        for i, x in resolve(model, {variable: state}).observed.items():
            if (before := evidence.setdefault(i, x)) != x:
                names = state_names(model, i)
                raise EvidenceError(
                    f"variable {variable_name(model, i)} is observed in state {names[before]} and "
                    f"in state {names[x]}; keep one"
                )
    for text in likely:
        variable, listed = _sides(model, "--likely", text, "STATE:WEIGHT,…", "HR=LOW:0.2,HIGH:0.8")
        found = resolve(model, None, {variable: _weights(text, listed)}).likelihood
        if set(found) & set(weights):
            raise EvidenceError(f"--likely {text!r}: that variable has a likelihood already")
        weights |= found
    for text in excluded:
        variable, listed = _sides(model, "--exclude", text, "STATE", "HR=LOW")
        states: list[Any] = [part.strip() for part in listed.split(",")]
        for i, numbers in resolve(model, None, None, {variable: states}).excluded.items():
            left_out[i] = (*left_out.get(i, ()), *numbers)
    return resolve(model, evidence, weights, left_out)


def _sides(
    model: "FactorGraph", option: str, text: str, right: str, example: str
) -> tuple[str, str]:
    """Variable and the rest; a name may hold `=` itself, so the longest known one counts."""
    cuts = [k for k, c in enumerate(text) if c == "="]
    sides = [(text[:k].strip(), text[k + 1 :].strip()) for k in cuts]
    sound = [(left, rest) for left, rest in sides if left and rest]
    if not sound:
        raise IcgiError(f"{option} {text!r}: write VARIABLE={right}, such as {option} {example}")
    known = [pair for pair in sound if pair[0] in (model.names or ())]
    return (known or sound)[-1]


def _weights(text: str, listed: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in listed.split(","):
        state, colon, number = (piece.strip() for piece in part.rpartition(":"))
        try:
            weight = float(number)
        except ValueError:
            colon = ""
        if not colon or not state or state in weights:
            raise IcgiError(
                f"--likely {text!r}: {part.strip()!r} is no STATE:WEIGHT, or comes twice; names "
                "with commas or colons go into a JSON file (-e), or give the number of the state"
            )
        weights[state] = weight
    return weights
