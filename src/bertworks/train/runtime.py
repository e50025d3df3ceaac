"""The process and the machine: signals, threads, memory, peak FLOP/s, other processes, and the record of all that.

Changes to the process itself (signal handlers, threads, the allocator) are made only on the command line, where the
process is ours; a library call leaves its caller's process as it is.

SIGTERM, SIGINT and SIGHUP (a closed terminal) request a stop: the current step is finished and saved; an evaluation by
a single process is interrupted. A second signal ends the process at once. Launchers that stop a group of processes
often signal each of them twice, directly and through the parent, and shell, kernel and systemd may add a SIGHUP; so a
SIGTERM soon after another or after a SIGHUP counts as none, and so does a SIGHUP after any signal.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertworks import __version__
from bertworks.config import LoopConfig
from bertworks.errors import Remark, Unsupported

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = (signal.SIGTERM, signal.SIGINT, *((HANGUP,) if HANGUP is not None else ()))
SAME_STOP_SECONDS = 0.5  # SIGTERM and SIGHUP within this time are one request
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
MALLOC_KEEP_BYTES = 2**30  # freed memory that malloc keeps
PEAK_FLOPS_SECONDS = 0.5  # of measuring
MIN_BUSY_CORES = 0.5  # that other processes take from our threads, below which nothing is said


class Interrupted(Exception):
    """A stop was requested during work that a resumed run can repeat."""


@dataclass
class StopRequest:
    signal: int = 0  # the signal that requested a stop, or 0
    requested_at: float = 0.0
    notice: str = ""  # a line for standard error, at once, since the step may take a while

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            self.signal = number
            self.requested_at = time.monotonic()
            with suppress(OSError):  # a closed terminal
                os.write(2, self.notice.encode())  # the stream itself may be in use where the signal came
        elif not self._is_repeated(number):
            os._exit(128 + number)

    def _is_repeated(self, number: int) -> bool:
        """Whether this signal belongs to the request that there is already."""
        is_soon = time.monotonic() - self.requested_at < SAME_STOP_SECONDS
        return number == HANGUP or (number == signal.SIGTERM and self.signal != signal.SIGINT and is_soon)

    def raise_if_requested(self) -> None:
        if self.signal:
            raise Interrupted


@dataclass(frozen=True)
class Runtime:
    """What a training may do to its process; by default nothing."""

    owns_process: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    began: float = field(default_factory=time.monotonic)  # when this process began to work for the run


@contextmanager
def own_process(began: float) -> Iterator[Runtime]:
    """For the command line: signals request a stop, and the training may set threads and allocator."""
    stop = StopRequest()
    # Under nohup SIGHUP is ignored, and stays so.
    handled = [number for number in SIGNALS if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in handled}
    try:
        yield Runtime(owns_process=True, stop=stop, began=began)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def preserved_rng(runtime: Runtime, device: torch.device) -> Iterator[None]:
    """A training seeds torch's global generator for dropout; in somebody else's process it is put back afterwards."""
    if runtime.owns_process:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """`auto`: a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        device = torch.device("cuda", local_rank) if device == torch.device("cuda") else device
        torch.empty(1, device=device)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("only cpu and cuda are supported")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        cause = f"device not available: {name} ({reason})"
        raise Unsupported(cause, remedy="cpu is always available", code="no-such-device") from None
    return device


def check_precision(config: LoopConfig, device: torch.device) -> None:
    """Some virtual machines report instructions that crash a process; so a process of its own tries them."""
    if config.precision == "bfloat16" and device.type == "cpu":
        code = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
        if subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode:
            cause = "bfloat16 matrix products crash on this processor, although it reports to support them"
            remedy = "train.precision=float32; or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or _VNNI) and try again"
            raise Unsupported(cause, remedy=remedy)


