"""Clients that write through HTTP while things break, and remember what they were told.

Each client names its transactions, sends them to its own master, and to the next one when that does not answer,
always under the same Idempotency-Key. Some are sent again on purpose after they were acknowledged. One in five raises
a counter by one with a pattern update: a store holds a quad once however often it is inserted, but a counter shows
what was executed twice.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from e2e.lib.cluster.local import LocalCluster
from e2e.lib.history import ClientOperation, LoggedOperation, WriteOutcome
from txlog.client import MasterClient, MasterUnreachable
from txlog.client.connection import MasterConnection
from txlog.model.errors import Refused, TxLogError, Unavailable

GRAPH: Final = "urn:faults:graph"
LEVELS: Final = ("accepted", "synced")
RETRIES_PER_MASTER: Final = 4
"""Of so many clients one asks for ``applied`` each time: it waits while Spark is down, and the others write on."""
WAIT_S: Final = 20
GIVE_UP_S: Final = 90.0
"""After so long a client calls its transaction's outcome unknown."""
_NAME: Final = re.compile(rb"urn:faults:op:([a-z0-9-]+)>")


def transaction_quads(name: str) -> str:
    """The one quad of a transaction of that name, as N-Quads."""
    return f'<urn:faults:op:{name}> <urn:faults:by> "{client_number(name)}" <{GRAPH}> .\n'


def increment_update(name: str) -> str:
    """The update that raises its client's counter by one."""
    client = client_number(name)
    counter = f"<urn:faults:counter:{client}> <urn:faults:value>"
    return (
        f"DELETE {{ GRAPH <{GRAPH}> {{ {counter} ?old }} }} "
        f"INSERT {{ GRAPH <{GRAPH}> {{ {counter} ?new . <urn:faults:op:{name}> <urn:faults:by> {client} }} }} "
        f"WHERE {{ GRAPH <{GRAPH}> {{ {counter} ?old BIND(?old + 1 AS ?new) }} }}"
    )


def reset_update(client: int) -> str:
    """The update that puts a client's counter at 0."""
    return f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <urn:faults:counter:{client}> <urn:faults:value> 0 }} }}"


def client_number(name: str) -> int:
    return int(name.partition("-")[0])


