"""Freed memory is kept for the next step. glibc hands large freed blocks back to the system and faults them in again, page
by page, on the next forward pass; keeping them made encoding about a tenth faster (docs/LOG.md). Other systems: nothing to do."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """For the whole process, once. False where there is no glibc."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, 2**30)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
