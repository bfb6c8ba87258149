from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from scripted_master import Handler, ScriptedMaster, scripted_master

from txlog.client import FailoverClient, JsonMarker, MasterClient, MasterUnreachable, WorkerReport, WriteRequest
from txlog.client.connection import MasterConnection
from txlog.client.errors import parse_error
from txlog.model import errors
from txlog.model.durability import Durability
from txlog.model.entry import Position
from txlog.model.errors import NotFound
from txlog.wire.log_page import LogPage, encode_page

HASH = "ab" * 16
PLACE = {"epoch": 1, "index": 9, "hash": HASH}


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with scripted_master() as master:
        yield master


@pytest.fixture
def client(master: ScriptedMaster) -> Iterator[MasterClient]:
    with MasterClient(master.url, timeout_s=30) as client:
        yield client


def unused_url() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


def test_status_reads_the_documented_answer_and_ignores_what_it_does_not_know(
    master: ScriptedMaster, client: MasterClient
) -> None:
    master.answers["GET", "/txlog/status"] = (
        200,
        {"node": "uk-1", "state": "Joined", "stable": PLACE, "log": PLACE, "clusterId": "c", "fresh": 1}
        | {"workers": [{"name": "w1", "url": "u", "position": PLACE | {"fence": 3}, "state": "Working", "hold": None}]},
    )
    status = client.status()
    assert status.stable.position == Position(1, 9, bytes.fromhex(HASH))
    assert status.cluster_id == "c"
    assert status.workers[0].position == JsonMarker(1, 9, HASH, 3)


def test_calls_share_one_connection(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["GET", "/metrics"] = (200, b"txlog_up 1\n")
    assert [client.metrics() for _ in range(5)] == ["txlog_up 1\n"] * 5
    assert master.connections == 1


def test_an_error_answer_keeps_the_connection(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["GET", "/metrics"] = (200, b"")
    with pytest.raises(errors.NotFound):
        client.transaction("uk-1.00c0ffee00c0ffee.42")
    client.metrics()
    assert master.connections == 1


def test_a_kept_connection_that_the_master_closed_is_replaced(master: ScriptedMaster, client: MasterClient) -> None:
    def close_after(handler: Handler) -> None:
        handler.answer(200, b"first")
        handler.close_connection = True  # without telling, as a restart does

    master.answers["GET", "/metrics"] = close_after
    assert client.metrics() == "first"
    assert client.metrics() == "first"
    assert master.connections == 2


def test_a_connection_that_ended_while_idle_is_not_used_for_what_may_not_be_repeated(master: ScriptedMaster) -> None:
    def close_after(handler: Handler) -> None:
        handler.answer(200, b"taken")
        handler.close_connection = True

    master.answers["POST", "/write"] = close_after
    connection = MasterConnection(master.url, timeout_s=30)
    assert connection.request("POST", "/write", repeatable=False).body == b"taken"
    kept = connection._http.sock
    assert kept is not None
    assert kept.recv(1, socket.MSG_PEEK) == b""  # waits until the master has closed
    assert connection.request("POST", "/write", repeatable=False).body == b"taken"
    assert master.connections == 2
    connection.close()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("Diverged", errors.LogDiverged), ("Ahead", errors.LogAhead), ("NeedsRestore", errors.LogNeedsRestore)],
)
def test_the_reasons_of_a_refused_page_are_exceptions_of_their_own(
    master: ScriptedMaster, client: MasterClient, reason: str, kind: type[Exception]
) -> None:
    master.answers["GET", "/txlog/log"] = (409, {"error": "Refused", "reason": reason, "message": "because"})
    with pytest.raises(kind, match="because"):
        client.log_page(9, bytes.fromhex(HASH))


def test_a_page_is_asked_for_with_all_its_bounds(master: ScriptedMaster, client: MasterClient) -> None:
    page = LogPage(Position(1, 9, b"h" * 16), [], Position(1, 9, b"h" * 16))
    master.answers["GET", "/txlog/log"] = (200, encode_page(page))
    assert client.log_page(9, bytes.fromhex(HASH), upto=12, max_bytes=1000) == page
    client.log_page(0)
    assert [path for _, path, _ in master.asked] == [
        f"/txlog/log?after=9&hash={HASH}&upto=12&maxBytes=1000",
        "/txlog/log?after=0",
    ]


