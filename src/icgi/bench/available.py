"""Which engines are available here, why others are not, and what else an answer depends on."""

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

from icgi.data.jobs.answers import alone
from icgi.engines import ENGINES, parse_engine
from icgi.errors import IcgiError

LEARNED = "icgi.neural"


@cache
def trouble(engine: str) -> str | None:
    """Why an engine cannot be made, None where it can."""
    try:
        alone(parse_engine(engine))
    except IcgiError as reason:
        return str(reason)
    except (ImportError, OSError) as reason:
        return f"{type(reason).__name__}: {reason}"
    return None


@cache
def identity(engine: str) -> str:
    """What an answer of an engine depends on beside its settings: the weights that it reads."""
    name, _, rest = engine.partition(":")
    if not ENGINES.get(name, "").startswith(LEARNED):
        return ""
    given = [
        Path(part.partition("=")[2]) for part in rest.split(",") if part.startswith("weights=")
    ]
    shipped = Path(str(files(LEARNED))) / "weights"
    found = given or sorted(p for kind in _kinds(name, rest) for p in shipped.glob(f"{kind}.*"))
    digest = hashlib.sha256()
    for path in found:
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _kinds(name: str, rest: str) -> tuple[str, ...]:
    """Names of the shipped weights that an engine may read, as patterns."""
    variant = next((part for part in rest.split(",") if part and "=" not in part), "")
    if name == "icgi" and variant in ("", "fast"):
        return ("icgi-*",)
    if name in ("icgi", "ensemble"):
        kind = {"icgi": "paper", "": "direct-gnn"}.get(variant, variant)
        return (f"{kind}-seed*",)
    return (f"{name}-{variant}-seed*" if variant else f"{name}-seed*",)
