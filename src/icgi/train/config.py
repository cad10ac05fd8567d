"""Everything that decides a training run, in one frozen value stored next to the weights."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from icgi.errors import CheckpointError
from icgi.neural.fast import FastConfig
from icgi.neural.general import GeneralConfig
from icgi.neural.paper import PaperConfig

NETWORKS: dict[str, type[FastConfig] | type[GeneralConfig] | type[PaperConfig]] = {
    "fast": FastConfig,
    "general": GeneralConfig,  # its runs are described by `general_task.GeneralRun`
    "paper": PaperConfig,
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """Models of similar size that share a batch, padded to `largest` variables."""

    smallest: int
    largest: int
    core: int  # variables that are summed exactly
    count: int  # training models
    share: int = 1  # steps in a round of all buckets
    most_beta: float = 3.0
    batch: int | None = None  # models a step; the run's if none
    kind: Literal["spins", "any"] = "spins"  # any: several states, large factors, zeros


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run: data, optimiser, loss."""

    network: FastConfig | PaperConfig = field(default_factory=FastConfig)
    mixture: str = "wide"  # a key of `mixture.MIXTURES`
    buckets: tuple[Bucket, ...] = (Bucket(10, 32, 12, 32768),)
    seed: int = 0
    label_sweeps: int = 3000  # of tempering; models of the tiny preset are solved exactly instead
    context_sweeps: tuple[int, ...] = (20, 100, 500)  # short runs given as context
    context_share: float = 0.4  # of training models that see one
    jitter: float = 0.5  # spread of the factors on elimination costs
    steps: int = 10_000
    seconds: float = math.inf  # ends the schedule early where it runs out first
    batch: int = 256
    rate: float = 2e-3
    warm_up: int = 300
    weight_decay: float = 0.01
    momenta: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    average: float = 0.998  # decay of the weights' moving average
    l1_weight: float = 0.3  # of L1 next to KL
    deep_weight: float = 0.0  # of the answers after earlier layers, of networks that give them
    composite_weight: float = 1e-3  # of the paper's loss, which is about M_eff · KL
    composite_from: float = 0.3  # share of the schedule after which it counts
    gamma: float = 5.0
    effective: float = 1000.0
    temperatures: tuple[float, float] = (1.0, 0.1)  # τ of the relaxed choice, first and last
    cool_until: float = 0.5  # share of the schedule after which τ stays
    low_precision: bool = True  # bfloat16 on a GPU, where the network says it is safe
    validate_every: int = 500
    patience: int = 20  # validations without a better error before stopping
    notes: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.steps < 1 or not self.buckets:
            raise CheckpointError("a run needs at least one step, one model a batch, one bucket")


def to_json(config: TrainConfig) -> str:
    """Text form, read back by `from_json`."""
    kind = next(name for name, made in NETWORKS.items() if type(config.network) is made)
    return json.dumps({"kind": kind, **dataclasses.asdict(config)}, indent=1)


def from_json(text: str) -> TrainConfig:
    """Configuration from its text form; unknown or missing words are an error."""
    try:
        raw: dict[str, Any] = json.loads(text)
        raw["network"] = NETWORKS[raw.pop("kind", "fast")](**raw["network"])
        raw["buckets"] = tuple(Bucket(**b) for b in raw["buckets"])
        for name in ("context_sweeps", "momenta", "temperatures"):
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


TINY = TrainConfig(
    network=FastConfig(features=16, heads=2, layers=1, hidden=16, encode_every=4),
    buckets=(Bucket(10, 12, 3, 32),),
    context_sweeps=(),
    context_share=0.0,
    steps=150,
    batch=32,
    rate=1e-2,
    warm_up=10,
    average=0.9,
    validate_every=50,
)
"""Overfits 32 small models on a CPU in under a minute."""

FAST = TrainConfig(
    network=FastConfig(features=96, heads=6, layers=3, hidden=48),
    buckets=(
        Bucket(10, 32, 12, 65536, share=2, batch=512),
        Bucket(33, 64, 16, 32768, share=2),
        Bucket(65, 112, 16, 8192, batch=96),
    ),
    steps=12_000,
    validate_every=300,
)
"""The shipped `icgi-fast`."""

PAPER_NETWORK = PaperConfig(
    damping=0.5, spread=1.5, attention="states", blocks=True, readout="belief"
)

PAPER_TINY = TrainConfig(
    network=dataclasses.replace(
        PAPER_NETWORK,
        features=32,
        heads=4,
        layers=2,
        rank=4,
        hidden=16,
        width=6,
        rounds=2,
        at_once=4,
    ),
    buckets=(Bucket(8, 10, 0, 32),),
    context_sweeps=(),
    context_share=0.0,
    steps=120,
    batch=32,
    rate=5e-3,
    warm_up=10,
    average=0.9,
    validate_every=40,
)
"""The paper's network, small: overfits 32 small models on a CPU in under a minute."""

PAPER = TrainConfig(
    network=PAPER_NETWORK,
    buckets=(
        Bucket(10, 32, 0, 24576, share=3, most_beta=2.5),
        Bucket(6, 20, 0, 6144, share=1, most_beta=2.0, batch=64, kind="any"),
    ),
    context_sweeps=(100,),
    context_share=0.2,
    steps=3000,
    batch=128,
    rate=5e-4,
    warm_up=200,
    average=0.995,
    deep_weight=0.5,
    validate_every=500,
)
"""The paper's network, and the two controls below, at equal steps.

Paper: rate 3·10⁻⁴, 2,000 warm-up steps, batches of 32, 200 epochs, nothing asked of earlier layers;
here larger batches, a shorter warm-up, 5·10⁻⁴ and half a loss for the answers after the encoder's
layers, because minutes of one GPU make some thousand steps. `PAPER_SCHEDULE` is the paper's.
"""

PAPER_RECURRENT = dataclasses.replace(
    PAPER, network=dataclasses.replace(PAPER_NETWORK, autoregressive=False, repeats=16)
)
"""Same encoder without elimination: one further layer as often as rounds go and come back."""

MESSAGES = dataclasses.replace(
    PAPER,
    network=dataclasses.replace(PAPER_NETWORK, autoregressive=False, repeats=16, attention="none"),
)
"""Message passing that starts as belief propagation, and no attention; else as the recurrent."""

PAPER_SCHEDULE = dataclasses.replace(
    PAPER,
    buckets=tuple(dataclasses.replace(b, batch=None) for b in PAPER.buckets),
    steps=200_000,
    batch=32,
    rate=3e-4,
    warm_up=2000,
    average=0.999,
    deep_weight=0.0,
    validate_every=1000,
)
"""The paper's schedule to the letter, for a run of days."""

PRESETS = {
    "tiny": TINY,
    "fast": FAST,
    "paper-tiny": PAPER_TINY,
    "paper": PAPER,
    "paper-recurrent": PAPER_RECURRENT,
    "messages": MESSAGES,
    "paper-schedule": PAPER_SCHEDULE,
}
