"""Every refusal of backups by its name. A name is stable: commands, operators and tests go by it."""

from __future__ import annotations

from txlog.model.errors import Conflict, NotFound, Refused, TxLogError, Unavailable


class BackupFault(TxLogError):
    """Base of what is wrong with a backup itself. Nothing was changed where it was to be restored."""

    status = 409


class ManifestDamaged(BackupFault):
    """The manifest is not what was written."""


class UnknownFormat(BackupFault):
    """An intact manifest of a format that this version does not read."""


class Incomplete(BackupFault):
    """There are parts, but no manifest: whoever wrote it did not come to its end."""


class PartMissing(BackupFault):
    """The manifest names a part that is not there."""


class PartTruncated(BackupFault):
    """A part is shorter than the manifest says."""


class PartDamaged(BackupFault):
    """A part's bytes are not those that were written."""


class ContentDiffers(BackupFault):
    """Every part is as it was written, but together they are not what the manifest counts and digests."""


class OtherCluster(BackupFault):
    """A backup of another cluster."""


class OtherEngine(BackupFault):
    """A backup of another engine, which writes literals in ways of its own: digests could not be compared."""


class OffTheChain(BackupFault):
    """Its position is not on the log's chain: the log could not go on from it."""


class WorkerNotEmpty(Refused):
    """What is there stays there: only an empty worker is restored into."""


class WorkerLoading(Refused):
    """A restore into this worker has begun and not ended."""


class LoadingLost(Refused):
    """Somebody else began another load into the same worker meanwhile; theirs counts."""


class RestoredDiffers(Refused):
    """The worker gives out something else than was loaded into it. It stays marked as loading."""


class NothingToBackUp(Refused):
    """The worker has no position yet."""


class WorkerMoved(Refused):
    """The worker has passed the index asked for, or did not come to it in time."""


class NotCanonical(Refused):
    """The worker holds what no log can have put there: blank nodes."""


class AlreadyAWorker(Refused):
    """A store to adopt is one that TxLog wrote: back it up instead."""


class LogNotEmpty(Refused):
    """Position 0 can be set only while nothing was written."""


class NameTaken(Conflict):
    """A backup's name is never used twice."""


class NoSuchBackup(NotFound):
    pass


class HeldBackup(Refused):
    """A backup of the class *held* goes only after it was released."""


class BackupInUse(Refused):
    """Somebody is restoring from it."""


class ObjectMissing(NotFound):
    """No such object on the target."""


class TargetUnreachable(Unavailable):
    """The target gave no answer, or one that says nothing."""

    def __init__(self, message: str) -> None:
        super().__init__("TargetUnreachable", message)


class TargetFull(Unavailable):
    def __init__(self, message: str) -> None:
        super().__init__("TargetFull", message)


class TargetDenied(Refused):
    """The target knows the credentials not, or does not let them."""


class WorkerUnordered(Refused):
    """It has executed some transactions in another order than the log's (``splitRecovery: None``)."""


class TooMuchDiffers(Refused):
    """Too much, or what cannot be copied graph by graph: the worker has to be rebuilt. Nothing was touched."""


class RepairDiffers(Refused):
    """A worker that was repaired does not hold what it was given."""


def describe(error: TxLogError) -> str:
    """What a person is told: with its name in front, where it is one of these, so that it can be looked up."""
    return f"{error.name}: {error}" if type(error).__module__ == __name__ else str(error)
