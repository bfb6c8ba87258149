"""What clients with idempotency keys are told of their writes, against what the logs have (rules 15, 16).

Time is the clients': when they sent. No stamp and no clock of a master is asked for the age of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from txlog.model.entry import CONTROL_KINDS, KIND_CONFIG
from txlog.model.errors import KeyTaken, Refused
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION, SYNCHRONOUS_AND_DECISION
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.log.key_table import TAG_BYTES
from txlog_simulation.checkers.log import ObservedEntry
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.run_plan import RunPlan
from txlog_simulation.violation import ACKNOWLEDGEMENT, LOG, ViolationLog

_NO_EFFECT: Final = (*CONTROL_KINDS, *SYNCHRONOUS_AND_DECISION)
"""Kinds without an effect at their own place under their own key."""
CEILING_MS: Final = 10_000
"""How far further ahead of the time each start may bring stamps: to the durable promise of the process before."""


class SentTransaction(NamedTuple):
    """What a client brought, and the true time at which this copy was sent."""

    key: str
    content: bytes
    at_ms: int


class ClientChecker:
    """``sent``: by the txid that a master answered."""

    def __init__(self, plan: RunPlan, findings: ViolationLog, transactions: TransactionChecker) -> None:
        self._plan = plan
        self._findings = findings
        self._transactions = transactions
        self._contents_of: dict[str, set[bytes]] = {}
        self._told: list[tuple[Txid, bytes]] = []
        self.sent: dict[Txid, SentTransaction] = {}
        self.starts = 0
        """Of all masters."""

    @property
    def _slack_ms(self) -> int:
        """By how much a key's age may be judged wrong by clocks that are as right as they have to be."""
        return CEILING_MS * (1 + self.starts) + 4 * max(self._plan.max_clock_skew_ms, 1000)

    def on_sent(self, batch: Sequence[Submission]) -> None:
        """A client has sent a batch, whatever becomes of the master that gets it."""
        for one in batch:
            self._contents_of.setdefault(one.key, set()).add(one.content)

    def on_answers(
        self,
        origin: Origin,
        batch: Sequence[Submission],
        answers: Sequence[SubmissionAccepted | Refused],
        now_ms: int,
        trimmed_seqs: Mapping[Origin, int] | None = None,
    ) -> None:
        """A master has answered a batch. ``trimmed_seqs``: the last seq of each origin that its log start has passed.
        Of those it keeps no body but two bytes of its hash (docs/limits.md)."""
        self.on_sent(batch)
        for one, answer in zip(batch, answers, strict=True):
            match answer:
                case KeyTaken():
                    if self._contents_of[one.key] == {one.content}:
                        self._report("16", f"{origin.node} refuses {one.key}: nobody sent it with another body")
                case SubmissionAccepted() if answer.is_repeat:
                    last_trimmed = (trimmed_seqs or {}).get(answer.txid.origin, 0)
                    self._check_repeat(origin, one, answer.txid, answer.txid.seq > last_trimmed)
                case SubmissionAccepted():
                    if answer.txid.origin != origin:
                        self._report("3", f"{origin.node} takes a new transaction as {answer.txid}")
                    self.sent[answer.txid] = SentTransaction(one.key, one.content, now_ms)
                case _:
                    pass

    def _check_repeat(self, origin: Origin, one: Submission, txid: Txid, is_kept: bool) -> None:
        compared = None if is_kept else TAG_BYTES
        first = self.sent.get(txid)
        if txid.origin in self._transactions.lost:
            return  # an older image of its disk has given this txid to another one
        if first is None:
            self._report("16", f"{origin.node} answers {one.key} with {txid}, which no master has taken")
        elif (first.key, first.content[:compared]) != (one.key, one.content[:compared]):
            self._report("16", f"{origin.node} answers {one.key} with {txid}, which is {first.key} or another body")

    def check_age_of_repeat(self, node: str, txid: Txid, now_ms: int) -> None:
        """A master answers with a transaction of its log, though the key may have expired."""
        first = self.sent.get(txid)
        if first is None:
            return
        age_ms = now_ms - first.at_ms
        if age_ms > self._plan.key_retention_ms + self._slack_ms:
            self._report("16", f"{node} swallows {first.key}: {txid} is {age_ms} ms old")

    def on_persisted(self, txid: Txid, key: str, kind: int, content: bytes) -> None:
        """A master has made a transaction of its own durable."""
        one = self.sent.get(txid)
        if one is not None and kind not in (KIND_CONFIG, KIND_DECISION) and (one.key, one.content) != (key, content):
            self._findings.add(LOG, "3", f"{txid} is durable with another body than its client was answered for")

    def on_told(self, txid: Txid, content: bytes) -> None:
        """A client was told that its transaction has reached some level."""
        self._told.append((txid, content))

    def check_final(self, log: Sequence[ObservedEntry]) -> None:
        """Everything that was taken stands in this log: what a client was told has taken effect, and once."""
        entries = {entry.txid: entry for entry in log}
        for txid, content in self._told:
            entry = entries.get(txid)
            counts = entries.get(entry.counts_instead or txid) if entry is not None else None
            if counts is None and txid.origin in self._transactions.lost:
                continue  # its master's disk was lost, perhaps before others had it
            if counts is None or counts.content != content:
                self._report("16", f"a client was told of {txid}; {counts.txid if counts else 'nothing'} took effect")
        self._check_once(log)

    def _check_once(self, log: Sequence[ObservedEntry]) -> None:
        first_of: dict[tuple[str, bytes], tuple[Txid, int]] = {}
        for entry in log:
            sent = self.sent.get(entry.txid)
            if sent is None or not entry.key or entry.kind in _NO_EFFECT or entry.counts_instead is not None:
                continue
            before = first_of.get((entry.key, entry.content))
            first_of[entry.key, entry.content] = entry.txid, sent.at_ms
            if before is None or not self._plan.true_time:
                continue
            apart_ms = abs(sent.at_ms - before[1])
            if apart_ms < 3 * self._plan.key_retention_ms // 4 - self._slack_ms:
                self._report(
                    "16", f"{entry.key} takes effect twice: {before[0]} and {entry.txid}, sent {apart_ms} ms apart"
                )

    def _report(self, rule: str, text: str) -> None:
        self._findings.add(ACKNOWLEDGEMENT, rule, text)
