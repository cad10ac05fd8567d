"""A small network of names that everyone knows, as the service is given it."""

import numpy as np

import icgi
from icgi.web.app import Served
from icgi.web.limits import Limits

ASIA = [
    (("visit",), [0.01, 0.99]),
    (("visit", "tuberculosis"), [[0.05, 0.95], [0.01, 0.99]]),
    (("smoker",), [0.5, 0.5]),
    (("smoker", "cancer"), [[0.1, 0.9], [0.01, 0.99]]),
    (("smoker", "bronchitis"), [[0.6, 0.4], [0.3, 0.7]]),
    (("tuberculosis", "cancer", "either"), [[[1, 0], [1, 0]], [[1, 0], [0, 1]]]),
    (("either", "xray"), [[0.98, 0.02], [0.05, 0.95]]),
    (("either", "bronchitis", "breathless"), [[[0.9, 0.1], [0.7, 0.3]], [[0.8, 0.2], [0.1, 0.9]]]),
]
LIMITS = Limits(
    body_bytes=20_000, model_bytes=200_000, models=3, queue=6, seconds=10.0, usual_seconds=2.0,
    grace_seconds=60.0, memory_bytes=2**30, workers=2, kept=1000,
)  # fmt: skip


def asia() -> icgi.FactorGraph:
    names = dict.fromkeys(v for scope, _ in ASIA for v in scope)
    return icgi.from_factors(ASIA, states={name: ("yes", "no") for name in names})


def bif(model: icgi.FactorGraph) -> bytes:
    """Text of a network whose factors are tables of their last variable."""
    assert model.names is not None
    assert model.states is not None
    lines = ["network unknown {}"]
    for name, states in zip(model.names, model.states, strict=True):
        listed = ", ".join(states)
        lines.append(f"variable {name} {{ type discrete [ {len(states)} ] {{ {listed} }}; }}")
    for scope, logs in zip(model.scopes, model.log_tables, strict=True):
        *given, child = scope
        table = np.exp(logs)
        if not given:
            lines.append(f"probability ( {model.names[child]} ) {{")
            lines.append(f"  table {', '.join(map(repr, table.tolist()))};")
        else:
            parents = ", ".join(model.names[i] for i in given)
            lines.append(f"probability ( {model.names[child]} | {parents} ) {{")
            for at in np.ndindex(*table.shape[:-1]):
                row = ", ".join(map(repr, table[at].tolist()))
                held = ", ".join(model.states[i][x] for i, x in zip(given, at, strict=True))
                lines.append(f"  ({held}) {row};")
        lines.append("}")
    return "\n".join(lines).encode()


def served() -> list[Served]:
    return [Served("asia", ".bif", bif(asia()))]
