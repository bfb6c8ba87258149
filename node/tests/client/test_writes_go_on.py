"""A write goes on to the next master under one key, as often and as long as it may."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted_master import Handler, ScriptedMaster, scripted_master

from txlog.client import FailoverClient, JsonPosition, MasterUnreachable, RetryPolicy, WriteResult
from txlog.model import errors
from txlog.model.durability import Durability

STATEMENTS = ("POST", "/repositories/demo/statements")
PLACE = JsonPosition(3, 7, "ab" * 16)
UPDATE = "INSERT DATA { <urn:s> <urn:p> 1 }"
KEYLESS = "INSERT { ?s <urn:id> ?u } WHERE { ?s ?p ?o BIND(UUID() AS ?u) }"


class Asked:
    """What reached the statements of a master: the key of each request, None without one."""

    def __init__(self, master: ScriptedMaster) -> None:
        self.keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.master = master
        master.answers["GET", "/health/ready"] = (200, {})
        master.answers["GET", "/txlog/status"] = (
            200,
            {"node": "n", "state": "Joined", "stable": PLACE_JSON, "log": PLACE_JSON, "repository": "demo"},
        )

    def answers(self, status: int = 204, body: str = "", **headers: str) -> None:
        def answer(handler: Handler) -> None:
            self._note(handler)
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body.encode())

        self.master.answers[STATEMENTS] = answer

    def takes_it(self, txid: str = "n.1.5") -> None:
        self.answers(TxLog_Transaction=txid, TxLog_Position=f"3:7:{PLACE.hash}", TxLog_Durability="synced")

    def breaks_off(self) -> None:
        def answer(handler: Handler) -> None:
            self._note(handler)
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        self.master.answers[STATEMENTS] = answer

    def takes_no_key(self, then: Callable[[Handler], None] | None = None) -> None:
        def answer(handler: Handler) -> None:
            self._note(handler)
            if self.keys[-1] is None:
                if then is not None:
                    then(handler)
                    return
                handler.send_response(204)
                handler.send_header("TxLog-Transaction", "n.1.6")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            handler.send_response(400)
            handler.send_header("TxLog-Error", "KeyNotTaken")
            handler.send_header("Content-Length", "3")
            handler.end_headers()
            handler.wfile.write(b"no\n")

        self.master.answers[STATEMENTS] = answer

    def _note(self, handler: Handler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.keys.append(handler.headers.get("Idempotency-Key"))
        self.headers.append(dict(handler.headers.items()))
        self.paths.append(handler.path)


PLACE_JSON = {"epoch": 3, "index": 7, "hash": PLACE.hash}


class Time:
    """Sleeps are remembered, and pass at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def near() -> Iterator[Asked]:
    with scripted_master() as master:
        yield Asked(master)


@pytest.fixture
def far() -> Iterator[Asked]:
    with scripted_master() as master:
        yield Asked(master)


def masters(*asked: Asked, time: Time | None = None, **more: Any) -> FailoverClient:
    time = time or Time()
    return FailoverClient([one.master.url for one in asked], clock=time, sleep=time.sleep, **more)


def test_a_key_is_drawn_for_each_write_and_the_answer_is_typed(near: Asked, far: Asked) -> None:
    near.takes_it()
    with masters(near, far) as both:
        told = both.update(UPDATE, durability=Durability.SYNCED, wait_s=3)
        both.upload(b"<urn:s> <urn:p> 2 .", "text/turtle", graphs=["urn:g", "urn:h"])
        both.update(UPDATE, key="mine")
    assert told == WriteResult("n.1.5", PLACE, "synced")
    first, second, third = near.keys
    assert first != second
    assert len(first or "") == len(second or "") == 32
    assert third == "mine"
    assert near.headers[0]["TxLog-Durability"] == "synced"
    assert near.headers[0]["Prefer"] == "wait=3"
    assert near.headers[0]["Content-Type"] == "application/sparql-update"
    assert near.paths[1].endswith("?context=%3Curn%3Ag%3E&context=%3Curn%3Ah%3E")
    assert near.headers[1]["Content-Type"] == "text/turtle"
    assert far.keys == []


@pytest.mark.parametrize("how", ["breaks off", "not ready", "says nothing"])
def test_the_next_master_gets_the_same_key(near: Asked, far: Asked, how: str) -> None:
    release = threading.Event()
    if how == "breaks off":
        near.breaks_off()
    elif how == "not ready":
        near.answers(503, "Muted\n", Retry_After="1", TxLog_Error="Muted")
    else:

        def silent(handler: Handler) -> None:
            near._note(handler)
            release.wait(60)

        near.master.answers[STATEMENTS] = silent
    far.takes_it()
    patience_s = 3 if how == "says nothing" else 30  # also what a busy machine has for the far one's answer
    with masters(near, far, timeout_s=patience_s) as both:
        assert both.update(UPDATE, wait_s=0.1).txid == "n.1.5"
    release.set()
    assert set(near.keys) == set(far.keys)
    assert len(far.keys) == 1
    assert near.keys[0]


