"""A client's transaction is acknowledged, unknown or refused by what masters answered, and repeated under its key."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from e2e.lib.history import ClientOperation, WriteOutcome, transaction_quads
from e2e.lib.load.writers import ClientPatience, NamedWrite, RetryingSender, rotated
from e2e.lib.ports import free_ports

PATIENCE: Final = ClientPatience(wait_s=20, give_up_s=0.0, pause_s=0.0)
STUBBORN: Final = PATIENCE._replace(give_up_s=30.0)
GOOD: Final = (204, {"TxLog-Durability": "synced", "TxLog-Transaction": "t1"}, b"")
LOWER: Final = (202, {"TxLog-Durability": "accepted", "TxLog-Transaction": "t1"}, b"")

Answer = tuple[int, dict[str, str], bytes]


def unavailable(reason: str) -> Answer:
    return 503, {}, json.dumps({"error": "Unavailable", "reason": reason, "message": "later"}).encode()


def lines(*answers: dict[str, str]) -> Answer:
    return 200, {}, b"".join(json.dumps(answer).encode() + b"\n" for answer in answers)


class ScriptedServer(ThreadingHTTPServer):
    """Gives these answers in turn, and keeps each request's key and body."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.requests: list[tuple[str | None, bytes]] = []
        super().__init__(("127.0.0.1", 0), ScriptedHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.headers["Idempotency-Key"], body))
        status, headers, text = self.server.answers.popleft()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@contextmanager
def scripted(*answers: Answer) -> Iterator[ScriptedServer]:
    server = ScriptedServer(*answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def sent(masters: list[str], *names: str, patience: ClientPatience = PATIENCE) -> list[ClientOperation]:
    sender = RetryingSender("r", "run", patience)
    return sender.send(deque(masters), [NamedWrite(name, transaction_quads(name)) for name in names], "synced")


def test_a_write_is_repeated_under_its_key_at_the_next_master() -> None:
    with scripted(unavailable("Late")) as first, scripted(GOOD) as second:
        [done] = sent([first.url, second.url], "0-1", patience=STUBBORN)
        assert (done.outcome, done.level, done.txid) == (WriteOutcome.ACKNOWLEDGED, "synced", "t1")
        assert first.requests == second.requests == [("run-0-1", transaction_quads("0-1").encode())]


def test_only_refusals_that_promise_that_nothing_happened_leave_it_refused() -> None:
    with scripted(unavailable("Late"), unavailable("NoView")) as master:
        assert sent([master.url], "0-1")[0].outcome is WriteOutcome.UNKNOWN
        assert sent([master.url], "0-2")[0].outcome is WriteOutcome.REFUSED
    [port] = free_ports(1)
    assert sent([f"http://127.0.0.1:{port}"], "0-3")[0].outcome is WriteOutcome.REFUSED


def test_a_lower_level_counts_unless_the_exact_one_is_asked_for() -> None:
    with scripted(LOWER, LOWER) as master:
        assert sent([master.url], "0-1")[0].level == "accepted"
        assert sent([master.url], "0-2", patience=PATIENCE._replace(exact=True))[0].outcome is WriteOutcome.UNKNOWN


def test_of_many_in_one_request_only_those_that_are_left_are_sent_again() -> None:
    good = {"txid": "t1", "durability": "synced"}
    late = {"error": "Unavailable", "reason": "Late", "message": "later"}
    with scripted(lines(good, late, late), lines(good, late)) as master:
        done = sent([master.url], "0-1", "0-2", "0-3", patience=PATIENCE)
        assert {op.name: op.outcome for op in done} == {
            "0-1": WriteOutcome.ACKNOWLEDGED,
            "0-2": WriteOutcome.UNKNOWN,
            "0-3": WriteOutcome.UNKNOWN,
        }
    with scripted(lines(good, late, late), lines(good, good)) as master:
        done = sent([master.url], "0-1", "0-2", "0-3", patience=STUBBORN)
        assert [op.outcome for op in done] == [WriteOutcome.ACKNOWLEDGED] * 3
        assert [body.count(b"\n") for _, body in master.requests] == [3, 2]


def test_an_answer_that_no_client_expects_is_kept() -> None:
    with scripted((400, {}, json.dumps({"error": "BadInput", "message": "no"}).encode())) as master:
        sender = RetryingSender("r", "run", PATIENCE)
        [done] = sender.send(deque([master.url]), [NamedWrite("0-1", "x")], "synced")
        assert done.outcome is WriteOutcome.UNKNOWN
        assert len(sender.refusals) == 1


def test_clients_begin_at_different_masters() -> None:
    assert [rotated("abc", client) for client in (0, 1, 5)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
