"""The dictionary of networks, and what each of them offers.

Adding one is a file in this folder and a line in `NETWORKS`; it then appears in `icgi train`, among
the engines, in the contract and invariance tests and in the tables.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from icgi.clock import Deadline

if TYPE_CHECKING:
    from icgi.neural.batch import Batch

NETWORKS: dict[str, str] = {
    "paper": "icgi.neural.networks.paper:PaperNetwork",
    "fast": "icgi.neural.fast:FastNetwork",
    "general": "icgi.neural.general:GeneralNetwork",
    "bpnn": "icgi.neural.networks.bpnn:BPNN",
    "gnn-bp": "icgi.neural.networks.gnn_bp:GNNBP",
    "direct-gnn": "icgi.neural.networks.direct_gnn:DirectGNN",
}
"""Name → module and class; imported only when asked for."""


class Draws(NamedTuple):
    """What is random in a training step."""

    uniform: Tensor  # of the shape that `Network.noise` says, in (0, 1)
    temperature: Tensor  # τ of relaxed choices


class Network(Protocol):
    """An `nn.Module` that answers a batch of factor graphs."""

    settings: ClassVar[type[Any]]  # frozen dataclass of everything that decides its shape
    dirichlet: ClassVar[bool]  # whether α₀ means something, and the paper's loss may train it
    pairwise: ClassVar[bool]  # whether larger factors must become auxiliary variables
    recorded: ClassVar[bool]  # whether a step on prepared models is one CUDA graph
    config: Any

    def refuse(self, largest_table: int, most_states: int, variables: int, arity: int) -> str:
        """Why a model cannot be taken, or nothing; arity and states of its largest factor."""
        ...

    def prepare(self, batch: "Batch", deadline: Deadline | None = None) -> Any:
        """Form that `forward` reads; `form[index]` are some of its models."""
        ...

    def noise(self, models: int, variables: int) -> tuple[int, ...]:
        """Shape of the noise of one training step, models first; empty where there is none."""
        ...

    def __call__(
        self, form: Any, draws: Draws | None = None, deadline: Deadline | None = None
    ) -> Tensor:
        """Concentrations (b n k), zero for states that do not exist; their mean is the answer."""
        ...


def network_class(name: str) -> Callable[..., Any]:
    """Return the class of a network."""
    module, _, attribute = NETWORKS[name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def network_name(network: object) -> str:
    """Name under which the class of a network is in the dictionary."""
    place = f"{type(network).__module__}:{type(network).__name__}"
    return next(name for name, where in NETWORKS.items() if where == place)


def gumbel(uniform: Tensor) -> Tensor:
    """Gumbel(0, 1) noise from uniform noise."""
    return -torch.log(-torch.log(uniform.clamp(1e-9, 1.0 - 1e-7)))


def normal(uniform: Tensor) -> Tensor:
    """Normal noise from uniform noise."""
    found: Tensor = torch.special.ndtri(uniform.clamp(1e-6, 1.0 - 1e-6))
    return found
