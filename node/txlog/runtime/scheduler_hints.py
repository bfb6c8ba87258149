"""Who of this process's threads gets a processor first, as far as Linux lets a program say so without privileges.

A thread that was woken waits until the one that has the processor has used up its slice, 1.4 to 4 ms; where both
processors copy or hash megabytes, that is what a small transaction waits for, and on each master in turn. From Linux
6.12 on a thread may ask for a slice of its own (``sched_setattr``, ``sched_runtime`` of ``SCHED_OTHER``): whoever has a
shorter one than the running thread gets the processor at once, and no larger share of it. Older kernels pass over that,
and elsewhere nothing of it is asked for: it is never needed.
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
"""Memory from here on comes from the kernel by itself: it grows without being copied, and goes back at once."""
TRIM_THRESHOLD_BYTES: Final = 8 << 20
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_RESET_ON_FORK: Final = 1
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr`` in its first version: size, policy, flags, nice, priority, runtime (ns), deadline, period."""
_libc: Any = ctypes.CDLL(None) if sys.platform == "linux" and struct.calcsize("P") == 8 else None


def request_short_timeslice() -> bool:
    """The thread that calls this has short slices from now on; the threads and processes that it starts have those that
    all have. False where the system knows nothing of this, forbids it, or was told otherwise by whoever started us."""
    number = _SCHED_SETATTR.get(platform.machine())
    if _libc is None or number is None:
        return False
    try:
        if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    except OSError:  # not implemented (musl), or not allowed
        return False
    told = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, 1000 * TIMESLICE_US, 0, 0)
    return bool(_libc.syscall(number, 0, told, 0) == 0)


def mmap_large_allocations() -> None:
    """glibc otherwise learns from the first large piece that is freed to cut such pieces from its heap, where one that
    grows is copied each time, and what is free stays with the process."""
    if _libc is not None and hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        _libc.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