def test_an_answer_that_is_no_page_is_malformed(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["GET", "/txlog/log"] = (200, b"<html>")
    with pytest.raises(errors.PeerFault, match="UnknownFormat"):
        client.log_page(0)
    master.answers["GET", "/txlog/status"] = (200, b"<html>")
    with pytest.raises(errors.PeerFault, match="Malformed"):
        client.status()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error":"NotDeterministic","reason":"","message":"RAND() is ..."}', errors.BadInput),
        (400, b'{"error":"SystemGraphNamed","message":"m"}', errors.SystemGraphNamed),
        (409, b'{"error":"Conflict","message":"m"}', errors.Conflict),
        (413, b'{"error":"TooLarge","message":"m"}', errors.TooLarge),
        (403, b'{"error":"PeerFault","reason":"WrongToken","message":"m"}', errors.PeerFault),
        (503, b'{"error":"Unavailable","reason":"QueueFull","message":"m"}', errors.Unavailable),
        (503, b"<html>no backend</html>", errors.Unavailable),
        (404, b"", errors.NotFound),
        (418, b"teapot", errors.TxLogError),
    ],
)
def test_error_bodies_become_the_errors_they_name(status: int, body: bytes, kind: type[Exception]) -> None:
    assert type(parse_error("http://m", status, {}, body)) is kind


def test_retry_after_travels() -> None:
    full = parse_error(
        "http://m", 503, {"Retry-After": "7"}, b'{"error":"Unavailable","reason":"QueueFull","message":"m"}'
    )
    assert isinstance(full, errors.Unavailable)
    assert (full.reason, full.retry_after_s) == ("QueueFull", 7)


def test_nothing_listening_is_unreachable_and_surely_not_sent() -> None:
    with pytest.raises(MasterUnreachable) as gone:
        MasterClient(unused_url(), 1).status()
    assert not gone.value.sent


def test_a_silent_master_is_unreachable_when_the_time_is_over(master: ScriptedMaster) -> None:
    release = threading.Event()
    master.answers["GET", "/txlog/status"] = lambda _: release.wait(10)
    with MasterClient(master.url, timeout_s=2) as client:  # long enough for the second answer on a busy machine
        with pytest.raises(MasterUnreachable) as gone:
            client.status()
        assert gone.value.sent
        release.set()
        master.answers["GET", "/txlog/status"] = (200, {"node": "n", "state": "Joined", "stable": PLACE, "log": PLACE})
        assert client.status().node == "n"  # on a new connection: the late answer cannot be taken for this one


