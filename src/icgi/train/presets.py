"""Training runs by name: what the shipped networks were trained with, and small ones for tests."""

import dataclasses

from icgi.neural.fast import FastConfig
from icgi.neural.networks import NETWORKS
from icgi.neural.networks.gnn_bp import GNNBPConfig
from icgi.neural.networks.paper import PaperConfig
from icgi.train.config import Bucket, TrainConfig, tiny
from icgi.train.kinds import Limits

RATES = {"gnn-bp": 2e-3, "bpnn": 1e-3, "direct-gnn": 1e-3}
"""Best of three on validation models, where it is not that of a run by default (docs/log.md)."""

EQUAL = TrainConfig("paper", PaperConfig(core_states=0))
"""Equal terms: 100,000 models of 10 to 24 variables with exact labels, twice, in batches of 128."""

PAPER_SIZES = PaperConfig(
    features=256, heads=8, layers=6, rank=16, encode_every=1, order="min-degree"
)

PAPER_SCHEDULE = TrainConfig(
    "paper",
    PAPER_SIZES,
    steps=200_000,
    batch=32,
    rate=3e-4,
    warm_up=2000,
    momenta=(0.9, 0.999),
    average=0.999,
    loss="paper",
    validate_every=1000,
)
"""The paper's sizes, loss and schedule to the letter, for a run of days."""


PLAIN = dataclasses.replace(
    EQUAL,
    buckets=(Bucket(count=50_000),),
    steps=150,
    warm_up=50,
)
"""What ablations change one thing of: the paper's network, eliminating to the end."""


def _ablation(**switches: object) -> TrainConfig:
    settings = PaperConfig(core_states=0, **switches)  # type: ignore[arg-type]
    return dataclasses.replace(PLAIN, settings=settings)


PRESETS: dict[str, TrainConfig] = {
    "tiny": tiny("paper", features=16, heads=2, layers=1, hidden=16, rank=4),
    "paper-schedule": PAPER_SCHEDULE,
    "paper": TrainConfig(
        "paper",
        PaperConfig(most_step=4.5, most_total=60.0),
        (
            Bucket("training", count=50_000, share=2),
            Bucket("broad", Limits(25, 40, 2.5), 30_000, batch=64),
        ),
        steps=485,
        relative=0.5,
    ),
    # the two networks of icgi:fast
    "fast": TrainConfig(
        "fast",
        FastConfig(features=96, heads=6, layers=3, hidden=48, core=14),
        # models that a junction tree answers in the time of an elimination never meet the network
        (
            Bucket("dense", Limits(16, 24, 3.0), 40_000, batch=512, seed=2),
            Bucket("dense", Limits(25, 64, 2.5), 30_000, 2, 256, seed=3),
            Bucket("dense", Limits(65, 112, 2.0), 10_000, 2, 96, seed=4),
        ),
        steps=1363,
        warm_up=200,
        average=0.995,
    ),
    "general": TrainConfig(
        "general",
        buckets=(
            Bucket("any", Limits(8, 16, most=4, variables=20, states=4), 16_000, 2, 256),
            Bucket("any", Limits(12, 24, most=4, variables=30, states=4), 12_000, 2, 128),
            Bucket(
                "any",
                Limits(6, 12, fewest=5, most=8, ternary=3, variables=14, states=9),
                8000,
                batch=128,
            ),
        ),
        steps=1600,
        average=0.995,
        composite_weight=0.01,  # with a tenth of it α is surest where it is most wrong
    ),
    "paper-equal": EQUAL,  # on the same models as the networks it is compared with
    # ablations, on terms of their own
    "paper-short": PLAIN,
    "paper-star": _ablation(factors="star"),
    "paper-free": _ablation(factors="free"),
    "paper-static": _ablation(positions="static"),
    "paper-laplacian": _ablation(positions="laplacian"),
    "paper-no-distance": _ablation(positions="none"),
    "paper-random-order": _ablation(order="random", train_order="random"),
    "paper-no-distribute": _ablation(distribute=False),
    "paper-no-calibration": dataclasses.replace(PLAIN, gamma=0.0),
    "paper-loss": dataclasses.replace(PLAIN, loss="paper"),
    "gnn-bp-published": TrainConfig("gnn-bp", GNNBPConfig(form="node"), rate=3e-3),
    "any": dataclasses.replace(
        EQUAL,
        buckets=(
            Bucket(share=2),
            Bucket("any", Limits(8, 16, most=4, variables=20, states=4), 40_000),
        ),
    ),
}
"""Name → run; besides these every network can be trained by its name, on equal terms."""

PRESETS |= {f"{name}-tiny": tiny(name) for name in NETWORKS if name != "paper"}
