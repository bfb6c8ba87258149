"""Slices of the processor, as the kernel of this machine says that they are."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from txlog.runtime import scheduler_hints
from txlog.runtime.scheduler_hints import TIMESLICE_US, request_short_timeslice

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275, "riscv64": 275}
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)))


has_slices = pytest.mark.skipif(
    _libc is None
    or _kernel() < (6, 12)
    or platform.machine() not in _SCHED_GETATTR
    or os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER,
    reason="Linux 6.12 is the first that has them",
)


def slice_ns() -> int:
    """Of the thread that asks."""
    assert _libc is not None
    buffer = ctypes.create_string_buffer(48)
    assert _libc.syscall(_SCHED_GETATTR[platform.machine()], 0, buffer, 48, 0) == 0
    return int.from_bytes(buffer.raw[24:32], sys.byteorder)


def in_a_thread(work: Callable[[], None]) -> None:
    """So that the thread of the tests stays as it was."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as wrong:  # noqa: BLE001 - raised again below
            failed.append(wrong)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _is(wanted: int) -> None:
    assert slice_ns() == wanted


@has_slices
def test_the_loop_has_short_slices_and_what_it_starts_has_not() -> None:
    ask = f"from {__name__} import slice_ns; print(slice_ns())"
    search = os.pathsep.join(filter(None, sys.path))

    def work() -> None:
        usual = slice_ns()
        assert request_short_timeslice()
        assert slice_ns() == 1000 * TIMESLICE_US < usual
        assert request_short_timeslice()  # twice is once
        in_a_thread(lambda: _is(usual))
        child = subprocess.run(
            [sys.executable, "-c", ask],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": search},
            timeout=60,
        )
        assert int(child.stdout) == usual, child.stderr

    in_a_thread(work)


@has_slices
def test_the_niceness_stays() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)  # of this thread, as Linux has it
        assert request_short_timeslice()
        assert os.getpriority(os.PRIO_PROCESS, 0) == 7

    in_a_thread(work)


@has_slices
def test_another_policy_stays() -> None:
    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        assert not request_short_timeslice()
        assert os.sched_getscheduler(0) == os.SCHED_BATCH

    in_a_thread(work)


@pytest.mark.parametrize("error", [38, 1])
def test_a_system_that_does_not_say_or_forbids_it_is_left_alone(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As musl, and as a container that may not ask."""

    def refused(pid: int) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(scheduler_hints.os, "sched_getscheduler", refused, raising=False)
    assert not request_short_timeslice()


def test_another_processor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_hints.platform, "machine", lambda: "s390x")
    assert not request_short_timeslice()


_LARGE = """
import os
from txlog.runtime.scheduler_hints import mmap_large_allocations

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

mmap_large_allocations()
bytes(4 << 20)  # from what is freed here glibc would learn
before = resident()
large = [bytes([number]) * (4 << 20) for number in range(1, 17)]
print(resident() - before)
del large[:-1]  # the last one would hold the others where they stand in one heap
print(resident() - before)
"""


@pytest.mark.skipif(_libc is None or not hasattr(_libc, "mallopt"), reason="glibc alone has it")
def test_large_memory_goes_back_at_once() -> None:
    """In a process of its own: how memory is taken is said once."""
    said = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, check=True, timeout=60)
    grown, left = map(int, said.stdout.split())
    assert grown > 60 << 20
    assert left < grown // 4
