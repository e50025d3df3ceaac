"""Data-parallel training over several processes: this process's rank, and sums over all. With one process, a no-op."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Distributed:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restarts: int = 0  # of all processes, by torchrun

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """All-reduce, in place."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def wrap(self, module: nn.Module) -> nn.Module:
        """In DDP, which averages the gradients over the processes in the backward pass."""
        if self.world_size == 1:
            return module
        ddp = DistributedDataParallel(module)
        ddp.broadcast_buffers = False  # they never change, and can be as large as an embedding
        return ddp


def from_environment() -> Distributed:
    """From the variables that torchrun sets."""
    variables = {
        "rank": "RANK",
        "world_size": "WORLD_SIZE",
        "local_rank": "LOCAL_RANK",
        "local_world_size": "LOCAL_WORLD_SIZE",
        "restarts": "TORCHELASTIC_RESTART_COUNT",
    }
    return Distributed(**{field: int(os.environ[name]) for field, name in variables.items() if name in os.environ})


@contextmanager
def process_group(distributed: Distributed, device: torch.device) -> Iterator[None]:
    """torch's process group: gloo on CPUs, nccl on GPUs."""
    if distributed.world_size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # After a restart the store may still hold the addresses of dead processes, so each attempt has a prefix of its own.
    store = PrefixStore(f"attempt-{distributed.restarts}", next(rendezvous("env://"))[0])
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=distributed.rank, world_size=distributed.world_size)
    try:
        yield
        dist.barrier()  # no process leaves while others still communicate
    finally:
        dist.destroy_process_group()
