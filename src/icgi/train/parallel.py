"""One process or many: under `torchrun` gradients are averaged, otherwise nothing happens.

What the first process knows decides for all: the clock, and the checkpoint that a run goes on from.
So nodes need no common folder, and one that replaces a dead node starts where the others are.
"""

import os
from types import TracebackType
from typing import Any

import torch
from torch import distributed, nn


def own_device() -> str:
    """Where this process computes: under `torchrun` each of a node's has a device of its own."""
    if not torch.cuda.is_available():
        return "cpu"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return "cuda"
    own = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(own)
    return f"cuda:{own}"


def first_process() -> bool:
    """Whether this process writes files and prints; the only one does."""
    return int(os.environ.get("RANK", "0")) == 0


class Group:
    """The processes that train together; a context manager."""

    def __init__(self) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self._started = False

    @property
    def first(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def __enter__(self) -> "Group":
        if self.count > 1 and not distributed.is_initialized():
            backend = "nccl" if torch.cuda.is_available() else "gloo"
            distributed.init_process_group(backend)
            self._started = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._started:
            distributed.destroy_process_group()

    def from_first(self, value: Any) -> Any:
        """What the first process has, in every one; the other values do not matter."""
        if self.count == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def wrap(self, network: nn.Module) -> nn.Module:
        """Network whose gradients are averaged over the processes."""
        if self.count == 1:
            return network
        # short eliminations never re-encode, so some parameters may go unused
        return nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
