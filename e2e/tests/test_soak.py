"""The soak's checkers find what they are there to find: a loss, a double, something foreign, a store that is wrong."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pyoxigraph
import pytest

from e2e.lib.checks import LogReplay, Verdict, judge_log, judge_worker, parse_dump
from e2e.lib.cluster.supervised import OverriddenConfigs
from e2e.lib.history import (
    WARM_UP,
    ClientOperation,
    LogRecord,
    WriteOutcome,
    increment_update,
    reset_update,
    transaction_quads,
)
from e2e.soak.fault_log import STALL_S, FaultLog, InjectedFault, ShuffledDeck, active_ticks, silence_before
from e2e.soak.master_faults import LAG_S, SHORT_S, silence_was_too_long
from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.local.state_folder import StateFolder
from txlog.model.entry import KIND_QUADS, KIND_UPDATE

ACK = WriteOutcome.ACKNOWLEDGED
SIDES = {"uk-1": "uk", "uk-2": "uk", "us-1": "us"}


def txid(seq: int, node: str = "uk-1") -> str:
    return f"{node}.{1:016x}.{seq}"


def op(name: str, seq: int, began: float = 0.0, ended: float = 1.0) -> ClientOperation:
    return ClientOperation(name, began, ended, ACK, "synced", txid(seq))


def wrote(name: str, seq: int, noop: str = "") -> LogRecord:
    return LogRecord(seq, txid(seq), KIND_QUADS, b"A " + transaction_quads(name).encode(), noop)


def update(text: str, seq: int) -> LogRecord:
    return LogRecord(seq, txid(seq), KIND_UPDATE, text.encode(), "")


def judge(history: list[ClientOperation], *log: LogRecord, moves: bool = True) -> Verdict:
    placed = [entry._replace(log_index=at) for at, entry in enumerate(log, 1)]
    return judge_log(history, placed, SIDES.__getitem__, moves=moves)


def test_what_is_as_it_was_told_is_clean() -> None:
    history = [op("0-1", 3), op("0-2", 4), op("1-1", 6)]
    log = [LogRecord(1, txid(1), KIND_UPDATE, WARM_UP.encode(), ""), update(reset_update(0), 2), wrote("0-1", 3)]
    assert judge(history, *log, update(increment_update("0-2"), 4), wrote("0-1", 5, txid(3)), wrote("1-1", 6)).is_clean


def test_a_transaction_that_is_in_no_log_is_lost() -> None:
    judged = judge([op("0-1", 1), op("0-2", 2)], wrote("0-1", 1))
    assert [text.partition(" ")[0] for text in judged.lost] == ["0-2", "0-2"]


def test_an_id_that_was_told_and_is_not_there_is_lost_although_its_name_is() -> None:
    judged = judge([op("0-1", 7)], wrote("0-1", 1))
    assert len(judged.lost) == 1
    assert txid(7) in judged.lost[0]


def test_twice_in_effect_or_twice_the_same_id_is_doubled() -> None:
    assert judge([op("0-1", 1)], wrote("0-1", 1), wrote("0-1", 2)).doubled == ["0-1 2 times"]
    assert len(judge([op("0-1", 1)], wrote("0-1", 1), wrote("0-1", 1, txid(1))).doubled) == 1


@pytest.mark.parametrize(
    "entry",
    [
        wrote("0-9", 1),
        update("INSERT DATA { <urn:a> <urn:b> 1 }", 1),
        LogRecord(
            1, txid(1), KIND_QUADS, b"A " + transaction_quads("0-1").encode() + b"A <urn:a> <urn:b> <urn:c> .\n", ""
        ),
        update(increment_update("0-1") + " ; CLEAR ALL", 1),
    ],
)
def test_an_entry_that_no_client_wrote_so_is_foreign(entry: LogRecord) -> None:
    assert len(judge([op("0-1", 1)], entry).foreign) == 1


def test_the_order_of_one_side_stands_although_a_rejoin_moves_entries() -> None:
    first, then = op("0-1", 1, 0, 1), op("0-2", 2, 2, 3)
    assert len(judge([first, then], wrote("0-2", 2), wrote("0-1", 1)).disordered) == 1
    elsewhere = op("1-1", 3, 2, 3)._replace(txid=txid(3, "us-1"))
    moved = (wrote("1-1", 3)._replace(txid=txid(3, "us-1")), wrote("0-1", 1))
    assert judge([first, elsewhere], *moved).is_clean
    assert len(judge([first, elsewhere], *moved, moves=False).disordered) == 1


def test_a_repetition_on_the_other_side_may_come_to_stand_before_what_this_side_was_told() -> None:
    first, then = op("0-1", 1, 0, 1), op("0-2", 2, 2, 3)
    assert judge([first, then], wrote("0-2", 9), wrote("0-1", 1), wrote("0-2", 2, txid(9))).is_clean


def replayed(*log: LogRecord) -> set[str]:
    replay = LogReplay()
    replay.run(log)
    return replay.quads()


def test_a_replay_is_what_a_store_holds_that_executed_the_log() -> None:
    gone = LogRecord(4, txid(4), KIND_QUADS, b"D " + transaction_quads("0-1").encode(), "")
    log = [
        update(reset_update(0), 1),
        wrote("0-1", 2),
        update(increment_update("0-2"), 3),
        gone,
        wrote("0-3", 5, txid(2)),
    ]
    store = pyoxigraph.Store()
    store.update(reset_update(0))
    store.update(increment_update("0-2"))
    dump = store.dump(format=pyoxigraph.RdfFormat.N_QUADS)
    assert dump is not None
    assert replayed(*log) == parse_dump(dump) != set()
    assert judge_worker("w", replayed(*log), parse_dump(dump)).is_clean


def test_a_worker_with_a_wrong_quad_is_found() -> None:
    log = [update(reset_update(0), 1), update(increment_update("0-1"), 2), wrote("0-2", 3)]
    wanted = replayed(*log)
    twice = judge_worker("w", wanted, replayed(*log[:2], update(increment_update("0-1"), 4), *log[2:]))
    assert len(twice.doubled) == 1
    assert not twice.foreign
    more = judge_worker("w", wanted, replayed(*log, wrote("0-3", 4)))
    assert len(more.foreign) == 1
    less = judge_worker("w", wanted, replayed(*log[:2]))
    assert len(less.differs) == 1


def test_a_finding_names_the_faults_before_it() -> None:
    diary = FaultLog()
    with diary.fault("kill -9", "uk-1") as first:
        pass
    with diary.fault("cut", "uk-us") as second:
        assert "cut uk-us (not over); " in diary.faults_before(time.time())
        assert "uk-us" not in diary.faults_before((first.started_at + second.started_at) / 2)
    with pytest.raises(OSError, match="no"), diary.fault("never", "uk-1"):
        raise OSError("no")
    assert diary.counts() == {"kill -9": 1, "cut": 1}


def test_time_in_which_the_machine_stood_still_does_not_count() -> None:
    diary = FaultLog()
    diary.stalls.append((10.0, 30.0))
    assert diary.stalled_s == 20
    assert diary.stalled(25, 40)
    assert not diary.stalled(31, 40)
    over = threading.Event()
    over.set()
    diary.watch(over)
    assert len(diary.stalls) == 1
    assert 2 <= sum(1 for _ in active_ticks(0.05, 0.01)) <= 5 < STALL_S * 100


def test_faults_that_touch_are_one_silence_and_what_is_long_ago_is_none() -> None:
    one, then = (
        InjectedFault("short cut", "uk-us", 10.0, 12.0),
        InjectedFault("kill -9 of all links", "links", 12.1, 13.0),
    )
    assert silence_before([then, one], 20.0, 16.0) == pytest.approx((3.0, 2.9))
    later = InjectedFault("short cut", "uk-us", 14.0, 16.0)
    assert silence_before([one, then, later], 20.0, 16.0) == pytest.approx((3.0, 4.9))
    assert silence_before([one, later], 20.0, 5.0) == pytest.approx((1.0, 1.0))
    assert silence_before([InjectedFault("short cut", "uk-us", 19.0)], 20.0, 16.0) == pytest.approx((1.0, 1.0))
    assert silence_before([], 20.0, 16.0) == (0.0, 0.0)


def test_a_split_is_false_unless_its_fault_lasted_too_long_on_a_busy_machine() -> None:
    diary = FaultLog()
    diary.faults.append(InjectedFault("short cut", "uk-us", 100.0, 100.0 + SHORT_S))
    diary.faults.append(InjectedFault("slow link", "uk-us 200 ms", 100.0 + SHORT_S, 110.0))
    assert not silence_was_too_long(diary, 103.0)
    diary.faults[0].ended_at = 100.0 + LAG_S
    assert silence_was_too_long(diary, 104.5)
    assert not silence_was_too_long(diary, 100.0 + 5 * LAG_S)


def test_every_card_comes_before_any_comes_too_often() -> None:
    deck = ShuffledDeck(((3, "a"), (1, "b")), random.Random(1))
    for _ in range(2):
        assert Counter(deck.draw() for _ in range(4)) == {"a": 3, "b": 1}


def test_a_master_is_told_something_else_from_one_start_to_the_next(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.prepare()
    (state.root / "overrides").mkdir()
    peer = PeerConfig(node="uk-1", data_center="uk", url="http://127.0.0.1:1")
    planned = NodeConfig(
        node="uk-1",
        data_center="uk",
        repository="r",
        port=1,
        journal_folder=tmp_path,
        peer_token_file=tmp_path,
        peers=[peer],
    )
    nodes = OverriddenConfigs({"uk-1": planned}, state)
    assert nodes["uk-1"].clock_offset_ms == 0
    state.write("overrides/uk-1.json", {"clock_offset_ms": -50_000})
    assert nodes["uk-1"] == planned.model_copy(
        update={"clock_offset_ms": -50_000, "segment_bytes": nodes["uk-1"].segment_bytes}
    )
    state.write("overrides/uk-1.json", {"clock_ofset_ms": 1})
    with pytest.raises(ValueError, match="clock_ofset_ms"):
        nodes["uk-1"]
