"""What can go wrong around a local cluster, each saying what to do next."""

from __future__ import annotations

from txlog.model.errors import BadInput, Refused, Unavailable


class AlreadyRunning(Refused):
    """Another supervisor holds the state folder."""


class NotRunning(Unavailable):
    """Nothing runs for this state folder."""

    def __init__(self, folder: object) -> None:
        super().__init__(
            "NotRunning",
            f"no cluster runs with the state folder {folder}; start one: txlog up -f FOLDER --state {folder}",
        )


class NotOurFolder(Refused):
    """The state folder holds what `txlog up` did not put there, so it is neither used nor removed."""


class CannotRun(BadInput):
    """The manifests are right, but this machine cannot run what they say."""
