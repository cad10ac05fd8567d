"""A calibration on disk: one JSON file of plain numbers with its own hash, read back whole.

It holds, for every calibration model, its features, the law of the scores of its sets and the score
of its bands, and says which engine, which weights, which version and which budget they belong to.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from icgi.calibration.classifier import DomainClassifier
from icgi.calibration.features import NAMES
from icgi.calibration.groups import Answered, Groups
from icgi.calibration.identity import identity, weights_digest
from icgi.calibration.measure import LEVELS
from icgi.calibration.scales import SIGNALS
from icgi.conformal.scores import SCORES
from icgi.errors import CheckpointError
from icgi.model.graph import FloatArray

FORMAT = 3


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What an engine did on models whose truth is known."""

    engine: str  # as typed
    identity: str
    weights: str  # digest; empty for an engine that is not trained
    version: str  # of icgi
    budget: dict[str, float | None]  # seconds, iterations, most_seconds, most_work
    source: str  # name of the set
    score: str  # of sets
    scale: str  # of bands, by name
    coefficients: tuple[float, ...]
    exceptions: float
    widths: dict[str, float]  # median half-width at 90 % with each scale that was tried
    families: tuple[str, ...]  # k
    structures: tuple[str, ...]  # k
    trusted: tuple[bool, ...]  # k
    routes: tuple[str, ...]  # k  engine of a portfolio that answered; empty elsewhere
    features: FloatArray = field(repr=False)  # k d
    stated: FloatArray = field(repr=False)  # k     mean error that the engine stated itself
    work: FloatArray = field(repr=False)  # k  that an answer was; −1: unknown, or ended by itself
    sets: FloatArray = field(repr=False)  # k a     scores at LEVELS
    bands: FloatArray = field(repr=False)  # k
    top: FloatArray = field(repr=False)  # b 3   bins of the likeliest states
    # of halves of its models, what the promise of one was worth on the other (`check.Kept`)
    kept: dict[str, list[float]] = field(default_factory=dict, repr=False)
    toward: DomainClassifier | None = field(default=None, repr=False)  # weights, for other models

    def __len__(self) -> int:
        return len(self.families)

    @property
    def clocked(self) -> bool:
        """Whether each answer had a time of its own, so that the machine decides what it is."""
        return self.budget.get("most_seconds") is not None

    @property
    def answered(self) -> Answered:
        """Models and answers as groups see them."""
        return Answered(
            self.features, self.structures, self.trusted, self.work, self.stated, self.routes
        )

    @property
    def groups(self) -> Groups:
        """What its answers are divided into."""
        return Groups.of(self.answered, self.clocked)

    def made_with(self, room: float = 1.0) -> str:
        """Budget in words, `room` times the seconds; empty where there was none."""
        sweeps, seconds = self.budget["iterations"], self.budget["seconds"]
        most = self.budget.get("most_seconds")
        parts = [
            f"{sweeps:,.0f} sweeps" if sweeps else "",
            f"{room * seconds:g}{f' to {most:g}' if most else ''} s" if seconds else "",
        ]
        return " or ".join(filter(None, parts))

    def answered_how(self) -> str:
        """How its models were answered, in words."""
        work = self.budget.get("most_work")
        beyond = f", at most {work:.2g} core-seconds of work" if work else ""
        limit = self.made_with()
        return (f"in {limit}" if limit else "without a limit of time") + beyond


def write(calibration: Calibration, path: Path) -> None:
    """Write the file whole or not at all."""
    content = _plain({"format": FORMAT, **asdict(calibration)})
    content["sha256"] = _digest(content)
    draft = path.with_name(path.name + ".partial")
    try:
        draft.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
        draft.replace(path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def read(path: Path) -> Calibration:
    """Read and check a file: its format, its hash and the shapes of what it holds."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no calibration file: it is not JSON ({error})") from None
    if not isinstance(content, dict) or "format" not in content or "bands" not in content:
        raise CheckpointError(f"{path} is no calibration file; icgi calibrate makes one")
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {content['format']}, this version of icgi reads {FORMAT}; make it "
            "again with icgi calibrate"
        )
    digest = content.pop("sha256", None)
    if digest != _digest(content):
        raise CheckpointError(
            f"{path} is damaged or was edited: its hash does not fit its content; make it again "
            "with icgi calibrate"
        )
    return _whole(content, path)


def _whole(content: dict[str, Any], path: Path) -> Calibration:
    try:
        toward = content["toward"] and DomainClassifier(
            **_fields(DomainClassifier, content["toward"])
        )
        made = Calibration(**_fields(Calibration, content), toward=toward)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no whole calibration file ({error!r})") from error
    k = len(made)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("bands", "stated", "work"), (k,))
    shapes |= {"features": (k, len(NAMES)), "sets": (k, len(LEVELS))}
    sound = all(getattr(made, name).shape == shape for name, shape in shapes.items())
    said = (made.structures, made.trusted, made.routes)
    sound = sound and all(len(each) == k for each in said) and made.score in SCORES
    if not sound or len(made.coefficients) != len(SIGNALS):
        raise CheckpointError(f"{path} does not fit together; make it again with icgi calibrate")
    return made


def _fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    names = [f for f in fields(kind) if f.name != "toward"]
    return {f.name: _typed(content[f.name], f.type) for f in names}


def _typed(value: Any, kind: Any) -> Any:
    if kind is FloatArray:
        array = np.array(value, np.float64)
        array.flags.writeable = False
        return array
    return tuple(value) if isinstance(value, list) else value


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def require_for(calibration: Calibration, engine: str, path: str = "the calibration") -> None:
    """Refuse a calibration that was made for another engine, other weights or another version.

    `engine` is the `repr` of the engine that answers.
    """
    from icgi import __version__

    if calibration.identity != identity(engine):
        raise CheckpointError(
            f"{path} was made for the engine {calibration.engine} ({calibration.identity}), the "
            f"answer is of {identity(engine)}; make one with `icgi calibrate`"
        )
    if calibration.version != __version__:
        raise CheckpointError(
            f"{path} was made with icgi {calibration.version}, this is {__version__}: its "
            "engine may answer differently; make it again with icgi calibrate"
        )
    if calibration.weights != weights_digest(engine):
        raise CheckpointError(
            f"{path} was made for other weights of {calibration.engine}; make it again with icgi "
            "calibrate"
        )


def shipped(engine: str) -> list[Calibration]:
    """Calibrations that come with the package for an engine (its `repr`), without a clock first."""
    wanted, found = identity(engine), []
    for calibration in _all_shipped():
        if calibration.identity == wanted:
            try:
                require_for(calibration, engine)
            except CheckpointError:
                continue
            found.append(calibration)
    return sorted(found, key=lambda c: c.budget["seconds"] is not None)


@lru_cache
def _all_shipped() -> tuple[Calibration, ...]:
    folder = Path(str(files("icgi.calibration"))) / "shipped"
    return tuple(read(path) for path in sorted(folder.glob("*.json")))
