"""Weights on disk: safetensors in half precision, with the network's configuration beside them."""

import dataclasses
import json
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch
from torch import nn

from icgi.errors import CheckpointError
from icgi.neural.fast import FastConfig, FastNetwork


def save_weights(path: Path, network: FastNetwork) -> None:
    """Write weights and, with the ending `.json`, the configuration they belong to."""
    from safetensors.torch import save_file

    half = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    save_file(half, path)
    text = json.dumps({"network": "fast", **dataclasses.asdict(network.config)}, indent=1)
    path.with_suffix(".json").write_text(text + "\n")


def load_weights(path: Path) -> FastNetwork:
    """Read a network that `save_weights` wrote, in single precision and not for training."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        raw = json.loads(path.with_suffix(".json").read_text())
        kind = raw.pop("network")
        if kind != "fast":
            raise ValueError(f"it holds a network of kind {kind!r}")
        network = FastNetwork(FastConfig(**raw))
        network.load_state_dict(load_file(path))
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} holds no weights of this version ({error}); train again, or reinstall icgi "
            "for the shipped ones"
        ) from None
    return network.float().eval().requires_grad_(False)


@cache
def shipped(name: str) -> nn.Module:
    """Network shipped with the package, loaded once."""
    folder = Path(str(files("icgi.neural"))) / "weights"
    return load_weights(folder / f"{name}.safetensors")


def parameter_count(network: nn.Module) -> int:
    """Number of weights."""
    return sum(p.numel() for p in network.parameters())


def device_of(network: nn.Module) -> torch.device:
    """Where the network lives."""
    return next(network.parameters()).device