class ClientThreads:
    """Threads, one for each client, from :meth:`start` to :meth:`stop`. ``_run(client)`` is what one does until
    ``_stop_event`` is set. ``errors``: what must not happen to any of them."""

    def __init__(self, clients: Iterable[int], name: str) -> None:
        self.errors: list[str] = []
        self._clients = list(clients)
        self._name = name
        self._stop_event = threading.Event()
        self._threads: list[threading.Thread] = []

    def _run(self, client: int) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._stop_event.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=f"{self._name}-{client}", daemon=True)
            for client in self._clients
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for what is under way."""
        self._stop_event.set()
        for thread in self._threads:
            thread.join(GIVE_UP_S + 2 * WAIT_S)
            if thread.is_alive():
                self.errors.append(f"{thread.name} does not end")
        self._threads = []


class WriteClients(ClientThreads):
    """``count`` clients over all masters. :meth:`start` and :meth:`stop` bound a stretch of load; the history grows
    over all stretches."""

    def __init__(
        self,
        cluster: LocalCluster,
        count: int = 8,
        pause_s: float = 0.03,
        seed: int = 1,
        homes: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """``homes``: the masters that a client uses, where that is not all of them."""
        super().__init__(range(count), "client")
        self.cluster = cluster
        self._homes = homes or {}
        self.history: list[ClientOperation] = []
        self.repeats = 0
        self.retries = 0
        self._count = count
        self._pause_s = pause_s
        self._seed = seed
        self._numbers = [0] * count
        self._lock = threading.Lock()

    def reset_counters(self) -> None:
        """Every client's counter at 0."""
        for client in range(self._count):
            body = reset_update(client).encode()
            self._write(client, f"setup-{client}", body, "application/sparql-update", "synced", "")

    def run_for(self, seconds: float) -> None:
        """Load for so long."""
        self.start()
        time.sleep(seconds)
        self.stop()

    @property
    def acknowledged(self) -> int:
        return sum(1 for operation in self.history if operation.outcome is WriteOutcome.ACKNOWLEDGED)

    # -- one client

    def _run(self, client: int) -> None:
        draw = random.Random(f"{self._seed}.{client}.{self._numbers[client]}")
        try:
            while not self._stop_event.is_set():
                self._write_one(client, draw)
                self._stop_event.wait(self._pause_s * 2 * draw.random())
        except Exception as error:  # noqa: BLE001 - a client that ends early makes the history a lie
            self.errors.append(f"client {client}: {error!r}")

    def _write_one(self, client: int, draw: random.Random) -> None:
        self._numbers[client] += 1
        name = f"{client}-{self._numbers[client]}"
        level = "applied" if client % RETRIES_PER_MASTER == RETRIES_PER_MASTER - 1 else draw.choice(LEVELS)
        if draw.random() < 0.2:
            body = increment_update(name)
            kind = "application/sparql-update"
        else:
            body = transaction_quads(name)
            kind = "application/n-quads"
        outcome = self._write(client, name, body.encode(), kind, level, f"faults-{self._seed}-{name}")
        with self._lock:
            self.history.append(outcome)
        if outcome.outcome is WriteOutcome.ACKNOWLEDGED and draw.random() < 0.05:
            self.repeats += 1
            self._attempt(
                draw.choice(self.cluster.masters), body.encode(), kind, level, f"faults-{self._seed}-{name}", 5
            )

    def _write(self, client: int, name: str, body: bytes, kind: str, level: str, key: str) -> ClientOperation:
        """Until somebody acknowledges it, or the time is over."""
        masters = self._masters(client)
        began = time.monotonic()
        unknown, attempt = False, 0
        while True:
            told = self._attempt(masters[(client + attempt) % len(masters)], body, kind, level, key, WAIT_S)
            now = time.monotonic()
            if isinstance(told, tuple):
                return ClientOperation(name, began, now, WriteOutcome.ACKNOWLEDGED, *told)
            unknown = unknown or told is WriteOutcome.UNKNOWN
            if now - began > GIVE_UP_S:
                return ClientOperation(name, began, now, WriteOutcome.UNKNOWN if unknown else WriteOutcome.REFUSED)
            attempt += 1
            self.retries += 1
            time.sleep(0.1)

    def _masters(self, client: int) -> Sequence[str]:
        return self._homes.get(client) or self.cluster.masters

    def _attempt(
        self, master: str, body: bytes, kind: str, level: str, key: str, wait_s: int
    ) -> tuple[str, str] | WriteOutcome:
        """Level and name that were promised, or what is known otherwise."""
        connection = MasterConnection(master, timeout_s=wait_s + 5.0, connect_s=1.0)
        headers = {"Content-Type": kind, "TxLog-Durability": level, "Prefer": f"wait={wait_s}"}
        if key:
            headers["Idempotency-Key"] = key
        path = f"/repositories/{self.cluster.repository}/statements"
        try:
            reply = connection.request("POST", path, body=body, headers=headers, repeatable=False)
        except MasterUnreachable as gone:
            return WriteOutcome.UNKNOWN if gone.sent else WriteOutcome.REFUSED
        except Unavailable as later:
            return WriteOutcome.UNKNOWN if later.reason in ("Late", "Closing") else WriteOutcome.REFUSED
        except Refused as refused:
            self.errors.append(f"{master}: {refused.name}: {refused}")
            return WriteOutcome.UNKNOWN
        finally:
            connection.close()
        reached, txid = reply.headers.get("TxLog-Durability"), reply.headers.get("TxLog-Transaction")
        if reached and txid:
            return reached, txid
        return WriteOutcome.UNKNOWN


# -- what is there


def read_log(url: str) -> tuple[list[LoggedOperation], dict[str, int]]:
    """One linear scan of a master's whole log: the clients' transactions that take effect, and how often each
    counter was raised."""
    found: list[LoggedOperation] = []
    raised: dict[str, int] = {}
    at = 0
    with MasterClient(url, 60.0) as master:
        while True:
            page = master.log_page(at)
            for entry in page.entries:
                at = entry.index
                name = _NAME.search(entry.payload)
                if name is None or entry.noop:
                    continue
                text = name[1].decode()
                found.append(LoggedOperation(entry.index, text, str(entry.txid)))
                if b"urn:faults:counter:" in entry.payload:
                    client = text.partition("-")[0]
                    raised[client] = raised.get(client, 0) + 1
            if not page.entries:
                return found, raised


def read_worker(cluster: LocalCluster, name: str) -> tuple[list[str], dict[str, int]]:
    """What a store holds of it, asked of the store itself."""
    rows = cluster.query_worker(name, f"SELECT ?s {{ GRAPH <{GRAPH}> {{ ?s <urn:faults:by> ?client }} }}")
    names = [row[0].removeprefix("urn:faults:op:") for row in rows]
    rows = cluster.query_worker(name, f"SELECT ?s ?v {{ GRAPH <{GRAPH}> {{ ?s <urn:faults:value> ?v }} }}")
    counters: dict[str, int] = {}
    for subject, value in rows:
        client = subject.removeprefix("urn:faults:counter:")
        # Two values of one counter would be two executions side by side: they must not pass for one of them.
        counters[client] = -1 if client in counters else int(value)
    return names, {client: value for client, value in counters.items() if value}


def merge_counters(logs: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """All logs are one, so any will do; the longest is taken."""
    return max(logs, key=lambda raised: sum(raised.values()))


def still_answers(url: str) -> bool:
    """Whether a master says that it is joined."""
    try:
        with MasterClient(url, 2.0, connect_s=0.5) as master:
            return master.status().state == "Joined"
    except TxLogError:
        return False