def test_what_is_refused_goes_nowhere_else(near: Asked, far: Asked) -> None:
    near.answers(400, "MALFORMED QUERY: x\n")
    with masters(near, far) as both:
        with pytest.raises(errors.BadInput, match="MALFORMED"):
            both.update("nonsense")
        near.answers(409, "gone\n")
        with pytest.raises(errors.Refused):
            both.update(UPDATE)
    assert far.keys == []


def test_tries_are_bounded_and_wait_as_long_as_they_are_told(near: Asked, far: Asked) -> None:
    time = Time()
    near.answers(503, "full\n", Retry_After="10", TxLog_Error="DiskFull")
    far.answers(503, "full\n", Retry_After="4", TxLog_Error="QueueFull")
    with masters(near, far, time=time, patience=RetryPolicy(5, 60)) as both, pytest.raises(errors.Unavailable) as last:
        both.update(UPDATE)
    assert last.value.reason == "DiskFull"
    assert (len(near.keys), len(far.keys)) == (3, 2)
    assert len(set(near.keys + far.keys)) == 1
    assert time.slept == [4, 4]


def test_time_is_bounded(near: Asked) -> None:
    time = Time()
    near.answers(503, "full\n", Retry_After="7", TxLog_Error="QueueFull")
    with masters(near, time=time, patience=RetryPolicy(100, 10)) as one, pytest.raises(errors.Unavailable):
        one.update(UPDATE)
    assert time.slept == [7, 3]
    assert len(near.keys) == 3


def test_who_gives_up_says_whether_it_may_have_been_taken(near: Asked) -> None:
    near.breaks_off()
    with masters(near, patience=RetryPolicy(2, 60)) as one, pytest.raises(MasterUnreachable) as last:
        one.update(UPDATE)
    assert last.value.sent
    assert str(near.keys[0]) in str(last.value)
    near.answers(503, "Starting\n", Retry_After="1", TxLog_Error="Starting")
    with masters(near, patience=RetryPolicy(2, 60)) as one, pytest.raises(errors.Unavailable) as sure:
        one.update(UPDATE)
    assert sure.value.reason == "Starting"


def test_an_answer_without_a_transaction_is_asked_for_again(near: Asked, far: Asked) -> None:
    near.answers(202, "not known yet\n")
    far.takes_it()
    with masters(near, far) as both:
        assert both.update(UPDATE).txid == "n.1.5"
    assert near.keys == far.keys


