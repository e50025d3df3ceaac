"""The process and the machine: signals, threads, memory, speed, and how all that is written down.

What changes the process itself (signal handlers, threads, the allocator) happens only where the process is ours, on the
command line; a library call leaves its caller's process as it is.

SIGTERM and SIGINT ask for an end: the step is finished and saved; an evaluation is interrupted, if one process makes
it. A second signal ends the process at once. Whoever ends a group of processes often signals each of them twice, once
directly and once through their parent; two SIGTERMs within a moment are therefore one.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertworks import __version__
from bertworks.config import LoopConfig
from bertworks.errors import Unsupported

SIGNALS = (signal.SIGTERM, signal.SIGINT)
MOMENT = 0.5  # seconds
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 2**30
PEAK_FLOPS_SECONDS = 0.5


class Interrupted(Exception):
    """The end was asked for in the middle of what can be done again."""


@dataclass
class StopRequest:
    signal: int = 0  # 0: nobody asked
    requested_at: float = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        same = number == self.signal == signal.SIGTERM and time.monotonic() - self.requested_at < MOMENT
        if self.signal and not same:
            os._exit(128 + number)
        self.signal, self.requested_at = number, time.monotonic()

    def raise_if_requested(self) -> None:
        if self.signal:
            raise Interrupted


@dataclass(frozen=True)
class Runtime:
    """What a training may do to its process; as it is, nothing."""

    owns_process: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    began: float = field(default_factory=time.monotonic)  # when this process began to work for the run


@contextmanager
def own_process(began: float) -> Iterator[Runtime]:
    """For the command line: signals ask the training to stop, threads and memory are the training's."""
    stop = StopRequest()
    before = {number: signal.signal(number, stop.handle) for number in SIGNALS}
    try:
        yield Runtime(owns_process=True, stop=stop, began=began)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """`auto`: a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        device = torch.device("cuda", local_rank) if device == torch.device("cuda") else device
        torch.empty(1, device=device)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("cpu and cuda are known")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        cause = f"no such device here: {name} ({reason})"
        raise Unsupported(cause, remedy="cpu is always there", code="no-such-device") from None
    return device


def check_precision(config: LoopConfig, device: torch.device) -> None:
    """Some virtual machines name instructions that they refuse to run, which ends a process; so one that can be spared
    tries them."""
    if config.precision == "bfloat16" and device.type == "cpu":
        code = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
        if subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode:
            cause = "bfloat16 products end the process on this processor, though it says that it knows them"
            raise Unsupported(
                cause,
                remedy="train.precision=float32; or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or _VNNI) and try again",
            )


def set_threads(threads: int | None, processes: int) -> int:
    """As many as this process may have cores, or as OMP_NUM_THREADS says; but torchrun sets that to one by itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if processes == 1 and os.environ.get("OMP_NUM_THREADS"):
        cores = torch.get_num_threads()
    torch.set_num_threads(threads or max(1, cores // processes))
    return torch.get_num_threads()


def keep_freed_memory() -> bool:
    """Every step frees what the next one takes again. glibc would give it back to the system in between, page by page;
    tell it not to."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, KEPT) and mallopt(M_TRIM_THRESHOLD, KEPT))


def release_memory() -> None:
    """All that is free. Where steps differ in length, what was kept comes to lie in pieces that the next one cannot
    use, more and more."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def measure_peak_flops(rows: int, inner: int, columns: int, device: torch.device, dtype: torch.dtype) -> float:
    """The three products of a linear layer's step, forward and for its two gradients, in floating-point operations a
    second."""
    x, w, y = (
        torch.randn(*shape, device=device, dtype=dtype) for shape in ((rows, inner), (inner, columns), (rows, columns))
    )

    def products() -> None:
        x @ w
        y @ w.T
        x.T @ y
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    best, end = 0.0, time.monotonic() + PEAK_FLOPS_SECONDS
    while time.monotonic() < end:
        start = time.monotonic()
        products()
        best = max(
            best, 3 * 2.0 * rows * inner * columns / (time.monotonic() - start)
        )  # others may disturb some of them
    return best


def _attention_flops(q: torch.Size, k: torch.Size, *_: Any, **__: Any) -> int:
    """Two products of queries (..., T, D) with keys and values (..., T', D)."""
    return 4 * math.prod(q) * k[-2]


def _attention_backward_flops(_: torch.Size, q: torch.Size, k: torch.Size, *__: Any, **___: Any) -> int:
    """Five, for the scores are computed once more."""
    return 10 * math.prod(q) * k[-2]


ATTENTION = {  # kernels that torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}


def flop_counter() -> FlopCounterMode:
    """Of all that is computed inside."""
    return FlopCounterMode(display=False, custom_mapping=ATTENTION)


def environment(device: torch.device, world: int) -> dict[str, Any]:
    """What the bits of a run depend on, and what a reader of its report would ask."""
    return {
        "bertworks": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "world_size": world,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(
                (line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine()
            )
    except OSError:
        return platform.machine()
