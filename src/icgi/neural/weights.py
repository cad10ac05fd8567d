"""Weights on disk: safetensors in half precision, with the network's configuration beside them."""

import dataclasses
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from icgi.errors import CheckpointError
from icgi.neural.networks import network_class, network_name

_FOLDER = Path(str(files("icgi.neural"))) / "weights"


def save_weights(path: Path, network: nn.Module) -> None:
    """Write weights and, with the ending `.json`, the configuration they belong to."""
    from safetensors.torch import save_file

    kind = network_name(network)
    config: Any = network.config
    half = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    save_file(half, path)
    text = json.dumps({"network": kind, **dataclasses.asdict(config)}, indent=1)
    path.with_suffix(".json").write_text(text + "\n")


def load_weights(path: Path) -> Any:
    """Read a network that `save_weights` wrote, in single precision and not for training."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for part in (path, path.with_suffix(".json")):
        if not part.is_file():
            raise CheckpointError(
                f"{part}: no such file; `icgi train` writes weights.safetensors and, beside it, "
                "weights.json"
            )
    try:
        raw = json.loads(path.with_suffix(".json").read_text())
        made: Any = network_class(raw.pop("network"))
        network: nn.Module = made(made.settings(**raw))
        network.load_state_dict(load_file(path))
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} holds no weights of this version ({error}); train again, or reinstall icgi "
            "for the shipped ones"
        ) from None
    return network.float().eval().requires_grad_(False)


@cache
def shipped(name: str) -> Any:
    """Network shipped with the package, loaded once."""
    return load_weights(_file(name))


def shipped_seeds(kind: str) -> list[str]:
    """Names of the shipped networks of one kind, by the seeds that they were trained with."""
    found = [path.stem for path in _FOLDER.glob(f"{kind}-seed*.safetensors")]
    if not found:
        raise CheckpointError(
            f"no weights of {kind} are shipped; train it with `icgi train {kind}` and use "
            "the file as the engine icgi:weights=FOLDER/weights.safetensors"
        )
    return sorted(found, key=lambda name: int(name.partition("-seed")[2]))


def is_shipped(name: str) -> bool:
    """Whether the package has this network."""
    return _file(name).exists()


def _file(name: str) -> Path:
    return _FOLDER / f"{name}.safetensors"


def parameter_count(network: nn.Module) -> int:
    """Number of weights."""
    return sum(p.numel() for p in network.parameters())
