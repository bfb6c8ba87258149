"""Scheduling hints: which threads of this process get a processor first, as far as Linux allows it without privileges.

A woken thread waits until the running one has used up its slice, 1.4 to 4 ms. While both processors copy or hash
megabytes, a small transaction waits that long, on each master in turn. From Linux 6.12 on a thread may request its own
slice (``sched_setattr``, ``sched_runtime`` of ``SCHED_OTHER``). A thread with a shorter slice than the running one
gets the processor at once, and no larger share of it. Older kernels ignore the request, and other systems never get
it: it is never needed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Any, Final

TIMESLICE_US: Final = 100
"""The least that Linux grants: a turn of a master is not much longer."""
MMAP_THRESHOLD_BYTES: Final = 1 << 20
"""Allocations of this size or more are mapped separately by the kernel: they grow without a copy, and are returned at
once."""
TRIM_THRESHOLD_BYTES: Final = 8 << 20
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_RESET_ON_FORK: Final = 1
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr`` in its first version: size, policy, flags, nice, priority, runtime (ns), deadline, period."""
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" and struct.calcsize("P") == 8 else None


def request_short_timeslice() -> bool:
    """Request short slices for the calling thread; threads and processes that it starts get the default. Returns False
    where the system does not know or allow this, or where the parent process chose another scheduling policy."""
    number = _SCHED_SETATTR.get(platform.machine())
    if _libc is None or number is None:
        return False
    try:
        if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    except OSError:  # not implemented (musl), or not allowed
        return False
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, 1000 * TIMESLICE_US, 0, 0)
    return bool(_libc.syscall(number, 0, attributes, 0) == 0)


def mmap_large_allocations() -> None:
    """Fix glibc's threshold for separate mappings. Otherwise, after the first large block is freed, glibc allocates
    such blocks from its heap. There a growing block is copied each time, and free memory stays with the process."""
    if _libc is not None and hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        _libc.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
