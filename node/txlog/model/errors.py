"""Every error that TxLog raises on purpose.

::

    TxLogError
    ├── BadInput                  the client's: 400, names the part of the input and what to send instead
    │   ├── NotDeterministic      an update that could differ between workers; names the construct
    │   ├── KeyNotTaken           an Idempotency-Key with what can have none; nothing was done
    │   └── SystemGraphNamed      an update or a query that names a system graph
    ├── Refused                   right input, wrong moment or server; states what to do next
    │   ├── NotFound              404
    │   ├── Conflict              409
    │   ├── KeyTaken              409: an Idempotency-Key came with another body before, and that one counts
    │   ├── ChangePending         409: a change of the configuration is not in effect yet; one at a time
    │   ├── OffTheLog             409: a position that some branch of the log does not have
    │   ├── TooLarge              413
    │   ├── Unsupported           415
    │   ├── NotAcceptable         406
    │   ├── Unauthorized          401: no known user
    │   ├── Forbidden             403: known, and may not
    │   ├── LogDiverged           409: this position is on another branch than the log asked
    │   ├── LogAhead              409: this position is above the stable index of the log asked
    │   ├── LogNeedsRestore       409: the log asked no longer has what follows this position
    │   ├── LogGone               410: the same for a follower
    │   ├── NoChangeSets          409: no process here says what entries deleted and added
    │   └── Unavailable           503 with Retry-After: queue full, disk full, not ready, no worker
    ├── PeerFault                 a peer broke the protocol or is not allowed; names peer and reason
    ├── JournalFault              the disk's: operation, place, next step, whether another master can repair it
    │   ├── JournalFull           no room for new work; the protocol's own records still fit
    │   ├── JournalDamaged        a bad record that is no torn tail (rule 28)
    │   └── JournalBroken         a write or fsync failed: the process ends (rule 29)
    ├── WorkerFault               a worker refused, failed or could not be reached
    └── Fatal                     this process must end, by name (exit code 70)

Our own mistakes are ``assert``: no peer, disk or client can trigger one.
"""

from __future__ import annotations

from typing import ClassVar


class TxLogError(Exception):
    """Base. ``name`` is the stable name that metrics, logs and tests use."""

    status: ClassVar[int] = 500

    @property
    def name(self) -> str:
        """The class name, which is stable."""
        return type(self).__name__


class BadInput(TxLogError):
    """The client's input is wrong (HTTP 400). The message names the part and what to send instead."""

    status = 400


class NotDeterministic(BadInput):
    """An update that could differ between workers. ``once``: evaluated once, with its effect in the log, it would be
    the same everywhere."""

    def __init__(self, construct: str, why: str, *, once: bool = False) -> None:
        super().__init__(f"{construct} is not deterministic: {why}")
        self.construct = construct
        self.why = why
        self.once = once


class SystemGraphNamed(BadInput):
    """The update or query names a system graph, which clients may not use."""


class KeyNotTaken(BadInput):
    """A request that each master fetches or evaluates again takes no key: no two tries of it are the same."""

    reason: ClassVar[str] = "KeyNotTaken"


class Refused(TxLogError):
    """Right input at the wrong moment or on the wrong server. The message states what to do next."""

    status = 409


class NotFound(Refused):
    """The named resource does not exist (HTTP 404)."""

    status = 404


class Conflict(Refused):
    """The request conflicts with the current state (HTTP 409)."""

    status = 409


class KeyTaken(Refused):
    """The message ends with the transaction that counts for the key. A body with ``NOW()`` or blank nodes differs each
    time that it is sent: the master that accepts it draws their values."""

    reason: ClassVar[str] = "KeyTaken"

    @property
    def txid(self) -> str:
        """The transaction that counts for the key, as text."""
        return str(self).rpartition(" ")[2]


class ChangePending(Refused):
    """A configuration change is not in effect yet; try again when it is."""


class NotAllHere(Refused):
    """Rules about graphs change only while every configured master is in the view."""


class NoQuorumLeft(Refused):
    """Without the master that is to be removed, graphs with a quorum could never be written again."""


class CommitPending(Refused):
    """The commit of an RDF4J transaction was handed to the log, and it is not known yet whether it takes effect."""

    reason: ClassVar[str] = "CommitPending"


