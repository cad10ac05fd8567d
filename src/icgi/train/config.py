"""Everything that decides a training run, in one frozen value stored next to the weights."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from icgi.errors import CheckpointError
from icgi.neural.networks import NETWORKS, network_class
from icgi.train.kinds import Limits


@dataclass(frozen=True, slots=True)
class Bucket:
    """Models of similar size that share a batch."""

    mixture: str = "training"  # a key of `mixture.MIXTURES`
    limits: Limits = Limits()  # noqa: RUF009 (frozen)
    count: int = 100_000  # training models
    share: int = 1  # steps in a round of all buckets
    batch: int | None = None  # models a step; the run's if none
    seed: int | None = None  # of its models; the run's `data_seed` and its place if none


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run: network, data, optimiser, loss."""

    network: str  # a key of `NETWORKS`
    settings: Any = None  # the network's own; its defaults if none
    buckets: tuple[Bucket, ...] = (Bucket(),)
    data_seed: int = 0  # of the training models: the same for all seeds of a network
    seed: int = 0  # of weights, order of models, noise
    sources: tuple[str, ...] = ()  # the user's own sets or families, instead of the buckets'
    validation: int = 256  # models of each validation set
    steps: int = 1563
    seconds: float = math.inf  # ends the schedule early where it runs out first
    batch: int = 128
    rate: float = 2e-3
    warm_up: int = 100
    weight_decay: float = 0.01
    momenta: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    average: float = 0.99  # decay of the weights' moving average
    loss: Literal["warm", "both", "paper"] = "both"  # KL + w·L1; that, then with it; L_DM + L_cal
    l1_weight: float = 0.3  # of L1 next to KL
    composite_weight: float = 1e-3  # of the paper's loss next to KL; it is about M_eff · KL
    composite_from: float = 0.3  # share of the schedule after which it counts
    relative: float = 0.0  # power of a model's first error that its loss is divided by
    gamma: float = 5.0
    effective: float = 1000.0
    temperatures: tuple[float, float] = (1.0, 0.1)  # τ of the relaxed choice, first and last
    cool_until: float = 0.5  # share of the schedule after which τ stays
    validate_every: int = 150
    patience: int = 20  # validations without a better error before stopping
    notes: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise CheckpointError(
                f"there is no network {self.network!r}; there are: {', '.join(NETWORKS)}"
            )
        if self.settings is None:
            object.__setattr__(self, "settings", network_class(self.network).settings())  # type: ignore[attr-defined]
        if self.batch < 1 or self.steps < 1 or not self.buckets:
            raise CheckpointError("a run needs at least one step, one model a batch, one bucket")


def to_json(config: TrainConfig) -> str:
    """Text form, read back by `from_json`."""
    return json.dumps(dataclasses.asdict(config), indent=1)


def from_json(text: str) -> TrainConfig:
    """Configuration from its text form; unknown or missing words are an error."""
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["settings"] is not None:
            raw["settings"] = network_class(raw["network"]).settings(**raw["settings"])  # type: ignore[attr-defined]
        raw["buckets"] = tuple(
            Bucket(**{**b, "limits": Limits(**b["limits"])}) for b in raw["buckets"]
        )
        for name in ("momenta", "temperatures", "sources"):
            raw[name] = tuple(raw[name])
        return TrainConfig(**raw)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"this is no training configuration of this version ({error}); write it again from "
            "`icgi.train.config.to_json`"
        ) from None


def load(path: Path) -> TrainConfig:
    """Read a configuration file."""
    return from_json(path.read_text())


def tiny(network: str, **settings: Any) -> TrainConfig:
    """Run that overfits 32 small models on a CPU in under a minute."""
    if network == "paper":
        settings = {"core_states": 0, **settings}  # or models this small are summed at once
    return TrainConfig(
        network,
        network_class(network).settings(**settings),  # type: ignore[attr-defined]
        (Bucket("wide", Limits(8, 10), 32),),
        validation=32,
        steps=120,
        batch=32,
        rate=5e-3,
        warm_up=10,
        average=0.9,
        validate_every=40,
    )
