"""One write that the client may send to several masters."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from txlog.client.errors import MasterUnreachable
from txlog.client.master_client import MasterClient
from txlog.client.responses import WriteResult
from txlog.model.durability import Durability
from txlog.model.errors import (
    Conflict,
    KeyNotTaken,
    KeyTaken,
    OutcomeUndecided,
    Refused,
    RolledBack,
    Unavailable,
)

UNDECIDED = "Undecided"
"""The reason of :class:`Unavailable` where a master does not know yet whether a synchronous write takes effect."""
PENDING = "pending"
ROLLED_BACK = "rolled-back"
RETRY_S = 1


class RetryPolicy(NamedTuple):
    """A write is sent at most ``tries`` times in all, and not again after ``seconds``. The masters keep a key for
    ``keyRetention`` (a day by default): ``seconds`` must be well below it."""

    tries: int = 8
    seconds: float = 60.0


DEFAULT_RETRY_POLICY = RetryPolicy()


class RetryingWrite:
    """A body, and the idempotency ``key`` that makes it one transaction however often it is sent. Without a key the
    client generates one. It drops a generated key when a master answers that this body can have none (``KeyNotTaken``)
    and no master can have accepted the write yet."""

    def __init__(
        self,
        body: bytes,
        media: str,
        graphs: Sequence[str],
        key: str | None,
        durability: Durability | None,
        synchronous: bool | str | None = None,
    ) -> None:
        self._body, self._media, self._graphs, self._durability = body, media, graphs, durability
        self._synchronous = synchronous
        self._key_generated = key is None
        self.key: str | None = secrets.token_hex(16) if key is None else key
        self.outcome_unknown = False
        """The write was sent, and no master has reported its outcome."""

    def send_to(self, client: MasterClient, repository: str, wait_s: float) -> WriteResult:
        """Send the write to this master; wait at most ``wait_s`` seconds for its level. Raises :class:`Unavailable`
        or :class:`MasterUnreachable` when the master has not accepted it, or does not report whether it has. A
        synchronous write that is pending is :class:`Unavailable`, too: another master may know what becomes of it."""
        try:
            written = self._submit(client, repository, wait_s)
        except OutcomeUndecided as undecided:
            raise self._undecided(str(undecided)) from undecided
        except RolledBack as rolled_back:
            if not self.outcome_unknown:
                raise
            # Another try may have taken effect under the key: sent again, it is answered with that one.
            raise self._undecided(str(rolled_back)) from rolled_back
        if written.synchronous == PENDING and self._durability is not Durability.ACCEPTED:
            raise self._undecided(f"{client.url}: {written.txid} is pending")
        return written

    def _undecided(self, text: str) -> Unavailable:
        self.outcome_unknown = True
        return Unavailable(UNDECIDED, text, RETRY_S)

    def _submit(self, client: MasterClient, repository: str, wait_s: float) -> WriteResult:
        try:
            written = self._send(client, repository, wait_s)
        except KeyNotTaken:
            if not self._key_generated or self.outcome_unknown:
                raise
            self.key = None
            written = self._send(client, repository, wait_s)
        except KeyTaken as taken:
            if not self._key_generated:
                raise
            written = self._resolve(
                client, taken.txid, wait_s
            )  # only this write has the key: an earlier try was accepted
        if written.txid is None and self.key is not None:
            self.outcome_unknown = True
            raise Unavailable("Unknown", f"{client.url} does not know yet whether it has taken it")
        return written

    def may_retry(self, failed: Unavailable | MasterUnreachable) -> bool:
        """Whether the write may be sent to another master after this failure."""
        return self.key is not None or (isinstance(failed, MasterUnreachable) and not failed.sent)

    def final_error(self, last: Unavailable | MasterUnreachable) -> Refused:
        """The error to raise when no tries are left: ``last``, :class:`OutcomeUndecided` for a synchronous write that
        the last master did not decide about, or one with ``sent`` when the outcome is unknown."""
        if isinstance(last, Unavailable) and last.reason == UNDECIDED:
            again = f"; send it again with the key {self.key}, and it takes effect once" if self.key else ""
            return OutcomeUndecided(f"{last}; it may still take effect{again}")
        if not self.outcome_unknown or self.key is None:
            return last
        url = last.url if isinstance(last, MasterUnreachable) else "the masters"
        why = f"{last}; it may have been taken: send it again with the key {self.key}, and it takes effect once"
        return MasterUnreachable(url, why, sent=True)

    def _send(self, client: MasterClient, repository: str, wait_s: float) -> WriteResult:
        try:
            return client.write(
                repository,
                self._body,
                self._media,
                graphs=self._graphs,
                key=self.key,
                durability=self._durability,
                synchronous=self._synchronous,
                wait_s=wait_s,
            )
        except MasterUnreachable as lost:
            self.outcome_unknown = self.outcome_unknown or lost.sent
            raise

    def _resolve(self, client: MasterClient, txid: str, wait_s: float) -> WriteResult:
        found = client.transaction(txid, wait_s, self._durability)
        if found.state in ("blocked", "skipped"):
            raise Conflict(f"workers refused {txid}, which is {found.state}: {found.workers}")
        known = None if found.synchronous is None else found.synchronous["state"]
        if known == ROLLED_BACK:
            raise RolledBack(f"{txid}: no quorum held it in time; its key is free again")
        return WriteResult(found.txid, found.position, found.durability, synchronous=known)