def test_report_sends_what_is_documented_and_returns_the_hold(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["POST", "/txlog/workers/w1"] = (200, {"hold": 40})
    report = WorkerReport(JsonMarker(1, 9, HASH, 3), "Blocked", "refused", 400, "bad", "uk-1.00c0ffee00c0ffee.42", 1.5)
    assert client.report_worker("w1", report).hold == 40
    assert json.loads(master.asked[0][2]) == {
        "position": PLACE | {"fence": 3, "unordered": [], "cluster": "", "base": ""},
        "state": "Blocked",
        "error": "refused",
        "status": 400,
        "body": "bad",
        "txid": "uk-1.00c0ffee00c0ffee.42",
        "tookMs": 1.5,
        "fault": None,
        "running": False,
        "bulk": None,
    }


def test_holds_skip_health_peers_and_workers(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["PUT", "/txlog/holds/w1"] = (200, {})
    master.answers["DELETE", "/txlog/holds/w1"] = (204, b"")
    master.answers["POST", "/txlog/skip/uk-1.00c0ffee00c0ffee.42"] = (200, {"txid": "x"})
    master.answers["GET", "/health/ready"] = (503, {"error": "Unavailable", "reason": "Starting", "message": "m"})
    master.answers["GET", "/health/live"] = (200, {})
    master.answers["GET", "/txlog/peers"] = (200, [{"node": "uk-1"}])
    master.answers["GET", "/txlog/workers"] = (200, {"workers": [{"name": "w1", "state": "Unknown"}]})
    client.pause_worker("w1", 7)
    client.resume_worker("w1")
    assert client.skip("uk-1.00c0ffee00c0ffee.42") == {"txid": "x"}
    assert not client.health("ready")
    assert client.health("live")
    assert client.peers() == [{"node": "uk-1"}]
    assert [w.name for w in client.workers()] == ["w1"]
    assert json.loads(master.asked[0][2]) == {"index": 7}


def test_a_backup_is_asked_about_and_a_master_of_the_last_release_as_it_understands(
    master: ScriptedMaster, client: MasterClient
) -> None:
    path = "/txlog/duties/backup-3.1.uk-2"
    master.answers["GET", path] = (200, {"usable": False, "why": "another branch"})
    assert not client.can_use_backup("backup-3.1.uk-2", 7, HASH, 3)
    assert not client.can_use_backup("backup-3.1.uk-2", 7, HASH)
    assert [request[1] for request in master.asked] == [
        f"{path}?index=7&hash={HASH}&epoch=3",
        f"{path}?index=7&hash={HASH}",
    ]
    del master.answers["GET", path]
    with pytest.raises(NotFound):
        client.can_use_backup("backup-3.1.uk-2", 7, HASH)
    master.answers["GET", path] = (405, b"GET is not possible here; use POST\n")
    for answer, usable in (((200, {"open": True}), True), ((409, {"error": "OffTheLog", "message": "m"}), False)):
        master.answers["POST", path] = answer
        assert client.can_use_backup("backup-3.1.uk-2", 7, HASH, 3) == usable
        assert json.loads(master.asked[-1][2]) == {"state": "begun", "index": 7, "hash": HASH, "epoch": 3}


def test_workers_are_added_and_removed(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["POST", "/txlog/workers"] = (200, {"workers": ["w1"]})
    master.answers["DELETE", "/txlog/workers/w1"] = (200, {"reading": 2})
    client.add_worker("w1", "http://s", "fuseki")
    assert client.remove_worker("w1", 0.5) == 2
    assert json.loads(master.asked[0][2]) == {"name": "w1", "url": "http://s", "engine": "fuseki"}
    assert master.asked[1][1] == "/txlog/workers/w1?timeout=0.5"


def test_doorbell_and_transaction_wait_longer_than_the_time_out(master: ScriptedMaster) -> None:
    def late(body: object) -> object:
        def answer(handler: Handler) -> None:
            never.wait(0.3)
            handler.answer(200, body)

        return answer

    never = threading.Event()
    master.answers["GET", "/txlog/doorbell"] = late({"stable": PLACE, "tick": 4, "workers": []})
    master.answers["GET", "/txlog/transactions/t"] = late({"txid": "t", "state": "stable", "durability": "synced"})
    with MasterClient(master.url, timeout_s=0.2) as client:
        assert client.doorbell(3, tick=2, timeout_s=30).tick == 4
        assert client.transaction("t", wait_s=30, durability=Durability.SYNCED).durability == "synced"
    assert [path for _, path, _ in master.asked] == [
        "/txlog/doorbell?after=3&tick=2&timeout=30",
        "/txlog/transactions/t?wait=30&durability=synced",
    ]


def echo(handler: Handler) -> None:
    """Answers each line at once, while more of them arrive."""
    line = handler.start_lines_out()
    for i, told in enumerate(handler.lines_in()):
        wish = json.loads(told)
        refused = {"error": "BadInput", "message": "no"}
        line(json.dumps(refused if "update" in wish else {"txid": f"t{i}", "position": PLACE}).encode() + b"\n")
    line(b"")


def test_submit_answers_while_lines_are_still_being_made(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["POST", "/txlog/transactions"] = echo
    answered = threading.Event()

    def lines() -> Iterator[WriteRequest]:
        yield WriteRequest(quads="<urn:s> <urn:p> <urn:o> .", key="k")
        assert answered.wait(30), "the first answer did not come before the second line"
        yield WriteRequest(update="nonsense")

    answers = client.submit(lines(), Durability.APPLIED, batch_bytes=0)
    first = next(answers)
    assert first.txid == "t0"
    assert first.position is not None
    answered.set()
    assert [a.error for a in answers] == ["BadInput"]
    master.answers["GET", "/metrics"] = (200, b"")
    client.metrics()
    assert master.connections == 1


def test_submit_of_more_than_any_buffer_holds_does_not_lock(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["POST", "/txlog/transactions"] = echo
    count = 40_000
    assert sum(a.txid is not None for a in client.submit(WriteRequest(quads="q" * 200) for _ in range(count))) == count


def test_submit_answered_in_one_piece(master: ScriptedMaster, client: MasterClient) -> None:
    def whole(handler: Handler) -> None:
        handler.answer(200, b"".join(b'{"txid":"t%d"}\n' % i for i, _ in enumerate(handler.lines_in())))

    master.answers["POST", "/txlog/transactions"] = whole
    assert [a.txid for a in client.submit([WriteRequest(quads="q")] * 3)] == ["t0", "t1", "t2"]
    master.answers["GET", "/metrics"] = (200, b"")
    client.metrics()
    assert master.connections == 1


def test_submit_cut_in_an_answer_of_known_length_is_unreachable(master: ScriptedMaster, client: MasterClient) -> None:
    def cut(handler: Handler) -> None:
        list(handler.lines_in())
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"txid":"t0"}\n')
        handler.connection.shutdown(socket.SHUT_RDWR)

    master.answers["POST", "/txlog/transactions"] = cut
    with pytest.raises(MasterUnreachable):
        list(client.submit([WriteRequest(quads="q")]))


def test_submit_raises_what_the_producer_raised(master: ScriptedMaster, client: MasterClient) -> None:
    master.answers["POST", "/txlog/transactions"] = echo

    def lines() -> Iterator[WriteRequest]:
        yield WriteRequest(quads="q")
        raise ValueError("out of lines")

    with pytest.raises(ValueError, match="out of lines"):
        list(client.submit(lines(), batch_bytes=0))


def test_submit_refused_as_a_whole_is_the_master_s_error(master: ScriptedMaster, client: MasterClient) -> None:
    def refuse(handler: Handler) -> None:
        list(handler.lines_in())
        handler.answer(503, {"error": "Unavailable", "reason": "DiskFull", "message": "m"})

    master.answers["POST", "/txlog/transactions"] = refuse
    with pytest.raises(errors.Unavailable) as full:
        list(client.submit([WriteRequest(quads="q")]))
    assert full.value.reason == "DiskFull"


def test_what_is_left_of_a_refused_submit_goes_nowhere(master: ScriptedMaster, client: MasterClient) -> None:
    """Neither over a connection of its own nor over the one that is opened next."""

    def refuse(handler: Handler) -> None:
        next(handler.lines_in())  # so that the sender waits for the next line when it is refused
        handler.answer(401, {"error": "Unauthorized", "message": "who are you"})
        handler.close_connection = True

    def lines() -> Iterator[WriteRequest]:
        yield WriteRequest(quads="q")
        assert refused.wait(20)
        yield from [WriteRequest(quads="q")] * 100

    master.answers["POST", "/txlog/transactions"] = refuse
    master.answers["GET", "/metrics"] = (200, b"as ever")
    refused = threading.Event()
    before = set(threading.enumerate())
    with pytest.raises(errors.Unauthorized):
        list(client.submit(lines(), batch_bytes=0))
    (sender,) = [each for each in set(threading.enumerate()) - before if each.name == "txlog-client-submit"]
    refused.set()
    assert client.metrics() == "as ever"
    sender.join(20)
    assert not sender.is_alive()
    assert client.metrics() == "as ever"
    assert master.connections == 2


def test_submit_cut_in_the_middle_is_unreachable(master: ScriptedMaster, client: MasterClient) -> None:
    def cut(handler: Handler) -> None:
        line = handler.start_lines_out()
        line(b'{"txid":"t0"}\n')
        handler.connection.shutdown(socket.SHUT_RDWR)

    master.answers["POST", "/txlog/transactions"] = cut
    answers = client.submit([WriteRequest(quads="q")] * 3)
    assert next(answers).txid == "t0"
    with pytest.raises(MasterUnreachable):
        list(answers)


class TestFailOver:
    STATUS = (200, {"node": "n", "state": "Joined", "stable": PLACE, "log": PLACE})

    def test_the_nearest_that_answers_is_asked_and_the_dead_one_tried_again_later(self, master: ScriptedMaster) -> None:
        now = [0.0]
        with scripted_master() as far:
            far.answers["GET", "/txlog/status"] = self.STATUS
            master.answers["GET", "/txlog/status"] = (503, {"error": "Unavailable", "reason": "Starting"})
            masters = FailoverClient([master.url, far.url], clock=lambda: now[0])
            for _ in range(3):
                masters.status()
            assert (len(master.asked), len(far.asked)) == (1, 3)
            now[0] = 6.0
            master.answers["GET", "/txlog/status"] = self.STATUS
            master.answers["GET", "/health/ready"] = (503, {"error": "Unavailable", "reason": "Starting"})
            masters.status()
            assert len(far.asked) == 4, "not ready yet"
            now[0] = 12.0
            master.answers["GET", "/health/ready"] = (200, {})
            masters.status()
            masters.status()
            assert len(far.asked) == 4
            assert [path for _, path, _ in master.asked] == [
                *("/txlog/status", "/health/ready", "/health/ready", "/txlog/status", "/txlog/status"),
            ]
            masters.close()

    def test_a_master_that_answers_in_another_format_is_passed_over(self, master: ScriptedMaster) -> None:
        with scripted_master() as far:
            page = LogPage(Position(1, 0, b"h" * 16), [], Position(1, 9, b"h" * 16))
            master.answers["GET", "/txlog/log"] = (200, b"\x02later")
            far.answers["GET", "/txlog/log"] = (200, encode_page(page))
            assert FailoverClient([master.url, far.url]).log_page(0) == page

    def test_a_refusal_is_an_answer(self, master: ScriptedMaster) -> None:
        with scripted_master() as far:
            master.answers["GET", "/txlog/log"] = (409, {"error": "Refused", "reason": "Diverged"})
            with pytest.raises(errors.LogDiverged):
                FailoverClient([master.url, far.url]).log_page(1, b"h" * 16)
            assert not far.asked

    def test_when_none_answers_the_last_error_says_so(self) -> None:
        with pytest.raises(MasterUnreachable):
            FailoverClient([unused_url(), unused_url()]).status()
