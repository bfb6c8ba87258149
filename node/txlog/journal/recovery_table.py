"""The decision where the records of a segment stop: a lettered table, observations -> decision (rule 28).

Reading stops after record *n* where no good record *n + 1* follows. There are three ends of a log: zeros, a broken
record, too few bytes. The other observations distinguish a torn tail from corruption:

``later``     a good record is stored after this offset in the same segment
``next``      another segment follows
``promised``  record *n + 1* is known to have been synced: a later good record proves it (its ``synced``), or the next
              segment's header does (its first record is above *n + 1*)
``whole``     the file has the size with which it was made

The journal writes a batch only when the batch before it is synced. It names a segment only when everything before it
is synced and its header is durable. So a power failure in the middle of a batch leaves any mixture of that batch's
sectors, in the last segment only. The records of a batch that survived promise nothing about one another.

**A** The end of a journal at rest, or of one whose last batch never reached the disk. Nothing is missing. That also
holds in a file that lost its end, since the zeros before the loss were never written.

**B** The same where the last segment is full to a few bytes.

**C** The next record did not fit and opened the next segment, whose header proves that *n* is the last one here.

**D** A torn tail: the power failed (or the process was killed between two writes) before the fsync of the last batch
had returned. No client or peer was notified of anything in it. Recovery zeroes it durably, up to the segment's end,
before anything else is written. That includes good records of the same batch after the torn one: a record may only be
stored after all earlier ones.

**E** Flipped bits in the unused end of a segment, or a torn seal that the next batch never needed. The next segment's
header proves that nothing is missing.

**F** A bad record in the middle, before good ones: no crash does this to synced bytes. It is named; reading
continues at the good record.

**G** A bad end of a segment, an end lost, or whole segments lost (or the first one: then *n* is 0). Reading continues
in the next segment, whose header contains the state before it.

**H** The last segment is shorter than it was made and broken there. What followed cannot be known, so neither can this
master's promises and own transactions. No other file in the folder contains them.

Case V is no row of the table: a damaged part (F, G) in which an accepted view changed the log or stamps, without a
good copy of that record anywhere. Only this master holds it, so it cannot be fetched.

Case T is none either: a trimmed log that lacks a segment which the trim retained.

**X** Contradictions: a good record after nothing but zeros, a promise without an origin, a good record that the next
segment's header does not count. Only a mixture of folders or our own mistake explains them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import NamedTuple


class EndOfRecords(Enum):
    """What the scan reads in place of a record."""

    ZEROS = "zeros to the end of the segment"
    BROKEN = "something, but no good record"
    TOO_SHORT = "too few bytes for a record"


class RecoveryDecision(Enum):
    """What recovery does where the records of a segment stop."""

    END = "the journal ends here"
    CUT = "the journal ends here; the bytes after it are zeroed"
    NEXT = "go on in the next segment"
    DAMAGE_RESUME = "damage; go on at the next good record of this segment"
    DAMAGE_NEXT = "damage; go on in the next segment"
    REFUSE = "damage that leaves this master without its promises; nothing is touched"


class Observation(NamedTuple):
    """The observations, in the table's order."""

    end: EndOfRecords
    later: bool
    next: bool
    promised: bool
    whole: bool


class RecoveryCase(NamedTuple):
    """The letter of the matching row, and its decision."""

    letter: str
    decision: RecoveryDecision


_ANY = (False, True)
_YES, _NO = (True,), (False,)
_Z, _B, _S = (EndOfRecords.ZEROS,), (EndOfRecords.BROKEN,), (EndOfRecords.TOO_SHORT,)
_ENDS = tuple(EndOfRecords)
_Bools = tuple[bool, ...]


class RecoveryRule(NamedTuple):
    """A case, and the values of each observation that it covers."""

    letter: str
    end: tuple[EndOfRecords, ...]
    later: _Bools
    next: _Bools
    promised: _Bools
    whole: _Bools
    decision: RecoveryDecision

    def matches(self, seen: Observation) -> bool:
        """Whether all observations are within this rule."""
        return (
            seen.end in self.end
            and seen.later in self.later
            and seen.next in self.next
            and seen.promised in self.promised
            and seen.whole in self.whole
        )


RECOVERY_TABLE = (
    # letter  end             later  next   promised  whole  decision
    RecoveryRule("A", _Z, _NO, _NO, _NO, _ANY, RecoveryDecision.END),
    RecoveryRule("B", _S, _NO, _NO, _NO, _YES, RecoveryDecision.END),
    RecoveryRule("C", (*_Z, *_S), _NO, _YES, _NO, _ANY, RecoveryDecision.NEXT),
    RecoveryRule("D", _B, _ANY, _NO, _NO, _YES, RecoveryDecision.CUT),
    RecoveryRule("E", _B, _NO, _YES, _NO, _ANY, RecoveryDecision.NEXT),
    RecoveryRule("F", _B, _YES, _ANY, _YES, _ANY, RecoveryDecision.DAMAGE_RESUME),
    RecoveryRule("G", _ENDS, _NO, _YES, _YES, _ANY, RecoveryDecision.DAMAGE_NEXT),
    RecoveryRule("H", _B, _ANY, _NO, _NO, _NO, RecoveryDecision.REFUSE),
    RecoveryRule("H", _S, _NO, _NO, _NO, _NO, RecoveryDecision.REFUSE),
    RecoveryRule("X", (*_Z, *_S), _YES, _ANY, _ANY, _ANY, RecoveryDecision.REFUSE),
    RecoveryRule("X", _ENDS, _NO, _NO, _YES, _ANY, RecoveryDecision.REFUSE),
    RecoveryRule("X", _B, _YES, _YES, _NO, _ANY, RecoveryDecision.REFUSE),
)


def decide(seen: Observation) -> RecoveryCase:
    """The one case that these observations match."""
    found = [RecoveryCase(row.letter, row.decision) for row in RECOVERY_TABLE if row.matches(seen)]
    assert len(found) == 1, f"{seen} matches {len(found)} rows"
    return found[0]


def all_observations() -> Iterator[Observation]:
    """Every combination of observations."""
    for combination in product(EndOfRecords, _ANY, _ANY, _ANY, _ANY):
        yield Observation(*combination)
