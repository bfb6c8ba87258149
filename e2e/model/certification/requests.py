"""Clients of a run: plain writes, texts, and requests that a master evaluates and answers (C1, C10, C11)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from e2e.model.certification.assertions import CertificationAssertions
from e2e.model.certification.log_chain import LogNode
from e2e.model.certification.sides import MasterSides
from e2e.model.certification.updates import EvaluatedForm, UpdateForm, join_changes
from e2e.model.certification.values import (
    PREDICATES,
    SUBJECTS,
    Change,
    EntryId,
    EntryKey,
    LeftOut,
    LogEntryOfModel,
    ModelBase,
    ModelRefusal,
    Pattern,
    RuleBroken,
    State,
    TextUpdate,
    stored,
)

TRIES: Final = 3
REQUESTS_AT_A_TIME: Final = 6
LAG: Final = 7
"""Entries by which the worker that is read is behind, at most."""


class RequestProgress(Enum):
    """How far a request is."""

    NEW = auto()
    FIRST_READ = auto()
    """A transaction of two reads that has made the first one."""
    EVALUATED = auto()
    SUBMITTED = auto()
    OVER = auto()


class StateRead(NamedTuple):
    """C1: what one evaluation read. ``after``: the index of the marker behind the data."""

    base: ModelBase
    state: State
    after: int


class FirstRead(NamedTuple):
    """What a transaction keeps between its two reads."""

    read: StateRead
    reads: tuple[Pattern, ...]
    draw: int
    key: EntryKey


@dataclass(slots=True, eq=False)
class ModelRequest:
    """A request at one master. ``second``: the update of its second read, if it is a transaction. ``number`` is the
    same where a client sends one request to two masters."""

    number: int
    master: int
    form: EvaluatedForm
    second: EvaluatedForm | None
    tries: int = 0
    progress: RequestProgress = RequestProgress.NEW
    first_read: FirstRead | None = None
    effect: LogEntryOfModel | None = None
    txid: EntryId = (-1, 0)


class RequestsOfModel:
    """All requests of a run, and the writes between them."""

    def __init__(
        self,
        chance: random.Random,
        sides: MasterSides,
        assertions: CertificationAssertions,
        left_out: frozenset[LeftOut],
        counts: Counter[str],
        own_share: float,
    ) -> None:
        """``own_share``: how often a master writes its own subject, and no other."""
        self._chance = chance
        self._sides = sides
        self._assertions = assertions
        self._left_out = left_out
        self._counts = counts
        self._own_share = own_share
        self._requests: list[ModelRequest] = []
        self._numbers = 0

    @property
    def open_requests(self) -> list[ModelRequest]:
        """Those that have no answer yet."""
        return [each for each in self._requests if each.progress is not RequestProgress.OVER]

    def write_quads(self, master: int) -> None:
        """Plain quads, some of them with one of a few keys."""
        chance, subject, predicate = self._chance, self._subject(master), self._chance.randrange(PREDICATES)

        def draw_quad() -> tuple[int, int, str]:
            written = chance.randrange(SUBJECTS) if chance.random() < 0.1 else subject
            return (written, predicate, chance.choice(["", "0"]) + str(chance.randrange(5)))

        adds = tuple(sorted({draw_quad() for _ in range(chance.randrange(1, 3))}))
        drawn = sorted({draw_quad() for _ in range(chance.randrange(0, 2))})
        added = {stored(quad) for quad in adds}
        deletes = tuple(quad for quad in drawn if stored(quad) not in added)
        key = ("k", chance.randrange(6)) if chance.random() < 0.15 else None
        self._sides.submit(master, LogEntryOfModel(deletes, adds, key))

    def write_text(self, master: int) -> None:
        """A text that each worker computes in its place."""
        subject = self._chance.choice([None, self._subject(master), self._subject(master)])
        source, target = self._chance.sample(range(PREDICATES), 2)
        self._sides.submit(master, LogEntryOfModel(text=TextUpdate(subject, source, target)))

    def ask(self, master: int) -> None:
        """A new request, some of them transactions; some go to another master, too."""
        if len(self.open_requests) >= REQUESTS_AT_A_TIME:
            return
        chance = self._chance
        self._numbers += 1
        form = self._draw_form(master)
        second = self._draw_form(master) if chance.random() < 0.25 else None
        self._requests.append(ModelRequest(self._numbers, master, form, second))
        if chance.random() < 0.2:
            self._requests.append(replace(self._requests[-1], master=chance.randrange(self._sides.masters)))

    def ask_and_submit(self, master: int) -> None:
        """A request whose effect is on its way."""
        self._numbers += 1
        request = ModelRequest(self._numbers, master, self._draw_form(master), None)
        self._requests.append(request)
        self.step(request)
        self.step(request)

    def step_any(self) -> None:
        """One of the open requests goes on."""
        if not self.open_requests:
            return
        request = self._chance.choice(self.open_requests)
        self.step(request)
        if request.progress is RequestProgress.EVALUATED and self._chance.random() < 0.8:
            self.step(request)

    def step(self, request: ModelRequest) -> None:
        """Its next step, if it has one now."""
        match request.progress:
            case RequestProgress.NEW:
                self._evaluate(request)
            case RequestProgress.FIRST_READ:
                self._read_again(request)
            case RequestProgress.EVALUATED:
                assert request.effect is not None, request
                request.txid = self._sides.submit(request.master, request.effect)
                request.progress = RequestProgress.SUBMITTED
            case RequestProgress.SUBMITTED:
                self._answer(request)
            case RequestProgress.OVER:
                pass

    def _subject(self, master: int) -> int:
        if self._chance.random() < self._own_share:
            return master % 2 if self._sides.masters < 4 else master // 2
        return self._chance.randrange(SUBJECTS)

    def _draw_form(self, master: int) -> EvaluatedForm:
        chance, subject = self._chance, self._subject(master)
        predicate, other = chance.randrange(PREDICATES), chance.randrange(PREDICATES)
        values = chance.randrange(5), chance.randrange(5)
        forms = [
            (UpdateForm.INCREMENT, 0),
            (UpdateForm.INCREMENT, 0),
            (UpdateForm.IF_THERE, values[0]),
            (UpdateForm.IF_THERE, values[1]),
            (UpdateForm.TAKE, 0),
            (UpdateForm.UNLESS, 0),
            (UpdateForm.SUM, 0),
            (UpdateForm.SUM, 0),
        ]
        form, value = chance.choice(forms)
        return EvaluatedForm(form, subject, predicate, other, value)

    def _read(self, master: int) -> tuple[list[LogNode], StateRead]:
        """C1: the marker, the data, and the marker again. The vector and the final index are those of the log at the
        first one."""
        chance, side = self._chance, self._sides.side_of(master)
        log, known = side.log, self._sides.worker_index
        last = len(log) - 1
        at = chance.randint(min(max(known[master], last + 1 - LAG), last), last)
        known[master] = at
        before, after = chance.randint(max(0, at - 2), at), chance.randint(at, last)
        base = log[after if LeftOut.MARKER_LATE in self._left_out else before]
        behind = base if LeftOut.ONE_MARKER in self._left_out else log[after]
        final = self._sides.final_index(side, base.index)
        found = ModelBase(base.index, base.hash, base.vector, final, behind.index, behind.hash)
        return log, StateRead(found, log[at].state, after)

    def _evaluate(self, request: ModelRequest) -> None:
        _, read = self._read(request.master)
        draw, form = self._chance.randrange(1000), request.form
        key: EntryKey = (request.number,)
        if LeftOut.KEY_TRY in self._left_out:
            key = (request.number, self._chance.random())
        if request.second is not None:
            request.first_read = FirstRead(read, form.reads(self._left_out), draw, key)
            request.progress = RequestProgress.FIRST_READ
            return
        deletes, adds = form.change(read.state, draw)
        # A client's text may have another form of a value than the store.
        adds = tuple((s, p, "0" + value if self._chance.random() < 0.3 else value) for s, p, value in adds)
        request.effect = LogEntryOfModel(
            deletes,
            adds,
            key,
            None,
            read.base,
            form.reads(self._left_out),
            request.number,
            lambda state: form.change(state, draw),
        )
        request.progress = RequestProgress.EVALUATED

    def _read_again(self, request: ModelRequest) -> None:
        """C11: the second read of a transaction. Its base moves if nothing wrote what the first one read."""
        assert request.first_read is not None, request
        assert request.second is not None, request
        log, again = self._read(request.master)
        first, reads, draw, key = request.first_read
        if LeftOut.NO_EXTEND not in self._left_out and _is_snapshot_lost(log, first, reads, again.after):
            self._counts["snapshots lost"] += 1
            self._try_again(request)
            return
        form, second = request.form, request.second

        def evaluate(one: State, other: State) -> Change:
            return join_changes(form.change(one, draw), second.change(other, draw))

        deletes, adds = evaluate(first.state, again.state)
        request.effect = LogEntryOfModel(
            deletes,
            adds,
            key,
            None,
            again.base,
            reads + second.reads(self._left_out),
            request.number,
            lambda state: evaluate(state, state),
        )
        request.progress = RequestProgress.EVALUATED

    def _answer(self, request: ModelRequest) -> None:
        """What the client hears, once the effect is in the log of this side."""
        log = self._sides.side_of(request.master).log
        node = next((each for each in log if each.txid == request.txid), None)
        if node is None:
            return
        if node.counts:
            self._assertions.answer_done(request.number, node.txid)
            request.progress = RequestProgress.OVER
        elif node.refusal is ModelRefusal.KEY:
            assert node.entry.key is not None, node
            counted = log[-1].keys.get(node.entry.key)
            if not any(each.txid == counted and each.counts for each in log):
                raise RuleBroken("a refused entry swallowed a retry")
            assert counted is not None, node
            self._assertions.answer_done(request.number, counted)
            request.progress = RequestProgress.OVER
        elif not self._try_again(request):
            self._assertions.answer_conflict(request.number, node.txid)

    @staticmethod
    def _try_again(request: ModelRequest) -> bool:
        """Whether it is evaluated again, or has no tries left."""
        request.tries += 1
        request.progress = RequestProgress.NEW if request.tries < TRIES else RequestProgress.OVER
        return request.progress is RequestProgress.NEW


def _is_snapshot_lost(log: Sequence[LogNode], first: StateRead, reads: tuple[Pattern, ...], upto: int) -> bool:
    """Whether an entry up to an index, counted or not, wrote what was read; or the base is not on this chain."""
    base = first.base
    if base.index_after >= len(log) or log[base.index_after].hash != base.hash_after:
        return True
    return any(node.entry.touches(reads) for node in log[base.log_index + 1 : upto + 1])
