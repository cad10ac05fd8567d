"""One process or many: under `torchrun` gradients are averaged, otherwise nothing happens."""

import os
from types import TracebackType

import torch
from torch import distributed, nn


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

    def wrap(self, network: nn.Module) -> nn.Module:
        """Network whose gradients are averaged over the processes."""
        if self.count == 1:
            return network
        # short eliminations never re-encode, so some parameters may go unused
        return nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
