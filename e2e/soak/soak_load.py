"""Who writes during a soak: clients as of ``make faults``, and some that send many transactions in one request.

Most stay with the masters of one data centre; the others roam over all masters. Every transaction has an
Idempotency-Key and is repeated under it until somebody acknowledges it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from e2e.lib.history import ClientOperation, WriteOutcome
from e2e.lib.load.write_clients import GIVE_UP_S, WAIT_S, ClientThreads, WriteClients, transaction_quads
from e2e.soak.soak_cluster import SoakCluster
from txlog.client import MasterUnreachable, WriteRequest, WriteResult
from txlog.client.connection import MasterConnection
from txlog.model.errors import TxLogError, Unavailable

SINGLES: Final = 5
BULKS: Final = 3
FIRST_BULK: Final = 100
BATCH: Final = 50
LEVELS: Final = ("accepted", "accepted", "synced")
UNKNOWN_OUTCOME_ERRORS: Final = ("Late", "Closing")
"""Reasons of a refusal after which the transaction may be there all the same."""

_line = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(WriteResult).decode


class BulkClients(ClientThreads):
    """Clients ``FIRST_BULK``…: ``per_s`` transactions a second in all, while nothing breaks."""

    def __init__(self, homes: dict[int, Sequence[str]], per_s: float, seed: int) -> None:
        super().__init__(homes, "bulk")
        self.history: list[ClientOperation] = []
        self.retries = 0
        self._homes = homes
        self._pause_s = BATCH * len(homes) / per_s
        self._seed = seed
        self._numbers = dict.fromkeys(homes, 0)

    def _run(self, client: int) -> None:
        draw = random.Random(f"{self._seed}.{client}.{self._numbers[client]}")
        try:
            while not self._stop_event.is_set():
                began = time.monotonic()
                self._batch(client, draw.choice(LEVELS))
                self._stop_event.wait(max(0.0, began + self._pause_s * 2 * draw.random() - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - a client that ends early makes the history a lie
            self.errors.append(f"bulk {client}: {error!r}")

    def _batch(self, client: int, level: str) -> None:
        """One request, and again with what nobody has acknowledged of it."""
        first = self._numbers[client] + 1
        self._numbers[client] += BATCH
        left = [f"{client}-{number}" for number in range(first, first + BATCH)]
        began = time.monotonic()
        unknown: set[str] = set()
        attempt = 0
        while left:
            master = self._homes[client][(client + attempt) % len(self._homes[client])]
            told, maybe = self._send(master, left, level)
            now = time.monotonic()
            unknown |= maybe
            for name, (reached, txid) in told.items():
                self.history.append(ClientOperation(name, began, now, WriteOutcome.ACKNOWLEDGED, reached, txid))
            left = [name for name in left if name not in told]
            if left and now - began > GIVE_UP_S:
                for name in left:
                    outcome = WriteOutcome.UNKNOWN if name in unknown else WriteOutcome.REFUSED
                    self.history.append(ClientOperation(name, began, now, outcome))
                return
            if left:
                attempt += 1
                self.retries += 1
                time.sleep(0.1)

    def _send(self, master: str, names: Sequence[str], level: str) -> tuple[dict[str, tuple[str, str]], set[str]]:
        """Level and txid of those that were acknowledged, and which others may be there."""
        body = b"".join(
            _line(WriteRequest(quads=transaction_quads(name), key=self._key(name))) + b"\n" for name in names
        )
        headers = {
            "Content-Type": "application/x-ndjson",
            "TxLog-Durability": level,
            "Prefer": f"wait={WAIT_S}",
        }
        connection = MasterConnection(master, timeout_s=WAIT_S + 5.0, connect_s=1.0)
        try:
            reply = connection.request("POST", "/txlog/transactions", body=body, headers=headers, repeatable=False)
        except MasterUnreachable as gone:
            return {}, set(names) if gone.sent else set()
        except Unavailable as later:
            return {}, set(names) if later.reason in UNKNOWN_OUTCOME_ERRORS else set()
        except TxLogError as refused:
            self.errors.append(f"{master}: {refused.name}: {refused}")
            return {}, set(names)
        finally:
            connection.close()
        told: dict[str, tuple[str, str]] = {}
        maybe: set[str] = set()
        answers = [_answer(line) for line in reply.body.splitlines()]
        if len(answers) != len(names):
            self.errors.append(f"{master} gave {len(answers)} answers for {len(names)} lines")
            return {}, set(names)
        for name, answer in zip(names, answers, strict=True):
            if answer.error is None and answer.txid and answer.durability:
                told[name] = (answer.durability, answer.txid)
            elif answer.error is None or answer.reason in UNKNOWN_OUTCOME_ERRORS:
                maybe.add(name)
            elif answer.error != "Unavailable":
                self.errors.append(f"{master}: {name}: {answer.error}: {answer.message}")
                maybe.add(name)
        return told, maybe

    def _key(self, name: str) -> str:
        return f"soak-{self._seed}-{name}"


class SoakLoad:
    """All clients of one cluster, begun and ended together."""

    def __init__(self, arena: SoakCluster, per_s: float, seed: int) -> None:
        sides = [*arena.topology.data_centers, "everywhere"]
        urls = {side: [m.url for m in arena.topology.masters_of(side)] for side in arena.topology.data_centers}
        urls["everywhere"] = arena.masters
        clients = (*range(SINGLES), *range(FIRST_BULK, FIRST_BULK + BULKS))
        homes = {client: urls[sides[client % len(sides)]] for client in clients}
        self._singles = WriteClients(arena, SINGLES, pause_s=0.15, seed=seed, homes=homes)
        self._bulk = BulkClients({client: homes[client] for client in homes if client >= FIRST_BULK}, per_s, seed)
        self.clock = time.time() - time.monotonic()
        """Added to a time of the history it is one since 1970."""

    def set_up(self) -> None:
        self._singles.reset_counters()

    def start(self) -> None:
        self._singles.start()
        self._bulk.start()

    def stop(self) -> None:
        self._singles.stop()
        self._bulk.stop()

    @property
    def history(self) -> list[ClientOperation]:
        """Of all clients, in no order."""
        return [*self._singles.history, *self._bulk.history]

    @property
    def acknowledged(self) -> int:
        return sum(1 for operation in self.history if operation.outcome is WriteOutcome.ACKNOWLEDGED)

    @property
    def retries(self) -> int:
        return self._singles.retries + self._bulk.retries

    @property
    def errors(self) -> list[str]:
        return [*self._singles.errors, *self._bulk.errors]
