"""The errors of backups, by name. Names are stable: commands, operators and tests depend on them."""

from __future__ import annotations

from typing import ClassVar

from txlog.model.errors import Refused, TxLogError


class BackupFault(TxLogError):
    """Base of the faults of a backup itself. The restore changed nothing in its target."""

    status = 409


class ManifestDamaged(BackupFault):
    """The manifest differs from what was written."""


class UnknownFormat(BackupFault):
    """An intact manifest, or file of an archive, of a format that this version does not read."""


class Incomplete(BackupFault):
    """There are parts but no manifest: the backup was interrupted."""


class PartMissing(BackupFault):
    """The manifest names a part that does not exist."""


class PartTruncated(BackupFault):
    """A part is shorter than in the manifest."""


class PartDamaged(BackupFault):
    """The bytes of a part differ from what was written."""


class ContentDiffers(BackupFault):
    """Every part is intact, but count or digest of their content differs from the manifest."""


class LinkMissing(BackupFault):
    """An incremental backup needs another backup, which is not on the target, or is not the one that it continues."""


class LinkDamaged(BackupFault):
    """An incremental backup needs another backup, which is damaged."""


class OtherCluster(BackupFault):
    """A backup, or a file of an archive, of another cluster."""


class OtherEngine(BackupFault):
    """A backup of another engine. Each engine writes literals in its own way, so digests could not be compared."""


class OffTheChain(BackupFault):
    """Its position is not on the log's chain: the log cannot continue from it."""


class WorkerNotEmpty(Refused):
    """The worker holds data. A restore needs an empty worker, so the data stays."""


class StoreRefused(Refused):
    """The store is not of this cluster. A person decides: ``txlog worker adopt``, or ``rebuild --discard``."""


class LogIncomplete(Refused):
    """The log alone cannot fill a store: it is trimmed, or the workers had content before its first entry."""


class WorkerLoading(Refused):
    """A restore into this worker has started and not finished."""


class LoadingLost(Refused):
    """Another process started a load into the same worker in the meantime; that load counts."""


class RestoredDiffers(Refused):
    """The worker returns other data than was loaded. It stays marked as loading."""


class NothingToBackUp(Refused):
    """The worker has no position yet."""


class WorkerMoved(Refused):
    """The worker has passed the requested index, or did not reach it in time."""


class NotCanonical(Refused):
    """The worker holds blank nodes, which no log can have written."""


class AlreadyAWorker(Refused):
    """TxLog wrote the store that is to be adopted: back it up instead."""


class LogNotEmpty(Refused):
    """Position 0 can be set only while the log is empty."""


class NameTaken(Refused):
    """A backup with this name exists; names are never reused."""


class NoSuchBackup(Refused):
    """The target holds no backup that fits the request."""

    status = 404


class HeldBackup(Refused):
    """A pinned backup can be deleted only after its release."""


class BackupInUse(Refused):
    """A restore reads this backup."""


class NeededByIncrement(Refused):
    """An incremental backup needs this one."""


class NoIncrement(Refused):
    """No incremental backup is possible here; the message says why. A full one is taken in its place. ``chain_end``:
    the last backup of a chain that may not grow, and that could be continued once it is merged; empty otherwise."""

    def __init__(self, message: str, chain_end: str = "") -> None:
        super().__init__(message)
        self.chain_end = chain_end


class ManyChanges(Refused):
    """The changes since the full backup are too many."""


class ObjectMissing(Refused):
    """The target has no such object."""

    status = 404


class TargetUnreachable(Refused):
    """The target did not answer, or its answer cannot be used."""

    status = 503
    reason: ClassVar[str] = "TargetUnreachable"


class TargetFull(Refused):
    """The target has no space left."""

    status = 503
    reason: ClassVar[str] = "TargetFull"


class TargetDenied(Refused):
    """The target does not know the credentials, or denies them access."""


class WorkerUnordered(Refused):
    """The worker has executed some transactions in another order than the log's (``splitRecovery: None``)."""


class TooMuchDiffers(Refused):
    """The difference is too large, or cannot be copied by graph: the worker must be rebuilt. Nothing was changed."""


class RepairDiffers(Refused):
    """After the repair the worker does not hold the repaired data."""


def describe(error: TxLogError) -> str:
    """The text for people. The name of an error of this module comes first, so that it can be looked up."""
    return f"{error.name}: {error}" if type(error).__module__ == __name__ else str(error)