def test_what_can_have_no_key_is_sent_without_and_nowhere_else_after_that(near: Asked, far: Asked) -> None:
    near.takes_no_key()
    with masters(near, far) as both:
        assert both.update(KEYLESS).txid == "n.1.6"
    assert near.keys[1:] == [None]
    near.takes_no_key(then=lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
    with masters(near, far) as both, pytest.raises(MasterUnreachable):
        both.update(KEYLESS)
    assert far.keys == []


def test_without_a_key_it_goes_on_only_where_nothing_was_sent(near: Asked, far: Asked) -> None:
    near.answers(503, "Starting\n", Retry_After="1", TxLog_Error="Starting")
    far.takes_no_key()
    with masters(near, far) as both:
        assert both.update(KEYLESS).txid == "n.1.6"
    assert far.keys[1:] == [None]


def test_a_key_that_was_sent_is_not_dropped(near: Asked, far: Asked) -> None:
    near.breaks_off()
    far.takes_no_key()
    with masters(near, far) as both, pytest.raises(errors.KeyNotTaken):
        both.update(KEYLESS)
    assert None not in far.keys


def test_a_key_of_the_caller_is_not_dropped(near: Asked) -> None:
    near.takes_no_key()
    with masters(near) as one, pytest.raises(errors.KeyNotTaken):
        one.update(KEYLESS, key="mine")
    assert near.keys == ["mine"]


def test_another_body_under_a_drawn_key_is_an_earlier_try_of_this_one(near: Asked, far: Asked) -> None:
    near.breaks_off()
    far.answers(409, "Idempotency-Key 'k' came with another body before, as n.1.9\n", TxLog_Error="KeyTaken")
    what = {"txid": "n.1.9", "state": "applied", "durability": "applied", "position": PLACE_JSON}
    far.master.answers["GET", "/txlog/transactions/n.1.9"] = (200, what)
    with masters(near, far) as both:
        assert both.update(UPDATE) == WriteResult("n.1.9", PLACE, "applied")
        with pytest.raises(errors.KeyTaken) as taken:
            both.update(UPDATE, key="mine")
        assert taken.value.txid == "n.1.9"
        far.master.answers["GET", "/txlog/transactions/n.1.9"] = (200, {**what, "state": "skipped"})
        with pytest.raises(errors.Conflict, match="skipped"):
            both.update(UPDATE)


def test_a_query_is_asked_of_the_next_too_but_not_what_takes_too_long(near: Asked, far: Asked) -> None:
    body = b'{"head":{"vars":["n"]},"results":{"bindings":[{"n":{"type":"literal","value":"5"}}]}}'
    near.master.answers["POST", "/repositories/demo"] = (503, {"error": "Unavailable", "reason": "NoWorker"})
    far.master.answers["POST", "/repositories/demo"] = (200, body)
    with masters(near, far) as both:
        found = both.query("SELECT (5 AS ?n) {}", at_least=PLACE)
        assert found.rows == [{"n": "5"}]
    asked = len(far.master.asked)
    near.master.answers["POST", "/repositories/demo"] = (503, {"error": "Unavailable", "reason": "QueryTimeout"})
    with masters(near, far) as both, pytest.raises(errors.Unavailable, match="answered 503"):
        both.query("SELECT (5 AS ?n) {}")
    assert len(far.master.asked) == asked


PENDING = {"TxLog_Transaction": "n.1.5", "TxLog_Synchronous": "pending"}


@pytest.mark.parametrize("how", ["202", "504"])
def test_a_pending_one_is_asked_for_at_the_next_master_under_its_key(near: Asked, far: Asked, how: str) -> None:
    if how == "202":
        near.answers(202, "n.1.5: may be rolled back\n", **PENDING)
    else:
        near.answers(504, "n.1.5: may be rolled back\n", TxLog_Error="Undecided", **PENDING)
    far.answers(204, TxLog_Transaction="f.1.2", TxLog_Synchronous="committed", TxLog_Durability="applied")
    with masters(near, far) as both:
        told = both.update(UPDATE, synchronous="all; timeout=10s", wait_s=0.1)
    assert (told.txid, told.synchronous) == ("f.1.2", "committed")
    assert near.keys == far.keys
    assert [one.headers[0]["TxLog-Synchronous"] for one in (near, far)] == ["all; timeout=10s"] * 2


def test_what_stays_pending_is_an_error_that_names_its_key(near: Asked, far: Asked) -> None:
    for one in (near, far):
        one.answers(202, "pending\n", **PENDING)
    patience = RetryPolicy(3, 60)
    with masters(near, far, patience=patience) as both, pytest.raises(errors.OutcomeUndecided) as undecided:
        both.update(UPDATE, synchronous=True)
    assert near.headers[0]["TxLog-Synchronous"] == "true"
    assert str(near.keys[0]) in str(undecided.value)
    assert (len(near.keys), len(far.keys)) == (2, 1)


def test_who_asks_for_accepted_takes_pending(near: Asked, far: Asked) -> None:
    near.answers(202, "pending\n", **PENDING)
    with masters(near, far) as both:
        told = both.update(UPDATE, synchronous=True, durability=Durability.ACCEPTED)
    assert (told.synchronous, far.keys) == ("pending", [])


def test_a_pending_one_without_a_key_goes_nowhere_else(near: Asked, far: Asked) -> None:
    def pending(handler: Handler) -> None:
        handler.send_response(202)
        for name, value in PENDING.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    near.takes_no_key(then=pending)
    with masters(near, far) as both, pytest.raises(errors.OutcomeUndecided):
        both.update(KEYLESS, synchronous=True)
    assert far.keys == []


def test_rolled_back_is_final_where_no_other_try_may_take_effect(near: Asked, far: Asked) -> None:
    near.answers(409, "no quorum held it\n", TxLog_Error="RolledBack", TxLog_Synchronous="rolled-back")
    with masters(near, far) as both, pytest.raises(errors.RolledBack):
        both.update(UPDATE, synchronous=True)
    assert far.keys == []


def test_rolled_back_is_not_final_after_a_try_that_may_take_effect(near: Asked, far: Asked) -> None:
    near.breaks_off()
    far.answers(409, "no quorum held it\n", TxLog_Error="RolledBack")
    patience = RetryPolicy(2, 60)
    with masters(near, far, patience=patience) as both, pytest.raises(errors.OutcomeUndecided) as undecided:
        both.update(UPDATE, synchronous=True)
    assert set(near.keys) == set(far.keys)
    assert str(near.keys[0]) in str(undecided.value)
