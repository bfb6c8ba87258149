"""Clients that write through HTTP while things break, and remember what they were answered.

Each transaction has a name and an Idempotency-Key. A client sends it to its own master, and to the next one when that
does not answer, always under the same key, until a master acknowledges it or the client gives up.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from e2e.lib.history import ClientOperation, WriteOutcome, increment_update, reset_update, transaction_quads
from e2e.lib.load.requests import N_QUADS, SPARQL_UPDATE
from txlog.client import MasterUnreachable, WriteRequest, WriteResult
from txlog.client.connection import HttpReply, MasterConnection
from txlog.model.errors import TxLogError, Unavailable

UNKNOWN_OUTCOME_REASONS: Final = ("Late", "Closing")
"""Reasons of a refusal after which the transaction may be there all the same."""
_encode_line = msgspec.json.Encoder().encode
_decode_result = msgspec.json.Decoder(WriteResult).decode


class NamedWrite(NamedTuple):
    """A transaction that no master has acknowledged yet."""

    name: str
    body: str
    media: str = N_QUADS


class ClientPatience(NamedTuple):
    """``wait_s``: how long a master may take for the level. ``give_up_s``: after so long the outcome stays unknown.
    ``exact``: only the level that was asked for is an acknowledgement; else a lower one is, too. ``stays``: a client
    stays at the master that answered, instead of returning to its own."""

    wait_s: int = 20
    give_up_s: float = 90.0
    pause_s: float = 0.1
    connect_s: float = 1.0
    exact: bool = False
    stays: bool = False


DEFAULT_PATIENCE: Final = ClientPatience()


class WriteReceipt(NamedTuple):
    """What was promised."""

    level: str
    txid: str


class SendResult(NamedTuple):
    """By name: what was acknowledged, and which others may be there all the same."""

    receipts: dict[str, WriteReceipt]
    maybe: set[str]


class RetryingSender:
    """Sends transactions until they are acknowledged, one in a request or many. Threads may share it. ``refusals``:
    answers that no client expects, which are repeated all the same."""

    def __init__(self, repository: str, run: str, patience: ClientPatience = DEFAULT_PATIENCE) -> None:
        """``run`` is in each key, so that another load's transactions have other keys."""
        self.refusals: list[str] = []
        self.retries = 0
        self.patience = patience
        self._path = f"/repositories/{repository}/statements"
        self._run = run
        self._lock = threading.Lock()

    def send(self, masters: deque[str], writes: Sequence[NamedWrite], level: str) -> list[ClientOperation]:
        """All of ``writes`` in one request, and again with what is not acknowledged. ``masters``: the first is asked
        first; they are rotated with each attempt that leaves something."""
        began = time.monotonic()
        left = {write.name: write for write in writes}
        done: list[ClientOperation] = []
        unknown: set[str] = set()
        while True:
            result = self.attempt(masters[0], list(left.values()), level, self.patience.wait_s)
            now = time.monotonic()
            unknown |= result.maybe
            for name, receipt in result.receipts.items():
                done.append(ClientOperation(name, began, now, WriteOutcome.ACKNOWLEDGED, *receipt))
                del left[name]
            if not left:
                return done
            masters.rotate(-1)
            if now - began > self.patience.give_up_s:
                return done + [
                    ClientOperation(name, began, now, WriteOutcome.UNKNOWN if name in unknown else WriteOutcome.REFUSED)
                    for name in left
                ]
            with self._lock:
                self.retries += 1
            time.sleep(self.patience.pause_s)

    def attempt(self, master: str, writes: Sequence[NamedWrite], level: str, wait_s: int) -> SendResult:
        """One request on a connection of its own."""
        names = {write.name for write in writes}
        connection = MasterConnection(master, timeout_s=wait_s + 5.0, connect_s=self.patience.connect_s)
        headers = {"TxLog-Durability": level, "Prefer": f"wait={wait_s}"}
        try:
            if len(writes) == 1:
                return self._read_reply(writes[0].name, self._post_one(connection, writes[0], headers))
            return self._read_lines(master, writes, self._post_lines(connection, writes, headers))
        except MasterUnreachable as gone:
            return SendResult({}, names if gone.sent else set())
        except Unavailable as later:
            return SendResult({}, names if later.reason in UNKNOWN_OUTCOME_REASONS else set())
        except TxLogError as refused:
            self.refusals.append(f"{master}: {refused.name}: {refused}")
            return SendResult({}, names)
        finally:
            connection.close()

    def _key(self, name: str) -> str:
        return f"{self._run}-{name}"

    def _post_one(self, connection: MasterConnection, write: NamedWrite, headers: Mapping[str, str]) -> HttpReply:
        own = {"Content-Type": write.media, "Idempotency-Key": self._key(write.name), **headers}
        return connection.request("POST", self._path, body=write.body.encode(), headers=own, repeatable=False)

    def _post_lines(
        self, connection: MasterConnection, writes: Sequence[NamedWrite], headers: Mapping[str, str]
    ) -> HttpReply:
        lines = (WriteRequest(quads=write.body, key=self._key(write.name)) for write in writes)
        body = b"".join(_encode_line(line) + b"\n" for line in lines)
        own = {"Content-Type": "application/x-ndjson", **headers}
        return connection.request("POST", "/txlog/transactions", body=body, headers=own, repeatable=False)

    def _read_reply(self, name: str, reply: HttpReply) -> SendResult:
        level, txid = reply.headers.get("TxLog-Durability"), reply.headers.get("TxLog-Transaction")
        if level and txid and (reply.status == 204 or not self.patience.exact):
            return SendResult({name: WriteReceipt(level, txid)}, set())
        return SendResult({}, {name})

    def _read_lines(self, master: str, writes: Sequence[NamedWrite], reply: HttpReply) -> SendResult:
        answers = [_decode_result(line) for line in reply.body.splitlines()]
        if len(answers) != len(writes):
            self.refusals.append(f"{master} gave {len(answers)} answers for {len(writes)} lines")
            return SendResult({}, {write.name for write in writes})
        result = SendResult({}, set())
        for write, answer in zip(writes, answers, strict=True):
            if answer.error is None and answer.txid and answer.durability:
                result.receipts[write.name] = WriteReceipt(answer.durability, answer.txid)
            elif answer.error is None or answer.reason in UNKNOWN_OUTCOME_REASONS:
                result.maybe.add(write.name)
            elif answer.error != "Unavailable":
                self.refusals.append(f"{master}: {write.name}: {answer.error}: {answer.message}")
                result.maybe.add(write.name)
        return result


