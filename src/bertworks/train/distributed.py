"""Several processes, one training: who I am among them, and sums over all. Alone, everything here does nothing."""

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
    restarts: int = 0

    @property
    def is_main(self) -> bool:
        """The one that writes and speaks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module as it is trained together: gradients are averaged in the backward pass."""
        if self.world_size == 1:
            return module
        shared = DistributedDataParallel(module)
        shared.broadcast_buffers = False  # nothing changes them; among them can be all of an embedding
        return shared


def from_environment() -> Distributed:
    """As torchrun sets it."""
    names = {
        "rank": "RANK",
        "world_size": "WORLD_SIZE",
        "local_rank": "LOCAL_RANK",
        "local_world_size": "LOCAL_WORLD_SIZE",
        "restarts": "TORCHELASTIC_RESTART_COUNT",
    }
    return Distributed(**{field: int(os.environ[name]) for field, name in names.items() if name in os.environ})


@contextmanager
def process_group(distributed: Distributed, device: torch.device) -> Iterator[None]:
    """While this is open, the processes can talk: gloo between CPUs, nccl between GPUs."""
    if distributed.world_size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # The store of an earlier attempt may still be there, with the addresses of processes that are gone; each attempt
    # has names of its own.
    store = PrefixStore(f"attempt-{distributed.restarts}", next(rendezvous("env://"))[0])
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=distributed.rank, world_size=distributed.world_size)
    try:
        yield
        dist.barrier()  # nobody hangs up while others still talk
    finally:
        dist.destroy_process_group()
