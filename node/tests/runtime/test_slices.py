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

from txlog.runtime.slices import SHORT_US, answer_soon, take_turns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has them")

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275, "riscv64": 275}


def slice_ns() -> int:
    """Of the thread that asks; 0 where the kernel does not say (before 6.12)."""
    buffer = ctypes.create_string_buffer(48)
    number = _SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, buffer, 48, 0) == 0
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


def has_slices() -> bool:
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor)) >= (6, 12)


def test_the_loop_has_short_slices_and_who_works_beside_it_has_not() -> None:
    def work() -> None:
        usual = slice_ns()
        assert answer_soon()
        if has_slices():
            assert slice_ns() == 1000 * SHORT_US < usual
            in_a_thread(lambda: _is(1000 * SHORT_US))  # one that it starts has its slices
        in_a_thread(lambda: _taking_turns(usual))
        take_turns()
        assert slice_ns() == usual

    in_a_thread(work)


def _is(wanted: int) -> None:
    assert slice_ns() == wanted


def _taking_turns(usual: int) -> None:
    take_turns()
    assert slice_ns() == usual


def test_the_niceness_stays() -> None:
    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 7)  # of this thread, as Linux has it
        answer_soon()
        assert os.getpriority(os.PRIO_PROCESS, 0) == 7
        take_turns()
        assert os.getpriority(os.PRIO_PROCESS, 0) == 7

    in_a_thread(work)


def test_another_policy_stays() -> None:
    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        assert not answer_soon()
        assert os.sched_getscheduler(0) == os.SCHED_BATCH

    in_a_thread(work)


_LARGE = """
import os
from txlog.runtime.slices import keep_large_memory_apart

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

keep_large_memory_apart()
bytes(4 << 20)  # from what is freed here glibc would learn
before = resident()
large = [bytes([number]) * (4 << 20) for number in range(1, 17)]
print(resident() - before)
del large[:-1]  # the last one would hold the others where they stand in one heap
print(resident() - before)
"""


def test_large_memory_goes_back_at_once() -> None:
    """In a process of its own: how memory is taken is said once."""
    said = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, check=True, timeout=60)
    grown, left = map(int, said.stdout.split())
    assert grown > 60 << 20
    assert left < grown // 4
