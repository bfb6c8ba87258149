"""What ``make fuzz`` rests on: inputs by number, and that what is wrong is seen."""

from __future__ import annotations

import os
import random
from collections import Counter
from types import SimpleNamespace

import pytest

from e2e.fuzz.mutations import LENGTH_MAX, mutate
from e2e.fuzz.run import MEMORY_MB, generate_input, run_fuzz, run_input
from e2e.fuzz.targets import FuzzTarget, ReadersDisagree, all_targets, read_frames, read_head
from e2e.lib.report import CannotMeasure
from txlog.model.errors import BadInput, TxLogError

HANG_S = 0.5


def refuse(_: bytes) -> None:
    raise BadInput("as it should")


def fail(_: bytes) -> None:
    raise KeyError("as it should not")


def spin(_: bytes) -> None:
    while True:
        pass


def end(_: bytes) -> None:
    os._exit(9)


def swell(_: bytes) -> None:
    bytearray((MEMORY_MB + 100) * 10**6)


def bad_targets() -> list[FuzzTarget]:
    readers = (refuse, refuse, refuse, fail, spin, end)
    return [FuzzTarget(f"{reader.__name__}-{at}", [b"x"], [b"y"], reader) for at, reader in enumerate(readers)]


def no_targets() -> list[FuzzTarget]:
    raise OSError("a process that cannot start")


def test_an_input_follows_from_its_number() -> None:
    chosen = all_targets()
    first = [generate_input(1, number, chosen) for number in range(300)]
    assert [data for _, data in first] == [generate_input(1, number, chosen)[1] for number in range(300)]
    assert [data for _, data in first] != [generate_input(2, number, chosen)[1] for number in range(300)]
    assert len({target.name for target, _ in first}) > 15


def test_inputs_begin_with_what_is_well_formed_and_stay_short() -> None:
    for target in all_targets():
        refused = 0
        for seed in target.seeds:
            try:
                target.read(seed)
            except TxLogError:
                refused += 1
        assert refused <= len(target.seeds) // 2, target.name
        chance = random.Random(1)
        assert all(len(mutate(chance, target.seeds, target.words)) <= LENGTH_MAX for _ in range(50))


def test_a_reader_may_refuse_and_nothing_else() -> None:
    assert run_input(1, FuzzTarget("x", [b""], [b""], refuse), b"") is None
    found = run_input(2, FuzzTarget("x", [b""], [b""], fail), b"")
    assert found is not None
    assert (found.kind, found.number) == ("crash", 2)
    assert found.where.startswith("KeyError at test_fuzz.py:")
    for _ in range(2):  # a process that has had as much before is no excuse
        found = run_input(3, FuzzTarget("x", [b""], [b""], swell), b"abc")
        assert found is not None
        assert "MB more for 3 bytes" in found.text


@pytest.mark.timeout(300)
def test_what_hangs_and_what_ends_the_process_is_named_and_the_rest_is_read() -> None:
    findings, counts, _ = run_fuzz(5, 40, make=bad_targets, hang_s=HANG_S)
    wanted = Counter(generate_input(5, number, bad_targets())[0].name for number in range(40))
    found = Counter((one.kind, one.target) for one in findings)
    assert found == {
        ("crash", "fail-3"): wanted["fail-3"],
        ("hang", "spin-4"): wanted["spin-4"],
        ("crash", "end-5"): wanted["end-5"],
    }
    assert min(found.values()) > 0
    assert all(generate_input(5, one.number, bad_targets())[0].name == one.target for one in findings)
    assert counts.total() >= 1


@pytest.mark.timeout(300)
def test_who_cannot_begin_is_no_finding() -> None:
    with pytest.raises(CannotMeasure, match="before its first one"):
        run_fuzz(1, 4, make=no_targets)


def test_the_readers_as_they_are() -> None:
    """A few of each; ``make fuzz`` reads a million."""
    chosen = all_targets()
    for number in range(1500):
        target, data = generate_input(11, number, chosen)
        assert run_input(number, target, data) is None, (number, target.name)


def test_a_head_that_two_parsers_read_differently_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"POST /repositories/r/statements HTTP/1.1\r\nHost: x\r\nContent-Length: 5"
    read_head(head)
    read_head(head + b"\r\nConnection: Keep-Alive ")  # space around a value is none of it
    wrong = SimpleNamespace(content_length=6, key="", media_type="")
    monkeypatch.setattr("e2e.fuzz.targets.parse_plain_write", lambda *_: wrong)
    with pytest.raises(ReadersDisagree, match="is taken as 6"):
        read_head(head)


def test_inputs_of_a_structure_are_accepted_often_enough_to_reach_what_lies_behind() -> None:
    chosen = {target.name: target for target in all_targets()}
    for name in ("binary", "x-rdftransaction", "head", "frames"):
        chance, accepted = random.Random(1), Counter[str]()
        for number in range(200):
            assert run_input(number, chosen[name], chosen[name].input(chance), accepted) is None
        assert accepted[name] > 50, name


def test_a_reader_of_frames_that_depends_on_their_pieces_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"\0\0\0\2ab\0\0\0\1c"
    read_frames(whole)
    with pytest.raises(BadInput, match="too much"):
        read_frames(b"\xff" * 8)
    monkeypatch.setattr("e2e.fuzz.targets.FrameConnection._buffer", lambda *_: None)
    with pytest.raises(ReadersDisagree, match="how they come"):
        read_frames(whole)
