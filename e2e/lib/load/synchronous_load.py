"""Clients that write graphs with a quorum beside ordinary ones, and record each answer."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from e2e.lib.load.requests import N_QUADS
from e2e.lib.synchronous_history import Attempt, LoggedEffect, Told
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.durability import Durability
from txlog.model.entry import LogEntry
from txlog.model.entry_effects import find_effects
from txlog.model.errors import OutcomeUndecided, Refused, RolledBack, TxLogError, Unavailable

RULES: Final = (
    {"match": "http://ex.org/accounts/*", "quorum": "N/2+1", "timeout": "3s"},
    {"match": "http://ex.org/ledger/*", "quorum": "N/2+1", "timeout": "1h"},
)
"""What the first rule's graphs have undecided is late after each split; the second's never."""
GRAPHS: Final = ("http://ex.org/accounts/1", "http://ex.org/ledger/1", "http://ex.org/plain")
PLAIN: Final = GRAPHS[2]
PAUSE_S: Final = 0.1
WAIT_S: Final = 1.5
RETRY_SHARE: Final = 0.5
REQUEST_S: Final = 4.0
_NAME: Final = re.compile(rb"urn:sync:op:([a-z0-9-]+)>")


def name_of(payload: bytes) -> str:
    """The name of the write with this payload; empty for what no client wrote."""
    found = _NAME.search(payload)
    return found[1].decode() if found is not None else ""


def effects_of(entry: LogEntry) -> list[LoggedEffect]:
    """What takes effect at an entry of a page for workers."""
    return [LoggedEffect(entry.index, str(one.txid), name_of(one.payload)) for one in find_effects(entry)]


class SynchronousClients:
    """One client for each master. ``is_minority``: whether a master is known to decide nothing now."""

    def __init__(
        self,
        masters: Mapping[str, str],
        repository: str,
        seed: int,
        is_minority: Callable[[str], bool] = lambda _: False,
        graphs: Sequence[str] = GRAPHS,
    ) -> None:
        self.attempts: list[Attempt] = []
        self.plain: list[Attempt] = []
        self.errors: list[str] = []
        self._masters, self._repository, self._is_minority = masters, repository, is_minority
        self._graphs = graphs
        self._extra = 0
        self._draws = {node: random.Random(f"{seed}.{node}") for node in masters}
        self._numbers = dict.fromkeys(masters, 0)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin, or go on."""
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in self._masters]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Until every client has its last answer."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def write_once(self, node: str) -> None:
        """One write of the first graph at this master, which does not wait for its quorum."""
        self._extra += 1
        self._send(node, f"{node}-extra-{self._extra}", GRAPHS[0], Durability.ACCEPTED)

    def _run(self, node: str) -> None:
        draw = self._draws[node]
        while not self._over.wait(PAUSE_S * draw.random()):
            self._numbers[node] += 1
            name, graph = f"{node}-{self._numbers[node]}", draw.choice(self._graphs)
            level = draw.choice((Durability.QUORUM, Durability.SYNCED))
            try:
                told = self._send(node, name, graph, level)
                if graph == PLAIN or told not in (Told.PENDING, Told.UNKNOWN) or draw.random() > RETRY_SHARE:
                    continue
                self._send(draw.choice(list(self._masters)), name, graph, level)
            except TxLogError as wrong:
                self.errors.append(f"{name}: {wrong!r}")

    def _send(self, node: str, name: str, graph: str, level: Durability) -> Told:
        was_minority = self._is_minority(node)
        body = f'<urn:sync:op:{name}> <urn:sync:by> "x" <{graph}> .\n'.encode()
        txid, position = "", None
        try:
            with MasterClient(self._masters[node], REQUEST_S) as master:
                done = master.write(self._repository, body, N_QUADS, key=name, durability=level, wait_s=WAIT_S)
            told, txid = Told(done.synchronous or _plain_answer(done.durability, level)), done.txid or ""
            if done.position is not None:
                position = done.position.index, done.position.hash
        except RolledBack as rolled_back:
            told, txid = Told.ROLLED_BACK, str(rolled_back).partition(":")[0]
        except OutcomeUndecided:
            told = Told.PENDING
        except MasterUnreachable as lost:
            told = Told.UNKNOWN if lost.sent else Told.REFUSED
        except Unavailable:
            told = Told.REFUSED
        except Refused as refused:
            self.errors.append(f"{name} at {node}: {refused!r}")
            told = Told.UNKNOWN
        is_minority = was_minority and self._is_minority(node)
        kept = self.plain if graph == PLAIN else self.attempts
        kept.append(Attempt(name, node, told, txid, position, is_minority))
        return told


def _plain_answer(reached: str | None, level: Durability) -> str:
    order = [each.value for each in Durability]
    done = reached is not None and order.index(reached) >= order.index(level.value)
    return Told.COMMITTED if done else Told.PENDING


def read_effects(url: str) -> tuple[list[LoggedEffect], dict[int, str]]:
    """What takes effect along a master's whole log, and the hash of each index."""
    effects: list[LoggedEffect] = []
    hashes: dict[int, str] = {}
    with MasterClient(url, 60.0) as master:
        while entries := master.log_page(len(hashes)).log_entries():
            hashes |= {entry.index: entry.hash.hex() for entry in entries}
            effects += [effect for entry in entries for effect in effects_of(entry)]
    return effects, hashes


def final_states(masters: Mapping[str, str], txids: list[str], seconds: float) -> dict[str, list[str]]:
    """What each master answers about these transactions, once it has decided or the time is over."""
    found: dict[str, list[str]] = {}
    until = time.monotonic() + seconds
    for txid in txids:
        for url in masters.values():
            with MasterClient(url, 10.0) as master:
                state = "pending"
                while state == "pending" and time.monotonic() < until:
                    one = master.transaction(txid, 1.0, Durability.SYNCED)
                    state = str(one.synchronous["state"]) if one.synchronous is not None else _trimmed(one.state)
                found.setdefault(txid, []).append(state)
    return found


def _trimmed(state: str) -> str:
    return Told.ROLLED_BACK.value if state == "rolled-back" else Told.COMMITTED.value