def set_threads(threads: int | None, processes: int) -> int:
    """By default this process's share of the cores, or OMP_NUM_THREADS, but not under torchrun, which sets that to 1 by
    itself. Returns the number of threads."""
    cores = n_cores()
    if processes == 1 and os.environ.get("OMP_NUM_THREADS"):
        cores = torch.get_num_threads()
    torch.set_num_threads(threads or max(1, cores // processes))
    return torch.get_num_threads()


def n_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Every step frees memory that the next one allocates again. By default glibc returns it to the system in between,
    page by page; tell it not to. Returns whether that worked."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, MALLOC_KEEP_BYTES) and mallopt(M_TRIM_THRESHOLD, MALLOC_KEEP_BYTES))


def release_memory() -> None:
    """Return all free memory to the system. Where steps differ in length, kept memory fragments, more and more, into
    pieces that the next step cannot use."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def measure_peak_flops(rows: int, inner: int, columns: int, device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a linear layer's three matrix products: forward, and for its two gradients."""
    x, w, y = (
        torch.randn(*shape, device=device, dtype=dtype) for shape in ((rows, inner), (inner, columns), (rows, columns))
    )

    def products() -> None:
        x @ w
        y @ w.T
        x.T @ y
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    peak = 0.0
    end = time.monotonic() + PEAK_FLOPS_SECONDS
    while time.monotonic() < end:
        start = time.monotonic()
        products()
        # The best of several: other processes may slow some of them down.
        peak = max(peak, 3 * 2.0 * rows * inner * columns / (time.monotonic() - start))
    return peak


@dataclass
class PeakFlops:
    """FLOP/s of matrix products, measured when this is made; once more if a training turns out to be faster, as it does
    where other processes were busy at first."""

    measure: Callable[[], float]
    value: float = field(init=False)
    is_repeated: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.value = self.measure()

    def mfu(self, flops: float) -> float | None:
        """`flops`, of a training in a second, as a share of the peak. None: not below it, so the peak is not known."""
        if flops >= self.value and not self.is_repeated:
            self.is_repeated = True
            self.value = max(self.value, self.measure())
        return flops / self.value if flops < self.value else None


@dataclass(frozen=True)
class CpuTimes:
    """Seconds for which the cores of this process have been busy, and for which it has been busy itself."""

    cores: float
    own: float
    taken_at: float

    @classmethod
    def read(cls) -> CpuTimes | None:
        """None where the system does not tell, and beside processes of our own, such as loaders."""
        if active_children():
            return None
        try:
            stat = Path("/proc/stat").read_text("ascii")
            names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            ticks = [[*map(int, fields)] for name, *fields in map(str.split, stat.splitlines()) if name in names]
            # user, nice, system, idle, iowait, irq, softirq, steal
            busy_ticks = sum(sum(core[:3]) + sum(core[5:8]) for core in ticks)
            return cls(busy_ticks / os.sysconf("SC_CLK_TCK"), time.process_time(), time.monotonic())
        except (OSError, AttributeError, ValueError):
            return None

    def cores_of_others(self, before: CpuTimes) -> float:
        """How many of the cores others kept busy since then, on average."""
        others = (self.cores - before.cores) - (self.own - before.own)
        return max(0.0, others / (self.taken_at - before.taken_at))


def busy_machine(cores_of_others: float) -> Remark | None:
    """If other processes and our threads do not fit on the cores together."""
    if cores_of_others + torch.get_num_threads() < n_cores() + MIN_BUSY_CORES:
        return None
    remedy = "`top` shows them; wait for them, or leave them their cores with `--threads N`"
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        remedy = "less so with GOMP_SPINCOUNT=1000 in the environment, or `import bertworks` before torch"
    text = f"other processes keep {cores_of_others:.1f} of {n_cores()} cores busy and slow this training down; {remedy}"
    return Remark("busy-machine", text)


def _attention_flops(q: torch.Size, k: torch.Size, *_: Any, **__: Any) -> int:
    """Two matrix products of queries (..., T, D) with keys and values (..., T', D)."""
    return 4 * math.prod(q) * k[-2]


def _attention_backward_flops(_: torch.Size, q: torch.Size, k: torch.Size, *__: Any, **___: Any) -> int:
    """Five matrix products, since the scores are computed again."""
    return 10 * math.prod(q) * k[-2]


ATTENTION_FLOPS = {  # kernels that torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}


def flop_counter() -> FlopCounterMode:
    """Counts the FLOPs of all that runs inside of it."""
    return FlopCounterMode(display=False, custom_mapping=ATTENTION_FLOPS)


def environment(device: torch.device, world_size: int) -> dict[str, Any]:
    """Versions and hardware, for the report; the bits of a run depend on them."""
    return {
        "bertworks": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "world_size": world_size,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(
                (line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine()
            )
    except OSError:
        return platform.machine()
