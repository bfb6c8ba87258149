"""Every error that TxLog raises on purpose.

::

    TxLogError
    ├── BadInput                  the client's: 400, says which part of the input and what to send instead
    │   ├── NotDeterministic      an update that could differ between workers; names the construct
    │   ├── KeyNotTaken           an Idempotency-Key with what can have none; nothing was done
    │   └── SystemGraphNamed      an update or a query that names a system graph
    ├── Refused                   right input, wrong moment or place; says what to do next
    │   ├── NotFound              404
    │   ├── Conflict              409
    │   │   ├── KeyTaken          409: an Idempotency-Key came with another body before, and that one counts
    │   │   └── ChangePending     409: a change of the configuration is not in effect yet; one at a time
    │   ├── TooLarge              413
    │   ├── Unsupported           415
    │   ├── NotAcceptable         406
    │   ├── Unauthorized          401: nobody known
    │   ├── Forbidden             403: known, and may not
    │   ├── LogDiverged           409: this position is on another branch than the log asked
    │   ├── LogAhead              409: this position is above the stable index of the log asked
    │   ├── LogNeedsRestore       409: the log asked no longer holds what follows this position
    │   ├── LogGone               410: the same for a follower
    │   └── Unavailable           503 with Retry-After: queue full, disk full, not ready, no worker
    ├── PeerFault                 a peer broke the protocol or may not speak; names peer and reason
    ├── JournalFault              the disk's: operation, place, next step, whether another master can repair it
    │   ├── JournalFull           no room for new work; the protocol's own records still fit
    │   ├── JournalDamaged        a bad record that is no torn tail (rule 28)
    │   └── JournalBroken         a write or fsync failed: the process ends (rule 29)
    ├── WorkerFault               a worker refused, failed or could not be reached
    └── Fatal                     this process must end, by name (exit code 70)

Our own mistakes are ``assert``: no peer, no disk and no client can reach one.
"""

from __future__ import annotations

from typing import ClassVar


class TxLogError(Exception):
    """Base. ``name`` is the stable name that metrics, logs and tests use."""

    status: ClassVar[int] = 500

    @property
    def name(self) -> str:
        return type(self).__name__


class BadInput(TxLogError):
    status = 400


class NotDeterministic(BadInput):
    """``once``: evaluated once, with its effect in the log, it would be the same everywhere."""

    def __init__(self, construct: str, why: str, *, once: bool = False) -> None:
        super().__init__(f"{construct} is not deterministic: {why}")
        self.construct = construct
        self.why = why
        self.once = once


class SystemGraphNamed(BadInput):
    pass


class KeyNotTaken(BadInput):
    """What is fetched or evaluated anew by each master that is asked has no key: no two tries of it are the same."""

    reason: ClassVar[str] = "KeyNotTaken"


class Refused(TxLogError):
    status = 409


class NotFound(Refused):
    status = 404


class Conflict(Refused):
    status = 409


class KeyTaken(Conflict):
    """The message ends with the transaction that counts for the key. A body with ``NOW()`` or blank nodes is another
    one each time that it is sent: what they become is drawn by the master that takes it."""

    reason: ClassVar[str] = "KeyTaken"

    @property
    def txid(self) -> str:
        return str(self).rpartition(" ")[2]


class ChangePending(Conflict):
    """Ask again when it is in effect."""


class OffTheLog(Conflict):
    """A position that is not on the part of this master's log that every branch has: no backup there helps it."""


class TooLarge(Refused):
    status = 413


class Unsupported(Refused):
    status = 415


class NotAcceptable(Refused):
    status = 406


class Unauthorized(Refused):
    """Nobody that this master knows: no credentials, or wrong ones."""

    status = 401


class Forbidden(Refused):
    """Somebody known whose role does not reach; the message says which one does."""

    status = 403


class OneRepository(Refused):
    """A repository would have to be made, removed or configured; a cluster has the one that its manifest names.
    ``allow``: the methods that there are in this place."""

    status = 405
    reason: ClassVar[str] = "OneRepository"

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class LogDiverged(Refused):
    """The caller's hash at its position is not the log's. Nothing may be applied; going back is a duty."""

    reason: ClassVar[str] = "Diverged"


class LogAhead(Refused):
    """The caller is above this master's stable index. Decided by hash once the log is there."""

    reason: ClassVar[str] = "Ahead"


class LogNeedsRestore(Refused):
    """What follows the caller's position is no longer kept; restore a newer backup or copy a live worker."""

    reason: ClassVar[str] = "NeedsRestore"


class LogGone(Refused):
    """What follows the place that a follower asked for is no longer kept; it begins anew, from a copy of the data."""

    status = 410
    reason: ClassVar[str] = "Gone"


class Unavailable(Refused):
    """``reason`` is a stable word (QueueFull, DiskFull, NotFounded, Starting, Closing, Muted, Removed, NoWorker,
    EffectsBusy, QueryTimeout, QueryTooLarge, NoEvaluator, Damaged)."""

    status = 503

    def __init__(self, reason: str, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class PeerFault(TxLogError):
    """``reason`` is a stable word (WrongToken, UnknownPeer, OtherCluster, UnknownFormat, Regressed, ...)."""

    status = 403

    def __init__(self, peer: str, reason: str, message: str) -> None:
        super().__init__(f"{peer}: {reason}: {message}")
        self.peer = peer
        self.reason = reason


class JournalFault(TxLogError):
    pass


class JournalFull(JournalFault):
    status = 503


class JournalDamaged(JournalFault):
    pass


class JournalBroken(JournalFault):
    pass


class WorkerFault(TxLogError):
    status = 502


class Fatal(TxLogError):
    """``reason`` is a stable word (IdentityLost, OldJournal, Superseded, TwoContents, Forked, JournalBroken, ...)."""

    EXIT_CODE: ClassVar[int] = 70

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
