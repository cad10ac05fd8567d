"""Marginal inference in discrete graphical models, and which of the numbers to trust.

Names load on first use (PEP 562), so `import icgi` costs nothing and never imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.api import (
        from_factors,
        from_ising,
        from_networkx,
        load,
        load_evidence,
        marginals,
        marginals_batch,
        sample,
        save,
    )
    from icgi.errors import (
        BudgetError,
        CheckpointError,
        EvidenceError,
        IcgiError,
        ModelFormatError,
        UnsupportedModelError,
    )
    from icgi.inference import Budget, Engine, Marginals, Status, infer
    from icgi.model.condition import Evidence, condition, lift
    from icgi.model.graph import FactorGraph
    from icgi.web.notebook import view

_HOME = {
    "Answer": "icgi.answer",
    **dict.fromkeys(
        (
            "from_factors",
            "from_ising",
            "from_networkx",
            "load",
            "load_evidence",
            "marginals",
            "marginals_batch",
            "sample",
            "save",
        ),
        "icgi.api",
    ),
    **dict.fromkeys(
        (
            "BudgetError",
            "CheckpointError",
            "EvidenceError",
            "IcgiError",
            "ModelFormatError",
            "UnsupportedModelError",
        ),
        "icgi.errors",
    ),
    **dict.fromkeys(("Budget", "Engine", "Marginals", "Status", "infer"), "icgi.inference"),
    **dict.fromkeys(("Evidence", "condition", "lift"), "icgi.model.condition"),
    "FactorGraph": "icgi.model.graph",
    "view": "icgi.web.notebook",
}

__all__ = [  # noqa: RUF022 (in the order of `_HOME`)
    "Answer",
    "from_factors",
    "from_ising",
    "from_networkx",
    "load",
    "load_evidence",
    "marginals",
    "marginals_batch",
    "sample",
    "save",
    "BudgetError",
    "CheckpointError",
    "EvidenceError",
    "IcgiError",
    "ModelFormatError",
    "UnsupportedModelError",
    "Budget",
    "Engine",
    "Marginals",
    "Status",
    "infer",
    "Evidence",
    "condition",
    "lift",
    "FactorGraph",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'icgi' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
