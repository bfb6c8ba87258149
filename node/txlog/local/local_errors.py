"""Errors of a local cluster; each message names the next step."""

from __future__ import annotations

from typing import ClassVar

from txlog.model.errors import BadInput, Refused


class AlreadyRunning(Refused):
    """Another supervisor has locked the state folder."""


class NotRunning(Refused):
    """No supervisor runs for this state folder."""

    status = 503
    reason: ClassVar[str] = "NotRunning"

    def __init__(self, folder: object) -> None:
        super().__init__(
            f"no cluster runs with the state folder {folder}; start one: txlog up -f FOLDER --state {folder}",
        )


class NotOurFolder(Refused):
    """The state folder has content that `txlog up` did not write, so it is neither used nor removed."""


class CannotRun(BadInput):
    """The manifests are valid, but this machine cannot run them."""