class RolledBack(Refused):
    """A synchronous transaction that no quorum held in time: it takes no effect, and its key is free again."""

    reason: ClassVar[str] = "RolledBack"


class OutcomeUndecided(Refused):
    """It is not known yet whether a synchronous transaction takes effect. For clients that take 202 for success."""

    status = 504
    reason: ClassVar[str] = "Undecided"


class OffTheLog(Refused):
    """A position that is not on the part of this master's log that every branch has: no backup there helps this
    master."""


class TooLarge(Refused):
    """The request is too large (HTTP 413)."""

    status = 413


class BodyStalled(Refused):
    """Nothing has come of the rest of a request's body for too long (HTTP 408); nothing of it was carried out."""

    status = 408


class Unsupported(Refused):
    """The media type of the request is not supported (HTTP 415)."""

    status = 415


class UnsupportedCoding(Refused):
    """The body has a content coding that is not supported (HTTP 415). ``supported``: those that are, as in a header."""

    status = 415

    def __init__(self, message: str, supported: str) -> None:
        super().__init__(message)
        self.supported = supported


class NotAcceptable(Refused):
    """No format that the client accepts is available (HTTP 406)."""

    status = 406


class Unauthorized(Refused):
    """The request has no credentials, or wrong ones."""

    status = 401


class Forbidden(Refused):
    """The user is known and its role does not suffice; the message names the role that does."""

    status = 403


class OneRepository(Refused):
    """A repository would have to be created, removed or configured; a cluster has the one that its manifest names.
    ``allow``: the methods that are available at this address. ``reason``: ``RepositoriesByManifest`` in a cluster that
    may have several."""

    status = 405

    def __init__(self, message: str, allow: str, reason: str = "OneRepository") -> None:
        super().__init__(message)
        self.allow = allow
        self.reason = reason


class RepositoryRefused(Refused):
    """A repository is not created or removed. ``reason`` is a stable word of the catalogue of repositories
    (RepositoryExists, TooManyRepositories, Removing, FirstRepository, NamedByManifest, ReservedName)."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LogDiverged(Refused):
    """The caller's hash at its position is not the log's. Nothing may be applied; a restore is a duty."""

    reason: ClassVar[str] = "Diverged"


class LogAhead(Refused):
    """The caller is above this master's stable index. Its hash decides once the log is there."""

    reason: ClassVar[str] = "Ahead"


class LogNeedsRestore(Refused):
    """The entries after the caller's position are no longer kept; restore a newer backup or copy a live worker."""

    reason: ClassVar[str] = "NeedsRestore"


class LogGone(Refused):
    """The entries after a follower's position are no longer kept; it begins again, from a copy of the data."""

    status = 410
    reason: ClassVar[str] = "Gone"


class NoChangeSets(Refused):
    """This data centre makes no change sets."""

    reason: ClassVar[str] = "NoChangeSets"


class Unavailable(Refused):
    """``reason`` is a stable word (QueueFull, KeysFull, ClockUnconfirmed, DiskFull, NotFounded, Starting, Closing,
    Muted, Removed, NoWorker, EffectsBusy, QueryTimeout, QueryTooLarge, NoEvaluator, Damaged,
    OlderMaster, NoQuorum, SynchroNone, SynchroFull, ChangeSetsBehind, ChangeSetsLoading,
    ChangeSetsUnreachable, NoMajority, OlderProgram, NotAllHere, OtherFirstRepository, OutcomeUnknown)."""

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
    """A fault of the disk. The message names the operation, the place, the next step, and whether another master can
    repair it."""


class JournalFull(JournalFault):
    """No room for new work; the protocol's own records still fit."""

    status = 503


class JournalDamaged(JournalFault):
    """A bad record that is no torn tail (rule 28)."""


class JournalBroken(JournalFault):
    """A write or fsync failed: the process ends (rule 29)."""


class WorkerFault(TxLogError):
    """A worker refused, failed or could not be reached."""

    status = 502


class Fatal(TxLogError):
    """This process must end (exit code 70). ``reason`` is a stable word (IdentityLost, OldJournal, Superseded,
    TwoContents, Forked, JournalBroken, ...)."""

    EXIT_CODE: ClassVar[int] = 70

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
