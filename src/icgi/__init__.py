"""Marginal inference in discrete graphical models, and which of the numbers to trust.

Names load on first use (PEP 562), so `import icgi` costs nothing and never imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from icgi.answer import Answer
    from icgi.api import (
        calibrated,
        from_factors,
        from_ising,
        load,
        load_evidence,
        marginals,
        marginals_batch,
        save,
    )
    from icgi.arrays import ManyMarginals, PairwiseBatch, ising_batch, potts_batch
    from icgi.errors import (
        BudgetError,
        CheckpointError,
        EvidenceError,
        IcgiError,
        ModelFormatError,
        UnsupportedModelError,
    )
    from icgi.inference import Budget, Engine, Marginals, Status, infer
    from icgi.model.adapters import (
        from_dimod,
        from_networkx,
        from_pgmpy,
        from_potts,
        from_pyagrum,
        to_networkx,
        to_pyagrum,
    )
    from icgi.model.condition import Evidence, condition, lift
    from icgi.model.formats.couplings import from_gset, from_matrix_market
    from icgi.model.graph import FactorGraph
    from icgi.queries.explain import explain
    from icgi.queries.mpe import mpe
    from icgi.queries.sample import sample
    from icgi.queries.scan import scan
    from icgi.web.notebook import view

_HOME = {
    "Answer": "icgi.answer",
    **dict.fromkeys(
        (
            "calibrated",
            "from_factors",
            "from_ising",
            "load",
            "load_evidence",
            "marginals",
            "marginals_batch",
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
    **dict.fromkeys(
        (
            "from_dimod",
            "from_networkx",
            "from_pgmpy",
            "from_potts",
            "from_pyagrum",
            "to_networkx",
            "to_pyagrum",
        ),
        "icgi.model.adapters",
    ),
    **dict.fromkeys(
        ("ManyMarginals", "PairwiseBatch", "ising_batch", "potts_batch"), "icgi.arrays"
    ),
    **dict.fromkeys(("from_gset", "from_matrix_market"), "icgi.model.formats.couplings"),
    "explain": "icgi.queries.explain",
    "mpe": "icgi.queries.mpe",
    "sample": "icgi.queries.sample",
    "scan": "icgi.queries.scan",
    "view": "icgi.web.notebook",
}

__all__ = [  # noqa: RUF022 (in the order of `_HOME`)
    "Answer",
    "calibrated",
    "from_factors",
    "from_ising",
    "load",
    "load_evidence",
    "marginals",
    "marginals_batch",
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
    "from_dimod",
    "from_networkx",
    "from_pgmpy",
    "from_potts",
    "from_pyagrum",
    "to_networkx",
    "to_pyagrum",
    "from_gset",
    "from_matrix_market",
    "ManyMarginals",
    "PairwiseBatch",
    "ising_batch",
    "potts_batch",
    "explain",
    "mpe",
    "sample",
    "scan",
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