class WriteMix(NamedTuple):
    """What clients send. Every ``applied_every``-th client asks for ``applied`` each time, so it waits while Spark is
    down and the others write on; 0: none does. ``counters``: the share of updates that raise the client's counter.
    ``repeats``: the share that is sent again on purpose after it was acknowledged. ``batch``: transactions in a
    request; more than one have neither counters nor repeats. ``pause_s``: between two requests, on average;
    ``is_paced``: the pause includes the request."""

    levels: Sequence[str] = ("accepted", "synced")
    applied_every: int = 4
    counters: float = 0.2
    repeats: float = 0.05
    batch: int = 1
    pause_s: float = 0.03
    is_paced: bool = False


DEFAULT_MIX: Final = WriteMix()


class WriteClients:
    """A thread for each client, from :meth:`start` to :meth:`stop`, again and again; the history grows over all such
    stretches."""

    def __init__(
        self,
        sender: RetryingSender,
        homes: Mapping[int, Sequence[str]],
        mix: WriteMix = DEFAULT_MIX,
        seed: str | int = 1,
    ) -> None:
        """``homes``: client's number to the masters that it uses, in its order."""
        self.history: list[ClientOperation] = []
        self.repeats = 0
        self.broken: list[str] = []
        """Clients that ended early, or did not end."""
        self.sender = sender
        self._homes = homes
        self._mix = mix
        self._seed = seed
        self._numbers = dict.fromkeys(homes, 0)
        self._masters = {client: deque(masters) for client, masters in homes.items()}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def errors(self) -> list[str]:
        """What must not happen to any client."""
        return [*self.sender.refusals, *self.broken]

    @property
    def retries(self) -> int:
        return self.sender.retries

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return sum(operation.outcome is WriteOutcome.ACKNOWLEDGED for operation in self.history)

    def reset_counters(self) -> None:
        """Every client's counter at 0."""
        for client, masters in self._homes.items():
            write = NamedWrite(f"setup-{client}", reset_update(client), SPARQL_UPDATE)
            self.sender.send(deque(masters), [write], "synced")

    def start(self) -> None:
        self._over.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=f"client-{client}", daemon=True)
            for client in self._homes
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for what is under way."""
        self._over.set()
        patience = self.sender.patience
        for thread in self._threads:
            thread.join(patience.give_up_s + 2 * patience.wait_s)
            if thread.is_alive():
                self.broken.append(f"{thread.name} does not end")
        self._threads = []

    def run_for(self, seconds: float) -> None:
        """Load for so long."""
        self.start()
        time.sleep(seconds)
        self.stop()

    def _run(self, client: int) -> None:
        draw = random.Random(f"{self._seed}.{client}.{self._numbers[client]}")
        try:
            while not self._over.is_set():
                began = time.monotonic()
                self._write(client, draw)
                spent = time.monotonic() - began if self._mix.is_paced else 0.0
                self._over.wait(max(0.0, 2 * self._mix.pause_s * draw.random() - spent))
        except Exception as error:  # noqa: BLE001 - a client that ends early makes the history a lie
            self.broken.append(f"client {client}: {error!r}")

    def _write(self, client: int, draw: random.Random) -> None:
        mix = self._mix
        first = self._numbers[client] + 1
        self._numbers[client] += mix.batch
        waits = mix.applied_every and client % mix.applied_every == mix.applied_every - 1
        level = "applied" if waits else draw.choice(mix.levels)
        names = [f"{client}-{number}" for number in range(first, first + mix.batch)]
        writes = [NamedWrite(name, transaction_quads(name)) for name in names]
        if mix.batch == 1 and draw.random() < mix.counters:
            writes = [NamedWrite(names[0], increment_update(names[0]), SPARQL_UPDATE)]
        masters = self._masters[client] if self.sender.patience.stays else deque(self._homes[client])
        done = self.sender.send(masters, writes, level)
        with self._lock:
            self.history += done
        if mix.batch == 1 and done[0].outcome is WriteOutcome.ACKNOWLEDGED and draw.random() < mix.repeats:
            self.repeats += 1
            self.sender.attempt(draw.choice(self._homes[client]), writes, level, 5)


def rotated(masters: Sequence[str], by: int) -> list[str]:
    """The same masters from another one on, so that clients begin at different ones."""
    at = by % len(masters)
    return [*masters[at:], *masters[:at]]
